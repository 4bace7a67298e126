"""Errors as OpenResponses says them: `{"error": {message, type, param, code}}` and an HTTP status."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind
from ..statuses import STATUSES

# The specification's five types; its own example spells the first one OpenAI's way, and so do all clients.
_TYPE: dict[ErrorKind, str] = {
    "invalid_request": "invalid_request_error",
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found",
    "too_large": "invalid_request_error",
    "slow_request": "invalid_request_error",
    "unsupported": "invalid_request_error",
    "too_many_requests": "too_many_requests",
    "model_error": "model_error",
    "unavailable": "model_error",
    "timeout": "model_error",
    "server_error": "server_error",
}


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return STATUSES[error.kind]


def error_payload(error: ErrorInfo) -> dict[str, Any]:
    """The `error` object: of a body, and of the `error` event."""
    return {
        "message": error.told,
        "type": _TYPE[error.kind],
        "param": error.param,
        "code": error.code or error.kind,
    }


def error_body(error: ErrorInfo) -> dict[str, Any]:
    return {"error": error_payload(error)}
