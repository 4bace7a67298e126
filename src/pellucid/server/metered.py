"""The stage that measures a run: a place among the streams of its key, its tokens afterwards, and its times.

    place     taken when the run opens, given back when it is over
    tokens    charged when it is over, however that came about; what no provider reported is estimated from the text
    times     to the first thought and to the first word of the answer, and how long it thought in all

What is measured is told to whoever watches, once, at the end. No text is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from ..runs.later import later
from .access.guard import Guard
from .access.policy import Principal

Clock = Callable[[], float]


class Measured:
    """What was measured of one run. Seconds count from the moment it was opened; None: it did not come to that."""

    __slots__ = ("characters", "end", "first_answer", "first_thought", "reasoning_characters", "seconds", "thinking")

    def __init__(self) -> None:
        self.first_thought: float | None = None
        self.first_answer: float | None = None
        self.thinking = 0.0
        self.characters = 0
        self.reasoning_characters = 0
        self.seconds = 0.0
        self.end = RunEndEvent("cancelled")


class Watching(Protocol):
    """Whoever is told (see `observe.RunWatch`)."""

    def opened(self) -> None: ...

    def stopping(self) -> None:
        """Whoever reads the run stops it."""
        ...

    def heard(self, event: Event) -> None:
        """A turn's beginning or end, or an error within it."""
        ...

    def settled(self, measured: Measured) -> None:
        """The run that was opened is over. Once."""
        ...


class Unwatched:
    """Nobody is."""

    def opened(self) -> None: ...

    def stopping(self) -> None: ...

    def heard(self, event: Event) -> None: ...

    def settled(self, measured: Measured) -> None: ...


UNWATCHED = Unwatched()


class MeterStage(Stage):
    """Counts a run for `principal`."""

    def __init__(
        self,
        guard: Guard,
        principal: Principal,
        watch: Watching = UNWATCHED,
        clock: Clock = time.monotonic,
    ) -> None:
        self._guard = guard
        self._principal = principal
        self._watch = watch
        self._clock = clock
        self._place = guard.stream(principal) if guard.counts(principal) else None
        """Among the streams of the key."""
        self._measured = Measured()
        self._began = 0.0
        self._thinks_since: float | None = None
        self._settled = True
        """Whether there is nothing to account for (any more)."""

    async def open(self) -> None:
        self._began = self._clock()
        if self._place is not None:
            await self._place.__aenter__()

    async def discard(self) -> None:
        if self._place is not None:
            await self._place.__aexit__(None, None, None)

    def opened(self, *, queued: bool) -> None:
        self._settled = False
        self._watch.opened()

    def stopping(self) -> None:
        self._watch.stopping()

    def process(self, batch: Batch) -> Batch:
        measured = self._measured
        for event in batch.events:
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if type(delta) is ThinkingPartDelta:
                    if delta.content_delta and measured.first_thought is None:
                        measured.first_thought = self._clock() - self._began
                        self.wants_deltas = False
                elif type(delta) is TextPartDelta and measured.first_answer is None:
                    measured.first_answer = self._clock() - self._began
                    self.wants_deltas = False
            elif type(event) is PartStartEvent:
                kind = type(event.part)
                self.wants_deltas = (
                    (kind is ThinkingPart and measured.first_thought is None)
                    or (kind is TextPart and measured.first_answer is None)
                )  # fmt: skip
            elif type(event) is PartEndEvent:
                self._count(event.part)
            elif type(event) is ItemStartEvent:
                if event.kind == "reasoning":
                    self._thinks_since = self._clock()
            elif type(event) is ItemEndEvent:
                if self._thinks_since is not None:
                    measured.thinking += self._clock() - self._thinks_since
                    self._thinks_since = None
            elif type(event) is RunEndEvent:
                self._settle(event)
            elif isinstance(event, ResponseStartEvent | ResponseEndEvent | ErrorEvent):
                self._watch.heard(event)
        return batch

    def _count(self, part: ModelResponsePart) -> None:
        """Add up the characters that were streamed. They are all in the part, once it ends."""
        measured = self._measured
        if isinstance(part, ThinkingPart):
            measured.characters += len(part.content)
            measured.reasoning_characters += len(part.content)
        elif isinstance(part, TextPart):
            measured.characters += len(part.content)
        elif isinstance(part, ToolCallPart):
            measured.characters += len(part.args if isinstance(part.args, str) else json_text(part.args))

    def _settle(self, end: RunEndEvent) -> None:
        if self._settled:
            return
        self._settled = True
        measured = self._measured
        measured.end = end
        measured.seconds = self._clock() - self._began
        self._watch.settled(measured)
        if self._place is not None:
            later(self._account(measured), "the tokens of a run cannot be counted")

    async def _account(self, measured: Measured) -> None:
        try:
            await self._guard.charge(
                self._principal,
                measured.end.usage,
                characters=measured.characters,
                reasoning_characters=measured.reasoning_characters,
            )
        finally:
            await self.discard()
