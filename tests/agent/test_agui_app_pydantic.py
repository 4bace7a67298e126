"""`pellucid.agui(agent)` with an agent of Pydantic AI."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from ag_ui import core
from pydantic import BaseModel
from pydantic_ai import Agent, ApprovalRequired, CallDeferred, CustomEvent, ModelRetry, RunContext, ToolReturn
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps

from pellucid.agent import RunInput
from pellucid.events import Event
from pellucid.fold import fold
from pellucid.interop.pydantic_ai import PydanticAgent
from pellucid.parts import ModelRequest, ModelResponse, UserPromptPart
from pellucid.protocols.agui.verify import verify
from tests.agent.agui_app_kit import FRONT, USER, events_of_type, roles, serving
from tests.agui.agui_client import Converse
from tests.agui.agui_kit import events_of
from tests.scripted_runs import run_events
from tests.waiting import LIMIT_SECONDS

Turn = Sequence[str | dict[int, Any]]


def agent_of(*turns: Turn, **more: Any) -> tuple[Agent[Any, Any], list[list[theirs.ModelMessage]]]:
    """Return an agent whose model plays these turns, and the list of the model's requests."""
    requests: list[list[theirs.ModelMessage]] = []

    async def says(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, Any]]:
        requests.append(list(messages))
        for piece in turns[len(requests) - 1]:
            yield piece

    return Agent(FunctionModel(stream_function=says), name="agent", **more), requests


def call(name: str, arguments: dict[str, Any], id: str, at: int = 1) -> dict[int, Any]:
    return {at: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=id)}


THINKS = {0: DeltaThinkingPart(content="I should look.", signature="sig-1")}


def weather(city: str) -> str:
    return f"rain in {city}"


def kinds(messages: list[theirs.ModelMessage]) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


def test_functions_are_called_and_thoughts_are_replayed_signed(converse: Converse) -> None:
    agent, requests = agent_of(
        [THINKS, call("weather", {"city": "Oslo"}, "c1"), call("weather", {"city": "Rome"}, "c2", 2)],
        [{0: DeltaThinkingPart(content="Wet.")}, call("weather", {"city": "Bonn"}, "c3")],
        ["Rain ", "everywhere."],
        ["Yes."],
        tools=[weather],
        instructions="Be brief.",
    )
    with serving(agent, view="sealed") as app:
        first, second = app.talk(converse, {"messages": [USER]}, {"messages": [{**USER, "id": "u2"}]})
    assert roles(first) == [
        "user",
        "reasoning",
        "assistant",
        "tool",
        "tool",
        "reasoning",
        "assistant",
        "tool",
        "assistant",
    ]
    results = [m["content"] for m in first["messages"] if m["role"] == "tool"]
    assert sorted(results[:2]) == ["rain in Oslo", "rain in Rome"]  # in the order of completion
    assert results[2:] == ["rain in Bonn"]
    assert "I should look." not in json.dumps(first)
    assert second["messages"][-1]["content"] == "Yes."
    assert kinds(requests[3]) == [
        ["user-prompt"],
        ["thinking", "tool-call", "tool-call"],
        ["tool-return", "tool-return"],
        ["thinking", "tool-call"],
        ["tool-return"],
        ["text"],
        ["user-prompt"],
    ]
    thought: Any = requests[3][1].parts[0]
    assert (thought.content, thought.signature) == ("I should look.", "sig-1")


def test_its_events_are_a_legal_run() -> None:
    def fails(n: int) -> str:
        raise ModelRetry("Try 2.")

    agent, _ = agent_of(
        [THINKS, call("fails", {"n": 1}, "c1"), call("weather", {"city": "Rome"}, "c2", 2)],
        ["Well, ", call("weather", {}, "c3")],
        [call("weather", {"city": "Rome"}, "c4", 0)],
        ["So be it."],
        tools=[fails, weather],
        retries=2,
    )

    async def read() -> list[Event]:
        run = await PydanticAgent(agent).start(RunInput(messages=[ModelRequest([UserPromptPart("Why?")])]))
        return await run_events(run)

    folded = fold(asyncio.run(read()))
    assert folded.run_end is not None
    assert folded.run_end.status == "completed"
    assert folded.unanswered == []
    turns = [message for message in folded.messages if isinstance(message, ModelResponse)]
    assert [[part.part_kind for part in turn.parts] for turn in turns] == [
        ["thinking", "tool-call", "tool-call"],
        ["text", "tool-call"],
        ["tool-call"],
        ["text"],
    ]


def returned(message: theirs.ModelMessage) -> list[str]:
    """Return the results of calls in a message."""
    return [str(part.content) for part in message.parts if isinstance(part, theirs.ToolReturnPart)]


class Recipe(BaseModel):
    title: str = "none"
    steps: list[str] = []


@dataclass(kw_only=True)
class Progress(CustomEvent):
    done: int


