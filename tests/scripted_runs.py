"""Scripted models and run sources: they push reads of any size at any time, and the receiver may pause them.

model = ScriptedModel([[events of a read], [events of the next], …], …)      # one list of reads for each turn
run = LiveRun(model, call, mint)
events = await run_events(run)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import Event, ModelEvent, ResponseEndEvent, RunEndEvent
from pellucid.fold import Fold
from pellucid.models import ModelEventReceiver, ModelRead, ModelStream, StreamReader, TextReceiver
from pellucid.parts import Origin
from pellucid.runs import Batch, BatchReceiver, RunSource, Stage, TextSink
from pellucid.settings import ModelCall
from tests.waiting import loop_turns

Read: TypeAlias = ModelRead | asyncio.Event
"""A read of a stream; or an event to wait for before the next read."""


class Dice(Protocol):
    """`random.Random`, or the one of hypothesis."""

    def randint(self, a: int, b: int) -> int: ...


def no_latency() -> int:
    return 0


def cut(events: Sequence[ModelEvent], dice: Dice) -> list[list[ModelEvent]]:
    """Split the events into reads of 1, 2 or 7 events."""
    reads, at = [], 0
    while at < len(events):
        size = (1, 1, 2, 7)[dice.randint(0, 3)]
        reads.append(list(events[at : at + size]))
        at += size
    return reads


class ScriptedStream:
    """A `ModelStream`: one read after the other, each after `latency()` turns of the loop, none while it is paused.

    Args:
        eager: the number of reads that are received before `start`, and delivered within that call.
    """

    request_id = None

    def __init__(
        self, reads: Iterable[Read], *, latency: Callable[[], int] = no_latency, eager: int = 0, queued: bool = False
    ) -> None:
        self.queued = queued
        self.reads = list(reads)
        """The reads that are not delivered yet."""
        self.paused = False
        self.pauses = 0
        self.is_over = False
        """Whether its turn ended, or was cancelled."""
        self.cancelled = 0
        """How often `cancel` was called."""
        self.raised: Exception | None = None
        """The exception that the receiver raised, which is a failure."""
        self._latency = latency
        self._eager = eager
        self._fold = Fold()
        self._receive: ModelEventReceiver | None = None
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task: asyncio.Task[None] | None = None

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        assert self._receive is None, "started twice"
        assert not self.is_over, "started after its end"
        self._receive = receive
        for _ in range(self._eager):
            if self.paused or self.is_over or not self.reads or isinstance(self.reads[0], asyncio.Event):
                break
            self._give()
        if not self.is_over:
            self._task = asyncio.create_task(self._play(), name="scripted stream")

    def pause(self) -> None:
        self.paused = True
        self.pauses += 1
        self._resumed.clear()

    def resume(self) -> None:
        self.paused = False
        self._resumed.set()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        self.cancelled += 1
        if self.is_over:
            return []
        self.is_over = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        return self._fold.closing_events(error)

    async def _play(self) -> None:
        while self.reads and not self.is_over:
            read = self.reads[0]
            if isinstance(read, asyncio.Event):
                await read.wait()
                self.reads.pop(0)
                continue
            await loop_turns(self._latency())
            while self.paused:
                await self._resumed.wait()
            if not self.is_over:
                self._give()

    def _give(self) -> None:
        read = self.reads.pop(0)
        assert not isinstance(read, asyncio.Event)
        if isinstance(read, list):
            for event in read:
                self._fold.feed(event)
            self.is_over = bool(read) and isinstance(read[-1], ResponseEndEvent)
        else:
            self.is_over = True
        assert self._receive is not None
        try:
            self._receive(read)
        except Exception as error:
            self.raised = error


class ScriptedModel:
    """A model whose turns are scripted; a call after the last turn is an error."""

    name = "m"
    NO_MORE = ErrorInfo("server_error", "the run was ended in the middle")

    def __init__(
        self,
        *turns: Iterable[Read],
        origin: Origin = Origin("p", "w", "m"),  # noqa: B008
        latency: Callable[[], int] = no_latency,
        eager: Callable[[], int] = no_latency,
    ) -> None:
        self.origin = origin
        self.calls: list[ModelCall] = []
        self.streams: list[ScriptedStream] = []
        """The streams that were opened."""
        self._turns = list(turns)
        self._latency = latency
        self._eager = eager

    async def open(self, call: ModelCall) -> ModelStream:
        self.calls.append(call)
        await loop_turns(self._latency())
        if not self._turns:
            raise ModelError(self.NO_MORE)
        stream = ScriptedStream(self._turns.pop(0), latency=self._latency, eager=self._eager())
        self.streams.append(stream)
        return stream

    def warnings(self, call: ModelCall) -> list[str]:
        return []


class ScriptedSource:
    """A `RunSource` that delivers these batches, each after `pause()` seconds; the last holds the end of the run."""

    queued = False
    is_interrupted = False

    def __init__(self, batches: Iterable[list[Event]], pause: Callable[[], float] = lambda: 0.0) -> None:
        self._left = list(batches)
        self._pause = pause
        self.fold = Fold()
        self.opened = False
        self.ended: RunEndEvent | None = None
        self.delivered: list[Event] = []
        self._receive: BatchReceiver = lambda batch: None
        self._resumed = asyncio.Event()
        self._resumed.set()

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.opened = True

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        self._receive = receive
        while self.ended is None:
            await self.wait_for_batch()
            await self._resumed.wait()
            if self.ended is None:
                self._deliver(self._left.pop(0))

    async def wait_for_batch(self) -> None:
        """Wait for the next batch."""
        await asyncio.sleep(self._pause())

    def pause(self) -> None:
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        if self.ended is not None:
            return
        await asyncio.sleep(0)  # a second stop must not interrupt this
        end = RunEndEvent("cancelled" if error is None else "failed", error=error)
        self._deliver([*self.fold.closing_events(error), end])

    def _deliver(self, events: list[Event]) -> None:
        self.note(events)
        self.delivered += events
        if events:
            self._receive(Batch(7, events))

    def note(self, events: list[Event]) -> None:
        """Fold these events; set `ended` if they end the run."""
        for event in events:
            self.fold.feed(event)
        self.ended = self.fold.run_end


async def pass_through_stage(stage: Stage, batches: Iterable[list[Event]], *, queued: bool = False) -> list[Batch]:
    """Pass these batches of a run through a stage, one per second, and return its output up to the end of the run."""
    out: list[Batch] = []
    ended = asyncio.Event()

    def receive(batch: Batch) -> None:
        if batch.events:
            out.append(batch)
            if isinstance(batch.events[-1], RunEndEvent):
                ended.set()

    stage.push = receive
    await stage.open()
    stage.on_opened(queued=queued)
    for place, events in enumerate(batches):
        if events:
            receive(stage.process(Batch(1000 * place, list(events))))
    await ended.wait()
    return out


async def run_events(source: RunSource) -> list[Event]:
    """Open the run, read it to its end, and return all events."""
    events: list[Event] = []
    await source.open()
    await source.deliver(lambda batch: events.extend(batch.events))
    return events


async def reads_of(stream: ModelStream) -> list[list[ModelEvent]]:
    """Return the reads of one turn, to its end."""
    reader, reads = StreamReader(stream), list[list[ModelEvent]]()
    while (events := await reader.read()) is not None:
        reads.append(events)
    return reads


async def turn_of(stream: ModelStream) -> list[ModelEvent]:
    """Return the events of one turn, to its end."""
    return [event for events in await reads_of(stream) for event in events]
