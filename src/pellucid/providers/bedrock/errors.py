"""Errors of this wire: exceptions and errors in the stream, and answers of another format.

The text of an exception, or its name if it has no text, becomes the upstream's message of the `ErrorInfo`.
"""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind
from ...framing.eventstream import EventStreamMessage
from ..errors import as_code, describe_error, error_from_value, kind_of_status, quote_start
from ..lenient_json import decode_lenient_object, text_of

# Names with the first letter in lower case: in a stream it is `throttlingException`, elsewhere `ThrottlingException`.
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
    message="the provider's stream broke off: it ended without messageStop",
)


def error_from_message(message: EventStreamMessage) -> ErrorInfo | None:
    """Return the error that a message reports; None if it reports none."""
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
    """Return the error for an exception.

    Args:
        name: Name of the exception, possibly with a namespace.
        body: Body of the exception: `message`, and for a failure of the model `originalMessage` and its status.
        upstream_message: Text to use if the body has no message.
    """
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
    """Return the error that a whole body without a message reports; None if it reports none."""
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
        message="the provider did not answer in Bedrock's Converse format",
        upstream_message=quote_start(data),
    )


def unreadable_output_error(reason: str | None) -> ErrorInfo:
    message = "the provider could not parse its model's output"
    return ErrorInfo("model_error", message, code=as_code(reason), upstream_message=reason)
