"""Seals on the items of a run, written once, before anybody reads it.

Whoever holds a token can give it back: to any replica, after a key rotation, with nothing kept here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from ..events import Event, ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, ResponseStartEvent
from ..parts import ModelResponsePart, Origin
from ..sealing import Sealed, SealError, seal_item
from ..telemetry import log


class Seals:
    """Puts a seal on every item end that needs one. One for each run."""

    def __init__(self, seal: Callable[[Sealed], str]) -> None:
        self._seal = seal
        self._origin: Origin | None = None
        self._start: ItemStartEvent | None = None
        self._parts: list[ModelResponsePart] = []

    def __call__(self, events: list[Event]) -> list[Event]:
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
        return events

    def _sealed(self, end: ItemEndEvent) -> ItemEndEvent:
        assert self._start is not None
        assert self._origin is not None
        sealed = seal_item(self._parts, self._start, end, self._origin, int(time.time()))
        if sealed is None:
            return end
        try:
            return replace(end, seal=self._seal(sealed))
        except SealError as error:
            # It was told in full to whoever may read it; what cannot be is that it comes back.
            log.warning("an item has no seal: %s", error.info.message)
            return end


__all__ = ["Seals"]
