"""Errors as OpenAI says them: `{"error": {message, type, param, code}}` and an HTTP status; in a stream, the same
object as the data of an event."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind

_FORM: dict[ErrorKind, tuple[int, str]] = {
    "invalid_request": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "forbidden": (403, "permission_error"),
    "not_found": (404, "invalid_request_error"),
    "too_large": (413, "invalid_request_error"),
    "slow_request": (408, "invalid_request_error"),
    "unsupported": (400, "invalid_request_error"),
    "too_many_requests": (429, "rate_limit_error"),
    "model_error": (502, "model_error"),
    "unavailable": (503, "model_error"),
    "timeout": (504, "model_error"),
    "server_error": (500, "server_error"),
}
"""The status and the `type` of each kind. OpenAI has no type for what is behind a gateway: `model_error` is ours."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed, and for a whole answer that failed."""
    return _FORM[error.kind][0]


def error_payload(error: ErrorInfo) -> dict[str, Any]:
    """The `error` object."""
    return {
        "message": error.told,
        "type": _FORM[error.kind][1],
        "param": error.param,
        "code": error.code or error.kind,
    }


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {"error": error_payload(error)}
