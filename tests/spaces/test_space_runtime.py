"""A space: accepted envelopes come back with their sequence number, and errors go to the participants they concern."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pellucid.errors import PellucidError
from pellucid.spaces.runtime import space_manager
from pellucid.spaces.runtime.provisioning import create_space, declare_space
from pellucid.spaces.runtime.settings import read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.state import SpaceState, read_note
from pellucid.storage import Append, StoredEnvelope
from pellucid.storage.errors import StoreError, StoreUnavailable
from tests.spaces.space_kit import OWNER, QUICK, Sink, chat, frame, join_space, opened, opened_store, whole_log
from tests.waiting import eventually


async def received(space: Space, sink: Sink, count: int = 1, kind: str = "chat") -> list[dict[str, Any]]:
    await eventually(lambda: len(sink.of(kind)) >= count, f"{count} {kind}")
    return sink.of(kind)


def test_an_envelope_is_acknowledged_by_its_echo(tmp_path: Path) -> None:
    """The echo has its sequence number, and the envelope is in the store, where another process can read it."""
    url = f"sqlite:///{tmp_path / 'kept.sqlite'}"

    async def scene() -> None:
        async with opened(url) as (_, space, _store), opened_store(url) as other:
            ada, mine = await join_space(space, "ada")
            _, others = await join_space(space, "bob")
            await ada.receive(chat("one", id="m-1"))
            (echo,) = await received(space, mine)
            stored = await other.spaces.get_envelope(OWNER, "room", echo["seq"])
            assert stored is not None
            assert (stored.envelope.id, stored.envelope.sender) == ("m-1", "ada")
            assert await received(space, others) == [echo]
            assert read_note(stored.note).by == {"kind": "*"}

    asyncio.run(scene())


def test_the_welcome_comes_first_and_after_the_own_join() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            await join_space(space, "ada")
            bob, sink = await join_space(space, "bob")
            await bob.receive(chat("x"))
            await received(space, sink)
            assert [one["kind"] for one in sink.decoded] == ["system/welcome", "chat"]
            welcome = sink.decoded[0]["payload"]
            assert welcome["you"]["id"] == "bob"
            assert [one["id"] for one in welcome["participants"]] == ["ada"]
            assert welcome["head"] == sink.seqs[0] - 1
            assert {one.id: one.present for one in space.members()} == {
                "ada": True,
                "bob": True,
                "cyd": False,
                "dee": False,
            }

    asyncio.run(scene())


REFUSED = {
    "capability_violation": frame("space/kick", {"participant_id": "ada"}),
    "sender_mismatch": chat("x", **{"from": "ada"}),
    "invalid_json": b"{",
    "context_unknown": frame("reasoning/conclusion", {}, context="nowhere"),
    "too_large": chat("x" * 5000),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_refusal_is_sent_to_its_sender_only(code: str) -> None:
    async def scene() -> None:
        async with opened(settings={"limits": {"frame_bytes": 4000}}) as (_, space, _store):
            _, others = await join_space(space, "ada")
            bob, mine = await join_space(space, "bob")
            before = space.head
            await bob.receive(REFUSED[code])
            await bob.receive(chat("after", id="m-2"))
            await received(space, mine)
            assert mine.errors == [code]
            assert not others.errors
            assert space.head == before + 1
            assert mine.closed is None
            with pytest.raises(PellucidError) as refused:
                await space.post("bob", REFUSED[code])
            assert refused.value.info.code == code

    asyncio.run(scene())


def test_a_resend_is_answered_with_the_stored_envelope() -> None:
    """From memory and from the store; a different payload under an old id is a new envelope.

    The id of another participant's envelope is refused.
    """

    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, sink = await join_space(space, "ada")
            for _ in range(3):
                await ada.receive(chat("same", id="m-1"))
            await received(space, sink, 3)
            assert len({one["seq"] for one in sink.of("chat")}) == 1
            space._live.recent._entries.clear()
            space._live.recent._by_sender_and_id.clear()
            again = await space.post("ada", chat("same", id="m-1"))
            assert again.stored.envelope.seq == sink.of("chat")[0]["seq"]
            other = await space.post("ada", chat("other", id="m-1"))
            assert other.stored.envelope.seq > again.stored.envelope.seq
            old = [f"m-{number}" for number in range(2, 5)]
            await asyncio.gather(*(space.post("ada", chat("more", id=id)) for id in old))
            space._live.state.lifecycle.state.recent.clear()  # as after thousands of envelopes
            for id in ("m-1", *old):
                with pytest.raises(PellucidError) as raised:
                    await space.post("bob", chat("same", id=id))
                assert (raised.value.info.code, raised.value.info.param) == ("id_conflict", "id")
            resent = await space.post("ada", chat("more", id="m-3"))
            assert len([one for one in await whole_log(space) if one.envelope.kind == "chat"]) == 5
            assert resent.stored in await whole_log(space)

    asyncio.run(scene())


def test_only_the_inviter_gets_the_token_of_an_invitation() -> None:
    async def scene() -> None:
        async with opened() as (spaces, space, _store):
            ada, sink = await join_space(space, "ada")
            _, others = await join_space(space, "bob")
            await ada.receive(
                frame("space/invite", {"participant_id": "new", "initial_capabilities": ["chat"]}, id="i")
            )
            (ack,) = await received(space, sink, kind="space/invite-ack")
            assert ack["correlation_id"] == ["i"]
            where, who = await spaces.admit("room", ack["payload"]["token"])
            assert (where, who) == (space, "new")
            token = ack["payload"]["token"]
            assert not any(token in frame.text.decode() for frame in others.frames)
            assert all(token.encode() not in repr(one).encode() for one in await whole_log(space))
            # An invitation cannot replace a participant.
            posted = await space.post("ada", {"kind": "space/invite", "payload": {"participant_id": "bob"}})
            assert [one.payload for one in posted.answers] == [{"status": "already_exists", "participant_id": "bob"}]

    asyncio.run(scene())


def test_admission_by_token() -> None:
    async def scene() -> None:
        async with opened() as (spaces, _space, store):
            tokens = await create_space(store.spaces, OWNER, "other", read_settings({}), {"ada": ["chat"]})
            for name in ("room", "nowhere"):
                with pytest.raises(PellucidError) as unknown:
                    await spaces.admit(name, "pst_nobody")
                assert unknown.value.info.kind == "unauthorized"
                with pytest.raises(PellucidError) as foreign:
                    await spaces.admit(name, tokens["ada"])
                assert foreign.value.info.kind == "forbidden"
            other, who = await spaces.admit("other", tokens["ada"])
            assert (other.name, who) == ("other", "ada")
            with pytest.raises(PellucidError, match="already"):
                await create_space(store.spaces, OWNER, "other", read_settings({}), {})

    asyncio.run(scene())


def test_a_slow_session_gets_a_gap_notice() -> None:
    """It continues live and can fetch the missed envelopes; hidden ones are not counted."""

    async def scene() -> None:
        async with opened(settings={"limits": {"outlet_bytes": 1000}}) as (_, space, store):
            slow, sink = await join_space(space, "dee")
            ada, mine = await join_space(space, "ada")
            await eventually(lambda: sink.of("system/presence"))
            sink.stuck = True
            for number in range(20):
                await ada.receive(chat(f"{number} " + "x" * 200, **({"to": ["bob"]} if number % 4 == 0 else {})))
                await received(space, mine, number + 1)
            seen = len(sink.of("chat"))
            assert 0 < seen < 15
            sink.drain()
            await eventually(lambda: sink.of("system/gap"))
            await ada.receive(chat("live"))
            await eventually(lambda: sink.decoded[-1]["payload"].get("text") == "live")
            (gap,) = (one["payload"] for one in sink.of("system/gap"))
            assert gap["missed"] == 15 - seen
            missed = await store.spaces.page(OWNER, "room", after=gap["after_seq"], before=gap["before_seq"])
            shown = [one.envelope.seq for one in missed if not one.envelope.to]
            assert len(shown) == gap["missed"]
            assert sorted(sink.seqs + shown) == [
                one.envelope.seq for one in await whole_log(space) if not one.envelope.to and one.envelope.seq > 2
            ]
            assert slow.missed_count == 0

    asyncio.run(scene())


def test_requested_history_is_flagged_as_replayed() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            for number in range(10):
                await space.post("ada", chat(str(number), **({"to": ["bob"]} if number in (7, 9) else {})))
            dee, sink = await join_space(space, "dee", history=3)
            await eventually(lambda: dee.group_key is not None)
            await dee.receive(chat("live"))
            await received(space, sink, 3)
            received_chats = [(one["payload"].get("text"), one.get("replayed", False)) for one in sink.decoded[1:]]
            assert received_chats == [("6", True), ("8", True), (None, True), ("live", False)]

    asyncio.run(scene())


UNLIMITED = {"limits": {"chat": {"per_second": 1e6, "burst": 1e6}}}


def test_a_session_can_leave_while_it_catches_up() -> None:
    async def scene() -> None:
        async with opened(settings=UNLIMITED) as (_, space, _store):
            await asyncio.gather(*(space.post("ada", chat(str(number))) for number in range(700)))
            sink = Sink()
            sink.stuck = True
            session = await space.join("bob", sink, after_seq=0)
            await eventually(lambda: sink.seqs)
            await session.leave()
            await space.catch_up()
            assert "bob" not in space._live.state.present_since
            written = len(sink.frames)
            sink.drain()
            await space.post("ada", chat("on"))
            assert len(sink.frames) == written

    asyncio.run(scene())


class FailingStore:
    """Wrap `store.spaces` with failures before or after an append."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.before: list[StoreError] = []
        self.after: list[StoreError] = []
        self.down = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            if self.down:
                raise StoreUnavailable(cause="Test")
            if name == "append" and self.before:
                raise self.before.pop()
            answer = await real(*args, **kwargs)
            if name == "append" and self.after:
                raise self.after.pop()
            return answer

        return ask


