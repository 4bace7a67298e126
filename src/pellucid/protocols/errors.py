"""Errors before a stream begins: their HTTP status, which is the same in every protocol, and OpenAI's error object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import ErrorInfo, ErrorKind


class ErrorFormat(Protocol):
    """How a protocol encodes an error (a package of `protocols`)."""

    def error_body(self, error: ErrorInfo, /) -> dict[str, Any] | str:
        """Return the body of the answer: a JSON object, or a text."""
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
"""The five error types of the OpenResponses specification.

The specification's own example writes the first one as OpenAI does (`invalid_request_error`), and so do all clients.
"""

OPENAI_TYPES: dict[ErrorKind, str] = OPENRESPONSES_TYPES | {
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
}
"""The error types of OpenAI, which has none for a failure behind a gateway: `model_error` is an addition."""


def status_of(error: ErrorInfo) -> int:
    """Return the HTTP status of an error that occurs before a stream begins."""
    return STATUSES[error.kind]


def error_object(error: ErrorInfo, types: Mapping[ErrorKind, str]) -> dict[str, Any]:
    """Return `{message, type, param, code}`, OpenAI's form of an error."""
    return {
        "message": error.full_message,
        "type": types[error.kind],
        "param": error.param,
        "code": error.code or error.kind,
    }
