"""Errors of access control: a request that is refused, with its HTTP headers, and a back end that is unavailable.

The back ends are the store, the relay and the token issuer. A call to one of them has a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

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


def headers_of(error: Exception) -> list[HTTPHeader]:
    """Return the HTTP headers of an error; none unless it is an `AccessError`."""
    return error.headers if isinstance(error, AccessError) else []


T = TypeVar("T")

TIMEOUT_SECONDS = 5.0
"""Seconds to wait for a back end before it counts as unavailable."""


class BackendUnavailable(Exception):
    """A back end did not answer."""


async def call_backend(request: Awaitable[T]) -> T:
    """Await a call to a back end, with a time limit of `TIMEOUT_SECONDS`.

    Args:
        request: The call.

    Returns:
        What the call returns.

    Raises:
        BackendUnavailable: The back end did not answer in time, or reported an outage. Other errors are raised
            unchanged.
    """
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await request
    except TimeoutError as error:
        raise BackendUnavailable from error
    except PellucidError as error:
        if error.info.kind in ("unavailable", "timeout"):
            raise BackendUnavailable from error
        raise
