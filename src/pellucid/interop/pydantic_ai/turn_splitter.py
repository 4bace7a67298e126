"""Split the run of an agent, which is played as one turn (see `agent`), into the turns that it had.

Where an agent is used as a model, the functions that it calls are shown as tools of a provider. Where it is served as
an agent, they are functions: each request to its model is a turn, calls end a turn, and results follow it. The output
is a legal run (`pellucid.fold`); the indexes of items and parts start at 0 in every turn.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ... import parts as ours
from ...events import (
    ErrorEvent,
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    Mint,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
)
from ...parts import OPAQUE_FIELDS, BuiltinToolCallPartDelta, ToolCallPartDelta


class TurnSplitter:
    """Splits the events of one turn into turns with function calls.

    Args:
        mint: Makes the ids of results.
    """

    def __init__(self, mint: Mint) -> None:
        self._mint = mint
        self._response_start: ResponseStartEvent | None = None
        self._in_turn = False
        self._item_index = self._part_index = 0
        """Numbers of items and parts in this turn so far."""
        self._held_item: ItemStartEvent | None = None
        """The start of an item whose part determines its kind."""
        self._in_result = self._in_call = False
        """Whether the open item is the result, or the call, of a function of the agent."""
        self._turn_calls: list[ours.ToolCallPart] = []
        """The turn's calls of the agent's own functions, which are announced when it ends."""

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for index, event in enumerate(events):
            self._process(event, events[index + 1] if index + 1 < len(events) else None, out)
        return out

    def _process(self, event: Event, next_event: Event | None, out: list[Event]) -> None:
        match event:
            case PartDeltaEvent():
                out.append(self._delta(event))
            case ResponseStartEvent():
                self._response_start = event
                self._open_turn(out)
            case ItemStartEvent(kind="builtin_tool"):
                self._held_item = event
            case ItemStartEvent():
                self._open_turn(out)
                out.append(replace(event, index=self._item_index))
            case PartStartEvent():
                self._part_start(event, next_event, out)
            case PartEndEvent():
                self._part_end(event, out)
            case ItemEndEvent():
                self._item_end(event, out)
            case ErrorEvent():
                self._open_turn(out)
                out.append(event)
            case ResponseEndEvent():
                self._close_turn(event, out)
            case _:
                out.append(event)

    # --- turns -----------------------------------------------------------------------------------------------

    def _open_turn(self, out: list[Event]) -> None:
        if not self._in_turn and self._response_start is not None:
            self._in_turn = True
            self._item_index = self._part_index = 0
            out.append(self._response_start)

    def _close_turn(self, event: ResponseEndEvent, out: list[Event]) -> None:
        if not self._in_turn:
            return
        self._in_turn = False
        out.append(event)
        out += [FunctionToolCallEvent(call) for call in self._turn_calls]
        self._turn_calls = []

    # --- items and parts -------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, next_event: Event | None, out: list[Event]) -> None:
        held_item, self._held_item = self._held_item, None
        part, is_own = event.part, is_agent_function(event.part)
        if is_own and isinstance(part, ours.BuiltinToolReturnPart):
            self._in_result = True
            return
        if is_own and isinstance(next_event, PartDeltaEvent):
            # The start of a part has no details. The next event says if the provider runs the tool.
            is_own = is_agent_function(
                replace(part, provider_details=getattr(next_event.delta, "provider_details", None))
            )
        self._in_call = is_own
        if held_item is not None:
            self._open_turn(out)
            out.append(replace(held_item, index=self._item_index, kind="tool_call" if is_own else held_item.kind))
        out.append(PartStartEvent(self._part_index, _as_tool_call(part) if is_own else part))

    def _delta(self, event: PartDeltaEvent) -> PartDeltaEvent:
        delta: Any = event.delta
        if self._in_call and isinstance(delta, BuiltinToolCallPartDelta):
            opaque_data = {name: getattr(delta, name) for name in OPAQUE_FIELDS.values()}
            delta = ToolCallPartDelta(delta.args_delta, provider_name=delta.provider_name, **opaque_data)
        return PartDeltaEvent(self._part_index, delta)

    def _part_end(self, event: PartEndEvent, out: list[Event]) -> None:
        part, is_own = event.part, self._in_call
        self._in_call = False
        if self._in_result and isinstance(part, ours.BuiltinToolReturnPart):
            self._close_turn(ResponseEndEvent("tool_call"), out)
            out.append(FunctionToolResultEvent(as_tool_return(part), self._mint("fco")))
            return
        if is_own and isinstance(part, ours.BuiltinToolCallPart):
            part = _as_tool_call(part)
            if part.complete:
                self._turn_calls.append(part)
        out.append(PartEndEvent(self._part_index, part))
        self._part_index += 1

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        if self._in_result or self._held_item is not None:
            # The result has been sent. An item that was interrupted before its part is not shown.
            self._in_result, self._held_item = False, None
            return
        out.append(replace(event, index=self._item_index))
        self._item_index += 1


def is_agent_function(part: Any) -> bool:
    """Whether a part is of a function of the agent, and not of a tool of its model's provider."""
    builtin_parts = ours.BuiltinToolCallPart | ours.BuiltinToolReturnPart
    return isinstance(part, builtin_parts) and not (part.provider_details or {}).get("native")


def _as_tool_call(part: Any) -> ours.ToolCallPart:
    fields = ours.ToolCallPart.__struct_fields__
    return ours.ToolCallPart(**{name: getattr(part, name) for name in fields if hasattr(part, name)})


def as_tool_return(part: ours.BuiltinToolReturnPart) -> ours.ToolReturnPart | ours.RetryPromptPart:
    """Return the result of a function of the agent, which is shown as that of a provider's tool."""
    outcome = (part.provider_details or {}).get("outcome", "success")
    if outcome == "retried":
        text = part.content if isinstance(part.content, str) else ours.json_text(part.content)
        return ours.RetryPromptPart(text, part.tool_name, part.tool_call_id)
    outcome_or_failed: Any = outcome if outcome in ("success", "failed", "denied") else "failed"
    return ours.ToolReturnPart(part.tool_name, part.content, part.tool_call_id, outcome_or_failed)
