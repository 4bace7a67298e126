"""What can go wrong on this wire: exceptions and errors in the stream, answers that are something else.

The words of an exception, and its name where it has none, are `said`; see `..faults`.
"""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind
from ...framing.eventstream import EventStreamMessage
from ..errors import as_code, describe_error, error_from_value, kind_of_status, quote_start
from ..lenient_json import decode_lenient_object
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


def error_from_message(message: EventStreamMessage) -> ErrorInfo | None:
    """What a message that is not an event says went wrong; None if it says nothing of the sort."""
    headers, payload = message
    name = headers.get(":exception-type") or headers.get(":error-code")
    event = headers.get(":event-type")
    if name is None and isinstance(event, str) and event.endswith("Exception"):
        name = event
    if name is None and headers.get(":message-type") not in ("exception", "error"):
        return None
    error_message = headers.get(":error-message")
    body = decode_lenient_object(payload)
    text = payload.decode("utf-8", "replace").strip()[:1000] if body is None else None
    return error_from_exception(str(name or "error"), body or {}, str(error_message) if error_message else text)


def error_from_exception(name: str, body: dict[str, Any], upstream_message: str | None = None) -> ErrorInfo:
    """An exception by its name, with what its body says: `message`, and of a model's own failure what that was."""
    name = name.rpartition("#")[2]  # `com.amazon.coral.service#UnknownOperationException`
    kind = _KIND_OF_EXCEPTION.get(name[:1].lower() + name[1:], "model_error")
    upstream_message = text_of(body, "message") or text_of(body, "Message") or upstream_message
    original, status = text_of(body, "originalMessage"), body.get("originalStatusCode")
    if type(status) is int and 400 <= status < 600:
        kind = kind_of_status(status)
    else:
        status = None
    if original and original != upstream_message:
        upstream_message = f"{upstream_message}: {original}" if upstream_message else original
    return ErrorInfo(
        kind=kind,
        message=describe_error(kind, status),
        code=as_code(name),
        status=status,
        native=body or None,
        upstream_message=upstream_message or name or None,
    )


def error_from_body(value: Any) -> ErrorInfo | None:
    """What a whole answer that holds no message says went wrong; None if it says nothing that is understood."""
    if not isinstance(value, dict):
        return None
    for error_object in (value, value.get("Output")):
        if isinstance(error_object, dict) and isinstance(error_object.get("__type"), str):
            return error_from_exception(error_object["__type"], error_object)
    upstream_message = text_of(value, "message") or text_of(value, "Message")
    if upstream_message:
        return error_from_value({"message": upstream_message})
    return error_from_value(value) if value.get("error") else None


def wrong_format_error(data: bytes) -> ErrorInfo:
    return ErrorInfo(
        kind="model_error",
        code="not_converse",
        message="the upstream did not answer in Bedrock's Converse format",
        upstream_message=quote_start(data),
    )


def unreadable_output_error(reason: str | None) -> ErrorInfo:
    message = "the upstream could not read what its own model wrote"
    return ErrorInfo("model_error", message, code=as_code(reason), upstream_message=reason)
