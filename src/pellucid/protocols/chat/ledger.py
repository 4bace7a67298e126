"""The segments of one answer in their order, and what counts them."""

from __future__ import annotations

from . import types as t


class Ledger:
    """`segments` and their `timeline` as they open."""

    def __init__(self) -> None:
        self.segments: list[t.Segment] = []
        self.timeline: list[t.Span] = []
        self._ids: set[str] = set()
        self._sequence = 0

    def number(self) -> int:
        """The `sequence_number` of what opens now."""
        self._sequence += 1
        return self._sequence - 1

    def name(self, id: str) -> str:
        """The id of a segment that opens now, of the item with this id: its own, or one behind it."""
        name, number = id, 1
        while name in self._ids:
            number += 1
            name = f"{id}_{number}"
        self._ids.add(name)
        return name

    def add(self, segment: t.Segment, now: int) -> t.Span:
        """It opens; the span is to be ended by whoever closes it."""
        span = t.Span(segment_id=segment.id, started_at=now, ended_at=now)
        self.segments.append(segment)
        self.timeline.append(span)
        return span
