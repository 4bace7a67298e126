"""Stream events as structs, the state of items and of their parts while they arrive, and token counts.

One struct serves all event types: it has the fields that the decoder uses. An event that does not fit is decoded
again without the fields that do not fit (`lenient_json`).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ...parts import Usage
from ..lenient_json import DECODE_ERRORS, decode_lenient_object, dict_of, int_of, lenient_struct_decoder
from ..token_counts import ReasoningCounted, counted_output
from . import builtin

# --- events ---------------------------------------------------------------------------------------------------------

_EMPTY = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    """The fields of all event types that the decoder uses."""

    type: str | None = None
    output_index: int | None = None
    item_id: Any = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    logprobs: Any = None
    annotation: Any = None
    # Of a call that is over: its complete data.
    name: str | None = None
    arguments: Any = None
    input: Any = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    response: msgspec.Raw = _EMPTY
    """Large, and mostly a copy of the request: decoded only in the events that end the response."""
    # Errors, flat or nested.
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


class ResponseHead(msgspec.Struct, gc=False):
    """The id and the model of a response."""

    id: str | None = None
    model: str | None = None


read_event = lenient_struct_decoder(Event, allow_list=False)
"""Decode an event; None if the bytes are not a JSON object."""
_decode_response_head = msgspec.json.Decoder(ResponseHead).decode


def read_response_head(raw: msgspec.Raw) -> ResponseHead:
    """Decode the id and the model of a response. Values that are not text are ignored."""
    try:
        return _decode_response_head(raw)
    except DECODE_ERRORS:
        value = read_response(raw)
        fields = {name: value.get(name) for name in ("id", "model")}
        return ResponseHead(**{name: text for name, text in fields.items() if isinstance(text, str)})


def read_response(raw: msgspec.Raw) -> dict[str, Any]:
    """Decode a whole response; empty if it is not an object."""
    return decode_lenient_object(bytes(raw)) or {}


# --- items ----------------------------------------------------------------------------------------------------------

PartKind: TypeAlias = Literal["text", "refusal", "raw", "summary"]
"""The kind of a part. The kinds of reasoning have the names of a `ThinkingPart`'s forms."""

ItemRole: TypeAlias = Literal["reasoning", "message", "call", "tool", "other"]
"""What the decoder treats an item as, whatever its type."""

KIND_OF_PART: dict[Any, PartKind] = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "reasoning": "raw",
    "summary_text": "summary",
}

ROLE_OF_TYPE: dict[Any, ItemRole] = {
    "reasoning": "reasoning",
    "message": "message",
    "function_call": "call",
    "custom_tool_call": "call",
    **dict.fromkeys(builtin.TOOLS, "tool"),
}

# Fields of an item that its parts hold; all other fields are sent back unchanged.
_FIELDS_IN_PARTS: dict[ItemRole, frozenset[str]] = {
    "reasoning": frozenset({"id", "type", "status", "summary", "content", "encrypted_content"}),
    "message": frozenset({"id", "type", "status", "role", "content"}),
    "call": frozenset({"id", "type", "status", "call_id", "name", "arguments", "input"}),
}

REQUIRED_REASONING = "required_reasoning"
"""The key of a response's provider details with the id of the reasoning item before each item, by the item's id.

OpenAI accepts these items with their ids only after their reasoning item. The parts of an edited history do not show
that it is missing.
"""


class Part:
    """One text of an item."""

    __slots__ = ("annotation_count", "is_announced", "is_over", "item", "key", "kind", "text_length")

    def __init__(self, item: Item, kind: PartKind) -> None:
        self.item = item
        self.kind = kind
        self.key = (item.key, kind, len(item.parts))
        self.is_announced = False
        self.text_length = 0
        """Characters that were emitted."""
        self.annotation_count = 0
        self.is_over = item.is_over

    def add_skipped(self, text: str) -> None:
        """Count text that was emitted without being read (see `SkipRule`)."""
        self.text_length += len(text)


class Item:
    """One item of a response."""

    __slots__ = (
        "arguments_length",
        "details",
        "has_opaque_content",
        "has_signature",
        "id",
        "is_announced",
        "is_call_open",
        "is_over",
        "key",
        "last_part",
        "native",
        "parts",
        "pieces",
        "role",
        "type",
    )  # fmt: skip

    def __init__(self, key: int, type: str, role: ItemRole) -> None:
        self.key = key
        self.type = type
        self.role = role
        self.id: str | None = None
        self.native: dict[str, Any] = {}
        """The item's JSON when it was announced."""
        self.details: dict[str, Any] = {}
        self.is_announced = False
        self.is_over = False
        self.has_signature = False
        self.has_opaque_content = False
        """Of a message: whether a content part of unknown type was emitted."""
        self.parts: dict[tuple[str, int | None], Part] = {}
        self.last_part: Part | None = None
        """The most recent part."""
        self.is_call_open = False
        """Of a call: whether it has a name and was opened."""
        self.pieces: list[str] = []
        """Of a call without a name yet, or of a tool: the arguments so far."""
        self.arguments_length = 0

    @property
    def is_empty(self) -> bool:
        """Whether it is a message of which nothing was emitted."""
        parts = self.parts.values()
        return self.role == "message" and not (
            self.has_opaque_content or any(part.text_length or part.annotation_count for part in parts)
        )


def extra_fields(native: dict[str, Any], role: ItemRole) -> dict[str, Any]:
    """Return the fields of an item that its parts do not hold."""
    fields_in_parts = _FIELDS_IN_PARTS.get(role)
    if fields_in_parts is None:
        return {}
    return {name: value for name, value in native.items() if name not in fields_in_parts and value is not None}


def arguments_of(native: dict[str, Any]) -> Any:
    """Return the arguments of a call's item."""
    return native.get("input") if native.get("type") == "custom_tool_call" else native.get("arguments")


def json_escaped(text: str) -> str:
    """Escape text for the inside of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def as_text(value: Any) -> str:
    """Return a text, or the `text` of an object; empty for anything else."""
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else ""


# --- token counts ---------------------------------------------------------------------------------------------------

# Counts that have a field in `Usage`; other counts keep their names in `details`.
_STANDARD_COUNTS = frozenset({"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"})


def read_usage(raw: dict[str, Any], reasoning_counted: ReasoningCounted) -> Usage:
    """Read token counts.

    Args:
        raw: The `usage` object.
        reasoning_counted: Whether the output count includes reasoning; `by_total`: whichever matches the total.
    """
    input_tokens, output_tokens, total = (
        int_of(raw, name) for name in ("input_tokens", "output_tokens", "total_tokens")
    )
    input_details, output_details = dict_of(raw, "input_tokens_details"), dict_of(raw, "output_tokens_details")
    reasoning_count = int_of(output_details, "reasoning_tokens")
    details = {
        name: value
        for counts in (raw, input_details, output_details)
        for name, value in counts.items()
        if type(value) is int and name not in _STANDARD_COUNTS
    }
    return Usage(
        input_tokens=input_tokens,
        output_tokens=counted_output(output_tokens, reasoning_count, input_tokens, total, reasoning_counted),
        output_reasoning_tokens=reasoning_count,
        cache_read_tokens=int_of(input_details, "cached_tokens"),
        cache_write_tokens=int_of(input_details, "cache_write_tokens"),
        input_audio_tokens=int_of(input_details, "audio_tokens"),
        output_audio_tokens=int_of(output_details, "audio_tokens"),
        details=details,
    )