def make_store_fail(space: Space) -> FailingStore:
    failing_store = FailingStore(space.writer._spaces)
    space.writer._spaces = failing_store  # type: ignore[assignment]
    return failing_store


def test_an_append_with_a_lost_result_is_acknowledged_once() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, sink = await join_space(space, "ada")
            make_store_fail(space).after.append(StoreUnavailable(cause="Test"))
            await ada.receive(chat("once"))
            await received(space, sink)
            await ada.receive(chat("then"))
            await received(space, sink, 2)
            assert not sink.errors
            assert [one["payload"]["text"] for one in sink.of("chat")] == ["once", "then"]
            assert len([one for one in await whole_log(space) if one.envelope.kind == "chat"]) == 2

    asyncio.run(scene())


def test_senders_get_errors_during_a_store_outage() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, sink = await join_space(space, "ada")
            failing_store = make_store_fail(space)
            await ada.receive(chat("before"))
            await received(space, sink)
            failing_store.down = True
            await ada.receive(frame("reasoning/start", {}, id="r-1"))
            await eventually(lambda: sink.errors)
            assert sink.of("system/error")[0]["payload"]["error"] == "unavailable"
            with pytest.raises(PellucidError) as refused:
                await space.post("bob", chat("lost"))
            assert refused.value.info.kind == "unavailable"
            failing_store.down = False
            await ada.receive(frame("reasoning/start", {}, id="r-1"))
            await ada.receive(chat("after"))
            await received(space, sink, 2)
            assert sink.of("reasoning/start")
            assert sink.seqs == sorted(set(sink.seqs))

    asyncio.run(scene())


