"""Deferred calls, external tools, and events that functions emit."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from pellucid import (
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolResultEvent,
    RequestError,
    RunContext,
    SideEvent,
    Tool,
)
from pellucid.errors import ErrorInfo, IllegalEvent
from pellucid.events import FunctionToolCallEvent
from pellucid.fold import fold
from pellucid.parts import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pellucid.run import CallModel, CallTools, Minter, Run
from pellucid.settings import ModelCall, ToolDefinition
from pellucid.tools import ServerToolset
from tests.agent.agent_kit import MakeAgent, calls
from tests.scripted import say
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

A, B = ToolCallPart("f", "{}", "a"), ToolCallPart("f", "{}", "b")
CALL = ModelCall("m", [ModelRequest([UserPromptPart("?")]), ModelResponse([A, B])])


def test_a_run_that_begins_with_calls_executes_them_first() -> None:
    run = Run(CALL, Minter(b"m"), server_tools={"f"}, pending=[A, B])
    assert run.start() == [CallTools((A, B))]
    results: Any = [ToolReturnPart("f", 1, "a"), ToolReturnPart("f", 2, "b")]
    events, [effect] = run.add_results(results)
    assert [type(event) for event in events] == [FunctionToolCallEvent] * 2 + [FunctionToolResultEvent] * 2
    assert isinstance(effect, CallModel)
    assert effect.call.messages == [*CALL.messages, ModelRequest(results)]
    fold(events)


@pytest.mark.parametrize("error", [None, ErrorInfo("server_error", "no")])
def test_a_run_that_ends_before_its_calls_answers_them(error: ErrorInfo | None) -> None:
    run = Run(CALL, Minter(b"m"), server_tools={"f"}, pending=[A, B])
    run.start()
    if error is None:
        run.cancel()
    folded = fold(run.end(error))
    assert folded.unanswered == []
    assert folded.run_end is not None
    assert folded.run_end.status == ("cancelled" if error is None else "failed")


def test_deferred_calls_end_the_run_and_every_call_needs_a_result() -> None:
    run = Run(CALL, Minter(b"m"), server_tools={"f"}, pending=[A, B])
    run.start()
    one: Any = [ToolReturnPart("f", 1, "a")]
    with pytest.raises(IllegalEvent):
        run.add_results(one)
    with pytest.raises(IllegalEvent):
        run.add_results(one, left_to_caller={"c"})
    events, effects = run.add_results(one, left_to_caller={"b"})
    folded = fold(events)
    assert effects == []
    assert [call.tool_call_id for call in folded.unanswered] == ["b"]
    assert folded.run_end is not None
    assert folded.run_end.status == "completed"


async def test_emitted_events_arrive_while_the_function_runs(make_agent: MakeAgent) -> None:
    seen, go = asyncio.Event(), asyncio.Event()

    async def slowly(ctx: RunContext[None]) -> str:
        ctx.emit(SideEvent("mine", "began"))
        await go.wait()
        ctx.emit(SideEvent("mine", "over"))
        return "done"

    agent, _ = make_agent(calls(("slowly", {})), say(), tools=[slowly])
    names: list[str] = []
    async for event in agent.run_stream_events("Why?"):
        if isinstance(event, SideEvent):
            names.append(event.name)
            go.set()
            seen.set()
        elif isinstance(event, FunctionToolResultEvent):
            names.append("result")
    assert names == ["began", "over", "result"]


async def test_no_event_that_threads_emit_is_lost(make_agent: MakeAgent) -> None:
    often, at_once = 2000, 4

    def talks(ctx: RunContext[None]) -> str:
        for number in range(often):
            ctx.emit(SideEvent("mine", str(number)))
        return "done"

    agent, _ = make_agent(calls(*[("talks", {})] * at_once), say(), tools=[talks])
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        events = [event async for event in agent.run_stream_events("Why?") if isinstance(event, SideEvent)]
    finally:
        sys.setswitchinterval(usual)
    assert len(events) == often * at_once


async def test_cancelling_a_run_stops_its_functions(make_agent: MakeAgent) -> None:
    begun: list[str] = []
    over: list[str] = []

    async def waits(ctx: RunContext[None]) -> str:
        begun.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            over.append("over")
        return ""

    agent, _ = make_agent(calls(("waits", {}), ("waits", {})), tools=[waits])
    running = asyncio.create_task(agent.run("Why?"))
    await eventually(lambda: len(begun) == 2, "both functions have begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert over == ["over", "over"]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "functions"]


async def test_an_approval_is_for_one_call_also_if_a_later_one_has_its_id(make_agent: MakeAgent) -> None:
    deleted: list[str] = []

    def delete(path: str) -> None:
        deleted.append(path)

    # The model gives every call the same id.
    scripts = [calls(("delete", {"path": path}), id="c") for path in "ab"]
    agent, _ = make_agent(*scripts, say(), tools=[Tool(delete, requires_approval=True)])
    result = await agent.run("Delete.")
    for expected in (["a"], ["a", "b"]):
        assert isinstance(result.output, DeferredToolRequests)
        [call] = result.output.approvals
        results = DeferredToolResults(approvals={call.tool_call_id: True})
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results)
        assert deleted == expected
    assert isinstance(result.output, str)


async def test_external_tools(make_agent: MakeAgent) -> None:
    paint = ToolDefinition("paint", {"type": "object", "properties": {}}, "Paint.")
    agent, get_calls = make_agent(calls(("paint", {}), ("look", {})), say("Hm.", "Done."), tools=[_look])
    async with agent.iter("Paint.", external_tools=[paint]) as run:
        first = await run.finish()
    waits: Any = first.output
    assert isinstance(waits, DeferredToolRequests)
    [call] = waits.calls
    assert (call.tool_name, waits.approvals) == ("paint", [])
    second = await agent.run(
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults({call.tool_call_id: "painted"}),
        external_tools=[paint],
    )
    assert second.output == "Done. "
    assert [m["content"] for m in get_calls()[1].body["messages"] if m["role"] == "tool"] == ["painted", "seen"]
    with pytest.raises(RequestError, match="'look'"):
        async with agent.iter("?", external_tools=[ToolDefinition("look")]):
            pass


async def test_a_tool_of_a_server_cannot_be_deferred() -> None:
    def later() -> str:
        raise CallDeferred

    context: RunContext[None] = RunContext(None, None)
    [result] = await ServerToolset([later]).call([ToolCallPart("later", "{}", "c")], context)
    assert isinstance(result, ToolReturnPart)
    assert (result.outcome, "from outside" in str(result.content)) == ("failed", True)


def _look() -> str:
    return "seen"


_look.__name__ = "look"
