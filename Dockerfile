# The gateway, without the embedded model. docs/deploy.md says how to run it.
ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements.lock deploy/requirements-build.lock ./
RUN python -m venv --without-pip /opt/pellucid \
 && pip --python /opt/pellucid/bin/python install --no-compile --require-hashes --only-binary :all: -r requirements.lock \
 && pip install --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY tools/package_metadata.py tools/
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/pellucid/bin/python install --no-compile --no-deps dist/*.whl \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/pellucid/lib

FROM python:${PYTHON}
RUN groupadd --system --gid 10001 pellucid \
 && useradd --system --uid 10001 --gid pellucid --home-dir /var/lib/pellucid --no-create-home pellucid \
 && install --directory --owner pellucid --group pellucid --mode 0700 /var/lib/pellucid
COPY --from=build /opt/pellucid /opt/pellucid
COPY deploy/pellucid.toml /etc/pellucid/pellucid.toml
# Stored data and keys are in /var/lib/pellucid; nothing else is written, so the root can be read-only.
ENV PATH=/opt/pellucid/bin:$PATH XDG_DATA_HOME=/var/lib PYTHONUNBUFFERED=1
WORKDIR /etc/pellucid
USER 10001:10001
VOLUME /var/lib/pellucid
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["pellucid"]
CMD ["serve"]
