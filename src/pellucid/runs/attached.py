"""A run that its request drives: nothing is logged, and when the request goes, the run and its upstream go at once.

`open` asks the first model, so that "nobody there" and "refused" can still become an HTTP status; after that every
fault is an event. `wait` and `take` give one batch for each read of the upstream, and for each thing that is done
between two turns: functions that are called, answers that are looked at. What functions `emit` while they work does not
wait for their results; what is emitted otherwise comes with the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Container, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from ..errors import ErrorInfo, IllegalEvent, PellucidError
from ..events import Event, RunEndEvent, SideEvent
from ..models import Asked, Turn
from ..parts import ModelResponse, Origin, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..run import CallModel, CallTools, CheckOutput, Effect, Mint, Run
from ..settings import ModelCall
from ..telemetry import log, place_of
from .running import clock

FAULT = ErrorInfo("server_error", "something that was called between two turns of the model failed")


class Answered(NamedTuple):
    """What became of the calls of one turn."""

    results: list[ToolReturnPart | RetryPromptPart]
    """One for each call."""
    last: bool = False
    """Whether one of the calls was the run's answer."""
    left: Collection[str] = frozenset()
    """The ids of calls that have no result, because they wait for one from whoever asked."""


class Owner(Protocol):
    """Whose run it is: what happens between two turns of the model. Whatever is raised here ends the run as failed, and
    is kept as its `raised`."""

    tools: Container[str]
    """The names of the functions that are called here; calls of others are left to the caller."""
    checks: bool
    """Whether an answer is looked at before it is the last word."""

    async def prepare(self, call: ModelCall) -> ModelCall:
        """The call as it is to be sent. What is changed here is not kept."""
        ...

    async def answer(self, calls: tuple[ToolCallPart, ...]) -> Answered:
        """Call the functions."""
        ...

    async def check(self, response: ModelResponse) -> RetryPromptPart | None:
        """None: the answer will do. Otherwise what to tell the model."""
        ...


class Nobody:
    """An owner without functions, who takes every answer."""

    tools: Container[str] = frozenset()
    checks = False

    async def prepare(self, call: ModelCall) -> ModelCall:
        return call

    async def answer(self, calls: tuple[ToolCallPart, ...]) -> Answered:
        raise AssertionError("no function is called here")

    async def check(self, response: ModelResponse) -> RetryPromptPart | None:
        return None


_NOBODY = Nobody()


def _as_it_is(events: list[Event]) -> list[Event]:
    return events


