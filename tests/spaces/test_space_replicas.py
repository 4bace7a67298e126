"""Two replicas over one database and one relay: one order, one state, and one presence event for each join or leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from pellucid.relay import Relay, open_relay
from pellucid.spaces.runtime.maintenance import Intervals
from pellucid.spaces.runtime.provisioning import add_participants, create_space
from pellucid.spaces.runtime.session import Session
from pellucid.spaces.runtime.settings import SpaceSettings, read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.space_manager import SpaceManager
from pellucid.spaces.runtime.state import SpaceState
from pellucid.storage import Append, AppendConflict, Store, open_store
from tests.service_postgres import PostgresServer
from tests.service_postgres import postgres_server as postgres_server
from tests.service_redis import RedisService
from tests.service_redis import redis as redis
from tests.spaces.space_kit import EVERYBODY, OWNER, QUICK, Sink, chat, frame, join_space, whole_log
from tests.waiting import eventually, loop_turns

AGENTS = {f"agent-{n}": ["chat", "reasoning/*"] for n in range(6)}


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.needs("redis"))])
def relay_url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "memory":
        return None
    service: RedisService = request.getfixturevalue("redis")
    return f"{service.url}?prefix={request.node.name}:"


class Setup(NamedTuple):
    stores: tuple[Store, Store]
    relays: tuple[Relay, Relay]
    replicas: list[SpaceManager]
    tokens: dict[str, str]


@asynccontextmanager
async def two_replicas(
    path: Path | str, relay_url: str | None, settings: SpaceSettings | None = None, pace: Intervals = QUICK
) -> AsyncIterator[Setup]:
    url = path if isinstance(path, str) else f"sqlite:///{path}/s.db"
    stores = (await open_store(url), await open_store(url))
    one = await open_relay(relay_url)
    relays = (one, one if relay_url is None else await open_relay(relay_url))
    replicas = [SpaceManager(store, relay, intervals=pace) for store, relay in zip(stores, relays, strict=True)]
    for spaces in replicas:
        await spaces.start()
    try:
        tokens = await create_space(
            stores[0].spaces, OWNER, "room", settings or read_settings({}), {**EVERYBODY, **AGENTS}
        )
        yield Setup(stores, relays, replicas, tokens)
    finally:
        for spaces in replicas:
            await spaces.aclose()
        for store in stores:
            await store.aclose()
        for relay in relays:
            await relay.aclose()


async def rooms(setup: Setup) -> list[Space]:
    return [await spaces.space("room") for spaces in setup.replicas]


async def presence_renewed(*spaces: Space) -> None:
    """Wait until each space has renewed its presence often enough to notice who left."""
    for _ in range(4):
        for space in spaces:
            await _presence_renewed(space)


async def _presence_renewed(space: Space) -> None:
    last = space._maintenance._last_renewal
    await eventually(lambda: space._maintenance._last_renewal > last, "the presence is renewed")


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def test_busy_replicas_have_one_order(
    tmp_path: Path, relay_url: str | None, database: str, request: pytest.FixtureRequest
) -> None:
    where: Path | str = tmp_path
    if database == "postgresql":
        where = request.getfixturevalue("postgres_server").database()

    async def scene() -> None:
        async with two_replicas(where, relay_url) as setup:
            here, there = await rooms(setup)
            sessions: list[tuple[Session, Sink]] = []
            for number, name in enumerate(AGENTS):
                sessions.append(await join_space((here, there)[number % 2], name))
            observers = [await join_space(here, "ada"), await join_space(there, "ada")]

            async def talk(session: Session) -> None:
                for number in range(15):
                    await session.receive(chat(f"{session.participant} {number}"))
                    if number % 5 == 0:
                        await loop_turns(20)

            await asyncio.gather(*(talk(session) for session, _ in sessions))
            total = 15 * len(sessions)
            await eventually(lambda: all(len(sink.of("chat")) == total for _, sink in [*sessions, *observers]))
            orders = [
                [(one["seq"], one["payload"]["text"]) for one in sink.of("chat")] for _, sink in [*sessions, *observers]
            ]
            assert all(order == orders[0] for order in orders)
            assert all(not sink.errors for _, sink in sessions)
            for name in AGENTS:
                mine = [text for _, text in orders[0] if text.startswith(f"{name} ")]
                assert mine == [f"{name} {number}" for number in range(15)], "chats of one participant keep their order"
            for session, _ in [*sessions, *observers]:
                await session.leave()
            await asyncio.gather(here.catch_up(), there.catch_up())
            assert here._live.state.dump() == there._live.state.dump()
            events = Counter(
                (one.envelope.payload["event"], one.envelope.payload["participant"]["id"])
                for one in await whole_log(here)
                if one.envelope.kind == "system/presence"
            )
            assert events == {(event, name): 1 for event in ("join", "leave") for name in [*AGENTS, "ada"]}

    asyncio.run(scene())


def test_a_replica_yields_the_lease_to_a_waiting_one(
    tmp_path: Path, relay_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would keep writing although another replica waits for the lease."""

    async def scene() -> None:
        async with two_replicas(tmp_path, relay_url) as setup:
            here, there = await rooms(setup)
            session, sink = await join_space(here, "bob")
            store = setup.stores[0].spaces
            append, conflicts = store.append, iter([AppendConflict(here.head, 1), None])

            async def append_after_conflict(one: Append) -> None:
                if error := next(conflicts, None):
                    raise error
                await append(one)

            monkeypatch.setattr(store, "append", append_after_conflict)
            assert not there.writer._lease.is_contended
            await session.receive(chat("stored after all"))
            await eventually(lambda: there.writer._lease.is_contended, "the other replica waits for the lease")
            await eventually(lambda: sink.of("chat"))
            await session.leave()

    asyncio.run(scene())


