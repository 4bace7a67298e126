"""How a request is turned away: the error, and the headers that say it to HTTP clients."""

from __future__ import annotations

from ...errors import ErrorInfo, ErrorKind, PellucidError, RequestError

HTTPHeader = tuple[bytes, bytes]


class AccessError(RequestError):
    """Not admitted, not allowed, not now. `headers` belong on the answer (`WWW-Authenticate`, `x-ratelimit-*`)."""

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        code: str,
        param: str | None = None,
        retry_after: float | None = None,
        headers: list[HTTPHeader] | None = None,
    ) -> None:
        super().__init__(message)
        self.info = ErrorInfo(kind, message, code=code, param=param, retry_after=retry_after)
        self.headers = headers or []


def unauthorized(message: str, code: str) -> AccessError:
    """A 401. RFC 6750 §3: a request without credentials is told the scheme, and no more."""
    challenge = b'Bearer realm="pellucid"'
    if code != "missing_credentials":
        challenge += b', error="invalid_token"'
    return AccessError(message, kind="unauthorized", code=code, headers=[(b"www-authenticate", challenge)])


def forbidden(message: str, code: str, param: str | None = None) -> AccessError:
    return AccessError(message, kind="forbidden", code=code, param=param)


def unavailable(message: str) -> AccessError:
    """Who is asking cannot be found out now; nobody is let in for that."""
    return AccessError(message, kind="unavailable", code="access_unavailable", retry_after=5)


def headers_of(error: PellucidError) -> list[HTTPHeader]:
    """The headers that an error brings along; none, unless it is one of ours."""
    return error.headers if isinstance(error, AccessError) else []
