"""What an error is in the protocols: its HTTP status before a stream begins, and the form of OpenAI's error object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import ErrorInfo, ErrorKind


class KindNames(NamedTuple):
    """What a kind of error is called."""

    status: int
    """The HTTP status before a stream begins, in every protocol."""
    openresponses_type: str
    """One of the five types of the OpenResponses specification.

    The specification's own example writes the first one as OpenAI does (`invalid_request_error`), and so do all
    clients.
    """
    openai_type: str
    """The type of OpenAI, which has none for a failure behind a gateway: `model_error` is an addition."""
    messages_type: str
    """The type of Anthropic's API."""


KIND_NAMES: dict[ErrorKind, KindNames] = {
    "invalid_request": KindNames(400, "invalid_request_error", "invalid_request_error", "invalid_request_error"),
    "unauthorized": KindNames(401, "authentication_error", "authentication_error", "authentication_error"),
    "forbidden": KindNames(403, "permission_error", "permission_error", "permission_error"),
    "not_found": KindNames(404, "not_found", "invalid_request_error", "not_found_error"),
    "conflict": KindNames(409, "invalid_request_error", "invalid_request_error", "invalid_request_error"),
    "too_large": KindNames(413, "invalid_request_error", "invalid_request_error", "request_too_large"),
    "slow_request": KindNames(408, "invalid_request_error", "invalid_request_error", "invalid_request_error"),
    "unsupported": KindNames(400, "invalid_request_error", "invalid_request_error", "invalid_request_error"),
    "too_many_requests": KindNames(429, "too_many_requests", "rate_limit_error", "rate_limit_error"),
    "model_error": KindNames(502, "model_error", "model_error", "api_error"),
    "unavailable": KindNames(503, "model_error", "model_error", "overloaded_error"),
    "timeout": KindNames(504, "model_error", "model_error", "timeout_error"),
    "server_error": KindNames(500, "server_error", "server_error", "api_error"),
}


def status_of(error: ErrorInfo) -> int:
    """Return the HTTP status of an error that occurs before a stream begins."""
    return KIND_NAMES[error.kind].status


class ErrorFormat(NamedTuple):
    """How a protocol answers with an error before a stream begins."""

    body: Callable[[ErrorInfo], dict[str, Any] | str]
    """Returns the body of the response: a JSON object, or a text."""
    statuses: Mapping[ErrorKind, int] = {}
    """The kinds of errors whose status is not that of `KIND_NAMES`."""
    request_id_header: bytes | None = None
    """The header of every response in which clients look for the request's id, to report an error."""
    request_id_field: str | None = None
    """The field of an error's body for the request's id."""

    def encode(self, error: ErrorInfo, request_id: str | None) -> dict[str, Any] | str:
        """Return the body of the response to a request with this id."""
        body = self.body(error)
        if self.request_id_field is None or isinstance(body, str):
            return body
        return {**body, self.request_id_field: request_id}

    def status_of(self, error: ErrorInfo) -> int:
        """Return the HTTP status of an error."""
        return self.statuses.get(error.kind, status_of(error))


def error_object(error: ErrorInfo, type: str) -> dict[str, Any]:
    """Return `{message, type, param, code}`, OpenAI's form of an error."""
    return {"message": error.full_message, "type": type, "param": error.param, "code": error.code or error.kind}
