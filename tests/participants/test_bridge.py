"""Agents in a space: thinking becomes reasoning, calls of foreign tools become requests, answers become chats."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pellucid import Agent, ApprovalRequired, RunContext
from pellucid.envelopes import Envelope
from pellucid.spaces import AgentInSpace, Participant, ToolsInSpace
from pellucid.spaces.agents.bridge import AnswerPolicy
from tests.participants.agents_kit import agent_of, calling, model_requests
from tests.participants.room_kit import Frame, Room
from tests.scripted import Call, Upstream, delta, say
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def agent_in_space(room: Room, agent: Agent[Any, Any], **options: Any) -> AsyncIterator[AgentInSpace]:
    async with Participant(room.url, token="token-of-ada") as me, AgentInSpace(agent, me, **options) as bridge:
        yield bridge


def population(city: str) -> int:
    """How many people live there.

    Args:
        city: Its name.
    """
    return {"Lyon": 522_250}[city]


def envelopes_of(room: Room, who: str = "ada") -> list[tuple[str, str | None]]:
    return [(one["kind"], one.get("context")) for one in room.log if one["from"] == who]


async def wait_for_answer(room: Room) -> Frame:
    await eventually(lambda: room.log[-1]["kind"] == "chat" and room.log[-1]["from"] == "ada")
    return room.log[-1]


async def test_thinking_becomes_reasoning_and_the_answer_a_chat(room: Room, upstream: Upstream) -> None:
    agent = agent_of(upstream, say("First this.\n\nThen\n\nthat.", "Forty-two."))
    async with agent_in_space(room, agent):
        question = room.say("bob", "chat", {"text": "Why?"})
        chat = await wait_for_answer(room)
    start, *thoughts, conclusion, answer = [one for one in room.log if one["from"] == "ada"]
    assert start["correlation_id"] == [question["id"]]
    assert start["payload"] == {"goal": "Why?", "triggered_by": question["id"]}
    assert [one["payload"]["message"] for one in thoughts] == ["First this.", "Then", "that."]
    assert {one["context"] for one in [*thoughts, conclusion]} == {start["id"]}
    assert (conclusion["kind"], conclusion["payload"]) == ("reasoning/conclusion", {"message": "Forty-two."})
    assert answer is chat
    assert (chat["payload"], chat["correlation_id"]) == ({"text": "Forty-two. "}, [question["id"], start["id"]])


async def test_tools_of_other_participants_are_called_in_the_context(room: Room, upstream: Upstream) -> None:
    agent = agent_of(upstream, calling("population", city="Lyon", text="Let me see."), say("Hm.", "Half a million."))
    async with (
        Participant(room.url, token="token-of-bob") as bob,
        ToolsInSpace(bob, [population]),
        agent_in_space(room, agent),
    ):
        room.say("cy", "chat", {"text": "How many live in Lyon?"})
        await wait_for_answer(room)
    start = next(one for one in room.log if one["kind"] == "reasoning/start")
    path = start["id"]
    assert envelopes_of(room) == [
        ("mcp/request", None),  # tool discovery
        ("reasoning/start", None),
        ("reasoning/thought", path),
        ("reasoning/thought", path),
        ("mcp/request", path),
        ("reasoning/thought", path),
        ("reasoning/conclusion", path),
        ("chat", None),
    ]
    request, response = (one for one in room.log if one.get("context") == path and one["kind"].startswith("mcp/"))
    assert request["payload"]["params"] == {"name": "population", "arguments": {"city": "Lyon"}}
    assert ("to" in request, "to" in response, response["correlation_id"]) == (False, False, [request["id"]])
    tools, results = model_requests(upstream, agent)[0]["tools"], model_requests(upstream, agent)[1]["messages"][-1]
    assert tools[0]["function"]["description"] == "How many people live there."
    assert results["content"] == "522250"


async def test_tool_discovery_is_not_repeated_for_participants_that_do_not_answer(
    room: Room, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.spaces.agents.bridge.DISCOVERY_SECONDS", 0.05)
    room.others = {"cy": ["chat"]}

    def discovery_targets() -> list[list[str] | None]:
        return [one.get("to") for one in room.log if one["payload"].get("method") == "tools/list"]

    def announce_presence(who: str, event: str = "join") -> None:
        participant = {"id": who, "capabilities": ["chat", "mcp/response"]}
        room.say("system:gateway", "system/presence", {"event": event, "participant": participant})

    agent = agent_of(upstream, *[say("Hm.", "So.")] * 3)
    async with (
        Participant(room.url, token="token-of-bob"),
        Participant(room.url, token="token-of-cy"),
        agent_in_space(room, agent),
    ):
        await eventually(lambda: len(discovery_targets()) == 1)
        assert discovery_targets() == [["bob"]]
        room.say("cy", "chat", {"text": "Why?"})
        await wait_for_answer(room)
        cancellations = [one for one in room.log if one["payload"].get("method") == "notifications/cancelled"]
        assert [one["correlation_id"] for one in cancellations] == [
            [one["id"]] for one in room.log if one["payload"].get("method") == "tools/list"
        ]
        for _ in range(3):
            announce_presence("bob", "leave")
            announce_presence("bob")
        monkeypatch.setattr("pellucid.spaces.agents.bridge.DISCOVERY_SECONDS", 60.0)
        room.say("cy", "chat", {"text": "And why?"})
        await wait_for_answer(room)  # discovery delays nothing
        assert discovery_targets() == [["bob"]]
        room.say("bob", "mcp/response", {"result": 1}, correlation_id=["something-else"])
        await eventually(lambda: discovery_targets() == [["bob"], ["bob"]])
        room.say("bob", "mcp/response", {"result": 1}, correlation_id=["something-else"])
        announce_presence("dan")
        await eventually(lambda: discovery_targets() == [["bob"], ["bob"], ["dan"]])


async def test_a_cancelled_call_stops_the_tool(room: Room) -> None:
    is_running, has_ended = asyncio.Event(), asyncio.Event()

    async def forever() -> str:
        is_running.set()
        try:
            await asyncio.Future()
        finally:
            has_ended.set()
        return "never"

    async with (
        Participant(room.url, token="token-of-bob") as bob,
        ToolsInSpace(bob, [forever]),
        Participant(room.url, token="token-of-ada") as ada,
    ):
        calling = asyncio.create_task(ada.call("forever", to="bob"))
        await asyncio.wait_for(is_running.wait(), LIMIT_SECONDS)
        request = next(one for one in room.log if one["payload"].get("method") == "tools/call")
        room.say("cy", "mcp/request", {"method": "notifications/cancelled"}, correlation_id=[request["id"]])
        await bob.say("I am still at it.")
        assert not has_ended.is_set()
        calling.cancel()
        await asyncio.wait_for(has_ended.wait(), LIMIT_SECONDS)
    assert not [one for one in room.log if one["kind"] == "mcp/response"]


async def test_a_call_without_the_capability_is_proposed(room: Room, upstream: Upstream) -> None:
    room.capabilities = [
        "chat",
        "reasoning/*",
        "mcp/proposal",
        {"kind": "mcp/request", "payload": {"method": "tools/list"}},
    ]
    agent = agent_of(
        upstream, calling("population", city="Lyon"), calling("population", city="Lyon"), say("Hm.", "So.")
    )
    async with (
        Participant(room.url, token="token-of-bob") as bob,
        ToolsInSpace(bob, [population]),
        agent_in_space(room, agent),
        Participant(room.url, token="token-of-cy") as cy,
    ):
        await cy.say("How many?", to="ada")
        proposals = 0
        async for envelope in cy:
            if envelope.kind == "mcp/proposal":
                proposals += 1
                if proposals == 1:
                    await cy.fulfil(envelope, to="bob")
                else:
                    await cy.reject(envelope, "policy")
            if envelope.kind == "chat" and envelope.sender == "ada":
                break
    results = [body["messages"][-1]["content"] for body in model_requests(upstream, agent)[1:]]
    assert results == ["522250", "'cy' rejected the call of 'population': policy"]


async def test_a_call_that_needs_approval_is_proposed(room: Room, upstream: Upstream) -> None:
    def delete(ctx: RunContext[None], path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"{path} is gone"

    agent = agent_of(
        upstream, calling("delete", path="x"), calling("delete", path="y"), say("Hm.", "So."), tools=[delete]
    )
    async with agent_in_space(room, agent), Participant(room.url, token="token-of-cy") as cy:
        await cy.say("Delete them.")
        agreed = None
        async for envelope in cy:
            if envelope.kind == "mcp/proposal":
                if agreed is None:
                    agreed = asyncio.create_task(cy.fulfil(envelope, to="ada"))
                else:
                    await cy.reject(envelope, "not that one")
            if envelope.kind == "chat" and envelope.sender == "ada":
                break
        assert agreed is not None
        response = await agreed
    assert response.payload["result"]["content"][0]["text"] == "x is gone"
    results = [body["messages"][-1]["content"] for body in model_requests(upstream, agent)[1:]]
    assert results == ["x is gone", "cy rejected the call: not that one."]


async def test_calls_of_own_tools_are_observations(room: Room, upstream: Upstream) -> None:
    agent = agent_of(upstream, calling("population", city="Lyon"), say("Hm.", "So."), tools=[population])
    async with agent_in_space(room, agent):
        room.say("cy", "chat", {"text": "How many?"})
        await wait_for_answer(room)
    assert ("reasoning/observation", room.log[1]["id"]) in envelopes_of(room) or any(
        one["kind"] == "reasoning/observation" and one["payload"] == {"content": "522250", "tool": "population"}
        for one in room.log
    )


async def test_a_cancel_ends_the_run_without_an_answer(room: Room, upstream: Upstream) -> None:
    async def endless(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm.\n\nHm"))
        await call.wait_for_disconnect()

    agent = agent_of(upstream, endless)
    async with agent_in_space(room, agent) as bridge:
        for cancel in ("reasoning/cancel", "chat/cancel"):
            question = room.say("bob", "chat", {"text": "Why?"})
            await eventually(lambda: room.log[-1]["kind"] == "reasoning/thought")
            context = room.log[-1]["context"]
            if cancel == "chat/cancel":
                room.say("cy", cancel, {}, correlation_id=[question["id"]])  # cy did not ask the question
                await eventually(lambda: bridge._me.seen == room.head)
                await loop_turns(20)
                assert bridge._runs
                room.say("bob", cancel, {}, correlation_id=[question["id"]])
            else:
                room.say("cy", cancel, {"reason": "enough"}, context=context)
            async with asyncio.timeout(LIMIT_SECONDS):
                await bridge.idle()
        calls = upstream.calls(agent._model.name)  # type: ignore[union-attr]
        assert all(call.connection.closed.wait(LIMIT_SECONDS) for call in calls)
    assert not [one for one in room.log if one["kind"] == "chat" and one["from"] == "ada"]


async def test_a_failure_is_reported_without_its_message(room: Room, upstream: Upstream) -> None:
    def broken() -> str:
        raise ValueError("secret")

    agent = agent_of(upstream, calling("broken"), tools=[broken])
    async with agent_in_space(room, agent):
        room.say("bob", "chat", {"text": "Why?"})
        chat = await wait_for_answer(room)
    assert chat["payload"]["text"] == "I could not answer: something failed (ValueError)"
    assert room.log[-2]["kind"] == "reasoning/cancel"


async def test_a_private_question_gets_private_reasoning_and_a_private_answer(room: Room, upstream: Upstream) -> None:
    async with agent_in_space(room, agent_of(upstream, say("Hm.", "So."))):
        room.say("bob", "chat", {"text": "A secret?"}, to=["ada", "cy"])
        await wait_for_answer(room)
    own_envelopes = [one for one in room.log if one["from"] == "ada"]
    assert len(own_envelopes) == 4
    assert {tuple(one["to"]) for one in own_envelopes} == {("bob", "cy")}


async def test_an_agent_with_chat_only_sends_no_reasoning(room: Room, upstream: Upstream) -> None:
    room.capabilities = ["chat"]
    async with agent_in_space(room, agent_of(upstream, say("Hm.", "So."))):
        room.say("bob", "chat", {"text": "Why?"})
        await wait_for_answer(room)
    assert envelopes_of(room) == [("chat", None)]


async def test_earlier_chats_are_part_of_the_prompt(room: Room, upstream: Upstream) -> None:
    agent = agent_of(upstream, say("Hm.", "So."))
    async with agent_in_space(room, agent, answers=["cy"]):
        room.say("bob", "chat", {"text": "It rains."})
        room.say("cy", "chat", {"text": "Really?"})
        await wait_for_answer(room)
    [body] = model_requests(upstream, agent)
    assert body["messages"][-1]["content"] == "Said in the space so far:\nbob: It rains.\n\nNow cy says:\nReally?"


def envelope_from(sender: str, kind: str = "chat", **more: Any) -> Envelope:
    return Envelope(id=f"{sender}-{len(more)}", ts=0, sender=sender, kind=kind, **more)


def test_which_envelopes_an_agent_answers() -> None:
    policy = AnswerPolicy()
    assert policy.should_answer(envelope_from("bob"), "me")
    assert policy.should_answer(envelope_from("bob", to=("me",)), "me")
    for other in (
        envelope_from("bob", to=("cy",)),
        envelope_from("bob", context="c"),
        envelope_from("bob", replayed=True),
        envelope_from("bob", correlation_id=("somebody's",)),
        envelope_from("bob", kind="mcp/request"),
        envelope_from("me"),
        envelope_from("agent", kind="reasoning/start"),
        envelope_from("agent"),
        envelope_from("agent", kind="reasoning/thought", to=("me",)),
    ):
        assert not policy.should_answer(other, "me")
    assert policy.should_answer(envelope_from("agent", to=("me",)), "me"), "another agent asks"
    policy.should_answer(Envelope(id="mine", ts=0, sender="me", kind="chat"), "me")
    assert not policy.should_answer(envelope_from("agent", to=("me",), correlation_id=("mine",)), "me"), (
        "another agent answers"
    )
    assert policy.should_answer(envelope_from("bob", correlation_id=("mine",)), "me")
    assert not AnswerPolicy(["cy"]).should_answer(envelope_from("bob"), "me")
    assert AnswerPolicy(lambda envelope: True).should_answer(envelope_from("bob", context="c"), "me")
