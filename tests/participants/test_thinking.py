"""The API with which a participant reasons in a context."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pellucid.spaces import Cancelled, Participant
from tests.participants.room_kit import Room
from tests.waiting import eventually, loop_turns

pytestmark = pytest.mark.anyio


def ada(room: Room) -> Participant:
    return Participant(room.url, token="token-of-ada")


def logged(room: Room) -> list[tuple[str, str | None, Any]]:
    return [(one["kind"].removeprefix("reasoning/"), one.get("context"), one["payload"]) for one in room.log]


async def test_reasoning_envelopes_match_the_seed(room: Room) -> None:
    question = room.say("bob", "chat", {"text": "Should we deploy?"})
    async with ada(room) as me:
        async with me.reasoning("Analyzing request", answers=question["id"], references=["msg-1"]) as thought:
            start = thought.start.id
            await thought("Need to check", confidence=0.5)
            await thought.question("Is there a plan?", "Have the tests passed?")
            await thought.observation("2 failures", severity="critical", components=["oauth2"])
            async with thought.reasoning("Deep dive into security") as inner:
                await inner("Checking permissions...")
                await inner.conclude("Passed")
            await thought.hypothesis("A regression", confidence=0.85, evidence=["tests"])
            await thought.conclude("Unsafe", decision="do_not_deploy", confidence=0.92, key_factors=["tests"])
        async with me.reasoning():
            pass
    inside = f"{start}/{room.log[5]['id']}"
    assert logged(room)[1:] == [
        ("start", None, {"message": "Analyzing request", "references": ["msg-1"]}),
        ("thought", start, {"message": "Need to check", "confidence": 0.5}),
        ("question", start, {"questions": ["Is there a plan?", "Have the tests passed?"]}),
        ("observation", start, {"content": "2 failures", "severity": "critical", "components": ["oauth2"]}),
        ("start", start, {"message": "Deep dive into security"}),
        ("thought", inside, {"message": "Checking permissions..."}),
        ("conclusion", inside, {"message": "Passed"}),
        ("hypothesis", start, {"hypothesis": "A regression", "confidence": 0.85, "evidence": ["tests"]}),
        (
            "conclusion",
            start,
            {"message": "Unsafe", "decision": "do_not_deploy", "confidence": 0.92, "key_factors": ["tests"]},
        ),
        ("start", None, {}),
        ("conclusion", room.log[10]["id"], {}),
    ]
    assert room.log[1]["correlation_id"] == [question["id"]]


async def test_an_exception_cancels_the_context_without_its_message(room: Room) -> None:
    async with ada(room) as me:
        with pytest.raises(ValueError, match="secret"):
            async with me.reasoning("Hm"):
                raise ValueError("secret")
        task = asyncio.create_task(_endless(me))
        await eventually(lambda: len(room.log) == 3)
        await eventually(lambda: me.seen == room.head)
        await loop_turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
    assert logged(room)[1] == ("cancel", room.log[0]["id"], {"reason": "failed (ValueError)"})
    assert logged(room)[3] == ("cancel", room.log[2]["id"], {"reason": "stopped"})


async def _endless(me: Participant) -> None:
    async with me.reasoning("Hm"):
        await asyncio.Future()


@pytest.mark.parametrize("by", ["bob", "system:gateway"])
async def test_a_cancel_is_raised_inside_with_its_sender(room: Room, by: str) -> None:
    async with ada(room) as me:
        with pytest.raises(Cancelled, match="enough") as cancelled:  # noqa: PT012
            async with me.reasoning("Hm") as thought:
                room.say(by, "reasoning/cancel", {"reason": "enough"}, context=thought.path)
                await asyncio.Future()
        assert (cancelled.value.by, cancelled.value.reason) == (by, "enough")
        await me.say("And on.")
    assert [one["kind"] for one in room.log] == ["reasoning/start", "reasoning/cancel", "chat"]


async def test_a_cancel_ends_a_context_and_its_sub_contexts(room: Room) -> None:
    async with ada(room) as me:
        async with me.reasoning("outer") as outer:
            with pytest.raises(Cancelled):  # noqa: PT012
                async with outer.reasoning("inner") as inner:
                    room.say(
                        "bob", "reasoning/cancel", {}, context=inner.start.id
                    )  # MEW names only the id of the start
                    await asyncio.Future()
            await outer("and on")
        ended = []
        with pytest.raises(Cancelled):  # noqa: PT012
            async with me.reasoning("outer") as outer:
                try:
                    async with outer.reasoning("inner"):
                        room.say("bob", "reasoning/cancel", {}, context=outer.path)
                        await asyncio.Future()
                finally:
                    ended.append("inner")
        assert ended == ["inner"]
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_cancel_of_another_context_is_ignored(room: Room) -> None:
    async with ada(room) as me, me.reasoning("Hm") as thought:
        room.say("bob", "reasoning/cancel", {}, context="another")
        await thought("and on")
