"""The stage that measures a run: its slot among the concurrent streams of its key, its tokens, and its times.

    slot      acquired when the run opens, released when it is over
    tokens    charged when the run is over, however it ended; those that no provider reported are estimated
    times     until the first reasoning, until the first text of the answer, and of all reasoning

An observer gets the measurements once, at the end. They contain no text.
"""

from __future__ import annotations

import time
from typing import Protocol

from ..events import (
    ErrorEvent,
    Event,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
)
from ..parts import ModelResponsePart, TextPart, TextPartDelta, ThinkingPart, ThinkingPartDelta, ToolCallPart, json_text
from ..runs import Batch, Stage
from ..runs.task_group import start_task
from .access.guard import Guard
from .access.policy import Principal


class RunMeasurements:
    """The measurements of one run. Seconds count from its opening; None: it did not come to that."""

    __slots__ = ("characters", "end", "first_answer", "first_thought", "reasoning_characters", "seconds", "thinking")

    def __init__(self) -> None:
        self.first_thought: float | None = None
        self.first_answer: float | None = None
        self.thinking = 0.0
        self.characters = 0
        self.reasoning_characters = 0
        self.seconds = 0.0
        self.end = RunEndEvent("cancelled")


class RunObserver(Protocol):
    """Observer of one run (see `observability.RunTelemetry`)."""

    def on_opened(self) -> None:
        """The run has begun."""
        ...

    def on_stopping(self) -> None:
        """The reader of the run stops it."""
        ...

    def on_event(self, event: Event) -> None:
        """A turn began or ended, or an error occurred within it."""
        ...

    def on_ended(self, measurements: RunMeasurements) -> None:
        """The run, which was opened, is over. Called once."""
        ...


class MeterStage(Stage):
    """Measures a run of `principal`, and charges its tokens."""

    def __init__(self, guard: Guard, principal: Principal, observer: RunObserver) -> None:
        self._guard = guard
        self._principal = principal
        self._observer = observer
        self._stream_slot = guard.stream_slot(principal) if guard.has_limits(principal) else None
        """One of the concurrent streams of the key; None if the key has no limits."""
        self._measurements = RunMeasurements()
        self._opened_at = 0.0
        self._thinking_since: float | None = None
        self._is_settled = True
        """Whether the run is accounted for, or has not begun."""

    async def open(self) -> None:
        self._opened_at = time.monotonic()
        if self._stream_slot is not None:
            await self._stream_slot.__aenter__()

    async def discard(self) -> None:
        if self._stream_slot is not None:
            await self._stream_slot.__aexit__(None, None, None)

    def on_opened(self, *, queued: bool) -> None:
        self._is_settled = False
        self._observer.on_opened()

    def on_stopping(self) -> None:
        self._observer.on_stopping()

    def process(self, batch: Batch) -> Batch:
        measurements = self._measurements
        for event in batch.events:
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if type(delta) is ThinkingPartDelta:
                    if delta.content_delta and measurements.first_thought is None:
                        measurements.first_thought = time.monotonic() - self._opened_at
                        self.wants_deltas = False
                elif type(delta) is TextPartDelta and measurements.first_answer is None:
                    measurements.first_answer = time.monotonic() - self._opened_at
                    self.wants_deltas = False
            elif type(event) is PartStartEvent:
                kind = type(event.part)
                self.wants_deltas = (
                    (kind is ThinkingPart and measurements.first_thought is None)
                    or (kind is TextPart and measurements.first_answer is None)
                )  # fmt: skip
            elif type(event) is PartEndEvent:
                self._count_characters(event.part)
            elif type(event) is ItemStartEvent:
                if event.kind == "reasoning":
                    self._thinking_since = time.monotonic()
            elif type(event) is ItemEndEvent:
                if self._thinking_since is not None:
                    measurements.thinking += time.monotonic() - self._thinking_since
                    self._thinking_since = None
            elif type(event) is RunEndEvent:
                self._settle(event)
            elif isinstance(event, ResponseStartEvent | ResponseEndEvent | ErrorEvent):
                self._observer.on_event(event)
        return batch

    def _count_characters(self, part: ModelResponsePart) -> None:
        """Add the characters of a part. When it ends, the part holds all that was streamed."""
        measurements = self._measurements
        if isinstance(part, ThinkingPart):
            measurements.characters += len(part.content)
            measurements.reasoning_characters += len(part.content)
        elif isinstance(part, TextPart):
            measurements.characters += len(part.content)
        elif isinstance(part, ToolCallPart):
            measurements.characters += len(part.args if isinstance(part.args, str) else json_text(part.args))

    def _settle(self, end: RunEndEvent) -> None:
        if self._is_settled:
            return
        self._is_settled = True
        measurements = self._measurements
        measurements.end = end
        measurements.seconds = time.monotonic() - self._opened_at
        self._observer.on_ended(measurements)
        if self._stream_slot is not None:
            start_task(self._account(measurements), "the tokens of a run could not be counted")

    async def _account(self, measurements: RunMeasurements) -> None:
        try:
            await self._guard.charge(
                self._principal,
                measurements.end.usage,
                characters=measurements.characters,
                reasoning_characters=measurements.reasoning_characters,
            )
        finally:
            await self.discard()
