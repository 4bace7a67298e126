"""A part as it grows: what its deltas have added up to so far.

The writer and the reader of event sequences keep the same account, here, so that they cannot disagree: text and
log-probabilities and annotations append, a signature replaces, details merge.
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
"""Where each delta has its text."""

METADATA_FIELDS: dict[type[PartDelta], dict[str, str]] = {
    delta: OPAQUE_FIELDS | ({name: name for name in ("logprobs", "annotations")} if delta is TextPartDelta else {})
    for delta in TEXT_FIELD
}
"""What else each delta adds to: the part's field, and the delta's own."""


def is_text_only(delta: PartDelta) -> bool:
    """Whether a delta brings text at most."""
    kind = type(delta)
    return delta == kind(getattr(delta, TEXT_FIELD[kind]))


def text_of(part: ModelResponsePart) -> str:
    """The text that deltas of the part add up to; nothing, where it is not of a kind that streams."""
    if isinstance(part, ToolCallPart | BuiltinToolCallPart):
        # Of an object, the same as JSON text.
        return part.args_as_text()
    return part.content if isinstance(part, ThinkingPart | TextPart | RefusalPart) else ""


def split_part(part: ModelResponsePart) -> tuple[ModelResponsePart, PartDelta | None]:
    """A part that streams as it opens, and all that its deltas bring as one; None if there is nothing to bring."""
    kind = DELTA_OF.get(type(part))
    if kind is None:
        return part, None
    fields = METADATA_FIELDS[kind]
    delta_fields: dict[str, Any] = {name: getattr(part, field) for field, name in fields.items()}
    if text := text_of(part):
        delta_fields[TEXT_FIELD[kind]] = text
    empty_fields: dict[str, Any] = {**dict.fromkeys(fields), _text_field(part): "", "complete": True}
    delta = kind(**delta_fields)
    return replace(part, **empty_fields), delta if delta != kind() else None


def _text_field(part: ModelResponsePart) -> str:
    return "args" if isinstance(part, ToolCallPart | BuiltinToolCallPart) else "content"


class PartAccumulator:
    """`add` deltas; `whole()` is the part they make of the one that was opened."""

    __slots__ = ("args_object", "metadata", "part", "text")

    def __init__(self, part: ModelResponsePart) -> None:
        self.part = part
        self.text = TextBuffer()
        self.args_object: dict[str, Any] | None = None
        """A call's arguments, where the wire has them as an object; the text is then how they are told."""
        self.metadata: dict[str, Any] = {}
        """What deltas brought beside text, by the part's fields."""

    def add_metadata(self, delta: PartDelta) -> bool:
        """Take what a delta brings beside its text. False if that is nothing."""
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
        """The part as it stands."""
        text = self.text.value() if self.args_object is None else self.args_object
        changes: dict[str, Any] = {**self.metadata, _text_field(self.part): text, "complete": complete}
        return replace(self.part, **changes)
