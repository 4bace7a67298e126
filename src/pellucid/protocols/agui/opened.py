"""What the encoder has open: an item, and a message or call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...text import shown
from . import events as e
from .chunks import chunked
from .dialects import DIALECTS


class Item:
    """The open item."""

    __slots__ = ("call_id", "end", "id", "kind", "messages", "sealed", "spans")

    def __init__(self, id: str, kind: str) -> None:
        self.id = shown(id)
        self.kind = kind
        self.spans = False
        """Whether it is told as a span of reasoning."""
        self.sealed: str | None = None
        """Its seal, if the span has told it already."""
        self.messages = 0
        self.call_id: str | None = None
        self.end: dict[str, Any] = {}
        """What its message's end tells."""


class Open:
    """An open message or call: how it ends, and the template of its deltas."""

    __slots__ = ("_more", "before", "divider", "end", "form", "framed", "head", "metadata", "said", "told")

    def __init__(
        self,
        more: e.AGUIEvent,
        end: e.AGUIEvent,
        chunks: bool,
        form: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._more = more
        self.end = end
        self.form = form
        self.metadata = metadata
        self.before = ""
        """What comes before the next delta."""
        self.divider = ""
        """What stands between the open part of the message and the part before it."""
        self.said: list[str] = []
        self.told = replace(more, delta="x")
        """A delta, as it is told."""
        if chunks and not isinstance(more, e.ThinkingTextMessageContentEvent):
            self.told = chunked(self.told, DIALECTS["1.0"])[0]
        # {"type":…,"messageId":…,"delta":"x"}, up to the delta.
        self.head = b"data: " + e.encode_event(self.told)[: -len(b'"x"}')]
        self.framed: Callable[[str], bytes] | None = None
        """What writes the frames of its deltas, once there was one."""

    def more(self, text: str) -> e.AGUIEvent:
        return replace(self._more, delta=text)

    @property
    def text(self) -> str:
        return "".join(self.said)
