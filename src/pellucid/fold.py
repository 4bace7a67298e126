"""Fold events into messages, and check their legal order.

The rules. `Fold.feed` raises `IllegalEvent` with the rule's name for the first event that breaks one.

    turn        ResponseStart opens a turn, ResponseEnd closes it; turns do not nest. Item, part and error events
                are inside a turn; tool calls, tool results and RunEnd outside.
    item        ItemStart opens an item, ItemEnd closes it; at most one is open. `index` counts 0, 1, 2 … in a turn.
    part        PartStart opens a part inside an item, PartEnd closes it; at most one is open. `index` counts
                0, 1, 2 … in a turn, across items.
    kind        A part is in an item of its kind; a delta and an end are of their part's kind.
    text        Parts with text open empty; the text and signature at the end are exactly the sum of the deltas. A
                part without deltas is the same at its end as at its start.
    empty       A delta has content; a thinking part has text, a signature or details; an item other than reasoning
                has at least one part. A part or item that was cut off may be empty.
    closed      Items, the error and the turn end only when everything inside them is closed.
    incomplete  A part that was cut off makes its item incomplete. (Other items may follow it: several blocks can be
                open when a turn is cut off.)
    error       At most one error in a turn, and only ResponseEnd after it.
    result      A tool result answers an announced call, once. (A retry prompt that names no tool answers the turn
                itself.)
    summary     A summary by the gateway is inside its reasoning item; no message holds it.
    run         RunEnd comes once, outside a turn, and last.

Side events and FinalResult may come anywhere before RunEnd and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from msgspec.structs import replace

from .accumulator import TEXT_FIELD, PartAccumulator, streamed_text
from .errors import ErrorInfo, IllegalEvent
from .events import (
    ITEM_OF,
    ErrorEvent,
    Event,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemKind,
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
    are_complete,
    has_opaque_data,
)


class Fold:
    """A machine that folds events into messages.

    Attributes:
        messages: Every complete turn so far, and the tool results between turns.
        response: The last complete turn; `snapshot()` is the current one.
        error: The last error.
        run_end: The run's end, once it has ended.
        usage: The sum over the turns.
    """

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self.response: ModelResponse | None = None
        self.error: ErrorInfo | None = None
        self.run_end: RunEndEvent | None = None
        self.usage = Usage()
        self._turn: ResponseStartEvent | None = None
        self._failed = False
        self._item_index = 0
        self._part_index = 0
        self._parts: list[ModelResponsePart] = []
        self._item: ItemStartEvent | None = None
        self._item_first_part = 0
        self._open_part: PartStartEvent | None = None
        self._delta_type: type[PartDelta] | None = None
        self._accumulator: PartAccumulator | None = None
        self._text_field = ""
        self._announced_calls: dict[str, ToolCallPart | None] = {}
        """The announced calls by id: the part until it has a result, then None."""
        self._results: list[ToolReturnPart | RetryPromptPart] = []

    def feed(self, event: Event) -> None:
        """Process one event.

        Raises:
            IllegalEvent: The event breaks a rule.
        """
        # Nearly all events are deltas: they skip the table.
        if type(event) is PartDeltaEvent:
            self.feed_delta(event)
        else:
            if self.run_end is not None:
                _raise_illegal("run", f"{event.event_kind} after run_end")
            _HANDLERS[type(event)](self, event)

    def snapshot(self) -> ModelResponse | None:
        """Return the current turn, its open part marked incomplete; None between turns."""
        if self._turn is None:
            return None
        parts = list(self._parts)
        if self._accumulator is not None:
            parts.append(self._accumulator.result(complete=False))
        return ModelResponse(
            parts,
            origin=self._turn.origin,
            model_name=self._turn.model_name,
            provider_response_id=self._turn.provider_response_id,
        )

    @property
    def open_item(self) -> ItemKind | None:
        """The kind of the item that is open now."""
        return self._item.kind if self._item is not None else None

    @property
    def characters(self) -> int:
        """Number of characters of the model's output so far, including reasoning and arguments of calls."""
        parts = [part for message in self.messages if isinstance(message, ModelResponse) for part in message.parts]
        if self._turn is not None:
            parts += self._parts
        finished = sum(len(streamed_text(part)) for part in parts)
        return finished + (self._accumulator.text.length if self._accumulator is not None else 0)

    @property
    def unanswered(self) -> list[ToolCallPart]:
        """The announced calls that have no result."""
        return [call for call in self._announced_calls.values() if call is not None]

    def closing_events(self, error: ErrorInfo | None) -> list[ModelEvent]:
        """Return the events that would close a turn that breaks off here, innermost first. They are not fed.

        Args:
            error: Why the turn broke off; None if it was cancelled.
        """
        if self._turn is None:
            return []
        out: list[ModelEvent] = []
        if self._open_part is not None:
            part = self._accumulator.result(complete=False) if self._accumulator is not None else self._open_part.part
            out.append(PartEndEvent(self._open_part.index, part))
        if self._item is not None:
            out.append(ItemEndEvent(self._item.index, "incomplete"))
        if error is not None and not self._failed:
            out.append(ErrorEvent(error))
        out.append(ResponseEndEvent(None if error is None else "error"))
        return out

    # --- turns -----------------------------------------------------------------------------------------------

    def _response_start(self, event: ResponseStartEvent) -> None:
        if self._turn is not None:
            _raise_illegal("turn", "response_start inside a turn")
        self._flush_results()
        self._turn = event
        self._failed = False
        self._item_index = self._part_index = 0
        self._parts = []

    def _response_end(self, event: ResponseEndEvent) -> None:
        start = self._require_turn(event)
        self._require_all_closed(event)
        self.response = ModelResponse(
            self._parts,
            usage=event.usage,
            origin=start.origin,
            model_name=event.model_name or start.model_name,
            provider_response_id=event.provider_response_id or start.provider_response_id,
            finish_reason=event.finish_reason,
            native_finish_reason=event.native_finish_reason,
            provider_details=event.provider_details,
        )
        self.messages.append(self.response)
        self.usage = self.usage + event.usage
        self._turn = None

    def _error(self, event: ErrorEvent) -> None:
        self._require_turn(event)
        self._require_all_closed(event)
        if self._failed:
            _raise_illegal("error", "a second error in one turn")
        self._failed = True
        self.error = event.error

    # --- items -----------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent) -> None:
        self._require_turn(event)
        if self._item is not None:
            _raise_illegal("item", f"item {event.index} opens while item {self._item.index} is open")
        if event.index != self._item_index:
            _raise_illegal("item", f"item index {event.index}, expected {self._item_index}")
        self._item = event
        self._item_first_part = len(self._parts)

    def _item_end(self, event: ItemEndEvent) -> None:
        self._require_turn(event)
        item = self._item
        if item is None or event.index != item.index:
            _raise_illegal("item", f"item {event.index} closes but is not open")
        if self._open_part is not None:
            _raise_illegal("closed", f"item {event.index} closes while part {self._open_part.index} is open")
        parts = self._parts[self._item_first_part :]
        if not parts and item.kind != "reasoning" and event.status == "completed":
            _raise_illegal("empty", f"a {item.kind} item without a part")
        if not are_complete(parts) and event.status == "completed":
            _raise_illegal("incomplete", f"item {event.index} is completed but a part of it was cut off")
        self._parts[self._item_first_part :] = item_parts(parts, item, event)
        self._item = None
        self._item_index += 1

    # --- parts -----------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent) -> None:
        self._require_turn(event)
        if self._item is None:
            _raise_illegal("part", f"part {event.index} opens outside an item")
        if self._open_part is not None:
            _raise_illegal("part", f"part {event.index} opens while part {self._open_part.index} is open")
        if event.index != self._part_index:
            _raise_illegal("part", f"part index {event.index}, expected {self._part_index}")
        kind = ITEM_OF[type(event.part)]
        if kind != self._item.kind:
            _raise_illegal("kind", f"a {event.part.part_kind} part in a {self._item.kind} item")
        self._delta_type = DELTA_OF.get(type(event.part))
        if self._delta_type is not None and streamed_text(event.part):
            _raise_illegal("text", f"part {event.index} opens with text; text comes in deltas")
        self._open_part = event
        self._part_index += 1
        if self._delta_type is not None:
            self._accumulator = PartAccumulator(event.part)
            self._text_field = TEXT_FIELD[self._delta_type]

    def feed_delta(self, event: PartDeltaEvent) -> None:
        """Process an event that is known to be a delta; see `feed`."""
        open_ = self._open_part
        if open_ is None or event.index != open_.index:
            _raise_illegal("part", f"a delta for part {event.index}, which is not open")
        delta = event.delta
        kind = self._delta_type
        if kind is None or type(delta) is not kind:
            _raise_illegal("kind", f"a {delta.part_delta_kind} delta for a {open_.part.part_kind} part")
        accumulator = self._accumulator
        assert accumulator is not None
        text = getattr(delta, self._text_field)
        if text:
            accumulator.text.add(text)
            # Nearly every delta has text only.
            if delta != kind(text):
                accumulator.add_metadata(delta)
        elif not accumulator.add_metadata(delta):
            _raise_illegal("empty", f"a delta for part {event.index} that says nothing")

    def add_text(self, text: str) -> None:
        """Add text to the open part, whose deltas are not fed."""
        if self._accumulator is not None:
            self._accumulator.text.add(text)

    def _part_end(self, event: PartEndEvent) -> None:
        open_, part = self._open_part, event.part
        if open_ is None or event.index != open_.index:
            _raise_illegal("part", f"part {event.index} closes but is not open")
        if type(part) is not type(open_.part):
            _raise_illegal("kind", f"part {event.index} opened as {open_.part.part_kind}, closes as {part.part_kind}")
        accumulator = self._accumulator
        if accumulator is None:
            if part != open_.part:
                _raise_illegal("text", f"part {event.index} came whole, and is another at its end")
        elif streamed_text(part) != accumulator.text.value() or not _opaque_data_matches(part, accumulator):
            _raise_illegal("text", f"the end of part {event.index} is not what its deltas added up to")
        if isinstance(part, ThinkingPart) and part.complete and not (part.content or has_opaque_data(part)):
            _raise_illegal("empty", f"thinking part {event.index} holds nothing")
        # Only now, so that the open part can still be closed after an `IllegalEvent`.
        self._parts.append(part)
        self._open_part = self._accumulator = None

    # --- the run ---------------------------------------------------------------------------------------------

    def _tool_call(self, event: FunctionToolCallEvent) -> None:
        self._require_no_turn(event)
        self._announced_calls[event.part.tool_call_id] = event.part

    def _tool_result(self, event: FunctionToolResultEvent) -> None:
        self._require_no_turn(event)
        result = event.result
        call_id = result.tool_call_id
        if isinstance(result, RetryPromptPart) and result.tool_name is None:
            self._results.append(result)
            return
        if self._announced_calls.get(call_id) is None:
            _raise_illegal("result", f"a result for call {call_id!r}, which is not waiting for one")
        self._announced_calls[call_id] = None
        self._results.append(event.result)

    def _run_end(self, event: RunEndEvent) -> None:
        self._require_no_turn(event)
        self._flush_results()
        self.run_end = event
        self.error = event.error or self.error

    def _summary(self, event: SummaryEvent) -> None:
        self._require_turn(event)
        item = self._item
        if item is None or item.index != event.index or item.kind != "reasoning":
            _raise_illegal("summary", f"a summary of item {event.index}, which is not an open reasoning item")
        if not event.text:
            _raise_illegal("empty", f"a summary of item {event.index} that says nothing")

    def _accept(self, event: SideEvent | FinalResultEvent) -> None:
        pass

    # --- checks that several rules share ---------------------------------------------------------------------

    def _require_turn(self, event: Event) -> ResponseStartEvent:
        if self._turn is None:
            _raise_illegal("turn", f"{event.event_kind} outside a turn")
        if self._failed and not isinstance(event, ResponseEndEvent):
            _raise_illegal("error", f"{event.event_kind} after the turn's error")
        return self._turn

    def _require_no_turn(self, event: Event) -> None:
        if self._turn is not None:
            rule = "run" if isinstance(event, RunEndEvent) else "turn"
            _raise_illegal(rule, f"{event.event_kind} inside a turn")

    def _require_all_closed(self, event: Event) -> None:
        if self._open_part is not None:
            _raise_illegal("closed", f"{event.event_kind} while part {self._open_part.index} is open")
        if self._item is not None:
            _raise_illegal("closed", f"{event.event_kind} while item {self._item.index} is open")

    def _flush_results(self) -> None:
        if self._results:
            self.messages.append(ModelRequest(list(self._results)))
            self._results = []


