"""The failures of a request to an upstream, and the error that each of them becomes.

The messages are written for clients: they contain no address, and no text of an upstream or a library. Such text is in
`ErrorInfo.upstream_message`, which only clients with the view `raw` receive. The address of the upstream is in
`ModelError.address`, which is only logged for the operator.
"""

from __future__ import annotations

import os
import socket
import ssl

from ..errors import ErrorInfo, ModelError

_INSECURE = "no secure connection could be established"
_FAILED = "the connection failed"


class NoResponse(ModelError):
    """No byte of a response arrived, so the request may be retried.

    Attributes:
        was_kept_alive: Whether the request was sent on a connection that had served another request before. The server
            may have closed that connection at the same moment (RFC 9112, section 9.3.1).
    """

    def __init__(self, info: ErrorInfo, where: str, *, was_kept_alive: bool = False) -> None:
        super().__init__(info, address=where)
        self.was_kept_alive = was_kept_alive


class InvalidURL(ValueError):
    """The URL is not one that a request can be sent to."""


class DisconnectError(Exception):
    """The connection ended before the head of a response was complete.

    Attributes:
        has_begun: Whether a part of the head had arrived.
        cause: The error of the system, or None if the connection was closed in order.
    """

    def __init__(self, has_begun: bool, cause: Exception | None) -> None:
        super().__init__("the connection ended before the head of a response was complete")
        self.has_begun = has_begun
        self.cause = cause


class InvalidResponse(Exception):
    """The data from the server is not an HTTP/1.1 response. The message quotes the server."""


def bad_url_error() -> ErrorInfo:
    """Return the error for a URL that no request can be sent to."""
    return ErrorInfo("server_error", "the address of the model's provider is not a valid URL", code="bad_upstream_url")


def not_http_error(error: InvalidResponse) -> ErrorInfo:
    """Return the error for a response whose head is not HTTP/1.1."""
    return ErrorInfo(
        kind="model_error",
        code="not_http",
        message="the provider's response is not HTTP/1.1",
        upstream_message=str(error) or None,
    )


def truncated_error() -> ErrorInfo:
    """Return the error for an incomplete body: connection closed or reset, or invalid framing or compression."""
    # The name in parentheses is kept because clients have always seen it.
    message = "the provider's connection broke off in mid-answer (ClientPayloadError)"
    return ErrorInfo(kind="model_error", code="stream_truncated", message=message)


def unreachable_error(error: BaseException, detail: str = "") -> ErrorInfo:
    """Return the error for a request that got no response because of `error`.

    Args:
        error: The exception of a library or of the system.
        detail: A description that may be shown to clients. By default, the system's text for the error number.
    """
    upstream_message = None
    if not detail:
        error = getattr(error, "os_error", error)
        detail = _describe(error)
        # The library's message may quote the server: its certificate, or the data that it sent.
        upstream_message = str(error) if detail in (_INSECURE, _FAILED) else None
    message = f"the model's provider cannot be reached: {detail}"
    return ErrorInfo("unavailable", message, code="unreachable", upstream_message=upstream_message or None)


def timeout_error(code: str, seconds: float) -> ErrorInfo:
    """Return the error for an exceeded time limit.

    Args:
        code: `first_byte_timeout`, `idle_timeout`, or `timeout` for the total.
        seconds: The limit.
    """
    what = {"idle_timeout": "sent nothing", "timeout": "did not finish"}.get(code, "did not begin to answer")
    return ErrorInfo(kind="timeout", code=code, message=f"the provider {what} within {seconds:g} s")


TURN_TOO_LONG = "turn_too_long"
"""The code of `turn_too_long_error`."""


def turn_too_long_error(seconds: float) -> ErrorInfo:
    """Return the error for a body that has not ended within the time of a turn, which ends as incomplete."""
    return ErrorInfo("timeout", f"the provider did not finish within {seconds:g} s", code=TURN_TOO_LONG)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, for the operator's log. Credentials, path and query are left out."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def _describe(error: BaseException) -> str:
    """Return the system's description of an error, without the addresses that libraries add to it."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return _INSECURE
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else _FAILED
