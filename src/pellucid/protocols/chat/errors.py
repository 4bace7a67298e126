"""Errors before a stream: `{"error": {message, code, param?}}` and an HTTP status."""

from __future__ import annotations

from typing import Any

from ...errors import CONVERSATION_BUSY, CONVERSATION_MOVED, ErrorInfo
from ..statuses import STATUSES

CONFLICTS = (CONVERSATION_BUSY, CONVERSATION_MOVED)
"""The request is right, and the chat is not as it would have to be."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return 409 if error.code in CONFLICTS and error.kind == "invalid_request" else STATUSES[error.kind]


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """The body beside it; `code` is always there."""
    payload: dict[str, Any] = {"message": error.told, "code": error.code or error.kind}
    return {"error": payload if error.param is None else {**payload, "param": error.param}}
