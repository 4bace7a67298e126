"""The one reader: turns events into messages, and states the legal order.

The rules. `Fold.feed` raises `IllegalEvent` with the rule's name for the first event that breaks one.

    turn        ResponseStart opens a turn, ResponseEnd closes it; turns do not nest. Item, part and error events
                stand inside a turn; tool calls, tool results and RunEnd outside.
    item        ItemStart opens an item, ItemEnd closes it; at most one is open. `index` counts 0, 1, 2 … in a turn.
    part        PartStart opens a part inside an item, PartEnd closes it; at most one is open. `index` counts
                0, 1, 2 … in a turn, across items.
    kind        A part lives in an item of its kind; a delta and an end are of their part's kind.
    text        Parts with text open empty; the end's text and signature are exactly what the deltas added up to. A
                part without deltas is at its end what it was at its start.
    empty       A delta says something; a thinking part has text, a signature or details; an item other than
                reasoning has at least one part. What was cut off may be empty.
    closed      Items, the error and the turn end only when everything inside them is closed.
    incomplete  A part that was cut off makes its item incomplete. (Other items may follow it: several blocks can be
                under way when a turn is cut.)
    error       At most one error in a turn, and only ResponseEnd after it.
    result      A tool result answers a call that was announced, once. (A retry prompt that names no tool answers the
                turn itself.)
    summary     A summary of ours stands inside the reasoning item that it tells of; no message holds it.
    run         RunEnd comes once, outside a turn, and last.

Side events and FinalResult may stand anywhere before RunEnd and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from msgspec.structs import replace

from .errors import ErrorInfo, IllegalEvent
from .events import (
    ITEM_OF,
    ErrorEvent,
    Event,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from .growing import TEXT_FIELD, GrowingPart, text_of
from .parts import (
    DELTA_OF,
    OPAQUE_FIELDS,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    PartDelta,
    RetryPromptPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    has_opaque,
)


class Fold:
    """Feed it events; read what they amount to.

    `messages` holds every whole turn so far, and the tool results between turns; `response` is the last turn that
    ended; `snapshot()` is the turn under way.
    """

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self.response: ModelResponse | None = None
        self.error: ErrorInfo | None = None
        self.ended: RunEndEvent | None = None
        self.usage = Usage()
        self._turn: ResponseStartEvent | None = None
        self._failed = False
        self._items = 0
        self._starts = 0
        self._parts: list[ModelResponsePart] = []
        self._item: ItemStartEvent | None = None
        self._item_first = 0
        self._open: PartStartEvent | None = None
        self._delta: type[PartDelta] | None = None
        self._growing: GrowingPart | None = None
        self._text_field = ""
        self._calls: dict[str, ToolCallPart | None] = {}
        """The calls that were announced: the part until it is answered, then None."""
        self._results: list[ToolReturnPart | RetryPromptPart] = []

    def feed(self, event: Event) -> None:
        """Take one event. Raises `IllegalEvent` if it may not stand here."""
        # Deltas are nearly all there is: they do not pay for the table.
        if type(event) is PartDeltaEvent:
            self.delta(event)
        else:
            if self.ended is not None:
                _refuse("run", f"{event.event_kind} after run_end")
            _STEPS[type(event)](self, event)

    def snapshot(self) -> ModelResponse | None:
        """The turn under way, its open part marked incomplete; None between turns."""
        if self._turn is None:
            return None
        parts = list(self._parts)
        if self._growing is not None:
            parts.append(self._growing.whole(complete=False))
        return ModelResponse(
            parts,
            origin=self._turn.origin,
            model_name=self._turn.model_name,
            provider_response_id=self._turn.provider_response_id,
        )

    @property
    def unanswered(self) -> list[ToolCallPart]:
        """The calls that were announced and have no result."""
        return [call for call in self._calls.values() if call is not None]

    def closing(self, error: ErrorInfo | None) -> list[ModelEvent]:
        """What closes a turn that broke off here, innermost first: because of `error`, or cancelled. Nothing is fed."""
        if self._turn is None:
            return []
        out: list[ModelEvent] = []
        if self._open is not None:
            part = self._growing.whole(complete=False) if self._growing is not None else self._open.part
            out.append(PartEndEvent(self._open.index, part))
        if self._item is not None:
            out.append(ItemEndEvent(self._item.index, "incomplete"))
        if error is not None and not self._failed:
            out.append(ErrorEvent(error))
        out.append(ResponseEndEvent(None if error is None else "error"))
        return out

    # --- turns -----------------------------------------------------------------------------------------------

    def _response_start(self, event: ResponseStartEvent) -> None:
        if self._turn is not None:
            _refuse("turn", "response_start inside a turn")
        self._flush_results()
        self._turn = event
        self._failed = False
        self._items = self._starts = 0
        self._parts = []

    def _response_end(self, event: ResponseEndEvent) -> None:
        turn = self._inside(event)
        self._all_closed(event)
        self.response = ModelResponse(
            self._parts,
            usage=event.usage,
            origin=turn.origin,
            model_name=event.model_name or turn.model_name,
            provider_response_id=event.provider_response_id or turn.provider_response_id,
            finish_reason=event.finish_reason,
            native_finish_reason=event.native_finish_reason,
            provider_details=event.provider_details,
        )
        self.messages.append(self.response)
        self.usage = self.usage + event.usage
        self._turn = None

    def _error(self, event: ErrorEvent) -> None:
        self._inside(event)
        self._all_closed(event)
        if self._failed:
            _refuse("error", "a second error in one turn")
        self._failed = True
        self.error = event.error

    # --- items -----------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent) -> None:
        self._inside(event)
        if self._item is not None:
            _refuse("item", f"item {event.index} opens while item {self._item.index} is open")
        if event.index != self._items:
            _refuse("item", f"item index {event.index}, expected {self._items}")
        self._item = event
        self._item_first = len(self._parts)

    def _item_end(self, event: ItemEndEvent) -> None:
        self._inside(event)
        item = self._item
        if item is None or event.index != item.index:
            _refuse("item", f"item {event.index} closes but is not open")
        if self._open is not None:
            _refuse("closed", f"item {event.index} closes while part {self._open.index} is open")
        parts = self._parts[self._item_first :]
        if not parts and item.kind != "reasoning" and event.status == "completed":
            _refuse("empty", f"a {item.kind} item without a part")
        cut = any(not getattr(part, "complete", True) for part in parts)
        if cut and event.status == "completed":
            _refuse("incomplete", f"item {event.index} is completed but a part of it was cut off")
        self._parts[self._item_first :] = item_parts(parts, item, event)
        self._item = None
        self._items += 1

    # --- parts -----------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent) -> None:
        self._inside(event)
        if self._item is None:
            _refuse("part", f"part {event.index} opens outside an item")
        if self._open is not None:
            _refuse("part", f"part {event.index} opens while part {self._open.index} is open")
        if event.index != self._starts:
            _refuse("part", f"part index {event.index}, expected {self._starts}")
        kind = ITEM_OF[type(event.part)]
        if kind != self._item.kind:
            _refuse("kind", f"a {event.part.part_kind} part in a {self._item.kind} item")
        self._delta = DELTA_OF.get(type(event.part))
        if self._delta is not None and text_of(event.part):
            _refuse("text", f"part {event.index} opens with text; text comes in deltas")
        self._open = event
        self._starts += 1
        if self._delta is not None:
            self._growing = GrowingPart(event.part)
            self._text_field = TEXT_FIELD[self._delta]

    def delta(self, event: PartDeltaEvent) -> None:
        """`feed` for what is known to be a delta."""
        open_ = self._open
        if open_ is None or event.index != open_.index:
            _refuse("part", f"a delta for part {event.index}, which is not open")
        delta = event.delta
        kind = self._delta
        if kind is None or type(delta) is not kind:
            _refuse("kind", f"a {delta.part_delta_kind} delta for a {open_.part.part_kind} part")
        growing = self._growing
        assert growing is not None
        text = getattr(delta, self._text_field)
        if text:
            growing.text.add(text)
            # Nearly every delta is text and nothing else.
            if delta != kind(text):
                growing.add_rest(delta)
        elif not growing.add_rest(delta):
            _refuse("empty", f"a delta for part {event.index} that says nothing")

    def add_text(self, text: str) -> None:
        """Take more text of the open part, whose deltas are not fed."""
        if self._growing is not None:
            self._growing.text.add(text)

    def _part_end(self, event: PartEndEvent) -> None:
        open_, part = self._open, event.part
        if open_ is None or event.index != open_.index:
            _refuse("part", f"part {event.index} closes but is not open")
        if type(part) is not type(open_.part):
            _refuse("kind", f"part {event.index} opened as {open_.part.part_kind}, closes as {part.part_kind}")
        growing = self._growing
        if growing is None:
            if part != open_.part:
                _refuse("text", f"part {event.index} came whole, and is another at its end")
        elif text_of(part) != growing.text.value() or not _agree(part, growing):
            _refuse("text", f"the end of part {event.index} is not what its deltas added up to")
        empty = isinstance(part, ThinkingPart) and not (part.content or has_opaque(part))
        if empty and getattr(part, "complete", True):
            _refuse("empty", f"thinking part {event.index} holds nothing")
        # Only now, so that after a refusal what is open can still be closed.
        self._parts.append(part)
        self._open = self._growing = None

    # --- the run ---------------------------------------------------------------------------------------------

    def _tool_call(self, event: FunctionToolCallEvent) -> None:
        self._outside(event)
        self._calls[event.part.tool_call_id] = event.part

    def _tool_result(self, event: FunctionToolResultEvent) -> None:
        self._outside(event)
        result = event.result
        call_id = result.tool_call_id
        if isinstance(result, RetryPromptPart) and result.tool_name is None:
            self._results.append(result)
            return
        if self._calls.get(call_id) is None:
            _refuse("result", f"a result for call {call_id!r}, which is not waiting for one")
        self._calls[call_id] = None
        self._results.append(event.result)

    def _run_end(self, event: RunEndEvent) -> None:
        self._outside(event)
        self._flush_results()
        self.ended = event
        self.error = event.error or self.error

    def _summary(self, event: SummaryEvent) -> None:
        self._inside(event)
        item = self._item
        if item is None or item.index != event.index or item.kind != "reasoning":
            _refuse("summary", f"a summary of item {event.index}, which is not an open reasoning item")
        if not event.text:
            _refuse("empty", f"a summary of item {event.index} that says nothing")

    def _anywhere(self, event: SideEvent | FinalResultEvent) -> None:
        pass

    # --- the rules' common parts -----------------------------------------------------------------------------

    def _inside(self, event: Event) -> ResponseStartEvent:
        if self._turn is None:
            _refuse("turn", f"{event.event_kind} outside a turn")
        if self._failed and not isinstance(event, ResponseEndEvent):
            _refuse("error", f"{event.event_kind} after the turn's error")
        return self._turn

    def _outside(self, event: Event) -> None:
        if self._turn is not None:
            rule = "run" if isinstance(event, RunEndEvent) else "turn"
            _refuse(rule, f"{event.event_kind} inside a turn")

    def _all_closed(self, event: Event) -> None:
        if self._open is not None:
            _refuse("closed", f"{event.event_kind} while part {self._open.index} is open")
        if self._item is not None:
            _refuse("closed", f"{event.event_kind} while item {self._item.index} is open")

    def _flush_results(self) -> None:
        if self._results:
            self.messages.append(ModelRequest(list(self._results)))
            self._results = []


def fold(events: list[Event]) -> Fold:
    """Fold a whole list. Raises `IllegalEvent`."""
    folded = Fold()
    for event in events:
        folded.feed(event)
    return folded


def _agree(part: ModelResponsePart, growing: GrowingPart) -> bool:
    """Whether the end has the opaque data that deltas brought; of details, which merge, this is not asked."""
    for name in OPAQUE_FIELDS:
        value, brought = getattr(part, name), growing.beside.get(name)
        if value != brought and not isinstance(brought or value, dict):
            return False
    return True


def item_parts(parts: list[ModelResponsePart], start: ItemStartEvent, end: ItemEndEvent) -> list[ModelResponsePart]:
    """The parts of an item as its message holds them: with its public id, its own signature and native data on the
    first."""
    if not parts and start.kind == "reasoning":
        # A signature (or nothing but an id) in place of any text is still a thought that happened.
        parts = [ThinkingPart("", id=start.native_id, complete=end.status == "completed")]
    if not parts:
        return []
    if start.id is not None:
        parts = [part if part.item_id is not None else replace(part, item_id=start.id) for part in parts]
    first = parts[0]
    changes: dict[str, Any] = {}
    if end.signature is not None and hasattr(first, "signature"):
        changes["signature"] = end.signature
    if end.native is not None and hasattr(first, "provider_details"):
        changes["provider_details"] = {**(first.provider_details or {}), "native": end.native}
    if changes and end.origin is not None:
        changes["provider_name"] = end.origin.provider
    return [replace(first, **changes), *parts[1:]] if changes else parts


def _refuse(rule: str, message: str) -> NoReturn:
    raise IllegalEvent(rule, message)


_STEPS: dict[type[Event], Callable[[Fold, Any], None]] = {
    ResponseStartEvent: Fold._response_start,
    ResponseEndEvent: Fold._response_end,
    ErrorEvent: Fold._error,
    ItemStartEvent: Fold._item_start,
    ItemEndEvent: Fold._item_end,
    PartStartEvent: Fold._part_start,
    PartDeltaEvent: Fold.delta,
    PartEndEvent: Fold._part_end,
    FunctionToolCallEvent: Fold._tool_call,
    FunctionToolResultEvent: Fold._tool_result,
    FinalResultEvent: Fold._anywhere,
    SideEvent: Fold._anywhere,
    SummaryEvent: Fold._summary,
    RunEndEvent: Fold._run_end,
}
