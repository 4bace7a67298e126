"""How a request to an upstream can fail, and the error that each failure becomes.

The texts are for clients: they name no address and quote nothing that an upstream or a library wrote. What they wrote
stands in `said`, which only readers of raw output get; where the upstream is stands in `ModelError.address`, which only
the operator's log gets.
"""

from __future__ import annotations

import os
import socket
import ssl

from ..errors import ErrorInfo, FrameTooLarge, ModelError

_INSECURE = "no secure connection comes about"
_FAILED = "the connection failed"


class NoResponse(ModelError):
    """Not one byte of a response arrived, so that the request may be sent again.

    `was_kept_alive`: whether it went out on a connection that had served another request before. The server may have
    closed that connection in the same moment (RFC 9112, section 9.3.1).
    """

    def __init__(self, info: ErrorInfo, where: str, *, was_kept_alive: bool = False) -> None:
        super().__init__(info, address=where)
        self.was_kept_alive = was_kept_alive


class InvalidURL(ValueError):
    """A URL that no request can be sent to."""


class DisconnectError(Exception):
    """The connection ended before the head of a response was complete.

    `has_begun`: whether a part of the head had arrived. `cause`: what the system reported, if it was no orderly close.
    """

    def __init__(self, has_begun: bool, cause: Exception | None) -> None:
        super().__init__("the connection ended before the head of a response was complete")
        self.has_begun = has_begun
        self.cause = cause


class InvalidResponse(Exception):
    """What the server sent is not an HTTP/1.1 response. The text quotes the server."""


def bad_url_error() -> ErrorInfo:
    """The error for a URL that no request can be sent to."""
    return ErrorInfo("server_error", "the model's provider has an address that is none", code="bad_upstream_url")


def not_http_error(error: InvalidResponse) -> ErrorInfo:
    """The error for a response whose head is not HTTP/1.1."""
    return ErrorInfo(
        kind="model_error",
        code="not_http",
        message="the upstream answered something that is not HTTP/1.1",
        upstream_message=str(error) or None,
    )


def truncated_error() -> ErrorInfo:
    """The error for a body that did not arrive whole: closed, reset, or with broken framing or compression."""
    # The name in brackets is a part of the text that clients have always seen.
    message = "the upstream's connection broke off in mid-answer (ClientPayloadError)"
    return ErrorInfo(kind="model_error", code="stream_truncated", message=message)


def too_large_error(max_bytes: int) -> ErrorInfo:
    """The error for a compressed body that is larger, decompressed, than the limit."""
    return FrameTooLarge("the upstream's compressed answer", max_bytes).info


def unreachable_error(error: BaseException, detail: str = "") -> ErrorInfo:
    """The error for a request that got no response because of `error`.

    Args:
        error: what a library or the system reported.
        detail: our own words for it. By default those of the system.
    """
    upstream_message = None
    if not detail:
        error = getattr(error, "os_error", error)
        detail = _describe(error)
        # What a library says may quote the other side: its certificate, or what it sent.
        upstream_message = str(error) if detail in (_INSECURE, _FAILED) else None
    message = f"the model's provider cannot be reached: {detail}"
    return ErrorInfo("unavailable", message, code="unreachable", upstream_message=upstream_message or None)


def timeout_error(code: str, seconds: float) -> ErrorInfo:
    """The error for a time limit: `first_byte_timeout`, `idle_timeout` or `timeout` (the total)."""
    what = {"idle_timeout": "said nothing", "timeout": "did not finish"}.get(code, "did not begin to answer")
    return ErrorInfo(kind="timeout", code=code, message=f"the upstream {what} within {seconds:g} s")


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, for the operator: without its path and anything secret in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def _describe(error: BaseException) -> str:
    """What the system says, without the addresses that a library repeats."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return _INSECURE
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else _FAILED
