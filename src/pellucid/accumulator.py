"""Accumulate the deltas of a part.

The writer and the reader of event sequences share this code, so that they cannot disagree. Text, log-probabilities and
annotations are appended, a signature replaces the last, details are merged.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from .parts import (
    DELTA_OF,
    OPAQUE_FIELDS,
    BuiltinToolCallPart,
    BuiltinToolCallPartDelta,
    ModelResponsePart,
    PartDelta,
    RefusalPart,
    RefusalPartDelta,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from .unicode import TextBuffer

TEXT_FIELD: dict[type[PartDelta], str] = {
    ThinkingPartDelta: "content_delta",
    TextPartDelta: "content_delta",
    RefusalPartDelta: "content_delta",
    ToolCallPartDelta: "args_delta",
    BuiltinToolCallPartDelta: "args_delta",
}
"""The field of each delta that holds its text."""

METADATA_FIELDS: dict[type[PartDelta], dict[str, str]] = {
    delta: OPAQUE_FIELDS | ({name: name for name in ("logprobs", "annotations")} if delta is TextPartDelta else {})
    for delta in TEXT_FIELD
}
"""The other fields of each delta: the part's field, and the delta's field for it."""


def is_text_only(delta: PartDelta) -> bool:
    """Whether a delta has nothing but text."""
    kind = type(delta)
    return delta == kind(getattr(delta, TEXT_FIELD[kind]))


def streamed_text(part: ModelResponsePart) -> str:
    """Return the text that the part's deltas add up to; empty for a kind of part that does not stream."""
    if isinstance(part, ToolCallPart | BuiltinToolCallPart):
        # An object counts as its JSON text.
        return part.args_as_text()
    return part.content if isinstance(part, ThinkingPart | TextPart | RefusalPart) else ""


def split_part(part: ModelResponsePart) -> tuple[ModelResponsePart, PartDelta | None]:
    """Split a complete part into the part as it opens and one delta with the rest; None if there is no rest."""
    kind = DELTA_OF.get(type(part))
    if kind is None:
        return part, None
    fields = METADATA_FIELDS[kind]
    delta_fields: dict[str, Any] = {name: getattr(part, field) for field, name in fields.items()}
    if text := streamed_text(part):
        delta_fields[TEXT_FIELD[kind]] = text
    empty_fields: dict[str, Any] = {**dict.fromkeys(fields), _text_field(part): "", "complete": True}
    delta = kind(**delta_fields)
    return replace(part, **empty_fields), delta if delta != kind() else None


def _text_field(part: ModelResponsePart) -> str:
    return "args" if isinstance(part, ToolCallPart | BuiltinToolCallPart) else "content"


class PartAccumulator:
    """An open part and the sum of its deltas. `result()` returns the part."""

    __slots__ = ("args_object", "metadata", "part", "text")

    def __init__(self, part: ModelResponsePart) -> None:
        self.part = part
        self.text = TextBuffer()
        self.args_object: dict[str, Any] | None = None
        """A call's arguments, where the wire sends an object. The text is then their JSON, for the deltas."""
        self.metadata: dict[str, Any] = {}
        """The deltas' other values, by the part's fields."""

    def add_metadata(self, delta: PartDelta) -> bool:
        """Add what a delta has apart from its text. False if that is nothing."""
        if is_text_only(delta):
            return False
        has_added = isinstance(delta, BuiltinToolCallPartDelta) and delta.status is not None
        for field, name in METADATA_FIELDS[type(delta)].items():
            value = getattr(delta, name)
            if isinstance(value, str):
                self.metadata[field] = value
            elif not value:
                continue
            elif isinstance(value, list):
                self.metadata.setdefault(field, []).extend(value)
            else:
                self.metadata[field] = {**self.metadata.get(field, {}), **value}
            has_added = True
        if delta.provider_name is not None:
            self.metadata["provider_name"] = delta.provider_name
        return has_added

    def result(self, complete: bool = True) -> ModelResponsePart:
        """Return the part as accumulated so far."""
        text = self.text.value() if self.args_object is None else self.args_object
        changes: dict[str, Any] = {**self.metadata, _text_field(self.part): text, "complete": complete}
        return replace(self.part, **changes)
