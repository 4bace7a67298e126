"""Limits of agents' talk in a space: the refusal, the notice to all, the counts in the welcome, restarts, replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pellucid.errors import PellucidError
from pellucid.relay import open_relay
from pellucid.spaces.runtime.settings import read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.state import SpaceState
from tests.spaces.space_kit import chat, frame, join_space, opened, opened_store, replica, whole_log
from tests.spaces.test_space_replicas import two_replicas
from tests.waiting import eventually

AGENTS = ("bob", "cyd")
PEOPLE = {"people": ["ada", "dee"]}


async def post(space: Space, participant: str, data: bytes) -> str | None:
    """Send an envelope; return the code of its error."""
    try:
        await space.post(participant, data)
    except PellucidError as error:
        return error.info.code
    return None


async def logged(space: Space, kind: str) -> list[dict[str, Any]]:
    return [one.envelope.payload for one in await whole_log(space) if one.envelope.kind == kind]


def test_two_agents_stop_at_the_limit_and_all_learn_of_it() -> None:
    async def scene() -> None:
        async with opened(settings={"talk": {"turns": 4, **PEOPLE}}) as (_, space, _):
            _, sink = await join_space(space, "dee")
            [welcome] = sink.of("system/welcome")
            assert welcome["payload"]["talk"] == {"turns": {"used": 0, "allowed": 4}}
            codes = [await post(space, AGENTS[n % 2], chat(f"and you? {n}")) for n in range(6)]
            assert codes == [None] * 4 + ["talk_limit"] * 2
            await eventually(lambda: sink.of("system/limit"))
            [notice] = sink.of("system/limit")
            assert {**notice["payload"], "message": ""} == {"limit": "turns", "allowed": 4, "used": 4, "message": ""}
            assert "4 turns" in notice["payload"]["message"]
            assert notice["seq"] == sink.of("chat")[-1]["seq"] + 1  # in the same commit
            _, late = await join_space(space, "ada")
            assert late.of("system/welcome")[0]["payload"]["talk"] == {"turns": {"used": 4, "allowed": 4}}
            assert await post(space, "dee", chat("go on")) is None
            assert await post(space, "bob", chat("thanks")) is None

    asyncio.run(scene())


def test_a_limit_of_a_context_stops_its_thoughts_and_not_its_end() -> None:
    async def scene() -> None:
        async with opened(settings={"talk": {"context": {"turns": 2}, **PEOPLE}}) as (_, space, _):
            _, sink = await join_space(space, "dee")
            await post(space, "bob", frame("reasoning/start", {"message": "hm"}, id="r", to=["cyd"]))
            codes = [
                await post(space, "bob", frame("reasoning/thought", {"message": "hm"}, context="r")) for _ in "abc"
            ]
            assert codes == [None, None, "talk_limit"]
            assert await post(space, "bob", frame("reasoning/conclusion", {"message": "so"}, context="r")) is None
            assert await post(space, "bob", chat("so")) is None
            await eventually(lambda: sink.of("chat"))
            assert sink.of("system/limit") == []  # the context is for others
            assert [one["limit"] for one in await logged(space, "system/limit")] == ["turns"]

    asyncio.run(scene())


def test_an_agent_at_its_limit_says_nothing_in_other_kinds() -> None:
    async def scene() -> None:
        always = ["mcp/*", "participant/*", "chat/*"]
        settings = {"talk": {"turns": 2, **PEOPLE}, "always": always, "responses": "flag"}
        async with opened(settings=settings) as (_, space, _):
            request = frame("mcp/request", {"method": "tools/call", "params": {"name": "scan"}}, id="q")
            assert await post(space, "dee", request) is None
            assert [await post(space, "bob", chat("hm")) for _ in "abc"] == [None, None, "talk_limit"]
            talk = [
                frame("mcp/response", {"result": "and you?"}, correlation_id=["nothing"]),
                frame("mcp/response", {"result": "and you?"}),
                frame("mcp/request", {"method": "prompts/get", "params": {"text": "and you?"}}),
                frame("chat/acknowledge", {"text": "and you?"}, correlation_id=["q"]),
                frame("chat/cancel", {"reason": "and you?"}, correlation_id=["q"]),
                frame("participant/status", {"status": "and you?"}),
            ]
            assert [await post(space, "bob", one) for one in talk] == ["talk_limit"] * len(talk)
            answer = frame("mcp/response", {"result": {"content": []}}, correlation_id=["q"])
            quiet = [
                answer,
                frame("mcp/request", {"method": "tools/list"}),
                frame("participant/status", {"ready": True}),
            ]
            assert [await post(space, "bob", one) for one in quiet] == [None] * 3

    asyncio.run(scene())


@pytest.mark.parametrize("mode", ["strict", "flag"])
def test_agents_do_not_talk_by_lists_of_tools(mode: str) -> None:
    async def scene() -> None:
        settings = {"talk": {"turns": 2, **PEOPLE}, "always": ["mcp/*"], "responses": mode}
        async with opened(settings=settings) as (_, space, _):

            async def list_tools(by: str, text: str, method: str = "tools/list") -> str | None:
                request = await space.post(by, frame("mcp/request", {"method": method}))
                tools = [{"name": "scan", "description": text}]
                answer = frame(
                    "mcp/response", {"result": {"tools": tools}}, correlation_id=[request.stored.envelope.id]
                )
                return await post(space, "bob", answer)

            assert [await list_tools("cyd", "scans") for _ in "abc"] == [None] * 3
            answers = ["I say", "and you?", "scans", "what now?"]
            assert [await list_tools("cyd", one) for one in answers] == [None, None, None, "talk_limit"]
            assert [one["limit"] for one in await logged(space, "system/limit")] == ["turns"]
            notified = await list_tools("cyd", "and you?", "notifications/cancelled")
            assert notified == ("unknown_request" if mode == "strict" else "talk_limit")
            assert await list_tools("dee", "this is new") is None, "a person is told"
            again = SpaceState(read_settings(settings))
            for one in await whole_log(space):
                again.replay(one)
            assert again.talk.state == space._live.state.talk.state

    asyncio.run(scene())


@pytest.mark.parametrize("mode", ["strict", "flag", "off"])
def test_at_a_limit_only_what_is_open_ends(mode: str) -> None:
    async def scene() -> None:
        settings = {"reasoning": mode, "talk": {"turns": 2, **PEOPLE}, "always": ["participant/*"]}
        async with opened(settings=settings) as (_, space, _):
            for start in (frame("reasoning/start", id="r"), frame("reasoning/start", id="s", context="r")):
                assert await post(space, "bob", start) is None
            assert [await post(space, "bob", chat("hm")) for _ in "abc"] == [None, None, "talk_limit"]
            # A context without a start.
            assert await post(space, "bob", frame("participant/status", {"tokens": 1}, context="named")) is None

            async def end(kind: str, *contexts: str) -> list[str | None]:
                return [await post(space, "bob", frame(kind, {"message": "so"}, context=one)) for one in contexts]

            assert await end("reasoning/conclusion", "never", "named") == ["talk_limit"] * 2
            assert await end("reasoning/cancel", "never", "named") == ["talk_limit"] * 2
            # After its cancel a context takes one conclusion.
            assert await end("reasoning/cancel", "r/s", "r/s") == [None, "talk_limit"]
            assert await end("reasoning/conclusion", "r/s", "r/s") == [None, "talk_limit"]
            assert await end("reasoning/conclusion", "r", "r") == [None, "talk_limit"]
            again = SpaceState(read_settings(settings))
            for one in await whole_log(space):
                again.replay(one)
            assert (again.talk.state.space.turns, again.talk.state.contexts["r"].turns) == (2, 0)

    asyncio.run(scene())


def test_at_a_limit_agents_write_to_no_stream() -> None:
    async def scene() -> None:
        talk = {"turns": 5, "context": {"turns": 2}, **PEOPLE}
        async with opened(settings={"talk": talk, "always": ["stream/*"]}) as (_, space, _):
            sessions = {name: (await join_space(space, name))[0] for name in ("bob", "dee")}

            async def stream(owner: str, **fields: Any) -> str:
                return f"stream-{(await space.post(owner, frame('stream/request', **fields))).stored.envelope.seq}"

            def write(name: str, stream_id: str) -> str | None:
                try:
                    space.send_stream_frame(sessions[name], stream_id, f"#{stream_id}#and you?")
                except PellucidError as error:
                    return error.info.code
                return None

            persons, main, inner = await stream("dee"), await stream("bob"), await stream("bob", context="r")
            assert [write("bob", main), write("bob", inner), write("dee", persons)] == [None] * 3
            assert await post(space, "bob", chat("hm", context="r")) is None
            assert [write("bob", main), write("bob", inner), write("dee", persons)] == [None, "talk_limit", None]
            assert [await post(space, "bob", chat("hm")) for _ in "abc"] == [None, None, "talk_limit"]
            assert [write("bob", main), write("bob", inner), write("dee", persons)] == ["talk_limit"] * 2 + [None]
            assert await post(space, "dee", chat("go on")) is None
            assert write("bob", main) is None

    asyncio.run(scene())


def test_the_end_of_a_context_gives_no_new_turns_in_it() -> None:
    async def scene() -> None:
        async with opened(settings={"talk": {"context": {"turns": 2}, **PEOPLE}}) as (_, space, _):
            await post(space, "bob", frame("reasoning/start", {"message": "hm"}, id="r"))
            assert await post(space, "bob", chat("hm", context="r")) is None
            assert await post(space, "bob", frame("reasoning/conclusion", {"message": "so"}, context="r")) is None
            assert [await post(space, "cyd", chat("late", context="r")) for _ in "ab"] == [None, "talk_limit"]
            assert await logged(space, "system/limit") == []  # no participant waits for it
            assert await post(space, "dee", chat("go on", context="r")) is None
            assert await post(space, "cyd", chat("late", context="r")) is None

    asyncio.run(scene())


def test_only_who_may_renew_renews() -> None:
    async def scene() -> None:
        async with opened(settings={"talk": {"turns": 1, **PEOPLE}}) as (_, space, _):
            assert [await post(space, "bob", chat("hm")) for _ in "ab"] == [None, "talk_limit"]
            assert await post(space, "bob", frame("space/renew")) == "capability_violation"
            assert await post(space, "ada", frame("space/renew", {"reason": "go on"})) is None
            assert [await post(space, "bob", chat("hm")) for _ in "ab"] == [None, "talk_limit"]

    asyncio.run(scene())


def test_the_end_of_the_time_is_announced_once_without_another_envelope() -> None:
    now = 1_000_000.0

    def clock() -> float:
        return now

    async def scene() -> None:
        nonlocal now
        async with opened(settings={"talk": {"seconds": 60, **PEOPLE}}, clock=clock) as (_, space, _):
            _, sink = await join_space(space, "dee")
            assert await post(space, "bob", chat("hm")) is None
            now += 61
            await eventually(lambda: sink.of("system/limit"))
            assert await post(space, "bob", chat("hm")) == "talk_limit"
            assert len(await logged(space, "system/limit")) == 1

    asyncio.run(scene())


def test_counts_survive_a_restart_and_new_settings_apply_to_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"

    async def scene() -> None:
        async with opened(url, {"talk": {"turns": 2, **PEOPLE}}) as (_, space, _):
            assert await post(space, "bob", chat("one")) is None
        async with opened_store(url) as store:
            relay = await open_relay(None)
            async with replica(store, relay) as spaces:
                space = await spaces.space("room")
                assert [await post(space, "cyd", chat("two")) for _ in "ab"] == [None, "talk_limit"]
                row = await store.spaces.get("room")
                assert row is not None
                raised = read_settings({"talk": {"turns": 3, **PEOPLE}}).dump()
                participants = await store.spaces.participants(row.owner, "room")
                await store.spaces.put(replace(row, settings=raised), participants)
                assert [await post(space, "cyd", chat("three")) for _ in "ab"] == [None, "talk_limit"]
                assert [one["allowed"] for one in await logged(space, "system/limit")] == [2, 3]
            await relay.aclose()

    asyncio.run(scene())


def test_replicas_count_together(tmp_path: Path) -> None:
    settings = read_settings({"talk": {"turns": 10, **PEOPLE}})

    async def scene() -> None:
        async with two_replicas(tmp_path, None, settings) as setup:
            one, two = [await spaces.space("room") for spaces in setup.replicas]
            sends = [post(space, "bob", chat(f"{n}")) for n in range(10) for space in (one, two)]
            codes = await asyncio.gather(*sends)
            assert sorted(codes, key=str) == [None] * 10 + ["talk_limit"] * 10
            assert len(await logged(one, "system/limit")) == 1
            assert await post(two, "dee", chat("go on")) is None
            assert await post(one, "bob", chat("thanks")) is None

    asyncio.run(scene())
