"""A part as it grows: what its deltas have added up to so far.

The writer and the reader of event sequences keep the same account, here, so that they cannot disagree: text and
log-probabilities and annotations append, a signature replaces, details merge.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from .events import (
    BuiltinToolCallPartDelta,
    PartDelta,
    RefusalPartDelta,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from .parts import BuiltinToolCallPart, ModelResponsePart, ToolCallPart
from .text import GrowingText

TEXT_FIELD: dict[type[PartDelta], str] = {
    ThinkingPartDelta: "content_delta",
    TextPartDelta: "content_delta",
    RefusalPartDelta: "content_delta",
    ToolCallPartDelta: "args_delta",
    BuiltinToolCallPartDelta: "args_delta",
}
"""Where each delta has its text."""


class GrowingPart:
    """`add` deltas; `whole()` is the part they make of the one that was opened."""

    __slots__ = ("annotations", "details", "logprobs", "object", "part", "provider_name", "signature", "text")

    def __init__(self, part: ModelResponsePart) -> None:
        self.part = part
        self.text = GrowingText()
        self.object: dict[str, Any] | None = None
        """A call's arguments, where the wire has them as an object; the text is then how they are told."""
        self.signature: str | None = None
        self.provider_name: str | None = None
        self.details: dict[str, Any] | None = None
        self.logprobs: list[dict[str, Any]] | None = None
        self.annotations: list[dict[str, Any]] | None = None

    def add_rest(self, delta: PartDelta) -> bool:
        """Take what a delta brings beside its text. False if that is nothing."""
        if isinstance(delta, RefusalPartDelta):
            return False
        brought = False
        if delta.signature_delta is not None:
            self.signature = delta.signature_delta
            brought = True
        if delta.provider_details:
            self.details = {**(self.details or {}), **delta.provider_details}
            brought = True
        if delta.provider_name is not None:
            self.provider_name = delta.provider_name
        if isinstance(delta, TextPartDelta):
            if delta.logprobs:
                self.logprobs = self.logprobs or []
                self.logprobs += delta.logprobs
                brought = True
            if delta.annotations:
                self.annotations = self.annotations or []
                self.annotations += delta.annotations
                brought = True
        return brought or (isinstance(delta, BuiltinToolCallPartDelta) and delta.status is not None)

    def whole(self, complete: bool = True) -> ModelResponsePart:
        """The part as it stands."""
        part, text = self.part, self.text.value()
        changes: dict[str, Any] = {
            "signature": self.signature,
            "provider_details": self.details,
            "logprobs": self.logprobs,
            "annotations": self.annotations,
            "provider_name": self.provider_name,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(part, (ToolCallPart, BuiltinToolCallPart)):
            changes["args"] = text if self.object is None else self.object
        else:
            changes["content"] = text
        return replace(part, complete=complete, **changes)
