"""A run that this process drives. The model's events are pushed through it.

    socket → decoder → `Run` → stages → receiver          one call for each read of the upstream

`open` calls the model for the first turn, so that an unavailable model or a rejected request can become an HTTP status.
After that, every error is an event. `deliver` waits while turns are read, and executes the steps between them: it calls
functions, checks outputs, and calls the model again. There is no task except the caller's, and one while functions run:
events that the functions `emit` are delivered before their results. Other emitted events go with the next batch.

A program that iterates over a run uses `read` instead. Then the upstream is paused except while the program waits, so
the run is never ahead of its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Sequence, Sized
from contextlib import suppress
from contextvars import Context, copy_context
from time import time_ns
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import ErrorInfo, IllegalEvent, PellucidError
from ..events import Event, Mint, PartDeltaEvent, RunEndEvent, SideEvent
from ..models import ChatModel, ModelRead, ModelStream, TextWriter
from ..parts import ModelResponse, Origin, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..run import CallModel, CallTools, CheckOutput, Effect, Run, RunState
from ..settings import ModelCall
from ..telemetry import error_location, log
from .source import Batch, BatchReceiver, TextSink
from .stages import Stage, discard_stages, open_stages

FAULT = ErrorInfo("server_error", "a step between two turns of the model failed")


class ToolOutcomes(NamedTuple):
    """The results of the tool calls of one turn."""

    results: list[ToolReturnPart | RetryPromptPart]
    """One for each call that was answered here."""
    has_output: bool = False
    """Whether one of the calls was the run's output."""
    client_call_ids: Collection[str] = frozenset()
    """The ids of calls that have no result here, because the client answers them."""


class TurnHandler:
    """The steps between two turns of the model: by default, no function is called, and every output is accepted.

    An exception that a method raises ends the run as failed, and becomes the run's `exception`.
    """

    tool_names: Container[str] = frozenset()
    """Names of the functions that are called here. The client answers calls of other functions."""
    checks_output: bool = False
    """Whether an output is checked (`check_output`) before it is final."""

    async def begin_run(self, call: ModelCall) -> ModelCall:
        """Prepare the run when it opens; return the call that the run keeps.

        An exception is raised by the run's `open`.
        """
        return call

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        """Return the call as it is sent, for each turn. Changes apply to this turn only."""
        return call

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        """Call the functions of one turn."""
        raise AssertionError("no function is called here")

    async def check_output(self, response: ModelResponse) -> RetryPromptPart | None:
        """Check an output.

        Returns:
            None if the output is accepted; otherwise the prompt with which the model tries again.
        """
        return None

    def end_run(self) -> None:
        """Release resources: the run is over, or could not be opened. May be called more than once."""


