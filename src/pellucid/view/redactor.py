"""Redactor of the events of one run for one viewer, and the `raw` view.

The `raw` view shows everything, except the gateway's summaries and token counts if they were not requested.

Most viewers request no summary and get each batch unchanged. Requested summaries are parts of their item, written when
the item ends, so that a summary does not interrupt the reasoning that it summarises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..emit import part_events
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
from .restricted_view import SIDE_EVENT_FIELDS, RestrictedRedactor, SideEventFields
from .values import redact_usage
from .viewer import Viewer


class FullRedactor:
    """Redactor for the view `raw`."""

    __slots__ = (
        "_added_parts",
        "_is_unchanged",
        "_last_part_kind",
        "_next_index",
        "_summaries",
        "_viewer",
        "wants_deltas",
    )

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._is_unchanged = viewer.counts and not viewer.summaries
        self.wants_deltas = False
        """Whether deltas change: after an added part, the index of their part does."""
        self._summaries: list[str] = []
        """The summaries of the open item."""
        self._added_parts = 0
        """How many parts were added to the turn. The indexes of later parts grow by this number."""
        self._next_index = 0
        """The next part's index, as the model counts."""
        self._last_part_kind: str | None = None
        """The kind of the last part that ended, added or not."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Redact a batch of events; the same list if nothing changes."""
        if self._is_unchanged:
            for event in events:
                if type(event) is SummaryEvent:
                    return [event for event in events if type(event) is not SummaryEvent]
            return events
        out: list[Event] = []
        for event in events:
            if type(event) is PartDeltaEvent:
                out.append(PartDeltaEvent(event.index + self._added_parts, event.delta) if self._added_parts else event)
                continue
            step = _HANDLERS.get(type(event))
            if step is None:
                out.append(event)
            else:
                step(self, event, out)
        return out

    def _turn_start(self, event: ResponseStartEvent, out: list[Event]) -> None:
        self._added_parts = self._next_index = 0
        self._last_part_kind = None
        self.wants_deltas = False
        out.append(event)

    def _summary(self, event: SummaryEvent, out: list[Event]) -> None:
        if self._viewer.summaries and event.text:
            self._summaries.append(event.text)

    def _part_start(self, event: PartStartEvent, out: list[Event]) -> None:
        if self._added_parts:
            event = replace(event, index=event.index + self._added_parts, previous_part_kind=self._last_part_kind)
        out.append(event)

    def _part_end(self, event: PartEndEvent, out: list[Event]) -> None:
        self._next_index = event.index + 1
        self._last_part_kind = event.part.part_kind
        out.append(PartEndEvent(event.index + self._added_parts, event.part) if self._added_parts else event)

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        summaries, self._summaries = self._summaries, []
        for text in summaries:
            part = ThinkingPart(text, form="summary")
            out += part_events(self._next_index + self._added_parts, part, self._last_part_kind)
            self._added_parts += 1
            self.wants_deltas = True
            self._last_part_kind = part.part_kind
        out.append(event)

    def _redact_counts(self, event: ResponseEndEvent | RunEndEvent, out: list[Event]) -> None:
        out.append(replace(event, usage=redact_usage(event.usage, self._viewer)))


_HANDLERS: dict[type[Any], Callable[[FullRedactor, Any, list[Event]], None]] = {
    ResponseStartEvent: FullRedactor._turn_start,
    SummaryEvent: FullRedactor._summary,
    PartStartEvent: FullRedactor._part_start,
    PartEndEvent: FullRedactor._part_end,
    ItemEndEvent: FullRedactor._item_end,
    ResponseEndEvent: FullRedactor._redact_counts,
    RunEndEvent: FullRedactor._redact_counts,
}
"""The kinds of events that may change."""


class Redactor:
    """Redactor for one viewer: `feed` the events of one run, batch by batch, from the beginning of the run.

    It numbers items and parts without gaps, so each read of a run needs a redactor of its own.

    Args:
        viewer: The viewer.
        side_event_fields: The side events that are shown in restricted views, and their fields.
    """

    __slots__ = ("_machine", "feed")

    feed: Callable[[list[Event]], list[Event]]
    """Redact a batch of events. It returns the same list if nothing changes."""

    def __init__(self, viewer: Viewer, side_event_fields: SideEventFields = SIDE_EVENT_FIELDS) -> None:
        self._machine = FullRedactor(viewer) if viewer.rule.is_full else RestrictedRedactor(viewer, side_event_fields)
        self.feed = self._machine.feed

    @property
    def wants_deltas(self) -> bool:
        """Whether `feed` must be called for a batch with one `PartDeltaEvent`. False while deltas pass unchanged.

        The value may change with each call of `feed`.
        """
        return self._machine.wants_deltas