def fold(events: Iterable[Event]) -> Fold:
    """Fold a sequence of events.

    Args:
        events: The events, from the beginning of a turn or run.

    Returns:
        The fold; `response` is the last turn, `messages` all of them.

    Raises:
        IllegalEvent: The events break a rule.
    """
    folded = Fold()
    for event in events:
        folded.feed(event)
    return folded


def _opaque_data_matches(part: ModelResponsePart, accumulator: PartAccumulator) -> bool:
    """Whether the part at its end has the opaque data of its deltas. Details, which merge, are not compared."""
    for name in OPAQUE_FIELDS:
        value, accumulated = getattr(part, name), accumulator.metadata.get(name)
        if value != accumulated and not isinstance(accumulated or value, dict):
            return False
    return True


def item_parts(parts: list[ModelResponsePart], start: ItemStartEvent, end: ItemEndEvent) -> list[ModelResponsePart]:
    """Return the parts of an item as its message holds them.

    Each has the item's public id; the first has the item's signature and native data.
    """
    if not parts and start.kind == "reasoning":
        # An item with only a signature or an id is still reasoning that happened.
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


def _raise_illegal(rule: str, message: str) -> NoReturn:
    raise IllegalEvent(rule, message)


_HANDLERS: dict[type[Event], Callable[[Fold, Any], None]] = {
    ResponseStartEvent: Fold._response_start,
    ResponseEndEvent: Fold._response_end,
    ErrorEvent: Fold._error,
    ItemStartEvent: Fold._item_start,
    ItemEndEvent: Fold._item_end,
    PartStartEvent: Fold._part_start,
    PartDeltaEvent: Fold.feed_delta,
    PartEndEvent: Fold._part_end,
    FunctionToolCallEvent: Fold._tool_call,
    FunctionToolResultEvent: Fold._tool_result,
    FinalResultEvent: Fold._accept,
    SideEvent: Fold._accept,
    SummaryEvent: Fold._summary,
    RunEndEvent: Fold._run_end,
}
