"""An agent's whole run, played as one turn (see `agent`), told as the turns that it was.

Where an agent is asked as a model, the functions that it calls itself are tools of a model's provider. Where it is
served as an agent, they are functions: each request to its model is a turn, calls end one, and results follow it. What
comes out is a legal run again (`pellucid.fold`), its items and parts counted anew in every turn.
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
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
)
from ...parts import BuiltinToolCallPartDelta, ToolCallPartDelta
from ...run import Mint


class AsFunctions:
    """`feed` it what a run says, as often as it says something. `mint` gives results their ids."""

    def __init__(self, mint: Mint) -> None:
        self._mint = mint
        self._start: ResponseStartEvent | None = None
        self._in_turn = False
        self._items = self._parts = 0
        """How many this turn has had."""
        self._held: ItemStartEvent | None = None
        """An item of which only its part tells what it is."""
        self._returning = self._calling = False
        """Whether the open item is the result, or the call, of one of the agent's functions."""
        self._calls: list[ours.ToolCallPart] = []
        """The turn's calls of the agent's own functions, which are announced when it ends."""

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for place, event in enumerate(events):
            self._told(event, events[place + 1] if place + 1 < len(events) else None, out)
        return out

    def _told(self, event: Event, following: Event | None, out: list[Event]) -> None:
        match event:
            case PartDeltaEvent():
                out.append(self._delta(event))
            case ResponseStartEvent():
                self._start = event
                self._open_turn(out)
            case ItemStartEvent(kind="builtin_tool"):
                self._held = event
            case ItemStartEvent():
                self._open_turn(out)
                out.append(replace(event, index=self._items))
            case PartStartEvent():
                self._part_start(event, following, out)
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
        if not self._in_turn and self._start is not None:
            self._in_turn = True
            self._items = self._parts = 0
            out.append(self._start)

    def _close_turn(self, event: ResponseEndEvent, out: list[Event]) -> None:
        if not self._in_turn:
            return
        self._in_turn = False
        out.append(event)
        out += [FunctionToolCallEvent(call) for call in self._calls]
        self._calls = []

    # --- items and parts -------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, following: Event | None, out: list[Event]) -> None:
        held, self._held = self._held, None
        part, own = event.part, _is_own(event.part)
        if own and isinstance(part, ours.BuiltinToolReturnPart):
            self._returning = True
            return
        if own and isinstance(following, PartDeltaEvent):
            # What opens has no details yet; that its provider runs it is said at once after.
            own = _is_own(replace(part, provider_details=getattr(following.delta, "provider_details", None)))
        self._calling = own
        if held is not None:
            self._open_turn(out)
            out.append(replace(held, index=self._items, kind="tool_call" if own else held.kind))
        out.append(PartStartEvent(self._parts, _function(part) if own else part))

    def _delta(self, event: PartDeltaEvent) -> PartDeltaEvent:
        delta: Any = event.delta
        if self._calling and isinstance(delta, BuiltinToolCallPartDelta):
            delta = ToolCallPartDelta(
                delta.args_delta,
                signature_delta=delta.signature_delta,
                provider_name=delta.provider_name,
                provider_details=delta.provider_details,
            )
        return PartDeltaEvent(self._parts, delta)

    def _part_end(self, event: PartEndEvent, out: list[Event]) -> None:
        part, own = event.part, self._calling
        self._calling = False
        if self._returning and isinstance(part, ours.BuiltinToolReturnPart):
            self._close_turn(ResponseEndEvent("tool_call"), out)
            out.append(FunctionToolResultEvent(_result(part), self._mint("fco")))
            return
        if own and isinstance(part, ours.BuiltinToolCallPart):
            part = _function(part)
            if part.complete:
                self._calls.append(part)
        out.append(PartEndEvent(self._parts, part))
        self._parts += 1

    def _item_end(self, event: ItemEndEvent, out: list[Event]) -> None:
        if self._returning or self._held is not None:
            # A result is told; of an item that broke off before its part there is nothing to tell.
            self._returning, self._held = False, None
            return
        out.append(replace(event, index=self._items))
        self._items += 1


def _is_own(part: Any) -> bool:
    """Whether it is of one of the agent's functions, not of a tool that its model's provider has."""
    both = ours.BuiltinToolCallPart | ours.BuiltinToolReturnPart
    return isinstance(part, both) and not (part.provider_details or {}).get("native")


def _function(part: Any) -> ours.ToolCallPart:
    fields = ours.ToolCallPart.__struct_fields__
    return ours.ToolCallPart(**{name: getattr(part, name) for name in fields if hasattr(part, name)})


def _result(part: ours.BuiltinToolReturnPart) -> ours.ToolReturnPart | ours.RetryPromptPart:
    outcome = (part.provider_details or {}).get("outcome", "success")
    if outcome == "retried":
        text = part.content if isinstance(part.content, str) else ours.json_text(part.content)
        return ours.RetryPromptPart(text, part.tool_name, part.tool_call_id)
    known: Any = outcome if outcome in ("success", "failed", "denied") else "failed"
    return ours.ToolReturnPart(part.tool_name, part.content, part.tool_call_id, known)
