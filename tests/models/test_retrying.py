"""A stream that is replaced while its first content is an error, and the wait for the first content."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo, ModelError, PellucidError
from pellucid.events import ErrorEvent, ModelEvent, SideEvent
from pellucid.models import ModelRead, ModelStream
from pellucid.models.retrying import RetryingStream
from pellucid.parts import Origin
from tests.scripted_runs import Read, ScriptedStream, cut
from tests.waiting import loop_turns

pytestmark = pytest.mark.anyio

ORIGIN = Origin("p", "openai_chat", "m")
DOWN = ErrorInfo("unavailable", "down")


def answer(text: str = "It is 42.") -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    emitter.start()
    emitter.thinking("t", "Hm. ")
    emitter.thinking("t", "Well. ")
    for word in text.split():
        emitter.text("a", word)
    return emitter.end()


def failure(error: ErrorInfo = DOWN) -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    emitter.start()
    return emitter.end("error", error)


def never(error: ErrorInfo) -> None:
    return None


def once(other: ModelStream | PellucidError) -> Callable[[ErrorInfo], Callable[[], Awaitable[ModelStream]] | None]:
    """Return a function that replaces the first stream that fails by another, or fails to open it."""
    others = [other]

    async def open_other(other: ModelStream | PellucidError) -> ModelStream:
        await asyncio.sleep(0)
        if isinstance(other, PellucidError):
            raise other
        return other

    return lambda error: partial(open_other, others.pop()) if others else None


async def received(stream: RetryingStream) -> list[ModelEvent]:
    """Start a stream, and return all its events."""
    events: list[ModelEvent] = []

    def receive(read: ModelRead) -> None:
        assert isinstance(read, list)
        events.extend(read)

    stream.start(receive)
    await loop_turns(60)
    return events


@given(st.randoms(use_true_random=True), st.booleans(), st.booleans())
def test_it_delivers_every_event_once_in_order(dice: Random, waits: bool, fails_first: bool) -> None:
    async def scene() -> None:
        events = answer()
        good = ScriptedStream(cut(events, dice), latency=lambda: dice.randint(0, 2))
        bad = ScriptedStream(cut(failure(), dice), latency=lambda: dice.randint(0, 2))
        stream = RetryingStream(bad, once(good)) if fails_first else RetryingStream(good, never)
        if waits:
            await stream.wait_for_content()
            await loop_turns(dice.randint(0, 20))
        assert await received(stream) == events

    asyncio.run(scene())


async def test_without_a_receiver_the_stream_is_paused() -> None:
    inner = ScriptedStream(cut(answer(), Random(0)))
    stream = RetryingStream(inner, never)
    await stream.wait_for_content()
    await loop_turns(50)
    assert inner.paused
    left = len(inner.reads)
    assert left
    assert await received(stream) == answer()
    assert not inner.paused


@pytest.mark.parametrize("other", [None, ScriptedStream([failure(ErrorInfo("timeout", "slow"))]), ModelError(DOWN)])
async def test_an_error_that_stands_is_raised(other: ModelStream | ModelError | None) -> None:
    inner = ScriptedStream([failure()])
    stream = RetryingStream(inner, never if other is None else once(other))
    with pytest.raises(ModelError) as raised:
        await stream.wait_for_content()
    assert raised.value.info.kind == ("timeout" if isinstance(other, ScriptedStream) else "unavailable")
    assert inner.cancelled


async def test_an_error_after_content_is_an_event() -> None:
    emitter = Emitter(ORIGIN)
    emitter.start()
    emitter.text("a", "It ")
    events = emitter.take()
    end = emitter.end("error", DOWN)
    stream = RetryingStream(ScriptedStream([events, end]), once(ScriptedStream([answer()])))
    await stream.wait_for_content()
    assert await received(stream) == [*events, *end]
    assert any(type(event) is ErrorEvent for event in end)


async def test_a_stream_in_a_queue_is_not_waited_for() -> None:
    position = SideEvent("queue", "position", 1)
    turn = asyncio.Event()
    reads: list[Read] = [[position], turn, answer()]
    stream = RetryingStream(ScriptedStream(reads, queued=True), never)
    await stream.wait_for_content()
    assert stream.queued
    turn.set()
    assert await received(stream) == [position, *answer()]


async def test_a_replacement_in_a_queue_is_not_waited_for() -> None:
    position, turn = SideEvent("queue", "position", 1), asyncio.Event()
    queued = ScriptedStream([[position], turn, answer()], queued=True)
    stream = RetryingStream(ScriptedStream([failure()]), once(queued))
    await stream.wait_for_content()
    await loop_turns(5)
    turn.set()
    assert await received(stream) == [position, *answer()]


async def test_a_wait_that_is_cancelled_closes_the_stream() -> None:
    inner = ScriptedStream([answer()[:1], asyncio.Event()])
    waiting = asyncio.create_task(RetryingStream(inner, never).wait_for_content())
    await loop_turns(5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert inner.is_over


async def test_what_was_held_is_returned_by_cancel() -> None:
    events = answer()
    stream = RetryingStream(ScriptedStream([events[:4], asyncio.Event()]), never)
    await stream.wait_for_content()
    assert stream.cancel()[:4] == events[:4]
