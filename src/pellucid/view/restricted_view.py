"""The restricted views `summary`, `sealed` and `hidden`, for viewers who may not see raw reasoning.

The redacted events are a legal stream: items and parts are numbered again in every turn. The rules:

* A reasoning item keeps its start and its end, and its start is shown at once. In the `hidden` view it does not exist.
* Any other item starts with the first part of it that is shown. If none is shown, the item is left out; but if its end
  has a seal that this viewer may have, it is shown as reasoning, with only its start, its end and the seal.
* A compaction that was made here keeps its start, its end and its seal in every view: the client asked for it, and
  cannot read it.
* A provider's summary starts with its first text. The gateway's summary is a part of its own, and is delayed while the
  provider's is open.
* Deltas of parts that are not shown are skipped. Only kinds of events in the table below are shown.
* A side event is shown if the protocol whose viewer it is names it, with only the fields that are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..emit import part_events
from ..events import (
    SUMMARY_NOTE,
    ErrorEvent,
    Event,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemKind,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from ..parts import CompactionPart, ModelResponsePart, ThinkingPart
from .fields import STRUCT_REDACTORS, struct_redactor
from .values import is_shown, redact_error, redact_part, redact_usage
from .viewer import Viewer

SideEventFields: TypeAlias = Mapping[tuple[str, str], frozenset[str] | None]
"""By the namespace and the name of a side event, the fields of its value that are shown; None: the whole value."""

SIDE_EVENT_FIELDS: SideEventFields = {
    ("queue", "loading"): None,
    ("queue", "position"): None,
    ("queue", "waited"): None,
    SUMMARY_NOTE: None,
    ("run", "deferred"): frozenset(
        ["tool_call_id", "tool_name", "approval", "message", "metadata", "response_schema", "seal"]
    ),
}
"""The side events that are shown in every protocol."""


class RestrictedRedactor:
    """Redactor for the views `summary`, `sealed` and `hidden`."""

    wants_deltas = True

    __slots__ = (
        "_item",
        "_item_index",
        "_item_started",
        "_last_part_kind",
        "_part_index",
        "_part_started",
        "_pending_part",
        "_rule",
        "_side_event_fields",
        "_summaries",
        "_viewer",
    )

    def __init__(self, viewer: Viewer, side_event_fields: SideEventFields = SIDE_EVENT_FIELDS) -> None:
        self._viewer = viewer
        self._rule = viewer.rule
        self._side_event_fields = side_event_fields
        self._item_index = 0
        self._part_index = 0
        self._last_part_kind: str | None = None
        """The kind of the last part that was shown in this turn."""
        self._item: ItemStartEvent | None = None
        """The open item."""
        self._item_started = False
        """Whether the open item's start was written."""
        self._part_started = False
        """Whether the open part's start was written."""
        self._pending_part: ModelResponsePart | None = None
        """A thinking part that has begun and has no text yet."""
        self._summaries: list[str] = []
        """The gateway's summaries that wait for the open part to end."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Redact a batch of events."""
        out: list[Event] = []
        for event in events:
            # Nearly all events are deltas.
            if type(event) is PartDeltaEvent:
                if self._part_started or self._pending_part is not None:
                    self._delta(event, out)
            else:
                step = _HANDLERS.get(type(event))
                if step is not None:
                    step(self, event, out)
        return out

    # --- turns -------------------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent, out: list[Event]) -> None:
        self._item_index = self._part_index = 0
        self._last_part_kind = None
        out.append(_TURN_START(event))

    def _turn_end(self, event: ResponseEndEvent, out: list[Event]) -> None:
        out.append(_TURN_END(event, usage=redact_usage(event.usage, self._viewer)))

    def _error(self, event: ErrorEvent, out: list[Event]) -> None:
        out.append(ErrorEvent(redact_error(event.error, self._viewer)))

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, out: list[Event]) -> None:
        self._item, self._item_started = event, False
        if event.kind == "reasoning" and self._rule.items:
            self._start_item(event.kind, out)

    def _start_item(self, kind: ItemKind, out: list[Event]) -> None:
        if self._item is not None and not self._item_started:
            self._item_started = True
            out.append(_ITEM_START(self._item, index=self._item_index, kind=kind))

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        is_own_compaction = self._item_started and self._item is not None and self._item.kind == "compaction"
        seal = event.seal if self._rule.seals or is_own_compaction else None
        if seal is not None:
            self._start_item("reasoning", out)
        if self._item_started:
            out.append(_ITEM_END(event, index=self._item_index, seal=seal))
            self._item_index += 1
        self._item, self._item_started = None, False

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, out: list[Event]) -> None:
        if type(event.part) is CompactionPart and event.part.is_own:
            self._start_item("compaction", out)
            self._add_part(CompactionPart(), out)
        elif is_shown(event.part, self._rule):
            if type(event.part) is ThinkingPart:
                self._pending_part = event.part
            else:
                self._start_part(event.part, out)

    def _start_part(self, part: ModelResponsePart, out: list[Event]) -> None:
        if self._item is not None:
            self._start_item(self._item.kind, out)
        out.append(PartStartEvent(self._part_index, redact_part(part), self._last_part_kind))
        self._part_started, self._pending_part = True, None

    def _delta(self, event: PartDeltaEvent, out: list[Event]) -> None:
        delta = event.delta
        redactor = STRUCT_REDACTORS[type(delta)]
        if not redactor.has_only_named_fields(delta):
            delta = redactor(delta)
            if not any(getattr(delta, name) for name in delta.__struct_fields__):
                return  # everything in the delta is withheld
        if self._pending_part is not None:
            self._start_part(self._pending_part, out)
        out.append(PartDeltaEvent(self._part_index, delta))

    def _part_end(self, event: PartEndEvent, out: list[Event]) -> None:
        self._pending_part = None
        if self._part_started:
            self._part_started = False
            out.append(PartEndEvent(self._part_index, redact_part(event.part)))
            self._part_index += 1
            self._last_part_kind = event.part.part_kind
        summaries, self._summaries = self._summaries, []
        for text in summaries:
            self._add_summary(text, out)

    def _summary(self, event: SummaryEvent, out: list[Event]) -> None:
        if "summary" not in self._rule.forms or not event.text:
            return
        if self._part_started or self._pending_part is not None:
            self._summaries.append(event.text)
        else:
            self._add_summary(event.text, out)

    def _add_summary(self, text: str, out: list[Event]) -> None:
        self._add_part(ThinkingPart(text, form="summary"), out)

    def _add_part(self, part: ModelResponsePart, out: list[Event]) -> None:
        out += part_events(self._part_index, part, self._last_part_kind)
        self._part_index += 1
        self._last_part_kind = part.part_kind

    # --- the run -----------------------------------------------------------------------------------------------

    def _redact(self, event: Event, out: list[Event]) -> None:
        out.append(STRUCT_REDACTORS[type(event)](event))

    def _side(self, event: SideEvent, out: list[Event]) -> None:
        fields, value = self._side_event_fields.get((event.namespace, event.name), frozenset()), event.value
        if fields is None:
            out.append(event)
        elif fields and isinstance(value, dict):
            shown = {name: value[name] for name in value if name in fields}
            out.append(SideEvent(event.namespace, event.name, shown))

    def _run_end(self, event: RunEndEvent, out: list[Event]) -> None:
        error = None if event.error is None else redact_error(event.error, self._viewer)
        out.append(_RUN_END(event, usage=redact_usage(event.usage, self._viewer), error=error))


