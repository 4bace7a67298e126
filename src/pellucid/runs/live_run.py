"""A run that this process drives, and through which everything that a model says is pushed.

    socket → decoder → `Run` → stages → receiver          one call for each read of the upstream

`open` calls the first model, so that "nobody there" and "refused" can still become an HTTP status; from then on every
fault is an event. `deliver` waits while turns are read, and executes what comes between them: functions are called,
answers are checked, the model is called again. No task exists but the caller's, and one while functions run: what they
`emit` does not wait for their results. What is emitted otherwise goes with the next batch.

A program that iterates over a run uses `read` instead: the upstream is paused but while the program waits, so that the
run is never ahead of its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Sequence, Sized
from contextlib import suppress
from contextvars import Context, copy_context
from time import time_ns
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from ..errors import ErrorInfo, IllegalEvent, PellucidError
from ..events import Event, PartDeltaEvent, RunEndEvent, SideEvent
from ..models import ChatModel, HTTPModelStream, ModelRead, ModelStream, TextWriter
from ..parts import ModelResponse, Origin, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..run import CallModel, CallTools, CheckOutput, Effect, Mint, Run
from ..settings import ModelCall
from ..telemetry import error_location, log
from .source import Batch, BatchReceiver, TextSink
from .stages import Push, Stage, discard_stages, open_stages

FAULT = ErrorInfo("server_error", "something that was called between two turns of the model failed")


class ToolOutcomes(NamedTuple):
    """What became of the tool calls of one turn."""

    results: list[ToolReturnPart | RetryPromptPart]
    """One for each call."""
    has_output: bool = False
    """Whether one of the calls was the run's answer."""
    client_call_ids: Collection[str] = frozenset()
    """The ids of calls without a result here: the client is to answer them."""


class TurnHandler(Protocol):
    """What happens between two turns of the model. Whatever is raised here ends the run as failed, and is kept as the
    run's `raised`."""

    tool_names: Container[str]
    """The names of the functions that are called here; calls of others are left to the client."""
    checks_output: bool
    """Whether an answer is checked before it is final."""

    async def begin_run(self, call: ModelCall) -> ModelCall:
        """The run opens: the call as the run knows it. What is raised here is raised by the run's `open`."""
        ...

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        """The call as it is to be sent, for each turn. What is changed here is not kept."""
        ...

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        """Call the functions."""
        ...

    async def check_output(self, response: ModelResponse) -> RetryPromptPart | None:
        """None if the answer is accepted; otherwise what the model is to correct."""
        ...

    def end_run(self) -> None:
        """The run is over, or could not be opened. May be called more than once."""
        ...


class NullTurnHandler:
    """A handler without functions, which accepts every answer."""

    tool_names: Container[str] = frozenset()
    checks_output = False

    async def begin_run(self, call: ModelCall) -> ModelCall:
        return call

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        return call

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        raise AssertionError("no function is called here")

    async def check_output(self, response: ModelResponse) -> RetryPromptPart | None:
        return None

    def end_run(self) -> None:
        pass


_NULL_HANDLER = NullTurnHandler()


