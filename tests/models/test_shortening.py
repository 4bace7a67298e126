"""A model that may be asked again with less: what it says passes as it was, however it comes, wherever it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import Event, ModelEvent, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.models.shortening import TRIES, Shortening
from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, Origin, TextPart, UserPromptPart
from pellucid.run import Minter
from pellucid.runs import AttachedRun
from pellucid.settings import ModelCall

ORIGIN = Origin("vllm", "openai_chat", "m")
TOO_LONG = ErrorInfo("invalid_request", "too long", code="context_length_exceeded", status=400)


def answer() -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    events: list[ModelEvent] = [SideEvent("queue", "position", 1)]
    emitter.thinking("t", "Hm.")
    emitter.text("a", "Yes.")
    emitter.finish("stop")
    return [*events, *emitter.take(), *emitter.end()]


def refusal() -> list[ModelEvent]:
    return Emitter(ORIGIN).end("error", TOO_LONG)


class Told:
    """A turn in batches that end anywhere."""

    waiting = False

    def __init__(self, events: list[ModelEvent], dice: Any) -> None:
        self._left, self._dice = events, dice

    def wait(self) -> Awaitable[None]:
        return asyncio.sleep(0)

    def take(self) -> list[ModelEvent] | None:
        if not self._left:
            return None
        count = self._dice.randint(0, 3)
        batch, self._left = self._left[:count], self._left[count:]
        return batch

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        rest, self._left = self._left, []
        return rest


class Small:
    """A model with room for so many turns, which says so before it answers, or in its answer."""

    name, origin = "m", ORIGIN

    def __init__(self, room: int, dice: Any, *, in_stream: bool) -> None:
        self.room, self.asked = room, list[int]()
        self._dice, self._in_stream = dice, in_stream

    def warnings(self, call: ModelCall) -> list[str]:
        return []

    async def open(self, call: ModelCall) -> Told:
        self.asked.append(sum(isinstance(message, ModelRequest) for message in call.messages))
        if self.asked[-1] <= self.room:
            return Told(answer(), self._dice)
        if self._in_stream:
            return Told(refusal(), self._dice)
        raise ModelError(TOO_LONG)


def talk(turns: int) -> list[ModelMessage]:
    said: list[ModelMessage] = []
    for number in range(turns):
        said += [ModelRequest([UserPromptPart(f"question {number}")]), ModelResponse([TextPart("answer")])]
    return said[:-1]


async def read(model: Small, turns: int, stop_after: int | None) -> list[Event]:
    run = AttachedRun(Shortening(model), ModelCall("m", talk(turns)), Minter(b"seed"))
    out: list[Event] = []
    await run.open()
    while run.ended is None:
        if stop_after is not None and stop_after <= 0:
            out += await run.stop()
            break
        out += await run.read() or []
        stop_after = None if stop_after is None else stop_after - 1
    return out


@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.booleans(),
    st.none() | st.integers(0, 12),
    st.randoms(use_true_random=True),
)
def test_it_is_asked_with_less_until_it_fits_and_what_it_says_passes(
    turns: int, room: int, in_stream: bool, stop_after: int | None, dice: Any
) -> None:
    model = Small(room, dice, in_stream=in_stream)
    out: list[Event] = []
    if room == 0 and not in_stream:
        with pytest.raises(ModelError) as caught:
            asyncio.run(read(model, turns, stop_after))
        assert caught.value.info == TOO_LONG
    else:
        out = asyncio.run(read(model, turns, stop_after))
        fold(out)
        assert isinstance(out[-1], RunEndEvent)
    assert model.asked[0] == turns
    assert model.asked == sorted(set(model.asked), reverse=True)
    assert len(model.asked) <= TRIES
    if stop_after is None and out:
        [end] = [event for event in out if isinstance(event, RunEndEvent)]
        assert end.status == ("completed" if room else "failed")
        if not room:
            assert model.asked[-1] == 1
        else:
            assert fold(out).messages[0].text == "Yes."  # type: ignore[union-attr]


@pytest.mark.parametrize("in_stream", [True, False])
def test_what_was_left_out_stays_out_in_the_next_turn(in_stream: bool) -> None:
    import random

    model = Small(3, random.Random(1), in_stream=in_stream)

    async def twice() -> None:
        shortening = Shortening(model)
        for _ in range(2):
            run = AttachedRun(shortening, ModelCall("m", talk(9)), Minter(b"seed"))
            await run.open()
            while run.ended is None:
                await run.read()

    asyncio.run(twice())
    assert model.asked[-1] == model.asked[-2] <= 3
