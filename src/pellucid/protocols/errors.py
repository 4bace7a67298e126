"""Refusals before anything was streamed: the HTTP status, the same in every protocol, and OpenAI's error object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import ErrorInfo, ErrorKind


class ErrorFormat(Protocol):
    """How a protocol says what was wrong (a module of `protocols`)."""

    def error_body(self, error: ErrorInfo, /) -> dict[str, Any] | str:
        """JSON, or a sentence."""
        ...

    def status_of(self, error: ErrorInfo, /) -> int: ...


STATUSES: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "too_large": 413,
    "slow_request": 408,
    "unsupported": 400,
    "too_many_requests": 429,
    "model_error": 502,
    "unavailable": 503,
    "timeout": 504,
    "server_error": 500,
}

OPENRESPONSES_TYPES: dict[ErrorKind, str] = {
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
"""The specification's five types; its own example spells the first one OpenAI's way, and so do all clients."""

OPENAI_TYPES: dict[ErrorKind, str] = OPENRESPONSES_TYPES | {
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
}
"""OpenAI has no type for what is behind a gateway: `model_error` is ours."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status of an error that comes before anything was streamed."""
    return STATUSES[error.kind]


def error_object(error: ErrorInfo, types: Mapping[ErrorKind, str]) -> dict[str, Any]:
    """`{message, type, param, code}`, as OpenAI writes an error."""
    return {
        "message": error.full_message,
        "type": types[error.kind],
        "param": error.param,
        "code": error.code or error.kind,
    }
