"""`TruncatingModel`: it retries with a shorter history, passes the response unchanged, and can always be cancelled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import Event, ModelEvent, ResponseEndEvent, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.models import ModelStream
from pellucid.models.truncation import MAX_ATTEMPTS, TruncatingModel
from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, Origin, TextPart, UserPromptPart
from pellucid.run import Minter
from pellucid.runs import LiveRun
from pellucid.settings import ModelCall
from tests.scripted_runs import ScriptedStream, cut, run_events
from tests.waiting import eventually, loop_turns

ORIGIN = Origin("vllm", "openai_chat", "m")
TOO_LONG = ErrorInfo("invalid_request", "too long", code="context_length_exceeded", status=400)


def response_events() -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    events: list[ModelEvent] = [SideEvent("queue", "position", 1)]
    emitter.thinking("t", "Hm.")
    emitter.text("a", "Yes.")
    emitter.finish("stop")
    return [*events, *emitter.take(), *emitter.end()]


def refusal_events() -> list[ModelEvent]:
    return Emitter(ORIGIN).end("error", TOO_LONG)


class LimitedModel:
    """A model with a limit of turns, which refuses longer histories with an exception or in its stream."""

    name, origin = "m", ORIGIN

    def __init__(self, room: int, dice: Any, *, in_stream: bool) -> None:
        self.room, self.request_counts = room, list[int]()
        self.streams: list[ScriptedStream] = []
        self._dice, self._in_stream = dice, in_stream

    def warnings(self, call: ModelCall) -> list[str]:
        return []

    async def open(self, call: ModelCall) -> ModelStream:
        self.request_counts.append(sum(isinstance(message, ModelRequest) for message in call.messages))
        if self.request_counts[-1] <= self.room:
            return self._stream(response_events())
        if self._in_stream:
            return self._stream(refusal_events())
        raise ModelError(TOO_LONG)

    def _stream(self, events: list[ModelEvent]) -> ScriptedStream:
        self.streams.append(
            ScriptedStream(
                cut(events, self._dice), latency=lambda: self._dice.randint(0, 3), eager=self._dice.randint(0, 2)
            )
        )
        return self.streams[-1]


def conversation(turns: int) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for number in range(turns):
        messages += [ModelRequest([UserPromptPart(f"question {number}")]), ModelResponse([TextPart("answer")])]
    return messages[:-1]


async def read(model: LimitedModel, turns: int, stop_after: int | None) -> list[Event]:
    run = LiveRun(TruncatingModel(model), ModelCall("m", conversation(turns)), Minter(b"seed"))
    out: list[Event] = []
    await run.open()
    while stop_after is None or stop_after > 0:
        batch = await run.read()
        if batch is None:
            break
        out += batch.events
        stop_after = None if stop_after is None else stop_after - 1
    else:
        out += run.cancel()
    assert run.ended is not None
    await loop_turns()
    assert all(stream.is_over and stream.raised is None for stream in model.streams)
    return out


async def deliver(model: LimitedModel, turns: int, stop_after: int | None) -> list[Event]:
    """Deliver the run to a receiver; stop it after `stop_after` turns of the event loop."""
    run = LiveRun(TruncatingModel(model), ModelCall("m", conversation(turns)), Minter(b"seed"))
    out: list[Event] = []
    await run.open()
    delivery = asyncio.create_task(run.deliver(lambda batch: out.extend(batch.events)))
    if stop_after is None:
        await delivery
    else:
        await loop_turns(1 + stop_after)
        delivery.cancel()
        await asyncio.wait({delivery})
        await run.stop()
    assert run.ended is not None
    await loop_turns()
    assert all(stream.is_over and stream.raised is None for stream in model.streams)
    return out


@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.booleans(),
    st.none() | st.integers(0, 12),
    st.sampled_from([read, deliver]),
    st.randoms(use_true_random=True),
)
def test_the_history_is_shortened_until_it_fits_and_the_response_passes(
    turns: int, room: int, in_stream: bool, stop_after: int | None, how: Any, dice: Any
) -> None:
    model = LimitedModel(room, dice, in_stream=in_stream)
    out: list[Event] = []
    if room == 0 and not in_stream:
        with pytest.raises(ModelError) as caught:
            asyncio.run(how(model, turns, stop_after))
        assert caught.value.info == TOO_LONG
    else:
        out = asyncio.run(how(model, turns, stop_after))
        fold(out)
        assert isinstance(out[-1], RunEndEvent)
    assert model.request_counts[0] == turns
    assert model.request_counts == sorted(set(model.request_counts), reverse=True)
    assert len(model.request_counts) <= MAX_ATTEMPTS
    if stop_after is None and out:
        [end] = [event for event in out if isinstance(event, RunEndEvent)]
        assert end.status == ("completed" if room else "failed")
        if not room:
            assert model.request_counts[-1] == 1
        else:
            assert fold(out).messages[0].text == "Yes."  # type: ignore[union-attr]


@pytest.mark.parametrize("in_stream", [True, False])
def test_messages_left_out_stay_out_in_the_next_turn(in_stream: bool) -> None:
    import random

    model = LimitedModel(3, random.Random(1), in_stream=in_stream)

    async def twice() -> None:
        shortening = TruncatingModel(model)
        for _ in range(2):
            await run_events(LiveRun(shortening, ModelCall("m", conversation(9)), Minter(b"seed")))

    asyncio.run(twice())
    assert model.request_counts[-1] == model.request_counts[-2] <= 3


class FailingOnRetry(LimitedModel):
    """A model that refuses the history in its stream, and raises an exception on the retry."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(0, random.Random(0), in_stream=True)
        self._failure = failure

    async def open(self, call: ModelCall) -> ModelStream:
        if self.request_counts:
            raise self._failure
        return await super().open(call)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ModelError(ErrorInfo("unavailable", "it is away", code="unreachable")), "context_length_exceeded"),
        (RuntimeError("a fault"), None),
    ],
    ids=["away", "a fault"],
)
def test_a_failed_retry_ends_the_run(failure: Exception, code: str | None) -> None:
    """The run ends with the original error, unless the exception is an internal one."""

    async def main() -> None:
        run = LiveRun(TruncatingModel(FailingOnRetry(failure)), ModelCall("m", conversation(3)), Minter(b"seed"))
        out: list[Event] = []
        await run.open()
        try:
            await run.deliver(lambda batch: out.extend(batch.events))
        except RuntimeError:
            assert failure.args == ("a fault",)
            await run.stop(ErrorInfo("server_error", "a fault"))
        assert run.ended is not None
        assert run.ended.error is not None
        assert run.ended.error.code == code
        fold(out)

    asyncio.run(main())