def test_a_participant_on_two_replicas_joins_once(tmp_path: Path, relay_url: str | None) -> None:
    async def scene() -> None:
        async with two_replicas(tmp_path, relay_url) as setup:
            here, there = await rooms(setup)
            first, _ = await join_space(here, "bob")
            second, sink = await join_space(there, "bob")
            await first.leave()
            await second.receive(chat("still here"))
            await eventually(lambda: sink.of("chat"))
            assert "bob" in there._live.state.present_since
            await second.leave()
            await here.catch_up()
            assert "bob" not in here._live.state.present_since
            log = await whole_log(here)
            assert [one.envelope.payload["event"] for one in log if one.envelope.kind == "system/presence"] == [
                "join",
                "leave",
            ]

    asyncio.run(scene())


def test_participants_of_a_dead_replica_leave(tmp_path: Path, relay_url: str | None) -> None:
    """Its presence expires: its participants leave, once, and their contexts are cancelled."""

    async def scene() -> None:
        settings = read_settings({"grace_seconds": 0.1})
        async with two_replicas(
            tmp_path, relay_url, settings, Intervals(poll_seconds=0.02, presence_seconds=0.3)
        ) as setup:
            here, there = await rooms(setup)
            _, observers = await join_space(there, "ada")
            session, sink = await join_space(here, "bob")
            await session.receive(frame("reasoning/start", {"message": "…"}, id="r1"))
            await eventually(lambda: sink.of("reasoning/start"))
            for task in list(here._tasks):  # as if it were killed: its tasks stop
                task.cancel()
            setup.replicas[0]._open.clear()
            await eventually(lambda: observers.of("reasoning/cancel"))
            leaves = [one for one in observers.of("system/presence") if one["payload"]["event"] == "leave"]
            assert [one["payload"]["participant"]["id"] for one in leaves] == ["bob"]
            (cancel,) = observers.of("reasoning/cancel")
            assert (cancel["context"], cancel["from"], cancel["payload"]["reason"]) == (
                "r1",
                "system:gateway",
                "disconnected",
            )
            await presence_renewed(there)
            await there.catch_up()
            assert len(observers.of("system/presence")) == len(leaves) + 1

    asyncio.run(scene())


def test_kicks_and_grants_reach_the_other_replica(tmp_path: Path, relay_url: str | None) -> None:
    async def scene() -> None:
        async with two_replicas(tmp_path, relay_url) as setup:
            here, there = await rooms(setup)
            ada, _ = await join_space(here, "ada")
            _, dee = await join_space(there, "dee")
            await ada.receive(
                frame("capability/grant", {"recipient": "dee", "capabilities": ["reasoning/*"]}, id="g-1")
            )
            await eventually(lambda: len(dee.of("system/welcome")) == 2)
            you = dee.of("system/welcome")[1]["payload"]["you"]
            assert {"kind": "reasoning/*"} in you["capabilities"]
            await ada.receive(frame("space/kick", {"participant_id": "dee"}))
            await eventually(lambda: dee.closed)
            assert dee.closed is not None
            assert dee.closed[0] == 4403
            assert dee.decoded[-1]["kind"] == "space/kick"
            with pytest.raises(Exception, match="not in this space"):
                await setup.replicas[1].admit("room", setup.tokens["dee"])

    asyncio.run(scene())


def test_a_participant_added_later_is_admitted(tmp_path: Path, relay_url: str | None) -> None:
    """Another process adds the participant without a notification."""

    async def scene() -> None:
        async with two_replicas(tmp_path, relay_url) as setup:
            here, _ = await rooms(setup)
            ada, sink = await join_space(here, "ada")
            tokens = await add_participants(setup.stores[1].spaces, OWNER, "room", {"new": ["chat"]})
            space, who = await setup.replicas[0].admit("room", tokens["new"])
            assert (space, who) == (here, "new")
            await here.post("new", {"kind": "chat", "payload": {"text": "hello"}})
            await ada.receive(chat("hello"))
            await eventually(lambda: len(sink.of("chat")) == 2)
            assert not [one for one in sink.decoded if one["kind"] == "system/configured"]

    asyncio.run(scene())


