"""What can go wrong on this wire: exceptions and errors in the stream, answers that are something else.

The words of an exception, and its name where it has none, are `said`; see `..faults`.
"""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind
from ...framing.eventstream import EventStreamMessage
from ..faults import a_word, beginning, fault_of_value, kind_of_status, our_words
from ..fitting import loose_object
from .chunk import text_of

# By the name's first letter in lower case: in a stream it is `throttlingException`, elsewhere `ThrottlingException`.
_KIND_OF_EXCEPTION: dict[str, ErrorKind] = {
    "throttlingException": "too_many_requests",
    "serviceQuotaExceededException": "too_many_requests",
    "validationException": "invalid_request",
    "resourceNotFoundException": "not_found",
    "serviceUnavailableException": "unavailable",
    "modelNotReadyException": "unavailable",
    "modelTimeoutException": "timeout",
    "modelStreamErrorException": "model_error",
    "modelErrorException": "model_error",
    "internalServerException": "model_error",
    "accessDeniedException": "model_error",
}

TRUNCATED = ErrorInfo(
    kind="model_error",
    code="stream_truncated",
    message="the upstream's stream broke off: no messageStop came before its end",
)


def fault_of_message(message: EventStreamMessage) -> ErrorInfo | None:
    """What a message that is not an event says went wrong; None if it says nothing of the sort."""
    headers, payload = message
    name = headers.get(":exception-type") or headers.get(":error-code")
    event = headers.get(":event-type")
    if name is None and isinstance(event, str) and event.endswith("Exception"):
        name = event
    if name is None and headers.get(":message-type") not in ("exception", "error"):
        return None
    said = headers.get(":error-message")
    body = loose_object(payload)
    words = payload.decode("utf-8", "replace").strip()[:1000] if body is None else None
    return fault_of_exception(str(name or "error"), body or {}, str(said) if said else words)


def fault_of_exception(name: str, body: dict[str, Any], said: str | None = None) -> ErrorInfo:
    """An exception by its name, with what its body says: `message`, and of a model's own failure what that was."""
    name = name.rpartition("#")[2]  # `com.amazon.coral.service#UnknownOperationException`
    kind = _KIND_OF_EXCEPTION.get(name[:1].lower() + name[1:], "model_error")
    said = text_of(body, "message") or text_of(body, "Message") or said
    original, status = text_of(body, "originalMessage"), body.get("originalStatusCode")
    if type(status) is int and 400 <= status < 600:
        kind = kind_of_status(status)
    else:
        status = None
    if original and original != said:
        said = f"{said}: {original}" if said else original
    return ErrorInfo(
        kind=kind,
        message=our_words(kind, status),
        code=a_word(name),
        status=status,
        native=body or None,
        said=said or name or None,
    )


def fault_of_body(value: Any) -> ErrorInfo | None:
    """What a whole answer that holds no message says went wrong; None if it says nothing that is understood."""
    if not isinstance(value, dict):
        return None
    for place in (value, value.get("Output")):
        if isinstance(place, dict) and isinstance(place.get("__type"), str):
            return fault_of_exception(place["__type"], place)
    said = text_of(value, "message") or text_of(value, "Message")
    if said:
        return fault_of_value({"message": said})
    return fault_of_value(value) if value.get("error") else None


def not_this_wire(data: bytes) -> ErrorInfo:
    return ErrorInfo(
        kind="model_error",
        code="not_converse",
        message="the upstream did not answer in Bedrock's Converse format",
        said=beginning(data),
    )


def gave_up(reason: str | None) -> ErrorInfo:
    message = "the upstream could not read what its own model wrote"
    return ErrorInfo("model_error", message, code=a_word(reason), said=reason)
