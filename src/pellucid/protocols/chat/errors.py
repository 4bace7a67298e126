"""Errors before a stream: `{"error": {message, code, param?}}` and an HTTP status."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ..statuses import STATUSES

BUSY = "conversation_busy"
"""The code of an error that says that the chat's last question is still being answered."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return 409 if error.code == BUSY and error.kind == "invalid_request" else STATUSES[error.kind]


def error_body(error: ErrorInfo) -> dict[str, Any]:
    payload: dict[str, Any] = {"message": error.told, "code": error.code or error.kind}
    return {"error": payload if error.param is None else {**payload, "param": error.param}}


__all__ = ["BUSY", "error_body", "status_of"]