def test_a_commit_with_an_unknown_result_is_delivered_after_the_outage() -> None:
    """It was stored and its sender got `unavailable`: it is delivered later, and a resend gets the stored envelope."""

    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, sink = await join_space(space, "ada")
            failing_store = make_store_fail(space)
            real = failing_store._real.append

            async def append(append: Append) -> Any:
                await real(append)
                failing_store.down = True
                raise StoreUnavailable(cause="Test")

            failing_store._real = StoreWithAppend(failing_store._real, append)
            await ada.receive(chat("x", id="m-1"))
            await eventually(lambda: sink.errors == ["storage_unavailable"])
            assert not sink.of("chat")
            failing_store._real = failing_store._real.real
            failing_store.down = False
            (delivered,) = await received(space, sink)
            await ada.receive(chat("x", id="m-1"))
            await received(space, sink, 2)
            assert sink.of("chat")[1]["seq"] == delivered["seq"]

    asyncio.run(scene())


class StoreWithAppend:
    def __init__(self, real: Any, append: Any) -> None:
        self.real = real
        self.append = append

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_refused_append_refuses_one_envelope_only() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, sink = await join_space(space, "ada")
            real = space.writer._spaces.append

            async def append(append: Append) -> Any:
                if any(is_poisoned(one) for one in append.envelopes):
                    raise StoreError("refused", kind="server_error", code="storage_failed")
                return await real(append)

            space.writer._spaces = StoreWithAppend(space.writer._spaces, append)  # type: ignore[assignment]
            await asyncio.gather(*(ada.receive(chat("poison" if n == 3 else str(n))) for n in range(6)))
            await received(space, sink, 5)
            await eventually(lambda: sink.errors)
            assert [one["payload"]["text"] for one in sink.of("chat")] == ["0", "1", "2", "4", "5"]
            assert sink.errors == ["storage_failed"]

    asyncio.run(scene())


