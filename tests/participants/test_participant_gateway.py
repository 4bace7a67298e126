"""Participants and agents in a space of a real gateway, over a proxy that breaks connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.envelopes import Envelope, text_of
from pellucid.spaces import AgentInSpace, Cancelled, Kicked, Participant, Refused, SpaceClosed, ToolsInSpace
from tests.participants.agents_kit import agent_of, calling, model_requests
from tests.participants.gateway_kit import review_gateway, token
from tests.participants.proxy_kit import Proxy, running_proxy
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with review_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(autouse=True)
def _short_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten tool discovery: the participants here have no tools and do not answer."""
    monkeypatch.setattr("pellucid.spaces.agents.bridge.DISCOVERY_SECONDS", 0.3)


def participant_of(who: str, gateway: Served | Proxy, **more: Any) -> Participant:
    return Participant(f"ws://127.0.0.1:{gateway.port}/spaces/review/ws", token=token(who), **more)


async def read_until(me: Participant, text: str) -> list[Envelope]:
    received: list[Envelope] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        async for envelope in me:
            received.append(envelope)
            if text_of(envelope) == text:
                break
    return received


async def test_two_participants_chat_and_a_third_reads_the_history(gateway: Served) -> None:
    async with participant_of("ada", gateway) as ada, participant_of("bob", gateway) as bob:
        assert "ada" in bob.participants
        question = await ada.say("Why?", to="bob")
        async with bob.reasoning("Let me see", answers=question) as thought:
            await thought("Hm.", confidence=0.5)
            async with thought.reasoning("closer") as inner:
                await inner.observation("It is so.", severity="low")
            await thought.conclude("Because.", confidence=0.9)
        await bob.say("Because.", answers=[question, thought.start])
        received = await read_until(ada, "Because.")
        assert [one.seq for one in received] == sorted(one.seq for one in received)
        async with participant_of("cy", gateway, history=100, view="collapsed") as cy:
            assert cy.head >= ada.seen
            old = [await anext(cy) for _ in range(6)]
            assert all(one.replayed for one in old)
            assert not [one for one in old if one.kind == "reasoning/thought"]
            await ada.say("Welcome.")
            new = await read_until(cy, "Welcome.")
            assert not new[-1].replayed


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_repeated_despite_failures(tmp_path: Path, seed: int) -> None:
    """The proxy cuts frames, and the gateway restarts while three tasks send."""
    store, count = tmp_path / "spaces.db", 60
    received: dict[str, list[Envelope]] = {"bob": [], "cy": []}
    loop = asyncio.get_running_loop()

    async def receive_all(me: Participant) -> None:
        received[me.id] += await read_until(me, "the end")

    first = review_gateway(tmp_path, store)
    gateway = await loop.run_in_executor(None, first.__enter__)
    try:
        async with (
            running_proxy(gateway.port) as proxy,
            participant_of("ada", proxy) as ada,
            participant_of("bob", proxy) as bob,
            participant_of("cy", gateway) as cy,
        ):
            proxy.random_source, proxy.bytes_between_cuts = random.Random(seed), 4000
            listening = asyncio.gather(receive_all(bob))

            async def send_chats(name: str) -> None:
                for number in range(count // 3):
                    await ada.say(f"{name} {number}")

            talking = asyncio.gather(*(send_chats(name) for name in "xyz"))
            begun = cy.seen
            await eventually(lambda: cy.seen > begun + count // 6)
            proxy.target = 0
            proxy.cut()
            cut = cy.seen
            await loop.run_in_executor(None, first.__exit__, None, None, None)
            first = review_gateway(tmp_path, store)
            gateway = await loop.run_in_executor(None, first.__enter__)
            proxy.target = gateway.port
            async with asyncio.timeout(60):
                await talking
                proxy.bytes_between_cuts = 0
                await ada.say("the end")
                await listening
            assert proxy.cuts > 2
            assert cut
        async with participant_of("cy", gateway, after_seq=0) as again:
            received["cy"] = await read_until(again, "the end")
    finally:
        await loop.run_in_executor(None, first.__exit__, None, None, None)
    for name in ("bob", "cy"):
        chats = [one for one in received[name] if one.kind == "chat"]
        assert [one.seq for one in received[name]] == sorted({one.seq for one in received[name]})
        assert len(chats) == len({one.id for one in chats}) == count + 1
        for who in "xyz":
            mine = [text_of(one) for one in chats if text_of(one).startswith(who)]
            assert mine == [f"{who} {number}" for number in range(count // 3)]


async def test_a_rate_limited_participant_loses_nothing(tmp_path: Path) -> None:
    with review_gateway(tmp_path, limits={"chat": {"per_second": 200, "burst": 10}}) as gateway:
        async with participant_of("ada", gateway) as ada, participant_of("bob", gateway) as bob:
            async with asyncio.timeout(LIMIT_SECONDS):
                await asyncio.gather(*(ada.say(str(number)) for number in range(30)))
            await ada.say("the end")
            received = await read_until(bob, "the end")
    assert sorted(text_of(one) for one in received if one.kind == "chat") == sorted([*map(str, range(30)), "the end"])


async def test_refusals_name_their_code(gateway: Served) -> None:
    async with participant_of("ada", gateway) as ada:
        with pytest.raises(Refused) as refused:
            await ada.send("space/kick", {"participant_id": "bob"})
        assert refused.value.info.code == "capability_violation"
        with pytest.raises(Refused) as refused:
            await ada.send("reasoning/thought", {"message": "?"}, context="never/opened/so/deep/as/this")
        assert refused.value.info.code == "too_deep"
    with pytest.raises(SpaceClosed) as closed:
        await Participant(f"ws://127.0.0.1:{gateway.port}/spaces/review/ws", token="pst_wrong").__aenter__()
    assert closed.value.info.kind in ("unauthorized", "forbidden")
    assert "pst_wrong" not in str(closed.value)
    with pytest.raises(SpaceClosed, match="does not admit this participant"):
        await Participant(f"ws://127.0.0.1:{gateway.port}/spaces/nowhere/ws", token=token("ada")).__aenter__()


async def receive_kind(me: Participant, kind: str) -> None:
    """Wait until this participant has received an envelope of this kind."""
    async with asyncio.timeout(LIMIT_SECONDS):
        async for envelope in me:
            if envelope.kind == kind:
                return


async def test_a_kicked_participant_cannot_return(gateway: Served) -> None:
    async with participant_of("boss", gateway) as boss, participant_of("dan", gateway) as ada:
        waiting = asyncio.create_task(ada.call("never", to="bob"))
        await receive_kind(boss, "mcp/request")
        await boss.send("space/kick", {"participant_id": "dan", "reason": "enough"})
        with pytest.raises(Kicked, match="enough"):
            await waiting
        with pytest.raises(Kicked):
            await ada.say("But …")
    with pytest.raises(SpaceClosed):
        await participant_of("dan", gateway).__aenter__()


async def test_cancel_and_grant(gateway: Served) -> None:
    async with participant_of("boss", gateway) as boss, participant_of("ada", gateway) as ada:

        async def think() -> None:
            async with ada.reasoning("Hm"):
                await asyncio.Future()

        thinking = asyncio.create_task(think())
        async for envelope in boss:
            if envelope.kind == "reasoning/start":
                await boss.cancel(envelope.id, "enough")
                break
        with pytest.raises(Cancelled, match="enough"):
            await thinking
        assert not ada.may("space/invite")
        await boss.send("capability/grant", {"recipient": "ada", "capabilities": ["space/invite"]})
        await eventually(lambda: ada.may("space/invite"))


async def test_a_change_of_view_continues_at_the_cursor(gateway: Served) -> None:
    async with (
        participant_of("ada", gateway) as ada,
        participant_of("bob", gateway, view="main") as bob,
        ada.reasoning("Hm") as thought,
    ):
        await thought("unseen")
        await ada.say("one")
        assert [one.kind for one in await read_until(bob, "one")] == ["chat"]
        await bob.look("full")
        await thought("seen")
        assert "reasoning/thought" in [one.kind for one in await read_until(bob, "seen")]


def weather(city: str) -> str:
    """What the weather is like.

    Args:
        city: Where.
    """
    return f"It rains in {city}."


async def test_an_agent_calls_tools_of_another_participant(gateway: Served, upstream: Upstream) -> None:
    agent = agent_of(upstream, calling("weather", city="Lyon"), say("So it is.", "It rains."))
    async with (
        participant_of("bob", gateway) as bob,
        ToolsInSpace(bob, [weather]),
        participant_of("ada", gateway) as ada,
        AgentInSpace(agent, ada),
        participant_of("cy", gateway) as cy,
    ):
        question = await cy.say("How is it in Lyon?")
        received = await read_until(cy, "It rains. ")
    start = next(one for one in received if one.kind == "reasoning/start")
    inside = [(one.sender, one.kind) for one in received if one.context == start.id]
    assert inside == [
        ("ada", "reasoning/thought"),
        ("ada", "mcp/request"),
        ("bob", "mcp/response"),
        ("ada", "reasoning/thought"),
        ("ada", "reasoning/conclusion"),
    ]
    assert received[-1].correlation_id == (question.id, start.id)
    assert model_requests(upstream, agent)[1]["messages"][-1]["content"] == "It rains in Lyon."


async def test_an_agent_without_the_capability_proposes_its_call(gateway: Served, upstream: Upstream) -> None:
    agent = agent_of(upstream, calling("weather", city="Lyon"), say("So it is.", "It rains."))
    async with (
        participant_of("bob", gateway) as bob,
        ToolsInSpace(bob, [weather]),
        participant_of("novice", gateway) as novice,
        AgentInSpace(agent, novice),
        participant_of("boss", gateway) as boss,
    ):
        await boss.say("How is it in Lyon?")
        async for envelope in boss:
            if envelope.kind == "mcp/proposal":
                await boss.fulfil(envelope, to="bob")
                break
        await read_until(boss, "It rains. ")
    assert model_requests(upstream, agent)[1]["messages"][-1]["content"] == "It rains in Lyon."


async def test_a_cancel_ends_the_agents_run(gateway: Served, upstream: Upstream) -> None:
    async def endless(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm.\n\nHm"))
        await call.wait_for_disconnect()

    agent = agent_of(upstream, endless)
    async with (
        participant_of("ada", gateway) as ada,
        AgentInSpace(agent, ada) as bridge,
        participant_of("cy", gateway) as cy,
    ):
        await cy.say("Why?")
        async for envelope in cy:
            if envelope.kind == "reasoning/thought":
                assert envelope.context is not None
                await cy.cancel(envelope.context, "enough")
                break
        async with asyncio.timeout(LIMIT_SECONDS):
            await bridge.idle()
    assert upstream.calls(agent._model.name)[0].connection.closed.wait(LIMIT_SECONDS)  # type: ignore[union-attr]


async def test_a_recreated_space_is_read_from_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """The proxy leads to a gateway with an empty store: every envelope is delivered, flagged as replayed."""
    with review_gateway(tmp_path_factory.mktemp("old")) as old, review_gateway(tmp_path_factory.mktemp("new")) as new:
        async with participant_of("ada", new) as ada:
            first = await ada.say("the first of the new")
        async with running_proxy(old.port) as proxy, participant_of("bob", proxy) as bob:
            for number in range(20):
                await bob.say(str(number))
            stale = bob.seen
            await read_until(bob, "19")
            proxy.target = new.port
            proxy.cut()
            received = await read_until(bob, "the first of the new")
            assert [one.kind for one in received].count("system/welcome") == 1
            assert received[0].payload["unknown_after_seq"] == stale
            assert received[-1].seq == first.seq < stale
            assert all(one.replayed for one in received if one.seq)
            sent = await bob.say("here I am")
            assert (await read_until(bob, "here I am"))[-1].seq == sent.seq == bob.seen
            assert not sent.replayed
    assert sum("is read from its beginning" in one.getMessage() for one in caplog.records) == 1