def test_a_relay_outage_loses_no_envelope(tmp_path: Path, redis: RedisService) -> None:
    async def scene() -> None:
        async with two_replicas(tmp_path, f"{redis.url}?prefix=away:") as setup:
            here, there = await rooms(setup)
            ada, mine = await join_space(here, "ada")
            bob, theirs = await join_space(there, "bob")
            redis.stop()
            try:
                for number in range(5):
                    await ada.receive(chat(f"a{number}"))
                    await bob.receive(chat(f"b{number}"))
                await eventually(lambda: len(mine.of("chat")) == len(theirs.of("chat")) == 10)
                _, late = await join_space(there, "cyd", after_seq=0)
                await eventually(lambda: len(late.of("chat")) == 10)
            finally:
                redis.start()
            await presence_renewed(here, there)
            for space in (here, there):
                await space.catch_up()
                assert {"ada", "bob", "cyd"} <= set(space._live.state.present_since)
            assert not [one for one in mine.of("system/presence") if one["payload"]["event"] == "leave"]

    asyncio.run(scene())


async def is_accepted(session: Session, sink: Sink, text: str) -> bool:
    """Send a chat and wait for its echo or an error; return whether it was accepted."""
    errors = len(sink.errors)
    await session.receive(chat(text, id="b-1"))
    await eventually(lambda: len(sink.errors) > errors or has_chat(sink, text), "an answer")
    return has_chat(sink, text)


def has_chat(sink: Sink, text: str) -> bool:
    return any(one["payload"]["text"] == text for one in sink.of("chat"))


def test_a_database_outage_loses_no_acknowledged_envelope(postgres_server: PostgresServer) -> None:
    """Senders get an error; no acknowledged envelope is lost; both replicas continue with one order."""
    url = postgres_server.database()

    async def scene() -> None:
        async with two_replicas(url, None) as setup:
            here, there = await rooms(setup)
            ada, mine = await join_space(here, "ada")
            bob, theirs = await join_space(there, "bob")
            await ada.receive(chat("before"))
            await eventually(lambda: theirs.of("chat"))
            postgres_server.stop()
            try:
                await ada.receive(chat("lost"))
                await eventually(lambda: mine.errors)
                assert mine.of("system/error")[0]["payload"]["error"] == "unavailable"
            finally:
                postgres_server.start()
            while not await is_accepted(bob, theirs, "bob's"):
                pass
            await eventually(lambda: has_chat(mine, "bob's"))
            await ada.receive(chat("ada's"))
            await eventually(lambda: theirs.of("chat")[-1]["payload"]["text"] == "ada's")
            log = [
                (one.envelope.seq, one.envelope.payload["text"])
                for one in await whole_log(here)
                if one.envelope.kind == "chat"
            ]
            for sink in (mine, theirs):
                assert sorted({(one["seq"], one["payload"]["text"]) for one in sink.of("chat")}) == log
            assert {text for _, text in log} - {"lost"} == {"before", "bob's", "ada's"}

    asyncio.run(scene())


def test_frames_of_streams_reach_other_replicas_once_and_in_order(tmp_path: Path, relay_url: str | None) -> None:
    async def scene() -> None:
        async with two_replicas(tmp_path, relay_url) as setup:
            first, second = [await replica.space("room") for replica in setup.replicas]
            ada, own = await join_space(first, "ada")
            _, reader = await join_space(second, "bob")
            await ada.receive(frame("stream/request", {"direction": "upload"}, id="r"))
            await eventually(lambda: own.of("stream/open"))
            stream = own.of("stream/open")[0]["payload"]["stream_id"]
            sent = [f"#{stream}#{number}".encode() for number in range(100)]
            for data in sent:
                await ada.receive(data.decode())

            def frames(sink: Sink) -> list[bytes]:
                return [one.text for one in sink.frames if one.text.startswith(b"#")]

            await eventually(lambda: len(frames(reader)) >= len(sent))
            assert frames(reader) == frames(own) == sent
            await first.leave(ada)
            await eventually(lambda: second._live.state.streams.state == {})
            rows = [one.envelope.kind for one in await whole_log(second) if one.envelope.family == "stream"]
            assert rows == ["stream/request", "stream/open", "stream/close"]

    asyncio.run(scene())


def test_open_streams_are_in_the_snapshot(tmp_path: Path) -> None:
    async def scene() -> None:
        async with two_replicas(tmp_path, None) as setup:
            space = await setup.replicas[0].space("room")
            ada, own = await join_space(space, "ada")
            await ada.receive(
                frame("stream/request", {"direction": "upload", "target": ["bob"]}, id="r", to=["gateway"])
            )
            await eventually(lambda: own.of("stream/open"))
            state = space._live.state
            again = SpaceState.load(state.settings, state.dump())
            assert again.streams.state == state.streams.state
            (stream,) = again.streams.state.values()
            assert (stream.readers, stream.requested_to) == (("ada", "bob"), ("gateway",))

    asyncio.run(scene())