def is_poisoned(one: StoredEnvelope) -> bool:
    return one.envelope.payload.get("text") == "poison"


def test_cancelling_a_post_does_not_cancel_the_commit() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            _, sink = await join_space(space, "ada")
            posts = [asyncio.create_task(space.post("bob", chat(str(n)))) for n in range(20)]
            await asyncio.sleep(0)
            for post in posts[::2]:
                post.cancel()
            await asyncio.gather(*posts, return_exceptions=True)
            await space.catch_up()
            log = [one.envelope.payload["text"] for one in await whole_log(space) if one.envelope.kind == "chat"]
            assert [one["payload"]["text"] for one in sink.of("chat")] == log
            assert set(log) >= {str(n) for n in range(1, 20, 2)}

    asyncio.run(scene())


def test_idle_and_disconnected_contexts_are_cancelled() -> None:
    async def scene() -> None:
        now = [1_000_000.0]
        settings = {"idle_seconds": 600, "grace_seconds": 5}
        async with opened(settings=settings, clock=lambda: now[0]) as (_, space, _store):
            _, observer = await join_space(space, "dee")
            for who, context in (("ada", "r-0"), ("bob", "r-1")):
                session, mine = await join_space(space, who)
                await session.receive(frame("reasoning/start", {}, id=context))
                await received(space, mine, kind="reasoning/start")
                await session.leave()
                await space.catch_up()
                now[0] += 3
            # ada is away for 6 seconds, bob for 3.
            (cancel,) = await received(space, observer, kind="reasoning/cancel")
            assert (cancel["context"], cancel["payload"]) == ("r-0", {"reason": "disconnected"})
            now[0] += 3
            _, cancel = await received(space, observer, 2, kind="reasoning/cancel")
            assert (cancel["context"], cancel["payload"]) == ("r-1", {"reason": "disconnected"})
            await space.post("bob", frame("reasoning/start", {}, id="r-2"))
            now[0] += 601
            *_, cancel = await received(space, observer, 3, kind="reasoning/cancel")
            assert (cancel["context"], cancel["payload"]) == ("r-2", {"reason": "timed out"})

    asyncio.run(scene())


def test_changed_settings_apply_at_once() -> None:
    """Also for connected participants: a removed one is disconnected."""

    async def scene() -> None:
        async with opened() as (spaces, _space, store):
            token = {name: (["chat"], f"secret {name}") for name in ("eve", "fay")}
            await declare_space(store.spaces, OWNER, "toml", read_settings({}), token)
            toml = await spaces.space("toml")
            eve, _ = await join_space(toml, "eve")
            _, fay = await join_space(toml, "fay")
            await declare_space(
                store.spaces,
                OWNER,
                "toml",
                read_settings({"redact": [{"name": "n", "pattern": "[0-9]+"}]}),
                {"eve": (["chat", "mcp/*"], "secret eve")},
            )
            await eventually(lambda: fay.closed)
            posted = await toml.post("eve", chat("call 555 now"))
            assert posted.stored.envelope.payload == {"text": "call [redacted:n] now"}
            assert read_note(posted.stored.note).redacted == ("n",)
            assert {"kind": "mcp/*"} in eve.capabilities

    asyncio.run(scene())


def test_a_reopened_space_has_the_same_state(tmp_path: Path) -> None:
    """Also across snapshots."""

    async def scene() -> None:
        async with opened(f"sqlite:///{tmp_path}/s.db", UNLIMITED) as (spaces, space, store):
            ada, sink = await join_space(space, "ada")
            for number in range(620):
                await ada.receive(chat(str(number)))
            await ada.receive(frame("reasoning/start", {}, id="open"))
            await received(space, sink, kind="reasoning/start")
            await ada.leave()
            await space.catch_up()
            before = space._live.state.dump()
            assert await store.spaces.state(OWNER, "room") is not None
            del spaces._open["room"]
            await space.aclose()
            again = await spaces.space("room")
            assert again is not space
            assert again._live.state.dump() == before

    asyncio.run(scene())


