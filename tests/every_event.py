"""One stream that holds every kind of event."""

from __future__ import annotations

from typing import get_args

from pellucid.emit import part_events
from pellucid.errors import ErrorInfo
from pellucid.events import (
    ITEM_OF,
    ErrorEvent,
    Event,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from pellucid.fold import fold
from pellucid.parts import ModelResponsePart, Origin, ToolCallPart, ToolReturnPart


def turn_with_part(part: ModelResponsePart, seal: str | None = None) -> list[Event]:
    """Return the events of a turn of one part, with this seal on its item."""
    return [
        ResponseStartEvent(Origin("p", "w", "m")),
        ItemStartEvent(0, ITEM_OF[type(part)], id="x_1"),
        *part_events(0, part, None),
        ItemEndEvent(0, seal=seal),
        ResponseEndEvent("stop"),
    ]


def every_event() -> list[Event]:
    """Return a valid run: a call with its result, and a turn that is summarised and then fails."""
    call = ToolCallPart("f", "{}", "c1")
    events: list[Event] = [
        *turn_with_part(call),
        SideEvent("a", "b", 1),
        FunctionToolCallEvent(call),
        FunctionToolResultEvent(ToolReturnPart("f", "1", "c1"), "fco_1"),
        FinalResultEvent(),
        ResponseStartEvent(Origin("p", "w", "m")),
        ItemStartEvent(0, "reasoning", id="rs_1"),
        SummaryEvent(0, "in short"),
        ItemEndEvent(0),
        ErrorEvent(ErrorInfo("model_error", "broke")),
        ResponseEndEvent("error"),
        RunEndEvent("failed", error=ErrorInfo("model_error", "broke")),
    ]
    fold(events)
    assert {type(event) for event in events} == set(get_args(Event))
    return events
