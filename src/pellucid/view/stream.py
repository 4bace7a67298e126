"""The events of one run, for one reader.

The view of those who may see everything. What they did not ask for is left out: our summaries, numbers of tokens.

Most readers asked for no summary, and get each batch as it is. Summaries that were asked for are parts of their item,
written once the model has said all of it, so that a thought is not interrupted by its own summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..emit import whole_part
from ..events import (
    Event,
    ItemEndEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SummaryEvent,
)
from ..parts import ThinkingPart
from .less import Lesser
from .reader import Reader
from .values import redact_usage


class Raw:
    """The machine for a reader of raw reasoning."""

    __slots__ = ("_added", "_as_it_is", "_last", "_next", "_reader", "_summaries", "wants_deltas")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._as_it_is = reader.counts and not reader.summaries
        self.wants_deltas = False
        """Whether deltas change: their part's number, behind a part of ours."""
        self._summaries: list[str] = []
        """What was said of the open item."""
        self._added = 0
        """How many parts of the turn are ours: by so many, those that follow move on."""
        self._next = 0
        """The next part's index, in the model's own count."""
        self._last: str | None = None
        """The kind of the part that ended last, ours or not."""

    def feed(self, events: list[Event]) -> list[Event]:
        if self._as_it_is:
            for event in events:
                if type(event) is SummaryEvent:
                    return [event for event in events if type(event) is not SummaryEvent]
            return events
        out: list[Event] = []
        for event in events:
            if type(event) is PartDeltaEvent:
                out.append(PartDeltaEvent(event.index + self._added, event.delta) if self._added else event)
                continue
            step = _STEPS.get(type(event))
            if step is None:
                out.append(event)
            else:
                step(self, event, out)
        return out

    def _turn(self, event: ResponseStartEvent, out: list[Event]) -> None:
        self._added = self._next = 0
        self._last = None
        self.wants_deltas = False
        out.append(event)

    def _summary(self, event: SummaryEvent, out: list[Event]) -> None:
        if self._reader.summaries and event.text:
            self._summaries.append(event.text)

    def _start(self, event: PartStartEvent, out: list[Event]) -> None:
        if self._added:
            event = replace(event, index=event.index + self._added, previous_part_kind=self._last)
        out.append(event)

    def _end(self, event: PartEndEvent, out: list[Event]) -> None:
        self._next = event.index + 1
        self._last = event.part.part_kind
        out.append(PartEndEvent(event.index + self._added, event.part) if self._added else event)

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        told, self._summaries = self._summaries, []
        for text in told:
            part = ThinkingPart(text, form="summary")
            out += whole_part(self._next + self._added, part, self._last)
            self._added += 1
            self.wants_deltas = True
            self._last = part.part_kind
        out.append(event)

    def _totals(self, event: ResponseEndEvent | RunEndEvent, out: list[Event]) -> None:
        out.append(replace(event, usage=redact_usage(event.usage, self._reader)))


_STEPS: dict[type[Any], Callable[[Raw, Any, list[Event]], None]] = {
    ResponseStartEvent: Raw._turn,
    SummaryEvent: Raw._summary,
    PartStartEvent: Raw._start,
    PartEndEvent: Raw._end,
    ItemEndEvent: Raw._item_end,
    ResponseEndEvent: Raw._totals,
    RunEndEvent: Raw._totals,
}
"""The events in which something may change."""


class Redactor:
    """`feed` the events of one run, batch by batch, from its beginning; what it gives back is for this reader.

    It keeps what it needs to number items and parts without gaps, so each read of a run has a redactor of its own.
    """

    __slots__ = ("_machine", "feed")

    feed: Callable[[list[Event]], list[Event]]
    """A batch in, what the reader gets of it out: the same list where nothing is to be changed."""

    def __init__(self, reader: Reader) -> None:
        self._machine = Raw(reader) if reader.view == "raw" else Lesser(reader)
        self.feed = self._machine.feed

    @property
    def wants_deltas(self) -> bool:
        """Whether `feed` is to be called for a batch that is one `PartDeltaEvent`: false while each passes as it is.
        May be another after each call of `feed`."""
        return self._machine.wants_deltas