def test_an_unused_space_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    is_frozen = True
    monkeypatch.setattr(space_manager, "monotonic", lambda: 0.0 if is_frozen else monotonic() + 3600)

    async def scene() -> None:
        nonlocal is_frozen
        async with opened(intervals=QUICK._replace(unused_seconds=0.2)) as (spaces, space, store):
            await create_space(store.spaces, OWNER, "other", read_settings({}), {"ada": ["chat"]})
            ada, _ = await join_space(space, "ada")
            other = await spaces.space("other")
            is_frozen = False
            await eventually(lambda: other.is_closed)
            assert not space.is_closed
            await ada.leave()
            await eventually(lambda: space.is_closed)
            is_frozen = True
            again = await spaces.space("room")
            assert (await again.post("ada", chat("x"))).stored.envelope.seq == again.head

    asyncio.run(scene())


def test_a_removed_space_closes_its_sessions() -> None:
    async def scene() -> None:
        async with opened() as (spaces, space, store):
            _, sink = await join_space(space, "ada")
            await store.spaces.remove(OWNER, "room")
            await eventually(lambda: sink.closed)
            assert sink.closed is not None
            assert sink.closed[0] == 4404
            with pytest.raises(PellucidError, match="no space"):
                await spaces.space("room")

    asyncio.run(scene())


def test_each_session_has_its_own_dialect() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _store):
            ada, draft = await join_space(space, "ada")
            _, mew = await join_space(space, "bob", dialect="mew/v0.4")
            await ada.receive(json.dumps({"kind": "reasoning.start", "id": "r", "payload": {"message": "x"}}))
            await eventually(lambda: mew.of("reasoning/start") and draft.of("reasoning/start"))
            assert draft.decoded[-1]["kind"] == "reasoning.start"
            assert mew.decoded[-1]["kind"] == "reasoning/start"

    asyncio.run(scene())


def test_long_reasoning_is_compressed() -> None:
    async def compressor(thoughts: Any) -> str:
        return f"{len(thoughts)} thoughts"

    async def scene() -> None:
        async with opened(settings={"compress": {"after": 3}}, compressor=compressor) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            await bob.receive(frame("reasoning/start", {}, id="r"))
            for number in range(4):
                await bob.receive(frame("reasoning/thought", {"message": str(number)}, context="r", id=f"t-{number}"))
            await eventually(lambda: len(sink.of("reasoning/thought")) == 5)
            (shorter,) = (one for one in sink.of("reasoning/thought") if one["from"] == "system:gateway")
            assert shorter["payload"] == {
                "message": "3 thoughts",
                "metadata": {"compresses": ["t-0", "t-1", "t-2"]},
            }

    asyncio.run(scene())


def test_an_erased_grant_stays_valid_without_its_text() -> None:
    """The text of a grant is erased; that it was given stays known."""

    async def scene() -> None:
        async with opened() as (spaces, space, store):
            grant = {"recipient": "dee", "capabilities": ["mcp/*"], "reason": "secret reason"}
            granted = await space.post("ada", frame("capability/grant", grant, id="g-1"))
            secret_chat = await space.post("dee", chat("secret words"))
            seqs = [posted.stored.envelope.seq for posted in (granted, secret_chat)]
            assert await spaces.erase("room", seqs) == 2
            before = space._live.state.dump()
            _, sink = await join_space(space, "bob", after_seq=0)
            await eventually(lambda: sink.of("chat"))
            assert b"secret" not in b"".join(one.text for one in sink.frames)
            assert b"secret" not in repr([one.envelope for one in await whole_log(space)]).encode()
            await space.catch_up()
            rebuilt = SpaceState(space.settings)
            for one in await whole_log(space):
                rebuilt.replay(one)
            assert {"kind": "mcp/*"} in rebuilt.capabilities("dee")
            assert rebuilt.dump() == space._live.state.dump() != before
            assert await store.spaces.get_envelope(OWNER, "room", seqs[0]) is not None

    asyncio.run(scene())
