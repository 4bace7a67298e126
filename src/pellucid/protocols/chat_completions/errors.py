"""Errors as OpenAI says them: `{"error": {message, type, param, code}}` and an HTTP status; in a stream, the same
object as the data of an event."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind
from ..statuses import STATUSES

_TYPE: dict[ErrorKind, str] = {
    "invalid_request": "invalid_request_error",
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "invalid_request_error",
    "too_large": "invalid_request_error",
    "slow_request": "invalid_request_error",
    "unsupported": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "model_error": "model_error",
    "unavailable": "model_error",
    "timeout": "model_error",
    "server_error": "server_error",
}
"""OpenAI has no type for what is behind a gateway: `model_error` is ours."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed, and for a whole answer that failed."""
    return STATUSES[error.kind]


def error_payload(error: ErrorInfo) -> dict[str, Any]:
    """The `error` object."""
    return {
        "message": error.told,
        "type": _TYPE[error.kind],
        "param": error.param,
        "code": error.code or error.kind,
    }


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {"error": error_payload(error)}