class LiveRun:
    """Drives one `Run` against one model. A `RunSource`."""

    is_interrupted = False

    def __init__(
        self,
        model: ChatModel,
        call: ModelCall,
        mint: Mint,
        handler: TurnHandler = _NULL_HANDLER,
        *,
        stages: Sequence[Stage] = (),
        max_tool_calls: int | None = None,
        log_faults: bool = False,
        pending: Sequence[ToolCallPart] = (),
    ) -> None:
        """
        Args:
            stages: what every batch passes, in this order.
            max_tool_calls: calls of the handler's functions in all turns together.
            log_faults: whether what is `raised` is logged, because no caller will raise it again.
            pending: calls that are answered before the model is called (see `Run`).
        """
        self.exception: Exception | None = None
        """What ended the run between two turns."""
        self.ended: RunEndEvent | None = None
        self._model = model
        self._call = call
        self._mint = mint
        self._handler = handler
        self._stages = tuple(stages)
        self._active_stages = self._stages
        """What a batch passes. Of a stage that raised, and of those before it, a `Stage` stands in the place."""
        self._max_tool_calls = max_tool_calls
        self._log_faults = log_faults
        self._pending = pending
        self._machine: Run | None = None
        self._effects: list[Effect] = []
        self._stream: ModelStream | None = None
        self._has_started = False
        """Whether the stream delivers."""
        self._context: Context
        """Of the task that waits for the stream."""
        self._is_paused = False
        self._receive: BatchReceiver = self._enqueue
        self._text_sink: TextSink | None = None
        self._text_template: PartDeltaEvent | None = None
        """What texts are the deltas of that are passed on without events; None if none are."""
        self._queue: list[Batch] = []
        self._failure: BaseException | None = None
        """What the receiver or a stage raised."""
        self._disabled_stage_count = 0
        """Up to here, counted from 1, the stages have no part any more: one raised, and what those before it held back
        would follow a batch that was lost."""
        self._waiters: list[asyncio.Future[None]] = []
        self._side_events: list[SideEvent] = []
        """Emitted and not delivered yet. Threads append at any moment, so it is emptied and never replaced."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tool_task: asyncio.Task[ToolOutcomes] | None = None
        """The functions that are being called."""
        for index, stage in enumerate(self._stages):
            stage.push = self._pusher(index + 1)

    # --- the interface of a source -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Call the model for the first turn. Raises `ModelError` or `RequestError`; there is nothing to clean up."""
        self._loop = asyncio.get_running_loop()
        handler = self._handler
        try:
            self._call = await handler.begin_run(self._call)
            await open_stages(self._stages)
            try:
                [effect] = self.run.start()
                if isinstance(effect, CallModel):
                    self._stream = await self._model.open(await handler.prepare_call(effect.call))
                else:
                    self._effects = [effect]
            except BaseException:
                await discard_stages(self._stages)
                raise
        except BaseException:
            handler.end_run()
            raise
        queued = self.queued
        for stage in self._stages:
            stage.on_opened(queued=queued)

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        self._receive = receive
        self._text_sink = texts
        while self.ended is None:
            await self._step()
        self._raise_failure()

    def pause(self) -> None:
        self._is_paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._stream is not None:
            self._stream.resume()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        if self.ended is not None:
            return
        for stage in self._stages:
            stage.on_stopping()
        self._failure = None
        events: list[Event] = []
        if self.run.run_end is None:
            try:
                events = self._close(error)
            except Exception as fault:
                # After a fault of ours, which is reported where it was caught, a turn's own end may fit no more.
                log.debug("a run could not be stopped in form: %s", error_location(fault))
                events = self._fail(error or FAULT)
        failure: Exception | None = None
        if not self._disabled_stage_count:
            try:
                self._process(events)
            except Exception as fault:
                failure = fault
                if not self._disabled_stage_count:
                    self._receive = _ignore  # and the stages come to their end without it
        if self._disabled_stage_count:
            # Nobody can say what is open for the receiver: only the end can follow.
            self._process([RunEndEvent("failed", self.run.usage, error or FAULT)])
        else:
            self._process([], flush=True)  # what a stage held back until now goes on
        self._notify()
        await self._wait_for_end()
        if failure is not None:
            raise failure

    @property
    def run(self) -> Run:
        """The machine."""
        if self._machine is None:
            handler = self._handler
            self._machine = Run(
                self._call,
                self._mint,
                server_tools=handler.tool_names,
                max_tool_calls=self._max_tool_calls,
                checks_output=handler.checks_output,
                pending=self._pending,
            )
        return self._machine

    @property
    def origin(self) -> Origin:
        """The model and provider that produce the run."""
        return self._model.origin

    @property
    def queued(self) -> bool:
        return self._stream is not None and self._stream.queued

    # --- for a program that iterates ---------------------------------------------------------------------------

    async def read(self) -> Batch | None:
        """The next batch; None after the last. Instead of `deliver`."""
        while not self._queue:
            if self.ended is not None:
                self._raise_failure()
                return None
            if self._is_paused:
                self.resume()
            else:
                await self._step()
        return self._queue.pop(0)

    def _enqueue(self, batch: Batch) -> None:
        self._queue.append(batch)
        self.pause()
        self._notify()

    def cancel(self, error: ErrorInfo | None = None) -> list[Event]:
        """Stop now, upstream included: the events that were not read, and those that close the run.

        For a run without stages that wait. Idempotent; after the run's end it gives nothing.
        """
        if self.run.run_end is None:
            self._process(self._close(error))
        events = [event for batch in self._queue for event in batch.events]
        self._queue.clear()
        return events

    def fail(self, error: ErrorInfo) -> list[Event]:
        """The same after a fault of ours: the turn's own end is not read."""
        self._process(self._fail(error))
        events = [event for batch in self._queue for event in batch.events]
        self._queue.clear()
        return events

    def close(self) -> None:
        """Release the upstream, in whatever state this is. Never raises."""
        stream, self._stream = self._stream, None
        if self._tool_task is not None:
            self._tool_task.cancel()
        if stream is not None:
            with suppress(Exception):
                stream.cancel()
        self._handler.end_run()
        self._notify()

    def emit(self, event: SideEvent) -> None:
        """Deliver an event that is not the model's, from whatever thread. After the run's end it is dropped."""
        self._side_events.append(event)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._emit_during_tools)

    # --- while a turn is read ----------------------------------------------------------------------------------

    def _on_model_events(self, events: ModelRead) -> None:
        """What one read of the turn gave; None when it stopped without its end. The receiver of a `ModelStream`."""
        stream, run = self._stream, self._machine
        if stream is None or run is None:
            return
        try:
            if type(events) is list and len(events) == 1 and type(event := events[0]) is PartDeltaEvent:
                # What nearly every read is. No stage sees it that does not want it.
                run.feed_delta(event)
                out: list[Event] = [event]
                for stage in self._active_stages:
                    if stage.wants_deltas:
                        break
                else:
                    if not self._side_events:
                        self._receive(Batch(time_ns() // 1_000_000, out))
                        out = []
            else:
                out = self._advance(stream, run, events)
            if out or self._side_events:
                # A stream is read in the context of the connection; its events belong to the caller's.
                self._context.run(self._process, out)
        except BaseException as error:  # a SystemExit, too, is not the transport's to handle
            self._fail_delivery(error)
        if self._stream is None:
            self._notify()

    def _advance(self, stream: ModelStream, run: Run, events: ModelRead) -> list[Event]:
        """Feed the machine with one read."""
        if events is None:
            # A turn that stops without its end is a fault of whatever plays the model.
            self._stream = None
            return run.end(ErrorInfo("model_error", "the model's turn stopped without an end"))
        if isinstance(events, Exception):
            raise events
        out, effects = run.feed(events)
        if effects or run.run_end is not None:
            # The model is done: what the turn holds (a connection, a place in a queue) is released now.
            self._stream = None
            stream.cancel()
            self._effects = effects
        return out

    def _process(self, events: list[Event], first: int = 0, *, time_ms: int = 0, flush: bool = False) -> None:
        """Pass events through the stages from `first` on, and to the receiver. `time_ms`: when they were, if not now.

        Nothing happens without events, but with `flush`: then stages release what they held back.
        """
        if self._text_template is not None:
            self._end_texts()
        if self._side_events and first == 0:
            events = self._with_side_events(events)
        if not events and not flush:
            return
        batch = Batch(time_ms or time_ns() // 1_000_000, events)
        is_delta = len(events) == 1 and type(events[0]) is PartDeltaEvent
        for stage in self._active_stages[first:] if first else self._active_stages:
            if is_delta and not stage.wants_deltas:
                continue
            try:
                processed = stage.process(batch)
            except Exception:
                self._disable_up_to(stage)
                raise
            is_delta = is_delta and processed is batch
            batch = processed
        if events := batch.events:
            if type(events[-1]) is RunEndEvent:
                self.ended = events[-1]
                self._handler.end_run()
            self._receive(batch)

    def _disable_up_to(self, stage: Stage) -> None:
        """It raised: from now on it has no part, nor have those before it."""
        self._disabled_stage_count = self._active_stages.index(stage) + 1
        self._active_stages = (*[Stage()] * self._disabled_stage_count, *self._stages[self._disabled_stage_count :])

    def _pusher(self, first: int) -> Push:
        def push(batch: Batch) -> None:
            if first <= self._disabled_stage_count or self.ended is not None:
                return
            try:
                self._process(batch.events, first, time_ms=batch.time_ms)
            except BaseException as error:
                self._fail_delivery(error)
            self._notify()

        return push

    # --- the text path of the stream: a `TextReceiver` ---------------------------------------------------------

    def open_text(self, like: PartDeltaEvent) -> TextWriter | None:
        sink = self._text_sink
        if sink is None or self._failure is not None or self._side_events:
            return None
        if any(stage.wants_deltas and not stage.takes_texts for stage in self._active_stages):
            return None
        writer = sink.open_text(like)
        self._text_template = like if writer is not None else None
        return writer

    @property
    def pending_events(self) -> Sized:
        return self._side_events

    def add_texts(self, texts: list[tuple[str, int]]) -> None:
        self.run.add_text("".join([text for text, _ in texts]))
        for stage in self._active_stages:
            if stage.takes_texts and self._text_template is not None:
                try:
                    stage.add_texts(self._text_template, texts)
                except Exception as error:
                    self._disable_up_to(stage)
                    self._fail_delivery(error)
                    return

    def fail_text(self, error: BaseException) -> None:
        self._fail_delivery(error)

    def _end_texts(self) -> None:
        """What follows is not text alone."""
        if isinstance(self._stream, HTTPModelStream):
            self._stream.close_text_path()
        self._text_template = None

    def _fail_delivery(self, error: BaseException) -> None:
        """The receiver or a stage raised, and `deliver` raises that. The receiver still gets what is on its way: what
        closes the run must fit what it got."""
        self._failure = self._failure or error
        if self._stream is not None:
            self._stream.pause()
        self._notify()

    # --- between turns -----------------------------------------------------------------------------------------

    async def _step(self) -> None:
        """Wait for the turn under way to end, or execute one effect."""
        self._raise_failure()
        stream = self._stream
        if stream is not None:
            if not self._has_started:
                self._has_started = True
                if self._is_paused:
                    stream.pause()
                # A stream is read in the context of the connection; its events belong to the caller's.
                self._context = copy_context()
                if isinstance(stream, HTTPModelStream):
                    stream.start(self._on_model_events, self)
                else:
                    stream.start(self._on_model_events)
            else:
                await self._wait()
        elif self.run.run_end is None:
            await self._execute(*self._effects)
        else:
            await self._wait()

    async def _wait_for_end(self) -> None:
        while self.ended is None and self._failure is None:
            await self._wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _wait(self) -> None:
        """Until `_notify`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def _notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _execute(self, effect: Effect) -> None:
        events: list[Event] = []
        try:
            match effect:
                case CallModel():
                    stream = await self._model.open(await self._handler.prepare_call(effect.call))
                    if self.run.run_end is not None:
                        stream.cancel()  # it was stopped meanwhile
                        return
                    self._stream = stream
                    self._has_started = False
                case CallTools():
                    outcomes = await self._call_tools(effect.calls)
                    if outcomes is not None:
                        events, self._effects = self.run.add_results(
                            outcomes.results, ends_run=outcomes.has_output, left_to_caller=outcomes.client_call_ids
                        )
                case CheckOutput():
                    retry = await self._handler.check_output(effect.response)
                    events, self._effects = self.run.accept() if retry is None else self.run.reject(retry)
        except Exception as error:
            events = self.run.end(self._fault(error, effect))
        if events or self._side_events:
            self._process(events)

    def _fault(self, error: Exception, effect: Effect) -> ErrorInfo:
        """What readers of the run are shown of an error between two turns."""
        self.exception = error
        is_ours = not isinstance(error, PellucidError) or isinstance(error, IllegalEvent)
        if self._log_faults and is_ours:
            log.error("a fault between two turns: %s", error_location(error))
        info = FAULT if is_ours or not isinstance(error, PellucidError) else error.info
        if self._log_faults and not isinstance(effect, CallModel):
            # Of a run that is served, what a function or a check quotes is for its author.
            info = replace(info, said=None)
        return info

    async def _call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes | None:
        """What became of the calls; None while only something was emitted for `read`. Whoever stops waiting for the
        functions cancels them, and waits until they have stopped."""
        if self._tool_task is None:
            self._tool_task = asyncio.create_task(self._handler.call_tools(calls), name="functions")
            self._tool_task.add_done_callback(self._on_tools_done)
        tool_task = self._tool_task
        if not tool_task.done():
            try:
                await self._wait()
            except BaseException:
                tool_task.cancel()
                await asyncio.wait({tool_task})
                raise
        if not tool_task.done() or self.run.run_end is not None:
            return None
        self._tool_task = None
        return tool_task.result()

    def _on_tools_done(self, tool_task: asyncio.Task[ToolOutcomes]) -> None:
        if not tool_task.cancelled():
            tool_task.exception()  # retrieved, also where nobody waits for it any more
        self._notify()

    def _emit_during_tools(self) -> None:
        self._end_texts()  # the event goes with the next batch
        if self._tool_task is not None and self._side_events and self.run.run_end is None:
            try:
                self._process([])
            except Exception as error:
                self._fail_delivery(error)

    def _with_side_events(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        while self._side_events:
            out.append(self._side_events.pop(0))
        return [*out, *events]

    # --- the end -----------------------------------------------------------------------------------------------

    def _close(self, error: ErrorInfo | None) -> list[Event]:
        """End the turn and the run, as cancelled or as failed with `error`."""
        stream, self._stream = self._stream, None
        if self._tool_task is not None:
            self._tool_task.cancel()
        self._notify()
        last_events = stream.cancel(error) if stream is not None else []
        if error is None:
            self.run.cancel()
        return self.run.feed(last_events)[0] + self.run.end(error)

    def _fail(self, error: ErrorInfo) -> list[Event]:
        """End the run; nothing more is taken from the turn."""
        self.close()
        return self.run.end(error)


def _ignore(batch: Batch) -> None:
    """The receiver of what nobody is to get."""
