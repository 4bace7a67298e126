"""Flags of the gateway reach every reader of an envelope; erased envelopes reach none."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from pellucid.envelopes import Defaults, Flag, read, write
from pellucid.envelopes.frames import MAX_PEEK, peek
from pellucid.envelopes.translate import DIALECTS
from pellucid.relay import open_relay
from pellucid.spaces.history.history import History, ReplayRange
from pellucid.spaces.runtime.live_state import MAX_RECENT
from pellucid.spaces.runtime.maintenance import Intervals
from pellucid.spaces.runtime.provisioning import create_space
from pellucid.spaces.runtime.session import Session
from pellucid.spaces.runtime.state import read_note
from pellucid.storage import open_store
from tests.spaces.space_kit import OWNER, Sink, chat, frame, join_space, opened, replica
from tests.waiting import eventually

SECRET = "the-secret-word"


def test_flags_are_delivered_wherever_the_envelope_is_read() -> None:
    """Live, after a resume, and in the history; also at the sender. Flags that the sender wrote are ignored."""

    async def scene() -> None:
        async with opened(settings={"reasoning": "flag"}) as (_, space, store):
            bob, mine = await join_space(space, "bob")
            _, live = await join_space(space, "ada")
            await bob.receive(frame("reasoning/start", {"message": "x"}, id="r"))
            await bob.receive(frame("reasoning/conclusion", {}, context="r"))
            after = {"references": ["nothing"], "flags": "mine"}
            await bob.receive(
                frame("reasoning/thought", after, context="r", id="late", flags=[{"code": "a", "message": "b"}])
            )
            await eventually(lambda: live.of("reasoning/thought"))
            (received,) = live.of("reasoning/thought")
            assert [flag["code"] for flag in received["flags"]] == ["context_ended", "unknown_reference"]
            assert mine.of("reasoning/thought") == [received]
            assert received["payload"] == after
            assert "flags" not in live.of("reasoning/start")[0]
            stored = await store.spaces.get_envelope(OWNER, "room", received["seq"])
            assert stored is not None
            assert (stored.envelope.flags, stored.envelope.extra) == ((), {})
            for how in ({"after_seq": received["seq"] - 1}, {"history": 50}):
                _, again = await join_space(space, "dee", **how)
                await eventually(partial(again.of, "reasoning/thought"))
                assert again.of("reasoning/thought")[0]["flags"] == received["flags"]
            wanted = tuple(Flag(**flag) for flag in received["flags"])
            history = History(store, OWNER, "room", space.viewer("dee"))
            assert [one.flags for one in (await history.page(within="r")).envelopes] == [(), (), wanted]
            one = await history.one(received["seq"])
            assert one is not None
            assert one.flags == wanted
            tree = await history.tree("r")
            assert tree is not None
            assert [step.envelope.flags for step in tree.trees[0].steps if step.envelope] == [(), wanted]
            hits = await history.search("nothing")
            assert [hit.envelope.flags for hit in hits.hits] == [wanted]
            async for batch in history.replay(ReplayRange(after=received["seq"] - 1, before=received["seq"] + 1)):
                assert [(one.flags, one.replayed) for one in batch] == [(wanted, True)]
            posted = await space.post("bob", frame("reasoning/thought", {}, context="r"))
            assert posted.stored.with_flags.flags

    asyncio.run(scene())


def test_flags_reveal_no_hidden_envelope() -> None:
    """Flags on proposals, contexts and owners that the reader may not see."""

    async def scene() -> None:
        async with opened(settings={"reasoning": "flag"}) as (_, space, _store):
            ada, _ = await join_space(space, "ada")
            bob, _ = await join_space(space, "bob")
            _, dee = await join_space(space, "dee")
            await bob.receive(
                frame("mcp/proposal", {"method": "tools/call", "params": {"name": SECRET}}, id="p", to=["ada"])
            )
            await bob.receive(frame("reasoning/start", {}, id="r"))
            await bob.receive(frame("reasoning/start", {}, id=SECRET, context="r", to=["ada"]))
            await bob.receive(frame("reasoning/start", {}, id="open-to-all", context="r"))
            await space.catch_up()
            await ada.receive(frame("mcp/request", {"method": "tools/list"}, correlation_id=["p"]))
            await ada.receive(frame("reasoning/conclusion", {}, context="r"))
            await eventually(lambda: dee.of("reasoning/conclusion"))
            flags = [flag for one in dee.decoded for flag in one.get("flags", ())]
            assert {"differs", "not_owner", "left_open"} <= {flag["code"] for flag in flags}
            assert SECRET not in json.dumps(dee.decoded)
            (left_open,) = (flag["message"] for flag in flags if flag["code"] == "left_open")
            assert left_open == "a context inside it is not concluded before it"
            assert "bob" not in json.dumps(flags)

    asyncio.run(scene())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_the_gateway_can_set_flags_in_every_dialect(dialect: str) -> None:
    name = DIALECTS[dialect].name  # type: ignore[index]
    flags = (Flag("after_end", "context 'r' has ended"), Flag("x", "é"))
    envelope = read({"id": "m", "ts": 1, "from": "bob", "kind": "chat", "payload": {"text": "x"}, "seq": 3}, name)
    round_trip = read(write(envelope, name), name)
    assert round_trip.flags == ()
    flagged = replace(envelope, flags=flags)
    assert read(write(flagged, name), name) == flagged
    for other in ("x", 7, [7], [{"code": "x"}], {"code": "x", "message": "y"}):
        assert read({**write(envelope, name), "flags": other}, name) == envelope


def is_caught_up(session: Session) -> bool:
    """Whether the session has received the log up to its head."""
    return session.group_key is not None


def test_no_replica_delivers_an_erased_envelope(tmp_path: Path) -> None:
    """The store erases without a notice: the other replica has the envelope in memory, and does not poll in this
    test."""

    async def scene() -> None:
        url = f"sqlite:///{tmp_path / 'kept.sqlite'}"
        never = Intervals(poll_seconds=3600.0, presence_seconds=3600.0, unused_seconds=3600.0)
        relay = await open_relay(None)
        async with opened(url, {"reasoning": "flag"}, intervals=never) as (spaces, space, store):
            other_store = await open_store(url)
            async with replica(other_store, relay, intervals=never) as others:
                there = await others.space("room")
                bob, mine = await join_space(there, "bob")
                await bob.receive(chat(SECRET, id="m-1"))
                await bob.receive(frame("reasoning/start", {"references": [SECRET]}, id="m-2"))
                await eventually(lambda: mine.of("reasoning/start"))
                first, second = mine.of("chat")[0]["seq"], mine.of("reasoning/start")[0]["seq"]
                version = (await store.spaces.head(OWNER, "room") or (0, 0))[1]
                # `there` gets no notice: the erasure goes through the other replica's Spaces, and no relay connects
                # them.
                assert await spaces.erase("room", [first, second]) == 2
                assert await store.spaces.head(OWNER, "room") == (there.head, version + 1)
                for who, how in (
                    ("ada", {"after_seq": 0}),
                    ("bob", {"after_seq": first - 1}),
                    ("dee", {"history": 50}),
                ):
                    for room in (there, space):
                        session, late = await join_space(room, who, **how)
                        await space.catch_up()
                        await eventually(partial(is_caught_up, session))
                        assert SECRET not in json.dumps(late.decoded), (who, how)
                        assert not [one for one in late.decoded if one.get("flags")]
                stored = await store.spaces.get_envelope(OWNER, "room", second)
                assert stored is not None
                assert SECRET not in stored.note.decode()
                assert read_note(stored.note).by is not None
                await bob.receive(chat("goes on", id="m-3"))
                await eventually(lambda: len(mine.of("chat")) == 2)
            await other_store.aclose()
        await relay.aclose()

    asyncio.run(scene())


def test_a_rollback_works_after_memory_was_dropped() -> None:
    """A judged envelope that was not stored is rolled back, even if memory was dropped in between."""

    async def scene() -> None:
        async with opened() as (_, space, _store):
            await space.post("bob", chat("stored"))
            live_state = space._live
            before = live_state.state.dump()
            await space.catch_up()
            judged = read(chat("never stored"), None, Defaults("bob", "x", 5))
            assert live_state.state.judge(judged, 5).stored is not None
            live_state.forget()
            live_state.roll_back()
            assert live_state.state.dump() == before

    asyncio.run(scene())


def test_a_cursor_of_a_deleted_space_replays_the_new_one() -> None:
    """A space that was deleted and created again: the welcome says so once, and its log is replayed as history."""

    async def scene() -> None:
        async with opened() as (spaces, space, store):
            for number in range(5):
                await space.post("ada", chat(str(number)))
            _, old = await join_space(space, "dee", after_seq=0)
            await eventually(lambda: len(old.of("chat")) == 5)
            stale = space.head
            await store.spaces.remove(OWNER, "room")
            await eventually(lambda: space.is_closed)
            settings = {"ada": ["*"], "dee": ["chat"]}
            await create_space(store.spaces, OWNER, "room", space.settings, settings)
            recreated = await spaces.space("room")
            await recreated.post("ada", chat("new"))
            _, sink = await join_space(recreated, "dee", after_seq=stale)
            welcome = sink.decoded[0]["payload"]
            assert welcome["unknown_after_seq"] == stale > welcome["head"]
            await eventually(lambda: sink.of("chat"))
            assert [one["replayed"] for one in sink.decoded if one.get("seq")] == [True] * len(sink.seqs)
            await recreated.post("ada", chat("live"))
            await eventually(lambda: len(sink.of("chat")) == 2)
            assert sink.seqs == sorted(set(sink.seqs))
            assert "replayed" not in sink.of("chat")[-1]
            _, right = await join_space(recreated, "dee", after_seq=recreated.head)
            assert "unknown_after_seq" not in right.decoded[0]["payload"]

    asyncio.run(scene())


def test_a_resend_is_delivered_in_order_while_a_session_catches_up() -> None:
    """A session that is catching up gets the resend in log order: its sequence numbers only grow."""

    async def scene() -> None:
        fast = {"limits": {"reasoning": {"per_second": 1e6, "burst": 1e6}}}
        async with opened(settings=fast) as (_, space, _store):
            thoughts = (frame("reasoning/thought", {"message": str(n)}, context="r") for n in range(MAX_RECENT + 100))
            await asyncio.gather(*(space.post("ada", thought) for thought in thoughts))
            await space.post("bob", chat("mine", id="m-1"))
            sink = Sink()
            sink.stuck = True
            session = await space.join("bob", sink, after_seq=0)
            await session.receive(chat("mine", id="m-1"))
            await space.catch_up()
            assert session.group_key is None
            assert not sink.of("chat")
            sink.drain()
            await eventually(lambda: session.group_key is not None)
            assert sink.seqs == sorted(set(sink.seqs))
            assert len(sink.of("chat")) == 1

    asyncio.run(scene())


def test_a_too_large_frame_is_refused_with_its_id() -> None:
    """If the id stands near the beginning and belongs to the envelope itself; hostile input is not read far."""

    async def scene() -> None:
        async with opened(settings={"limits": {"frame_bytes": 4000}}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            long = "x" * 9000
            await bob.receive(json.dumps({"id": "m-1", "kind": "chat", "payload": {"text": long}}))
            await bob.receive(json.dumps({"payload": {"id": "not this", "text": long}, "id": "m-2", "kind": "chat"}))
            await bob.receive(
                json.dumps({"payload": {"id": "not this"}, "id": "é", "kind": "chat", "x": long}).encode()
            )
            errors = [
                (one.get("correlation_id"), one["payload"].get("attempted_kind")) for one in sink.of("system/error")
            ]
            assert errors == [(["m-1"], "chat"), (None, None), (["é"], "chat")]

    asyncio.run(scene())


@pytest.mark.parametrize(
    "start",
    ["{" * 9, '{"id":"', '"', '{"id":', '{"id":"' + "\\" * 2001, '["id",', '{"a":{"id":"x",', '"id":"x",', "\x00"],
)
def test_a_hostile_frame_has_no_id(start: str) -> None:
    for hostile in (start + "[" * 100_000, start + "\\" * 100_000, start + " " * 100_000, start + '"' * 99_999):
        assert peek(hostile)[0] is None
        assert peek(hostile.encode())[0] is None
    assert peek(" " * MAX_PEEK + '{"id":"x"}') == (None, None)