_TURN_START, _TURN_END, _RUN_END = (
    struct_redactor(ResponseStartEvent),
    struct_redactor(ResponseEndEvent),
    struct_redactor(RunEndEvent),
)
_ITEM_START, _ITEM_END = struct_redactor(ItemStartEvent), struct_redactor(ItemEndEvent)

_HANDLERS: dict[type[Any], Callable[[RestrictedRedactor, Any, list[Event]], None]] = {
    ResponseStartEvent: RestrictedRedactor._turn_start,
    ResponseEndEvent: RestrictedRedactor._turn_end,
    ErrorEvent: RestrictedRedactor._error,
    ItemStartEvent: RestrictedRedactor._item_start,
    ItemEndEvent: RestrictedRedactor._item_end,
    PartStartEvent: RestrictedRedactor._part_start,
    PartEndEvent: RestrictedRedactor._part_end,
    SummaryEvent: RestrictedRedactor._summary,
    FunctionToolCallEvent: RestrictedRedactor._redact,
    FunctionToolResultEvent: RestrictedRedactor._redact,
    FinalResultEvent: RestrictedRedactor._redact,
    SideEvent: RestrictedRedactor._side,
    RunEndEvent: RestrictedRedactor._run_end,
}
"""The kinds of events that are shown, except deltas."""