def test_state_and_custom_events() -> None:
    go = threading.Event()
    agent, _ = agent_of([call("add", {"step": "stir"}, "c1", 0)], ["Done."], deps_type=StateDeps[Recipe])

    @agent.tool
    async def add(ctx: RunContext[StateDeps[Recipe]], step: str) -> ToolReturn:
        await ctx.emit(Progress(done=1))
        assert await asyncio.to_thread(go.wait, LIMIT_SECONDS)
        state = ctx.deps.state
        state.steps.append(step)
        return ToolReturn("added", metadata=[core.StateSnapshotEvent(snapshot=state.model_dump())])

    known = StateDeps(Recipe())
    with serving(agent, deps=known) as app:
        with app.stream(state={"title": "soup", "steps": ["cut"]}) as stream:
            assert b"STATE_SNAPSHOT" not in stream.until(b"CUSTOM")
            go.set()
            events = events_of(stream.rest())
        assert verify(events, "1.0") is None
        wrong = app.ask(state={"title": []})
    assert known.state.steps == []
    assert [(e["name"], e["value"]) for e in events_of_type(events, "CUSTOM")] == [("progress", {"done": 1})]
    assert [e["snapshot"] for e in events_of_type(events, "STATE_SNAPSHOT")] == [
        {"title": "soup", "steps": ["cut", "stir"]}
    ]
    assert (wrong.status, wrong.json["metadata"]["pellucid"]["param"]) == (400, "state")


def test_a_client_tool(converse: Converse) -> None:
    agent, requests = agent_of(
        [call("weather", {"city": "Oslo"}, "c1"), call("paint", {"color": "grey"}, "c2", 2)],
        ["It is."],
        tools=[weather],
    )
    with serving(agent) as app:
        first, second = app.talk(
            converse, {"messages": [USER], "tools": [FRONT]}, {"answers": {"paint": "painted"}, "tools": [FRONT]}
        )
    assert [m["content"] for m in first["messages"] if m["role"] == "tool"] == ["rain in Oslo"]
    assert second["messages"][-1]["content"] == "It is."
    assert sorted(returned(requests[1][-1])) == ["painted", "rain in Oslo"]


@pytest.mark.parametrize(
    ("payload", "result"),
    [({"approved": True, "editedArgs": {"path": "b"}}, "deleted b"), ({"approved": False, "reason": "No."}, "No.")],
)
def test_approval(converse: Converse, payload: dict[str, Any], result: str) -> None:
    agent, requests = agent_of(
        [THINKS, call("delete", {"path": "a"}, "c1"), call("weather", {"city": "Oslo"}, "c2", 2)], ["All right."],
        tools=[weather],
    )  # fmt: skip

    @agent.tool
    def delete(ctx: RunContext[None], path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired({"path": path})
        return f"deleted {path}"

    with serving(agent) as app:
        first, second = app.talk(converse, {"messages": [USER]}, {"settle": {"status": "resolved", "payload": payload}})
    [interrupt] = first["interrupts"]
    assert (interrupt["reason"], interrupt["metadata"]) == ("tool_call", {"path": "a"})
    assert second["interrupts"] == []
    shown = {m["toolCallId"]: m["content"] for m in second["messages"] if m["role"] == "tool"}
    assert shown[interrupt["toolCallId"]] == result
    assert second["messages"][-1]["content"] == "All right."
    assert sorted(returned(requests[1][-1]) + returned(requests[1][-2])) == sorted([result, "rain in Oslo"])


def test_a_result_that_the_user_provides(converse: Converse) -> None:
    agent, requests = agent_of([call("ask", {}, "c1")], ["Old."])

    @agent.tool_plain
    def ask() -> str:
        raise CallDeferred

    with serving(agent) as app:
        first, second = app.talk(
            converse, {"messages": [USER]}, {"settle": {"status": "resolved", "payload": "ninety"}}
        )
    assert [one["reason"] for one in first["interrupts"]] == ["input_required"]
    assert second["messages"][-1]["content"] == "Old."
    assert kinds(requests[1])[-1] == ["tool-return"]


def test_a_tool_that_was_cancelled_elsewhere_ends_the_run_as_failed() -> None:
    agent, _ = agent_of([THINKS, call("loses", {}, "c1")])

    @agent.tool_plain
    async def loses() -> str:
        task = asyncio.ensure_future(asyncio.Event().wait())
        await asyncio.sleep(0)
        task.cancel()
        await task
        return ""

    with serving(agent) as app:
        error = app.events()[-1]
    assert (error["type"], error["code"]) == ("RUN_ERROR", "agent_failed")


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"resume": [{"interruptId": "int-zz", "status": "resolved", "payload": {"approved": True}}]},
         "no_such_interrupt", "resume[0].interruptId"),
        ({"tools": [FRONT, {**FRONT, "name": "weather"}]}, "invalid_value", "tools[1].name"),
    ],
)  # fmt: skip
def test_an_unsupported_input_is_refused_with_its_location(
    more: dict[str, Any], code: str, param: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent, requests = agent_of(["Hm."], tools=[weather])
    with serving(agent) as app:
        reply = app.ask(**more)
    assert (reply.status, reply.json["code"], reply.json["metadata"]["pellucid"]["param"]) == (400, code, param)
    assert (requests, caplog.text) == ([], "")


def test_an_exception_is_an_error_without_its_text_and_a_disconnect_ends_the_run(converse: Converse) -> None:
    gone = threading.Event()
    agent, _ = agent_of([THINKS, call("breaks", {}, "c1")], [THINKS, call("waits", {}, "c2")])

    @agent.tool_plain
    def breaks() -> str:
        raise ValueError("the secret word")

    @agent.tool_plain
    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return ""

    with serving(agent) as app:
        events = app.events()
        app.talk(converse, {"messages": [USER], "abort": "TOOL_CALL_END"})
        assert gone.wait(LIMIT_SECONDS)
        app.idle()
    assert events[-1]["type"] == "RUN_ERROR"
    assert "secret" not in json.dumps(events)
