"""Errors of access control, with the HTTP headers that belong to them."""

from __future__ import annotations

from ...errors import ErrorInfo, ErrorKind, PellucidError, RequestError

HTTPHeader = tuple[bytes, bytes]


class AccessError(RequestError):
    """A request is not authenticated, not allowed, or over a limit.

    `headers` belong on the response (`WWW-Authenticate`, `x-ratelimit-*`).
    """

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
    """Return a 401 error.

    RFC 6750 §3: a request without credentials gets the scheme, and no error code.
    """
    challenge = b'Bearer realm="pellucid"'
    if code != "missing_credentials":
        challenge += b', error="invalid_token"'
    return AccessError(message, kind="unauthorized", code=code, headers=[(b"www-authenticate", challenge)])


def forbidden(message: str, code: str, param: str | None = None) -> AccessError:
    """Return a 403 error."""
    return AccessError(message, kind="forbidden", code=code, param=param)


def unavailable(message: str) -> AccessError:
    """Return a 503 error: the caller cannot be authenticated now, so the request is refused."""
    return AccessError(message, kind="unavailable", code="access_unavailable", retry_after=5)


def headers_of(error: PellucidError) -> list[HTTPHeader]:
    """Return the HTTP headers of an error; none unless it is an `AccessError`."""
    return error.headers if isinstance(error, AccessError) else []
