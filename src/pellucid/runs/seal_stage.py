"""The stage that seals the items of a run, once, before they are stored or shown.

A client can send a sealed token back to any replica, also after a key rotation; no state is stored for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from ..events import ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, ResponseStartEvent, SummaryEvent
from ..parts import ModelResponsePart, Origin
from ..sealing import Sealed, SealError, seal_item
from ..telemetry import log
from .source import Batch
from .stages import Stage


class SealStage(Stage):
    """Stage that puts a seal on every item end that needs one."""

    wants_deltas = False

    def __init__(self, seal: Callable[[Sealed], str]) -> None:
        self._seal = seal
        self._origin: Origin | None = None
        self._start: ItemStartEvent | None = None
        self._parts: list[ModelResponsePart] = []
        self._summaries: list[str] = []

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        for index, event in enumerate(events):
            kind = type(event)
            if kind is PartDeltaEvent:
                continue
            if isinstance(event, PartEndEvent):
                self._parts.append(event.part)
            elif isinstance(event, ItemStartEvent):
                self._start, self._parts, self._summaries = event, [], []
            elif isinstance(event, SummaryEvent):
                self._summaries.append(event.text)
            elif isinstance(event, ItemEndEvent):
                events[index] = self._seal_item_end(event)
            elif isinstance(event, ResponseStartEvent):
                self._origin = event.origin
        return batch

    def _seal_item_end(self, end: ItemEndEvent) -> ItemEndEvent:
        assert self._start is not None
        assert self._origin is not None
        sealed = seal_item(self._parts, self._start, end, self._origin, int(time.time()), self._summaries)
        if sealed is None:
            return end
        try:
            return replace(end, seal=self._seal(sealed))
        except SealError as error:
            # Readers have received the item in full. The client only cannot send it back.
            log.warning("an item has no seal: %s", error.info.message)
            return end
