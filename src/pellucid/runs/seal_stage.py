"""The stage that seals the items of a run, once, before anything is stored or shown.

A client can send a token back to any replica, also after a key rotation; nothing is stored for it here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from ..events import ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, ResponseStartEvent
from ..parts import ModelResponsePart, Origin
from ..sealing import Sealed, SealError, seal_item
from ..telemetry import log
from .source import Batch
from .stages import Stage


class SealStage(Stage):
    """Puts a seal on every item end that needs one."""

    wants_deltas = False

    def __init__(self, seal: Callable[[Sealed], str]) -> None:
        self._seal = seal
        self._origin: Origin | None = None
        self._start: ItemStartEvent | None = None
        self._parts: list[ModelResponsePart] = []

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        for at, event in enumerate(events):
            kind = type(event)
            if kind is PartDeltaEvent:
                continue
            if isinstance(event, PartEndEvent):
                self._parts.append(event.part)
            elif isinstance(event, ItemStartEvent):
                self._start, self._parts = event, []
            elif isinstance(event, ItemEndEvent):
                events[at] = self._sealed(event)
            elif isinstance(event, ResponseStartEvent):
                self._origin = event.origin
        return batch

    def _sealed(self, end: ItemEndEvent) -> ItemEndEvent:
        assert self._start is not None
        assert self._origin is not None
        sealed = seal_item(self._parts, self._start, end, self._origin, int(time.time()))
        if sealed is None:
            return end
        try:
            return replace(end, seal=self._seal(sealed))
        except SealError as error:
            # Whoever may read the item has read it in full; only sending it back is impossible.
            log.warning("an item has no seal: %s", error.info.message)
            return end
