"""The binary transport, `application/vnd.ag-ui.event+proto`: frames of a length (4 bytes, big-endian) and a message.

The tables are those of `@ag-ui/proto` 1.0.0. The fields of a row have the numbers 1, 2, 3 … in order. A field is text,
unless a type follows after a colon: another row, `[row]` for a repeated field, or

    int     a varint             value   any JSON value (google.protobuf.Value)
    bool                         struct  a JSON object (google.protobuf.Struct)

It cannot carry THINKING_* events, and no dialect before 1.0 uses it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from ...errors import RequestError

MEDIA_TYPE = "application/vnd.ag-ui.event+proto"


# In the order of the fields of the protobuf message `Event`.
_EVENTS = {
    "TEXT_MESSAGE_START": "base:Base messageId role name subagentRunId",
    "TEXT_MESSAGE_CONTENT": "base:Base messageId delta subagentRunId",
    "TEXT_MESSAGE_END": "base:Base messageId subagentRunId",
    "TOOL_CALL_START": "base:Base toolCallId toolCallName parentMessageId subagentRunId",
    "TOOL_CALL_ARGS": "base:Base toolCallId delta subagentRunId",
    "TOOL_CALL_END": "base:Base toolCallId subagentRunId",
    "STATE_SNAPSHOT": "base:Base snapshot:value subagentRunId",
    "STATE_DELTA": "base:Base delta:[Operation] subagentRunId",
    "MESSAGES_SNAPSHOT": "base:Base messages:[Message]",
    "RAW": "base:Base event:value source subagentRunId",
    "CUSTOM": "base:Base name value:value subagentRunId",
    "RUN_STARTED": "base:Base threadId runId parentRunId input:RunAgentInput protocolVersion",
    "RUN_FINISHED": "base:Base threadId runId result:value outcome interrupts:[Interrupt] usage:[Usage] "
    "pendingToolCallIds:[text]",
    "RUN_ERROR": "base:Base code message usage:[Usage]",
    "STEP_STARTED": "base:Base stepName subagentRunId",
    "STEP_FINISHED": "base:Base stepName subagentRunId",
    "TEXT_MESSAGE_CHUNK": "base:Base messageId role delta name subagentRunId",
    "TOOL_CALL_CHUNK": "base:Base toolCallId toolCallName parentMessageId delta subagentRunId",
    "SUBAGENT_STARTED": "base:Base subagentRunId name description parentSubagentRunId parentToolCallId parentMessageId",
    "SUBAGENT_FINISHED": "base:Base subagentRunId result:value outcome interruptIds:[text]",
    "SUBAGENT_ERROR": "base:Base subagentRunId message code",
    "TOOL_CALL_RESULT": "base:Base subagentRunId messageId toolCallId content role contentParts:[Part]",
    "ACTIVITY_SNAPSHOT": "base:Base subagentRunId messageId activityType content:struct replace:bool",
    "ACTIVITY_DELTA": "base:Base subagentRunId messageId activityType patch:[Operation]",
    "REASONING_START": "base:Base subagentRunId messageId",
    "REASONING_MESSAGE_START": "base:Base subagentRunId messageId role",
    "REASONING_MESSAGE_CONTENT": "base:Base subagentRunId messageId delta",
    "REASONING_MESSAGE_END": "base:Base subagentRunId messageId",
    "REASONING_MESSAGE_CHUNK": "base:Base subagentRunId messageId delta",
    "REASONING_END": "base:Base subagentRunId messageId",
    "REASONING_ENCRYPTED_VALUE": "base:Base subagentRunId subtype entityId encryptedValue",
}
_LATER_TYPES = [
    *(f"SUBAGENT_{step}" for step in ("STARTED", "FINISHED", "ERROR")),
    "TEXT_MESSAGE_CHUNK",
    "TOOL_CALL_CHUNK",
]
_TYPE_ORDER = [*list(_EVENTS)[:16], *_LATER_TYPES, *list(_EVENTS)[21:]]
"""In the order of the enum `EventType`, which differs from that of the fields of `Event`."""

_MEDIA = "source:Source metadata:value id"
_ROWS = {
    "Base": "type:int timestamp:int rawEvent:value metadata:struct",
    "Operation": "op:int path from value:value",
    "Usage": "provider model inputTokens:int outputTokens:int totalTokens:int reasoningTokens:int "
    "cachedInputTokens:int cacheWriteInputTokens:int",
    "Interrupt": "id reason message toolCallId responseSchema:value expiresAt metadata:value subagentRunId",
    "Message": "id role content name toolCalls:[ToolCall] toolCallId error contentParts:[Part] metadata:struct "
    "subagentRunId encryptedValue activityType activityContent:struct",
    "ToolCall": "id type function:Function metadata:struct encryptedValue",
    "Function": "name arguments",
    "RunAgentInput": "threadId runId parentRunId state:value messages:[Message] tools:[Tool] context:[Context] "
    "forwardedProps:value resume:[ResumeEntry] protocolVersion",
    "Tool": "name description parameters:value metadata:struct",
    "Context": "description value",
    "ResumeEntry": "interruptId status payload:value metadata:struct",
    "Part": "text:Text image:Media audio:Media video:Media document:Media",
    "Text": "text id metadata:value",
    "Media": _MEDIA,
    "Source": "data:Data url:Url file:File",
    "Data": "value mimeType",
    "Url": "value mimeType",
    "File": "value provider mimeType",
    **_EVENTS,
}
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


def encode_frame(event: Any) -> bytes:
    """Encode an event as a frame.

    Args:
        event: A JSON object, or what msgspec converts to one.

    Raises:
        RequestError: (code `unsupported_event`) the transport cannot carry this type of event.
    """
    return _with_length(encode_message(event))


def encode_message(event: Any) -> bytes:
    """Encode an event as `encode_frame` does, without the length."""
    tag, body = _tag_and_body(event if isinstance(event, Mapping) else msgspec.to_builtins(event))
    return tag + _varint(len(body)) + body


def delta_frame_encoder(event: Any) -> Callable[[str], bytes]:
    """Return a function that encodes further deltas of a message or a call by their text.

    Args:
        event: A delta event of that message or call.
    """
    # The delta is the last field of these events, so all bytes before it are constant.
    tag, body = _tag_and_body({**msgspec.to_builtins(event), "delta": ""})
    body_prefix, frame_prefixes = body[:-1], _frame_prefixes(tag)
    min_body_bytes = len(body)

    def frame(delta: str) -> bytes:
        text = _utf8(delta)
        size = len(text)
        if min_body_bytes + size < 0x80:
            return frame_prefixes[min_body_bytes + size] + body_prefix + _ONE_BYTE[size] + text
        inner = body_prefix + _varint(size) + text
        return _with_length(tag + _varint(len(inner)) + inner)

    return frame


@cache
def _frame_prefixes(tag: bytes) -> list[bytes]:
    """Return the bytes before the body of an event for each length of the body below 128."""
    return [_with_length(tag + _varint(length) + bytes(length))[: -length or None] for length in range(0x80)]


def _with_length(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def _tag_and_body(event: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the tag of the event's field in `Event`, and the bytes of the field.

    Raises:
        RequestError: The transport cannot carry this type of event.
    """
    kind = event["type"]
    if kind not in _EVENTS:
        raise RequestError(
            f"{kind} events cannot be sent as {MEDIA_TYPE}; ask for text/event-stream", code=_UNSUPPORTED
        )
    return _varint(_FIELD_NUMBERS[kind] << 3 | 2), _encode_object(_protobuf_fields(kind, event), kind)