class LiveRun:
    """Drives one `Run` with one model. A `DrivenRun`."""

    is_interrupted = False

    # Without slots, so many attributes would be a dictionary of each instance, of more than 1 KiB.
    __slots__ = (
        "__weakref__",
        "_abort_error",
        "_active_stages",
        "_call",
        "_calling_task",
        "_close_text_path",
        "_context",
        "_disabled_stage_count",
        "_effects",
        "_failure",
        "_handler",
        "_has_started",
        "_is_paused",
        "_log_faults",
        "_loop",
        "_machine",
        "_max_tool_calls",
        "_mint",
        "_model",
        "_pending",
        "_queue",
        "_receive",
        "_side_events",
        "_stages",
        "_stream",
        "_text_sink",
        "_text_template",
        "_tool_task",
        "_waiters",
        "ended",
        "exception",
    )

    def __init__(
        self,
        model: ChatModel,
        call: ModelCall,
        mint: Mint,
        handler: TurnHandler | None = None,
        *,
        stages: Sequence[Stage] = (),
        max_tool_calls: int | None = None,
        log_faults: bool = False,
        pending: Sequence[ToolCallPart] = (),
    ) -> None:
        """
        Args:
            model: The model to call.
            call: Messages, tools and settings of the first turn.
            mint: Makes the public ids of the run.
            handler: Executes the steps between two turns; None: no function is called.
            stages: The stages that every batch passes, in this order.
            max_tool_calls: Maximum number of calls of the handler's functions, in all turns together.
            log_faults: Whether an internal error is logged here, because no caller raises `exception` again.
            pending: Tool calls that are answered before the model is called (see `Run`).
        """
        self.exception: Exception | None = None
        """The exception that ended the run between two turns, if any."""
        self.ended: RunEndEvent | None = None
        self._model = model
        self._call = call
        self._mint = mint
        self._handler = handler or TurnHandler()
        self._stages = tuple(stages)
        self._active_stages = self._stages
        """The stages that a batch passes. A stage that raised, and all before it, are replaced by a plain `Stage`."""
        self._max_tool_calls = max_tool_calls
        self._log_faults = log_faults
        self._pending = pending
        self._machine: Run | None = None
        self._effects: list[Effect] = []
        self._stream: ModelStream | None = None
        self._has_started = False
        """Whether `start` was called on the stream."""
        self._context: Context
        """Context variables of the task that waits for the stream."""
        self._is_paused = False
        self._receive: BatchReceiver = self._enqueue
        self._text_sink: TextSink | None = None
        self._text_template: PartDeltaEvent | None = None
        """The delta that texts on the text path are like; None if the text path is closed."""
        self._close_text_path: Callable[[], None]
        self._queue: list[Batch] = []
        self._failure: BaseException | None = None
        """The exception of the receiver or of a stage, until `deliver` raises it."""
        self._disabled_stage_count = 0
        """Number of the first stages that are disabled: the last of them raised an exception. The stages before it are
        disabled too, because events that they held back would follow a lost batch."""
        self._waiters: list[asyncio.Future[None]] = []
        self._side_events: list[SideEvent] = []
        """Emitted events that are not delivered yet. Other threads append to this list, so it is never replaced."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tool_task: asyncio.Task[ToolOutcomes] | None = None
        """The task that calls functions now."""
        self._calling_task: asyncio.Task[object] | None = None
        """The task that calls the model now, until the model accepts or rejects the call."""
        self._abort_error: ErrorInfo | None = None
        """The error with which `abort` interrupted that call."""
        for index, stage in enumerate(self._stages):
            stage.push = self._pusher(index + 1)

    # --- RunSource ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Call the model for the first turn. After an exception there is nothing to clean up.

        Raises:
            ModelError: If the model cannot be reached, or rejects the call.
            RequestError: If the call is not valid.
        """
        self._loop = asyncio.get_running_loop()
        handler = self._handler
        try:
            self._call = await handler.begin_run(self._call)
            await open_stages(self._stages)
            try:
                [effect] = self.run.start()
                if isinstance(effect, CallModel):
                    self._stream = await self._call_model(effect.call)
                else:
                    self._effects = [effect]
            except BaseException as error:
                was_cancelled = isinstance(error, asyncio.CancelledError) or self._abort_error is not None
                await discard_stages(self._stages, was_cancelled=was_cancelled)
                raise
        except BaseException:
            handler.end_run()
            raise
        queued = self.queued
        for stage in self._stages:
            stage.on_opened(queued=queued)

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        """Deliver all batches (see `RunSource.deliver`)."""
        self._receive = receive
        self._text_sink = texts
        if self._queue:  # the run was aborted after `open`
            receive(Batch(self._queue[-1].time_ms, self._take_queued()))
        while self.ended is None:
            await self._step()
        self._raise_failure()

    def pause(self) -> None:
        """Pause the upstream (see `RunSource.pause`)."""
        self._is_paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        """Resume the upstream (see `RunSource.resume`)."""
        self._is_paused = False
        if self._stream is not None:
            self._stream.resume()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        """End the run now (see `RunSource.stop`)."""
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
                # After an internal error, which was reported already, the end of the turn may not fit the run's state.
                log.debug("a run was stopped without the end of its turn: %s", error_location(fault))
                events = self._fail(error or FAULT)
        failure: Exception | None = None
        if not self._disabled_stage_count:
            try:
                self._process(events)
            except Exception as fault:
                failure = fault
                if not self._disabled_stage_count:
                    self._receive = _ignore  # the receiver failed; the stages still process the end
        if self._disabled_stage_count:
            # It is not known which parts are open for the receiver, so only the end can follow.
            self._process([RunEndEvent("failed", self.run.usage, error or FAULT)])
        else:
            self._process([], flush=True)  # stages release the events that they held back
        self._notify()
        await self._wait_for_end()
        if failure is not None:
            raise failure

    async def abort(self, error: ErrorInfo) -> None:
        """End the run as failed with `error`. For other tasks than the one that opens or delivers the run.

        If the model has not accepted its call yet, `open` or `deliver` ends the run, and this does not wait for it.
        """
        if self._calling_task is None:
            await self.stop(error)
        elif self._abort_error is None:
            self._abort_error = error
            self._calling_task.cancel()

    async def _call_model(self, call: ModelCall) -> ModelStream:
        """Call the model for one turn. Raises `PellucidError` if `abort` interrupts it."""
        self._calling_task = task = asyncio.current_task()
        try:
            prepared = await self._handler.prepare_call(call)
            for stage in self._active_stages:
                stage.on_call(prepared)
            return await self._model.open(prepared)
        except asyncio.CancelledError:
            error = self._abort_error
            # Another cancellation, of a client that leaves or of a server that stops, is not hidden by this one.
            if error is not None and task is not None and task.uncancel() == 0:
                raise PellucidError(error) from None
            raise
        finally:
            self._calling_task = None

    @property
    def run(self) -> Run:
        """The run's state machine."""
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
    def state(self) -> RunState:
        """What the run does now."""
        return self.run.state

    @property
    def characters(self) -> int:
        """The size of the model's output so far, reasoning included."""
        return self.run.characters

    @property
    def queued(self) -> bool:
        """Whether the run began with a wait for a busy model."""
        return self._stream is not None and self._stream.queued

    # --- iteration by a program --------------------------------------------------------------------------------

    async def read(self) -> Batch | None:
        """Return the next batch; None after the last. Use either this method or `deliver`."""
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
        """Stop the run and its upstream now, as cancelled or as failed with `error`.

        Only for a run whose stages hold nothing back. Idempotent.

        Returns:
            The events that were not read, and those that close the run; nothing after the run's end.
        """
        if self.run.run_end is None:
            self._process(self._close(error))
        return self._take_queued()

    def fail(self, error: ErrorInfo) -> list[Event]:
        """End the run as failed after an internal error, without the turn's end; return events as `cancel` does."""
        self._process(self._fail(error))
        return self._take_queued()

    def _take_queued(self) -> list[Event]:
        batches, self._queue = self._queue, []
        return [event for batch in batches for event in batch.events]

    def close(self) -> None:
        """Release the upstream. May be called in every state. Never raises."""
        stream, self._stream = self._stream, None
        if self._tool_task is not None:
            self._tool_task.cancel()
        if stream is not None:
            with suppress(Exception):
                stream.cancel()
        self._handler.end_run()
        self._notify()

    def emit(self, event: SideEvent) -> None:
        """Deliver an event that is not the model's. Thread-safe. After the run's end, the event is dropped."""
        self._side_events.append(event)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop may be closed
                self._loop.call_soon_threadsafe(self._emit_during_tools)

    # --- events of a turn --------------------------------------------------------------------------------------

    def _on_model_events(self, events: ModelRead) -> None:
        """Process the result of one read; None: the turn stopped without an end. The receiver of a `ModelStream`."""
        stream, run = self._stream, self._machine
        if stream is None or run is None:
            return
        try:
            if type(events) is list and len(events) == 1 and type(event := events[0]) is PartDeltaEvent:
                # Nearly every read is one delta. Only stages that want deltas process it.
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
                # A stream is read in the context of the connection; its events are processed in the caller's context.
                self._context.run(self._process, out)
        except BaseException as error:  # also SystemExit, which the transport must not handle
            self._fail_delivery(error)
        if self._stream is None:
            self._notify()

    def _advance(self, stream: ModelStream, run: Run, events: ModelRead) -> list[Event]:
        """Feed the state machine with one read; return the events to deliver."""
        if events is None:
            # A turn without an end is an error of the model's implementation.
            self._stream = None
            return run.end(ErrorInfo("model_error", "the model's turn stopped without an end"))
        if isinstance(events, Exception):
            raise events
        out, effects = run.feed(events)
        if effects or run.run_end is not None:
            # The turn has ended: its resources (a connection, a place in a queue) are released now.
            self._stream = None
            stream.cancel()
            self._effects = effects
        return out

    def _process(self, events: list[Event], first: int = 0, *, time_ms: int = 0, flush: bool = False) -> None:
        """Pass events through the stages, and to the receiver.

        Args:
            events: If there are none, nothing happens, unless `flush` is set.
            first: Index of the first stage that processes the events.
            time_ms: Time of the events in milliseconds since 1970; 0: now.
            flush: Whether stages get a batch without events, with which they release events that they held back.
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
        """Disable a stage that raised an exception, and all stages before it."""
        self._disabled_stage_count = self._active_stages.index(stage) + 1
        self._active_stages = (*[Stage()] * self._disabled_stage_count, *self._stages[self._disabled_stage_count :])

    def _pusher(self, first: int) -> BatchReceiver:
        def push(batch: Batch) -> None:
            if first <= self._disabled_stage_count or self.ended is not None:
                return
            try:
                self._process(batch.events, first, time_ms=batch.time_ms)
            except BaseException as error:
                self._fail_delivery(error)
            self._notify()

        return push

    # --- TextReceiver: the text path ---------------------------------------------------------------------------

    def open_text(self, last_delta: PartDeltaEvent, close: Callable[[], None]) -> TextWriter | None:
        """Open the text path to the receiver; None if the receiver or a stage needs events."""
        sink = self._text_sink
        if sink is None or self._failure is not None or self._side_events:
            return None
        if any(stage.wants_deltas and not stage.takes_texts for stage in self._active_stages):
            return None
        writer = sink.open_text(last_delta)
        self._text_template = last_delta if writer is not None else None
        self._close_text_path = close
        return writer

    @property
    def pending_events(self) -> Sized:
        """Emitted events that are not delivered yet. If there are any, the text path must be closed."""
        return self._side_events

    def add_texts(self, texts: list[tuple[str, int]]) -> None:
        """Add texts that were delivered on the text path to the run, and pass them to the stages."""
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
        """Keep an exception that the text writer raised."""
        self._fail_delivery(error)

    def _end_texts(self) -> None:
        """Close the text path, because the next event is not a delta of the same text."""
        self._close_text_path()
        self._text_template = None

    def _fail_delivery(self, error: BaseException) -> None:
        """Keep an exception of the receiver or of a stage, which `deliver` raises.

        The receiver still gets batches that are in progress: the events that close the run must fit those it received.
        """
        self._failure = self._failure or error
        if self._stream is not None:
            self._stream.pause()
        self._notify()

    # --- steps between turns -----------------------------------------------------------------------------------

    async def _step(self) -> None:
        """Start the current stream, wait for a change of its state, or execute one effect."""
        self._raise_failure()
        stream = self._stream
        if stream is not None:
            if not self._has_started:
                self._has_started = True
                if self._is_paused:
                    stream.pause()
                # A stream is read in the context of the connection; its events are processed in the caller's context.
                self._context = copy_context()
                stream.start(self._on_model_events, self)
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
        """Wait until `_notify` is called."""
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
                    stream = await self._call_model(effect.call)
                    if self.run.run_end is not None:
                        stream.cancel()  # the run was stopped meanwhile
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
        """Return the error that readers of the run see, for an exception between two turns."""
        self.exception = error
        is_ours = not isinstance(error, PellucidError) or isinstance(error, IllegalEvent)
        if self._log_faults and is_ours:
            log.error("a fault between two turns: %s", error_location(error))
        info = FAULT if is_ours or not isinstance(error, PellucidError) else error.info
        if self._log_faults and not isinstance(effect, CallModel):
            # The text that a function or a check quotes is for its author, and not for readers of a served run.
            info = replace(info, upstream_message=None)
        return info

    async def _call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes | None:
        """Call the functions and wait for their outcomes; None if the wait ended for another reason.

        `read` stops waiting when a function emits an event. If the wait is cancelled, the functions are cancelled, and
        this method waits until they have stopped.
        """
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
            tool_task.exception()  # mark as retrieved: there may be no waiter any more
        self._notify()

    def _emit_during_tools(self) -> None:
        if self._text_template is not None:
            self._end_texts()  # the next batch must carry the event
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
        """End the run as failed, without the remaining events of the turn."""
        self.close()
        return self.run.end(error)


def _ignore(batch: Batch) -> None:
    """Ignore a batch."""
