"""Several participants act in any order: there is one order for all, each session gets every visible envelope once, and
the state is the fold of the log."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes.visibility import is_shown
from pellucid.spaces.runtime.live_state import load_state
from pellucid.spaces.runtime.session import Session
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.state import SpaceState
from tests.examples import costly
from tests.spaces.space_kit import EVERYBODY, Sink, join_space, opened, whole_log
from tests.waiting import eventually, loop_turns

NAMES = sorted(EVERYBODY)
names = st.sampled_from(NAMES)
ids = st.sampled_from(["a", "b", "c", "d"])
contexts = st.one_of(st.none(), ids, st.tuples(ids, ids).map("/".join))
words = st.sampled_from(["x", "y"])


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(
        st.sampled_from(
            [
                "chat",
                "chat",
                "reasoning/start",
                "reasoning/start",
                "reasoning/thought",
                "reasoning/thought",
                "reasoning/conclusion",
                "reasoning/cancel",
                "mcp/proposal",
                "mcp/request",
                "mcp/response",
                "mcp/reject",
                "mcp/withdraw",
                "capability/grant",
                "capability/revoke",
                "system/presence",
                "unknown/kind",
            ]
        )
    )
    envelope: dict[str, Any] = {"kind": kind, "payload": {"message": draw(words)}}
    if kind == "capability/grant":
        capability = draw(st.sampled_from(["chat", "reasoning/read", "space/observe", "capability/*", "mcp/*"]))
        envelope["payload"] = {"recipient": draw(names), "capabilities": [capability]}
    elif kind == "capability/revoke":
        envelope["payload"] = {"recipient": draw(names), "grant_id": draw(ids)}
    elif kind.startswith("mcp/"):
        envelope["payload"] = {"method": "tools/list", "result": {"tools": [{"name": draw(words)}]}}
        if draw(st.booleans()):
            envelope["payload"] |= {"method": "tools/call", "params": {"name": draw(words)}}
    if draw(st.booleans()):
        envelope["id"] = draw(ids)
    if (context := draw(contexts)) is not None:
        envelope["context"] = context
    if draw(st.booleans()):
        envelope["to"] = [draw(names)]
    if draw(st.booleans()):
        envelope["correlation_id"] = [draw(ids)]
    return envelope


steps = st.one_of(
    st.tuples(st.just("sit"), names, st.sampled_from(["full", "collapsed", "main"]), st.sampled_from([None, 0, 3, 7])),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("hear"), st.integers(0, 5), envelopes()),
    st.tuples(st.just("hear"), st.integers(0, 5), envelopes()),
    st.tuples(st.just("hear"), st.integers(0, 5), envelopes()),
    st.tuples(st.just("post"), names, envelopes()),
    st.tuples(st.just("pause")),
)


async def play_script(space: Space, script: list[tuple[Any, ...]]) -> list[tuple[Session, Sink, int | None]]:
    """Run a script; return every session with its sink and its cursor."""
    sessions: list[tuple[Session, Sink, int | None]] = []
    open_sessions: list[Session] = []
    posts: list[asyncio.Task[Any]] = []
    for step in script:
        match step:
            case ("sit", who, view, after):
                session, sink = await join_space(space, who, view=view, after_seq=after)
                sessions.append((session, sink, after))
                open_sessions.append(session)
            case ("leave", number) if open_sessions:
                await open_sessions.pop(number % len(open_sessions)).leave()
            case ("hear", number, envelope) if open_sessions:
                await open_sessions[number % len(open_sessions)].receive(json.dumps(envelope))
            case ("post", who, envelope):
                posts.append(asyncio.create_task(space.post(who, envelope)))
            case ("pause",):
                await loop_turns(20)
    await asyncio.gather(*posts, return_exceptions=True)
    await space.catch_up()
    await eventually(lambda: all(session.is_stopped or session.group_key is not None for session, _, _ in sessions))
    return sessions


def repeated_ids(script: list[tuple[Any, ...]]) -> set[str]:
    """Return the ids that occur more than once."""
    named = Counter(step[-1]["id"] for step in script if step[0] in ("hear", "post") and "id" in step[-1])
    return {id for id, times in named.items() if times > 1}


FLAGS = {"read_reasoning": ["everyone", "capability"], "addresses": ["restrict", "advisory"]}


@costly
@given(
    script=st.lists(steps, max_size=40),
    how=st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in FLAGS.items()}),
    mode=st.sampled_from(["strict", "flag", "off"]),
)
def test_all_sessions_see_one_order_and_the_visible_envelopes(
    script: list[tuple[Any, ...]], how: dict[str, str], mode: str
) -> None:
    async def scene() -> None:
        async with opened(settings={**how, "reasoning": mode}) as (_, space, _store):
            sessions = await play_script(space, script)
            log = await whole_log(space)
            order = {one.envelope.seq: one for one in log}
            granted = any(one.envelope.kind.startswith("capability/") for one in log)
            repeated = repeated_ids(script)
            for session, sink, after in sessions:
                welcome = sink.of("system/welcome")[0]["payload"]
                is_foreign = after is not None and after > welcome["head"]
                start = welcome["head"] if after is None else 0 if is_foreign else after
                seqs: list[int] = []
                for frame in sink.frames:
                    if frame.seq in seqs or 0 < frame.seq <= start:
                        # A resend is answered with the stored envelope, however old it is.
                        stored_envelope = order[frame.seq].envelope
                        assert stored_envelope.sender == session.participant, "in order, and once"
                        assert stored_envelope.id in repeated, "in order, and once"
                    elif frame.seq:
                        seqs.append(frame.seq)
                assert seqs == sorted(set(seqs)), "in order, and once"
                for one in sink.decoded:
                    if one.get("seq"):
                        stored_envelope = order[one["seq"]].envelope
                        assert (one["id"], one["from"]) == (stored_envelope.id, stored_envelope.sender)
                if granted or session.is_stopped:
                    continue  # capabilities changed, or the session ended
                assert welcome.get("unknown_after_seq") == (after if is_foreign else None)
                for one in sink.decoded:
                    if one.get("seq") and one["from"] != session.participant:
                        assert one.get("replayed", False) == (is_foreign and one["seq"] <= welcome["head"])
                assert session.viewer.advisory == (how["addresses"] == "advisory")
                expected = [
                    one.envelope.seq
                    for one in log
                    if one.envelope.seq > start and is_shown(one.envelope, one.place, session.viewer)
                ]
                assert seqs == expected, "the session got exactly the visible envelopes"
            live_dump = space._live.state.dump()
            rebuilt = SpaceState(space.settings)
            for stored in log:
                rebuilt.replay(stored)
            assert rebuilt.dump() == live_dump, "the state is the fold of the log"
            assert load_state(space.settings, (0, live_dump)).dump() == live_dump
            assert set(space._live.state.present_since) >= {
                session.participant for session, _, _ in sessions if not session.is_stopped
            }

    asyncio.run(scene())


@costly
@given(script=st.lists(steps, min_size=10, max_size=40), data=st.data())
def test_a_resume_at_any_seq_has_no_gap_and_no_repeat(script: list[tuple[Any, ...]], data: st.DataObject) -> None:
    """While another participant posts."""

    async def scene() -> None:
        async with opened() as (_, space, _store):
            await play_script(space, script)
            head = space.head
            cursors = [data.draw(st.integers(0, head)) for _ in range(4)]
            forget = data.draw(st.booleans())
            if forget:
                space._live.recent._entries.clear()

            async def talk() -> None:
                for number in range(30):
                    await space.post("ada", {"kind": "chat", "payload": {"text": str(number)}})

            talking = asyncio.create_task(talk())
            sessions = []
            for cursor in cursors:
                await loop_turns(50)
                sessions.append((cursor, *await join_space(space, "ada", after_seq=cursor)))
            await talking
            await eventually(lambda: all(session.group_key is not None for _, session, _ in sessions))
            log = await whole_log(space)
            for cursor, session, sink in sessions:
                shown = [one.envelope.seq for one in log if is_shown(one.envelope, one.place, session.viewer)]
                assert sink.seqs == [seq for seq in shown if seq > cursor]

    asyncio.run(scene())