_UNSUPPORTED = "unsupported_event"
_FIELD_NUMBERS = {name: number for number, name in enumerate(_EVENTS, 1)}
_TYPE_NUMBERS = {name: number for number, name in enumerate(_TYPE_ORDER)}


# --- differences between the protobuf message and the JSON object ------------------------------------------------


def _protobuf_fields(kind: str, event: Mapping[str, Any]) -> dict[str, Any]:
    out = {**event, "base": {**event, "type": _TYPE_NUMBERS[kind]}}
    outcome = event.get("outcome")
    if isinstance(outcome, Mapping):
        out |= {**outcome, "outcome": outcome.get("type")}
    return _with_content(out) if kind == "TOOL_CALL_RESULT" else out


def _with_content(message: Mapping[str, Any]) -> dict[str, Any]:
    match message.get("content"):
        case list(parts):
            return {**message, "content": None, "contentParts": parts}
        case dict(activity):
            return {**message, "content": None, "activityContent": activity}
        case _:
            return dict(message)


_CONVERSIONS: dict[str, Callable[[Any], Mapping[str, Any]]] = {
    "Message": _with_content,
    "Operation": lambda operation: {**operation, "op": _OPERATIONS.index(operation["op"])},
    "Part": lambda part: {part["type"]: part},
    "Source": lambda source: {source["type"]: source},
}


# --- writing -----------------------------------------------------------------------------------------------------


def _encode_object(value: Mapping[str, Any], row: str) -> bytes:
    out = b""
    for name, field_type, number in _FIELDS[row]:
        field_value = value.get(name)
        if field_value is not None:
            values = field_value if field_type[0] == "[" else [field_value]
            out += b"".join(_encode_field(number << 3, one, field_type.strip("[]")) for one in values)
        elif field_type == "value" and name in value:
            out += _length_delimited(number << 3 | 2, _NULL)
    return out


def _encode_field(tag: int, value: Any, field_type: str) -> bytes:
    match field_type:
        case "text":
            return _length_delimited(tag | 2, _utf8(value))
        case "int" | "bool":
            return _varint(tag) + _varint(int(value))
        case "value":
            return _length_delimited(tag | 2, _encode_value(value))
        case "struct":
            return _length_delimited(tag | 2, _encode_struct(value))
        case _:
            convert = _CONVERSIONS.get(field_type)
            return _length_delimited(tag | 2, _encode_object(convert(value) if convert else value, field_type))


def _encode_value(value: Any) -> bytes:
    match value:
        case None:
            return _NULL
        case bool():
            return b"\x20\x01" if value else b"\x20\x00"
        case int() | float():
            return b"\x11" + struct.pack("<d", _as_double(value))
        case str():
            return _length_delimited(0x1A, _utf8(value))
        case list() | tuple():
            return _length_delimited(0x32, b"".join(_length_delimited(0x0A, _encode_value(one)) for one in value))
        case _:
            return _length_delimited(0x2A, _encode_struct(value))


_NULL = b"\x08\x00"


def _encode_struct(value: Mapping[str, Any]) -> bytes:
    entries = (
        _length_delimited(0x0A, _utf8(name)) + _length_delimited(0x12, _encode_value(one))
        for name, one in value.items()
    )
    return b"".join(_length_delimited(0x0A, entry) for entry in entries)


def _as_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _length_delimited(tag: int, data: bytes) -> bytes:
    return _varint(tag) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _ONE_BYTE[number]
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which UTF-8 cannot encode.
        return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def _parse_fields(row: str) -> list[tuple[str, str, int]]:
    words = (word.partition(":") for word in row.split())
    return [(name, field_type or "text", number) for number, (name, _, field_type) in enumerate(words, 1)]


_FIELDS = {name: _parse_fields(row) for name, row in _ROWS.items()}
