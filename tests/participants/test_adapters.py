"""Agents of other frameworks in a space: what they think, say and do; questions to people, and approvals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from pellucid.parts import TextPart, TextPartDelta, ThinkingPartDelta, ToolCallPart, ToolReturnPart
from pellucid.spaces import FunctionInSpace, Participant, SpaceTurn
from pellucid.spaces.adapters.agent_function import AgentFunction, Step
from tests.participants.room_kit import Frame, Room
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def in_space(room: Room, function: AgentFunction, **options: Any) -> AsyncIterator[FunctionInSpace]:
    async with Participant(room.url, token="token-of-ada") as me, FunctionInSpace(function, me, **options) as agent:
        yield agent


def sent(room: Room, kind: str, by: str = "ada") -> list[Frame]:
    return [one for one in room.log if one["kind"] == kind and one["from"] == by]


async def until_sent(room: Room, kind: str, count: int = 1) -> Frame:
    await eventually(lambda: len(sent(room, kind)) >= count)
    return sent(room, kind)[count - 1]


async def test_a_function_is_narrated_in_its_order(room: Room) -> None:
    async def function(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        assert turn.prompt == "bob: Why?"
        for text in ("One", ".\n\nTw", "o."):
            yield ThinkingPartDelta(content_delta=text)
        yield TextPart(content="I look ")
        yield TextPartDelta(content_delta="first.")
        yield ToolCallPart(tool_name="look", args={"at": 1}, tool_call_id="c")
        yield ToolReturnPart(tool_name="look", content="nothing", tool_call_id="c")
        yield TextPart(content="A draft.")
        yield TextPart(content="Forty-")
        yield TextPartDelta(content_delta="two.")
        yield ThinkingPartDelta(content_delta="Done.")

    async with in_space(room, function):
        room.say("bob", "chat", {"text": "Why?"})
        answer = await until_sent(room, "chat")
    assert answer["payload"]["text"] == "Forty-two."
    texts = [one["payload"].get("message") or one["payload"].get("content") for one in room.log if one.get("context")]
    assert texts == [
        "One.",
        "Two.",
        "I look first.",
        'Calling look({"at":1})',
        "nothing",
        "A draft.",
        "Done.",
        "Forty-two.",
    ]


async def test_a_question_to_people_is_answered_by_a_person_and_is_no_new_question(room: Room) -> None:
    runs = 0

    async def function(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        nonlocal runs
        runs += 1
        yield TextPart(content=f"You said {await turn.ask('Sure?')}.")

    async with in_space(room, function) as agent:
        question = room.say("bob", "chat", {"text": "Deploy"})
        inquiry = await until_sent(room, "chat")
        assert inquiry["correlation_id"] == [question["id"]]
        room.say("cy", "reasoning/start", {"message": "hm"}, id="c")  # an agent
        room.say("cy", "chat", {"text": "no"}, correlation_id=[inquiry["id"]])
        room.say("bob", "chat", {"text": "yes"}, correlation_id=[inquiry["id"]])
        answer = await until_sent(room, "chat", 2)
        await agent.idle()
    assert answer["payload"]["text"] == "You said yes."
    assert runs == 1


async def test_an_own_call_is_approved_or_rejected_in_the_space(room: Room) -> None:
    async def function(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        refusals = [await turn.approve("deploy", {"to": where}) for where in ("test", "production")]
        yield ToolReturnPart(tool_name="deploy", content="deployed", tool_call_id="c")
        yield TextPart(content=f"{refusals}")

    async with in_space(room, function):
        room.say("bob", "chat", {"text": "Deploy"})
        first = await until_sent(room, "mcp/proposal")
        assert first["payload"]["params"] == {"name": "deploy", "arguments": {"to": "test"}}
        request = room.say("bob", "mcp/request", first["payload"], correlation_id=[first["id"]], id="approval")
        second = await until_sent(room, "mcp/proposal", 2)
        room.say("bob", "mcp/reject", {"reason": "too early"}, correlation_id=[second["id"]])
        answer = await until_sent(room, "chat")
    assert answer["payload"]["text"] == "[None, 'bob rejected the call: too early.']"
    [response] = sent(room, "mcp/response")
    assert response["correlation_id"] == [request["id"]]
    assert response["payload"]["result"]["content"][0]["text"] == "deployed"


async def test_a_cancel_ends_the_function(room: Room) -> None:
    ended = asyncio.Event()

    async def function(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        try:
            yield ThinkingPartDelta(content_delta="Hm.\n\n")
            await asyncio.Future()
        finally:
            ended.set()

    async with in_space(room, function):
        room.say("bob", "chat", {"text": "Why?"})
        thought = await until_sent(room, "reasoning/thought")
        room.say("bob", "reasoning/cancel", {"reason": "enough"}, context=thought["context"])
        await asyncio.wait_for(ended.wait(), 10)
    assert sent(room, "chat") == []


async def test_calls_of_a_graph_that_people_must_approve(room: Room) -> None:
    """The interrupt of LangChain's human-in-the-loop middleware: each call is a proposal."""
    pytest.importorskip("langgraph")
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.types import interrupt

    from pellucid.spaces.adapters.langgraph import langgraph_agent

    def call(state: MessagesState) -> dict[str, Any]:
        calls = [{"name": "deploy", "args": {"to": "test"}, "id": "c1", "type": "tool_call"}]
        return {"messages": [AIMessage("I deploy.", tool_calls=calls, id="m1")]}

    def run(state: MessagesState) -> dict[str, Any]:
        decided = interrupt(
            {
                "action_requests": [{"name": "deploy", "args": {"to": "test"}, "description": "?"}],
                "review_configs": [{"action_name": "deploy", "allowed_decisions": ["approve", "reject"]}],
            }
        )
        [decision] = decided["decisions"]
        content = "deployed" if decision["type"] == "approve" else decision["message"]
        return {"messages": [ToolMessage(content, tool_call_id="c1", name="deploy")]}

    def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"Result: {state['messages'][-1].content}")]}

    graph = StateGraph(MessagesState)
    for name, node in (("call", call), ("run", run), ("say", say)):
        graph.add_node(name, node)
    for one, other in ((START, "call"), ("call", "run"), ("run", "say"), ("say", END)):
        graph.add_edge(one, other)
    compiled = graph.compile(checkpointer=InMemorySaver())

    async with in_space(room, langgraph_agent(compiled)):
        for number, (kind, payload, result) in enumerate(
            [
                ("mcp/request", {"method": "tools/call"}, "Result: deployed"),
                ("mcp/reject", {"reason": "no"}, "Result: bob rejected the call: no."),
            ],
            1,
        ):
            room.say("bob", "chat", {"text": "Deploy"})
            proposal = await until_sent(room, "mcp/proposal", number)
            room.say("bob", kind, payload, correlation_id=[proposal["id"]])
            answer = await until_sent(room, "chat", number)
            assert answer["payload"]["text"] == result
    thoughts = [one["payload"]["message"] for one in sent(room, "reasoning/thought")]
    assert thoughts == ["I deploy.", 'Calling deploy({"to":"test"})'] * 2
    assert [one["payload"]["result"]["content"][0]["text"] for one in sent(room, "mcp/response")] == ["deployed"]