def test_a_pause_applies_to_the_retry() -> None:
    async def main() -> None:
        model = LimitedModel(1, random.Random(0), in_stream=True)
        stream = await TruncatingModel(model).open(ModelCall("m", conversation(3)))
        reads: list[Any] = []
        stream.pause()
        stream.start(reads.append)
        stream.resume()
        stream.pause()
        await loop_turns(20)
        stream.resume()
        await eventually(lambda: bool(reads) and type(reads[-1][-1]) is ResponseEndEvent)
        assert [event for read in reads for event in read] == response_events()

    asyncio.run(main())


def test_cancelling_during_the_retry_ends_the_stream() -> None:
    class Waits(LimitedModel):
        async def open(self, call: ModelCall) -> ModelStream:
            if self.request_counts:
                self.request_counts.append(0)
                await asyncio.Event().wait()
            return await super().open(call)

    async def main() -> None:
        model = Waits(0, random.Random(0), in_stream=True)
        stream = await TruncatingModel(model).open(ModelCall("m", conversation(9)))
        reads: list[Any] = []
        stream.start(reads.append)
        await eventually(lambda: len(model.request_counts) == 2)
        stream.cancel()
        await loop_turns(20)
        assert len(asyncio.all_tasks()) == 1
        assert reads == []

    asyncio.run(main())


def test_an_end_without_events_is_passed_on() -> None:
    class Silent(LimitedModel):
        async def open(self, call: ModelCall) -> ModelStream:
            return ScriptedStream([None])

    async def main() -> None:
        stream = await TruncatingModel(Silent(9, random.Random(0), in_stream=True)).open(
            ModelCall("m", conversation(3))
        )
        reads: list[Any] = []
        stream.start(reads.append)
        await eventually(lambda: reads == [None])

    asyncio.run(main())
