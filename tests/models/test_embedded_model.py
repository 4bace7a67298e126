"""Calls of the embedded model with a scripted engine: waiting for a slot and for the engine, and how waiting ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import ModelEvent, PartDeltaEvent, ResponseEndEvent, SideEvent
from pellucid.local.model_index import find_model
from pellucid.local.supervisor import EngineQueue
from pellucid.models.embedded import EmbeddedModel, RepetitionDetector
from pellucid.models.model import ModelRead, ModelStream
from pellucid.parts import ModelRequest, TextPartDelta, Usage, UserPromptPart
from pellucid.settings import ModelCall
from pellucid.upstream import UpstreamClient
from tests.scripted import Call, Upstream, delta, say
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio

CALL = ModelCall("", [ModelRequest([UserPromptPart("q")])])


class ScriptedEngine:
    """An engine whose server is the scripted upstream."""

    def __init__(self, upstream: Upstream, *scripts: Any, slots: int = 1) -> None:
        name = upstream.plays(*scripts)
        self.model = msgspec.structs.replace(find_model("smollm2-135m"), name=name)
        self.queue = EngineQueue(slots)
        self.state = "ready"
        self.api_key = "k"
        self.base_url = upstream.url.removesuffix("/v1")
        self.loaded = asyncio.Event()

    async def wait_ready(self, seconds: float) -> None:
        await self.loaded.wait()
        if self.state == "failed":
            raise ModelError(ErrorInfo("model_error", "it does not start", code="engine_failed"))
        self.state = "ready"


class RecordedReads:
    """Receives and records the reads of a stream, as a run does."""

    def __init__(self, stream: ModelStream) -> None:
        self.stream = stream
        self.reads: list[ModelRead] = []
        stream.start(self.reads.append)

    @property
    def events(self) -> list[ModelEvent]:
        return [event for read in self.reads if isinstance(read, list) for event in read]

    @property
    def waits(self) -> list[tuple[str, Any]]:
        return [(event.name, event.value) for event in self.events if isinstance(event, SideEvent)]

    @property
    def finish(self) -> str | None:
        last = self.events[-1] if self.events else None
        return last.finish_reason if isinstance(last, ResponseEndEvent) else None

    async def end(self) -> str | None:
        await eventually(lambda: self.finish is not None)
        return self.finish


def embedded(engine: ScriptedEngine, client: UpstreamClient) -> EmbeddedModel:
    return EmbeddedModel(cast("Any", engine), client)


@pytest.mark.parametrize("piece", ["ha", "I will check it again. ", "One line\nand another, of some length.\n\n"])
async def test_an_answer_that_repeats_itself_is_ended_as_incomplete(upstream: Upstream, piece: str) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="So: "))
        for _ in range(3000 // len(piece)):
            await call.event(delta(content=piece))
        await call.wait_for_disconnect()  # it would go on

    engine, client = ScriptedEngine(upstream, script), UpstreamClient()
    try:
        turn = RecordedReads(await embedded(engine, client).open(CALL))
        assert await turn.end() == "length"
        end = turn.events[-1]
        assert isinstance(end, ResponseEndEvent)
        assert end.native_finish_reason == "repetition"
        assert engine.queue.running == 0
        text = "".join(
            event.delta.content_delta
            for event in turn.events
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta)
        )
        assert text.startswith(f"So: {piece}{piece}")
        assert len(text) > RepetitionDetector.MIN_CHARACTERS
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n} × 7 = {n * 7}\n" for n in range(300)),
        "no, " * 190,
        "| --- " * 20 + "\n" + "".join(f"| row {n} | {n * n} |\n" for n in range(200)),
        "".join(f"def function_{n}() -> None:\n    pass\n\n\n" for n in range(100)),
    ],
)
def test_lists_tables_and_emphasis_do_not_count_as_repetition(text: str) -> None:
    detector = RepetitionDetector()
    assert not any(detector.add(text[start : start + 5]) for start in range(0, len(text), 5))


async def test_a_free_engine_responds_at_once_and_the_slot_is_released(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say("Let me see. ", "42.")), UpstreamClient()
    try:
        stream = await embedded(engine, client).open(CALL)
        assert (stream.queued, engine.queue.running) == (False, 1)
        stream.pause()
        stream.resume()
        assert await RecordedReads(stream).end() == "stop"
        assert engine.queue.running == 0
        assert stream.cancel() == []
    finally:
        await client.aclose()


async def test_a_queued_call_receives_its_position_and_then_the_response(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        await engine.queue.acquire()
        stream = await embedded(engine, client).open(CALL)
        assert stream.queued
        await loop_turns()
        reading = RecordedReads(stream)  # events before `start` are not lost
        stream.pause()
        engine.queue.release()
        await eventually(lambda: not stream.queued)
        stream.resume()
        assert await reading.end() == "stop"
        assert reading.waits == [("position", 1), ("position", 0)]
        assert engine.queue.running == 0
    finally:
        await client.aclose()


async def test_a_turn_paused_before_its_start_and_received_late_is_complete(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        await engine.queue.acquire()
        stream = await embedded(engine, client).open(CALL)
        stream.pause()
        engine.queue.release()
        await eventually(lambda: not stream.queued)
        reading = RecordedReads(stream)  # earlier events are received at once
        stream.resume()
        assert await reading.end() == "stop"
    finally:
        await client.aclose()


async def test_an_exception_while_waiting_is_received_and_the_turn_is_over(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        await engine.queue.acquire()
        model = embedded(engine, client)

        async def fails(body: bytes) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(model, "send", fails)
        stream = await model.open(CALL)
        reads: list[Any] = []
        stream.start(reads.append)
        stream.pause()
        stream.resume()
        engine.queue.release()
        await eventually(lambda: bool(reads) and isinstance(reads[-1], ZeroDivisionError))
        assert stream.cancel() == []
    finally:
        await client.aclose()


async def test_a_call_waits_while_the_engine_loads(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        engine.state = "loading"
        reading = RecordedReads(await embedded(engine, client).open(CALL))
        await eventually(lambda: reading.waits == [("loading", None)])
        engine.loaded.set()
        assert await reading.end() == "stop"
    finally:
        await client.aclose()


async def test_a_failed_engine_start_ends_the_turn_and_releases_the_slot(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        engine.state = "failed"
        reading = RecordedReads(await embedded(engine, client).open(CALL))
        engine.loaded.set()
        assert await reading.end() == "error"
        assert engine.queue.running == 0
    finally:
        await client.aclose()


@pytest.mark.parametrize("error", [None, ErrorInfo("server_error", "stopped")], ids=["cancelled", "failed"])
async def test_cancelling_while_queued_leaves_the_queue(upstream: Upstream, error: ErrorInfo | None) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    try:
        await engine.queue.acquire()
        stream = await embedded(engine, client).open(CALL)
        await loop_turns()
        [end] = [event for event in stream.cancel(error) if isinstance(event, ResponseEndEvent)]
        assert end.usage == Usage(0, 0, 0)  # no model has read it
        assert end.finish_reason == (None if error is None else "error")
        assert stream.cancel(error) == []
        await eventually(lambda: engine.queue.waiting == 0)
        engine.queue.release()
        assert engine.queue.running == 0
    finally:
        await client.aclose()


async def test_cancelling_during_the_response_releases_the_slot(upstream: Upstream) -> None:
    async def for_ever(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="hm"))
        await call.wait_for_disconnect()

    engine, client = ScriptedEngine(upstream, for_ever), UpstreamClient()
    try:
        await engine.queue.acquire()
        stream = await embedded(engine, client).open(CALL)
        reading = RecordedReads(stream)
        engine.queue.release()
        await eventually(lambda: len(reading.events) > 3)
        assert engine.queue.running == 1
        stream.cancel()
        assert engine.queue.running == 0
        [call] = upstream.calls(engine.model.name)
        assert await asyncio.to_thread(call.connection.closed.wait, LIMIT_SECONDS)
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    "body", [b'{"error":{"code":400,"message":"the request exceeds the available context size"}}', b"\xff<html>"]
)
async def test_a_refused_request_is_explained_and_releases_the_slot(upstream: Upstream, body: bytes) -> None:
    async def refuses(call: Call) -> None:
        await call.answer(400, body)

    engine, client = ScriptedEngine(upstream, refuses), UpstreamClient()
    try:
        with pytest.raises(ModelError):
            await embedded(engine, client).open(CALL)
        assert engine.queue.running == 0
        await engine.queue.acquire()
        reading = RecordedReads(await embedded(engine, client).open(CALL))
        engine.queue.release()
        assert await reading.end() == "error"
        assert engine.queue.running == 0
    finally:
        await client.aclose()


async def test_a_request_to_an_engine_that_just_died_is_retried(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    alive, engine.base_url = engine.base_url, "http://127.0.0.1:1"
    try:
        stream = await embedded(engine, client).open(CALL)
        assert stream.queued
        engine.base_url = alive
        reading = RecordedReads(stream)
        assert await reading.end() == "stop"
        assert engine.queue.running == 0
    finally:
        await client.aclose()


async def test_an_unreachable_engine_is_an_error_after_the_retries(upstream: Upstream) -> None:
    engine, client = ScriptedEngine(upstream, say()), UpstreamClient()
    engine.base_url = "http://127.0.0.1:1"
    try:
        reading = RecordedReads(await embedded(engine, client).open(CALL))
        assert await reading.end() == "error"
        assert engine.queue.running == 0
    finally:
        await client.aclose()
