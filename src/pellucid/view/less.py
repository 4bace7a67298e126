"""The views of those who may not see raw reasoning: `summary`, `sealed`, `hidden`.

What is left of a stream is a stream again: items and parts are counted anew, in every turn. The rules:

* A reasoning item keeps its start and its end, and is told at once; for `hidden` it does not exist.
* Any other item is told with the first part of it that leaves. If none does, it is left out; but if its end has a seal
  that this reader may hold, it is told as reasoning, with nothing but its start, its end and the seal.
* A summary is told with its first text. Ours is a part of its own, and waits for the provider's that is under way.
* Deltas that do not leave are not looked at, and no event leaves whose kind is not in the table below; of side events,
  only what is named for them.

An allow-list of names, and of fields within them: what an agent says of its own state, steps, activities and helpers,
and what it asks people. What could hold a model's words in full (messages, calls, raw and custom events) does not
leave, nor does what each event is open to: `metadata`, and `rawEvent`, which is what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..emit import whole_part
from ..events import (
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
from ..parts import ModelResponsePart, ThinkingPart
from .fields import RULES, rule
from .reader import Reader
from .values import leaves, redact_error, redact_usage, shown_part

_OWNED = frozenset({"timestamp", "subagentRunId"})
_STEP = _OWNED | {"stepName"}
_ACTIVITY = _OWNED | {"messageId", "activityType"}
_PARENTS = frozenset({"parentSubagentRunId", "parentToolCallId", "parentMessageId"})
# The one place for what an application has to know beside the question: here `metadata` is the agent's word, too.
_INTERRUPT = frozenset(
    ["id", "reason", "message", "toolCallId", "responseSchema", "expiresAt", "metadata", "subagentRunId"]
)

SIDES: dict[tuple[str, str], frozenset[str] | None] = {
    ("queue", "loading"): None,
    ("queue", "position"): None,
    ("queue", "waited"): None,
    ("agui", "STATE_SNAPSHOT"): _OWNED | {"snapshot"},
    ("agui", "STATE_DELTA"): _OWNED | {"delta"},
    ("agui", "STEP_STARTED"): _STEP,
    ("agui", "STEP_FINISHED"): _STEP,
    ("agui", "ACTIVITY_SNAPSHOT"): _ACTIVITY | {"content", "replace"},
    ("agui", "ACTIVITY_DELTA"): _ACTIVITY | {"patch"},
    ("agui", "SUBAGENT_STARTED"): _OWNED | _PARENTS | {"name", "description"},
    ("agui", "SUBAGENT_FINISHED"): _OWNED | {"result", "outcome"},
    ("agui", "SUBAGENT_ERROR"): _OWNED | {"message", "code"},
    ("agui", "interrupt"): _INTERRUPT,
    ("agui", "result"): None,
    ("run", "deferred"): frozenset(["tool_call_id", "tool_name", "approval", "message", "metadata", "response_schema"]),
}
"""The fields of its value that leave, by namespace and name; None: the value is one thing, and leaves whole."""


def shown_side(event: SideEvent) -> SideEvent | None:
    """What of a side event leaves; None if nothing does."""
    fields = SIDES.get((event.namespace, event.name), frozenset())
    if fields is None:
        return event
    value = event.value
    if not fields or not isinstance(value, dict):
        return None
    return SideEvent(event.namespace, event.name, {name: value[name] for name in value if name in fields})


class Lesser:
    """The machine for a reader of less than raw reasoning."""

    wants_deltas = True

    __slots__ = ("_begun", "_item", "_items", "_last", "_parts", "_reader", "_rule", "_summaries", "_telling", "_told")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rule = reader.rule
        self._items = 0
        self._parts = 0
        self._last: str | None = None
        """The kind of the part that was told last in this turn."""
        self._item: ItemStartEvent | None = None
        """The open item."""
        self._told = False
        """Whether it was told."""
        self._telling = False
        """Whether the open part is told."""
        self._begun: ModelResponsePart | None = None
        """A summary that has begun, and says nothing yet."""
        self._summaries: list[str] = []
        """Ours, that wait for the open part to end."""

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            # Deltas are nearly all there is.
            if type(event) is PartDeltaEvent:
                if self._telling or self._begun is not None:
                    self._delta(event, out)
            else:
                step = _STEPS.get(type(event))
                if step is not None:
                    step(self, event, out)
        return out

    # --- turns -------------------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent, out: list[Event]) -> None:
        self._items = self._parts = 0
        self._last = None
        out.append(_TURN_START(event))

    def _turn_end(self, event: ResponseEndEvent, out: list[Event]) -> None:
        out.append(_TURN_END(event, usage=redact_usage(event.usage, self._reader)))

    def _error(self, event: ErrorEvent, out: list[Event]) -> None:
        out.append(ErrorEvent(redact_error(event.error, self._reader)))

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, out: list[Event]) -> None:
        self._item, self._told = event, False
        if event.kind == "reasoning" and self._rule.items:
            self._tell(event.kind, out)

    def _tell(self, kind: ItemKind, out: list[Event]) -> None:
        if self._item is not None and not self._told:
            self._told = True
            out.append(_ITEM_START(self._item, index=self._items, kind=kind))

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        seal = event.seal if self._rule.seals else None
        if seal is not None:
            self._tell("reasoning", out)
        if self._told:
            out.append(_ITEM_END(event, index=self._items, seal=seal))
            self._items += 1
        self._item, self._told = None, False

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, out: list[Event]) -> None:
        if leaves(event.part, self._rule):
            if type(event.part) is ThinkingPart:
                self._begun = event.part
            else:
                self._open(event.part, out)

    def _open(self, part: ModelResponsePart, out: list[Event]) -> None:
        if self._item is not None:
            self._tell(self._item.kind, out)
        out.append(PartStartEvent(self._parts, shown_part(part), self._last))
        self._telling, self._begun = True, None

    def _delta(self, event: PartDeltaEvent, out: list[Event]) -> None:
        delta = event.delta
        allowed = RULES[type(delta)]
        if not allowed.covers(delta):
            delta = allowed(delta)
            if not any(getattr(delta, name) for name in delta.__struct_fields__):
                return  # all that it brought is withheld
        if self._begun is not None:
            self._open(self._begun, out)
        out.append(PartDeltaEvent(self._parts, delta))

    def _part_end(self, event: PartEndEvent, out: list[Event]) -> None:
        self._begun = None
        if self._telling:
            self._telling = False
            out.append(PartEndEvent(self._parts, shown_part(event.part)))
            self._parts += 1
            self._last = event.part.part_kind
        waiting, self._summaries = self._summaries, []
        for text in waiting:
            self._add(text, out)

    def _summary(self, event: SummaryEvent, out: list[Event]) -> None:
        if "summary" not in self._rule.forms or not event.text:
            return
        if self._telling or self._begun is not None:
            self._summaries.append(event.text)
        else:
            self._add(event.text, out)

    def _add(self, text: str, out: list[Event]) -> None:
        part = ThinkingPart(text, form="summary")
        out += whole_part(self._parts, part, self._last)
        self._parts += 1
        self._last = part.part_kind

    # --- the run -----------------------------------------------------------------------------------------------

    def _as_named(self, event: Event, out: list[Event]) -> None:
        out.append(RULES[type(event)](event))

    def _side(self, event: SideEvent, out: list[Event]) -> None:
        shown = shown_side(event)
        if shown is not None:
            out.append(shown)

    def _run_end(self, event: RunEndEvent, out: list[Event]) -> None:
        error = None if event.error is None else redact_error(event.error, self._reader)
        out.append(_RUN_END(event, usage=redact_usage(event.usage, self._reader), error=error))


_TURN_START, _TURN_END, _RUN_END = rule(ResponseStartEvent), rule(ResponseEndEvent), rule(RunEndEvent)
_ITEM_START, _ITEM_END = rule(ItemStartEvent), rule(ItemEndEvent)

_STEPS: dict[type[Any], Callable[[Lesser, Any, list[Event]], None]] = {
    ResponseStartEvent: Lesser._turn_start,
    ResponseEndEvent: Lesser._turn_end,
    ErrorEvent: Lesser._error,
    ItemStartEvent: Lesser._item_start,
    ItemEndEvent: Lesser._item_end,
    PartStartEvent: Lesser._part_start,
    PartEndEvent: Lesser._part_end,
    SummaryEvent: Lesser._summary,
    FunctionToolCallEvent: Lesser._as_named,
    FunctionToolResultEvent: Lesser._as_named,
    FinalResultEvent: Lesser._as_named,
    SideEvent: Lesser._side,
    RunEndEvent: Lesser._run_end,
}
"""The events that leave, beside deltas."""