async def test_deferred_calls_of_pydantic_ai(room: Room) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.messages import ToolReturnPart as Returned
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import ExternalToolset

    from pellucid.spaces.adapters.pydantic_ai import pydantic_ai_agent

    async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        results = [str(part.content) for part in messages[-1].parts if isinstance(part, Returned)]
        if not results:
            yield {0: DeltaToolCall(name="deploy", json_args='{"to": "test"}', tool_call_id="c1")}
            yield {1: DeltaToolCall(name="page_someone", json_args='{"who": "cy"}', tool_call_id="c2")}
        else:
            yield " and ".join(sorted(results))

    external = ExternalToolset([ToolDefinition(name="page_someone", parameters_json_schema={"type": "object"})])
    agent = Agent(FunctionModel(stream_function=script), output_type=[str, DeferredToolRequests], toolsets=[external])

    @agent.tool_plain(requires_approval=True)
    def deploy(to: str) -> str:
        return f"deployed to {to}"

    async with in_space(room, pydantic_ai_agent(agent)):
        room.say("bob", "chat", {"text": "Deploy"})
        first = await until_sent(room, "mcp/proposal")
        room.say("bob", "mcp/request", first["payload"], correlation_id=[first["id"]], id="approval")
        second = await until_sent(room, "mcp/proposal", 2)
        assert second["payload"]["params"] == {"name": "page_someone", "arguments": {"who": "cy"}}
        made = room.say("bob", "mcp/request", second["payload"], correlation_id=[second["id"]], id="made")
        result = {"content": [{"type": "text", "text": "paged"}]}
        room.say("cy", "mcp/response", {"result": result}, correlation_id=[made["id"]])
        answer = await until_sent(room, "chat")
    assert "deployed to test" in answer["payload"]["text"]
    assert "paged" in answer["payload"]["text"]
    assert [one["correlation_id"] for one in sent(room, "mcp/response")] == [["approval"]]