class AttachedRun:
    """Drives one `Run` against one model."""

    def __init__(
        self,
        model: Asked,
        call: ModelCall,
        mint: Mint,
        owner: Owner = _NOBODY,
        *,
        max_tool_calls: int | None = None,
        enrich: Callable[[list[Event]], list[Event]] | None = None,
        log_faults: bool = False,
        pending: Sequence[ToolCallPart] = (),
    ) -> None:
        """`enrich` sees every batch once, before anybody else does (seals are written there). `log_faults`: whether
        what is `raised` is logged, as nobody will raise it again: the run is served to others. `pending`: calls to be
        answered first (see `Run`)."""
        self.run = Run(
            call, mint, server_tools=owner.tools, max_tool_calls=max_tool_calls, checks=owner.checks, pending=pending
        )
        self._enriched = enrich or _as_it_is
        self._log_faults = log_faults
        self.raised: Exception | None = None
        """What ended the run between two turns."""
        self._model = model
        self._owner = owner
        self._effects: list[Effect] = []
        self._turn: Turn | None = None
        self._between: list[Event] | None = None
        """What came between two turns."""
        self._sides: deque[SideEvent] = deque()
        """What was emitted and not yet taken. Threads add to it at any moment, so it is emptied and never replaced."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answering: asyncio.Task[Answered] | None = None
        """The functions that are being called."""
        self._news = asyncio.Event()
        """Set when they have said something, or are done."""

    async def open(self) -> None:
        """Ask for the first turn. Raises `ModelError` or `RequestError`; there is nothing to clean up then."""
        self._loop = asyncio.get_running_loop()
        [effect] = self.run.start()
        if isinstance(effect, CallModel):
            self._turn = await self._model.open(await self._owner.prepare(effect.call))
        else:
            self._effects = [effect]

    def emit(self, event: SideEvent) -> None:
        """Tell whoever reads the run, from whatever thread. After RunEnd nobody reads."""
        self._sides.append(event)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._news.set)

    @property
    def origin(self) -> Origin:
        """Whose word it is."""
        return self._model.origin

    @property
    def ended(self) -> RunEndEvent | None:
        return self.run.ended

    @property
    def now(self) -> int:
        return clock()

    @property
    def waiting(self) -> bool:
        """Whether the model has yet to become free for this run."""
        return self._turn is not None and self._turn.waiting

    def wait(self) -> Awaitable[None]:
        """Wait until there is something to take."""
        return self._turn.wait() if self._turn is not None else self._step()

    def take(self) -> list[Event] | None:
        """What has come, once `wait` is over; None after RunEnd."""
        if not self._sides:
            return self._taken()
        ended = self.run.ended is not None and self._between is None
        sides = self._emitted()
        events = self._taken()
        return events if ended or events is None else [*sides, *events]

    def _emitted(self) -> list[SideEvent]:
        sides: list[SideEvent] = []
        while self._sides:
            sides.append(self._sides.popleft())
        return sides

    def _taken(self) -> list[Event] | None:
        turn, between = self._turn, self._between
        if between is not None or turn is None:
            self._between = None
            return between
        batch = turn.take()
        if batch is None:
            # A turn that stops without its end is a fault of whatever plays the model.
            self._turn = None
            return self._enriched(self.run.end(ErrorInfo("model_error", "the model's turn stopped without an end")))
        events, effects = self.run.feed(batch)
        if effects or self.run.ended is not None:
            # The model has said all: what the turn holds (a connection, a place in a line) is given back now.
            self._turn = None
            turn.cancel()
            self._effects = effects
        return self._enriched(events)

    async def read(self) -> list[Event] | None:
        """Both."""
        await self.wait()
        return self.take()

    def cancel(self, error: ErrorInfo | None = None) -> list[Event]:
        """Stop now, upstream included. Gives the events that close what is open, as cancelled or failed with `error`.

        Idempotent; after RunEnd it gives nothing.
        """
        turn, self._turn = self._turn, None
        if self._answering is not None:
            self._answering.cancel()
        last = turn.cancel(error) if turn is not None else []
        sides = self._emitted()
        untaken, self._between = [*(sides if self.run.ended is None else ()), *(self._between or ())], None
        if self.run.ended is not None:
            return untaken
        if error is None:
            self.run.cancel()
        return untaken + self.run.feed(last)[0] + self.run.end(error)

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        """`cancel`, whatever state this is in (see `Running`)."""
        try:
            return self._enriched(self.cancel(error))
        except Exception as fault:
            # After a fault of ours, which is told where it was caught, a turn's own end may fit no more.
            log.debug("a run could not be stopped in form: %s", place_of(fault))
            return self._enriched(self.fail(error or FAULT))

    def fail(self, error: ErrorInfo) -> list[Event]:
        """The same after a fault of ours: nothing more is asked of the turn, and what was told is closed."""
        self.close()
        return self.run.end(error)

    def close(self) -> None:
        """Let go of the upstream, in whatever state this is. Never raises."""
        turn, self._turn = self._turn, None
        if self._answering is not None:
            self._answering.cancel()
        if turn is not None:
            with suppress(Exception):
                turn.cancel()

    async def _step(self) -> None:
        """What comes between two turns, one effect at a time."""
        if self.run.ended is not None:
            return
        [effect] = self._effects
        events: list[Event] = []
        try:
            match effect:
                case CallModel():
                    self._turn = await self._model.open(await self._owner.prepare(effect.call))
                case CallTools():
                    answered = await self._answered(effect.calls)
                    if answered is not None:
                        events, self._effects = self.run.results(
                            answered.results, last=answered.last, left=answered.left
                        )
                case CheckOutput():
                    wrong = await self._owner.check(effect.response)
                    events, self._effects = self.run.accept() if wrong is None else self.run.refuse(wrong)
        except Exception as error:
            self.raised = error
            told = isinstance(error, PellucidError) and not isinstance(error, IllegalEvent)
            if self._log_faults and not told:
                log.error("a fault between two turns: %s", place_of(error))
            # What anything else says is not for whoever reads the run.
            info = error.info if isinstance(error, PellucidError) and told else FAULT
            if self._log_faults and not isinstance(effect, CallModel):
                # Of a run that is served, what a function or a check quotes is its author's to read.
                info = replace(info, said=None)
            events = self.run.end(info)
        self._between = events

    async def _answered(self, calls: tuple[ToolCallPart, ...]) -> Answered | None:
        """What became of the calls; None as long as they have only said something. Whoever stops waiting for them
        stops them, and waits until they have stopped."""
        if self._answering is None:
            self._answering = asyncio.create_task(self._owner.answer(calls), name="functions")
            self._answering.add_done_callback(self._done)
        try:
            await self._news.wait()
        except BaseException:
            self._answering.cancel()
            await asyncio.wait({self._answering})
            raise
        self._news.clear()
        if not self._answering.done():
            return None
        answering, self._answering = self._answering, None
        return answering.result()

    def _done(self, answering: asyncio.Task[Answered]) -> None:
        if not answering.cancelled():
            answering.exception()  # looked at, whether anybody still waits for it or not
        self._news.set()


__all__ = ["Answered", "AttachedRun", "Nobody", "Owner"]
