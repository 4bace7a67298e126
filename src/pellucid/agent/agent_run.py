"""One run of an agent, while it goes on.

An `AgentRun` owns a `LiveRun`. The state machine decides what comes next; this module does it. Before a request to the
model, history processors get the messages and the limits are checked. Functions are called. An answer is converted to
the output type, or returned to the model with the error.

However a run ends, its messages can be sent again: cut-off parts are marked, and every call has a result. An error of
this package that ends a run has them (`PellucidError.messages`); for all others there is `capture_run_messages`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Generic, TypeVar

import msgspec

from ..conversation import join_messages
from ..errors import ErrorInfo, ModelError, PellucidError
from ..events import Event, FinalResultEvent, PartDeltaEvent, PartStartEvent, ResponseStartEvent, RunEndEvent
from ..models import ChatModel
from ..parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    RefusalPart,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from ..run import Minter
from ..runs import Batch, BatchReceiver, LiveRun, Stage, TextSink, ToolOutcomes
from ..settings import ModelCall
from ..tools import (
    ApprovalRequired,
    Deferrals,
    DeferredToolRequests,
    DeferredToolResults,
    FailureCounter,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    Toolset,
    call_tools,
    deferred_event,
)
from ..tools.execution import Result, decoded_arguments
from ..tools.function_tool import takes_context
from .output import Output
from .results import AgentRunResult, RunUsage, UnexpectedModelBehavior, UsageLimits
from .run_input import unanswered_calls

Out = TypeVar("Out")

_OUTPUT_NAME = "the answer"
"""The name under which failed attempts at the output are counted."""


@dataclass
class _Capture:
    """The messages that a `capture_run_messages` block returns."""

    messages: list[ModelMessage] = field(default_factory=list)
    is_used: bool = False
    """Whether a run has begun in the block."""


_capture: ContextVar[_Capture | None] = ContextVar("capture_run_messages", default=None)


@contextmanager
def capture_run_messages() -> Iterator[list[ModelMessage]]:
    """Return a list that gets the messages of the first run in this block when the run ends, also by an exception.

        with capture_run_messages() as messages:
            try:
                result = await agent.run("Why?")
            except TimeoutError:
                result = await other.run(message_history=messages)

    They can be sent again, as those of a result. A run in a block within this block belongs to the inner one.
    """
    capture = _Capture()
    token = _capture.set(capture)
    try:
        yield capture.messages
    finally:
        _capture.reset(token)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The arguments of one run, with all layers of settings merged."""

    model: ChatModel
    call: ModelCall
    """The first call of the model. Its messages begin with the history."""
    history: list[ModelMessage]
    instructions: str | None
    output: Output
    toolset: Toolset
    context: RunContext[Any]
    limits: UsageLimits
    output_retries: int
    validators: Sequence[Callable[..., Any]]
    processors: Sequence[Callable[..., Any]]
    id_seed: bytes
    warnings: list[str]
    external_tools: frozenset[str]
    """The names of the functions that the caller runs."""
    pending_calls: tuple[ToolCallPart, ...]
    """Calls that the previous run deferred and that `deferred_results` approve or deny."""
    deferred_results: DeferredToolResults
    stages: tuple[Stage, ...] = ()
    is_served: bool = False
    """Whether a server reads the run, so that an error is not raised and must be logged."""


class AgentRun(Generic[Out]):
    """One run of an agent.

    Read it batch by batch, serve it as any other run, or use it as an async context manager, which leaves nothing
    running.
    """

    checks_output = True

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._failures = FailureCounter(UnexpectedModelBehavior)
        self._requests = 0
        self._tool_calls = 0
        self._output: list[Any] = []
        """The run's value, once there is one."""
        self._is_open = False
        self._has_final_result = False
        self._result: AgentRunResult[Out] | None = None
        self._failure: Exception | None = None
        """The exception to raise after all events were read."""
        self.tool_names: Container[str] = _AllExcept(plan.external_tools)
        """The names of the calls that are answered here: all except external tools.

        A call of a name that is no function is answered with an error for the model.
        """
        self._deferred_calls: list[ToolCallPart] = []
        """Calls that wait for an approval or a result."""
        self._deferrals = Deferrals()
        self._captured_messages: list[ModelMessage] | None = None
        """The list of `capture_run_messages`, if this is the first run in its block."""
        capture = _capture.get()
        if capture is not None and not capture.is_used:
            capture.is_used = True
            self._captured_messages = capture.messages
        self._run = LiveRun(
            plan.model,
            plan.call,
            Minter(plan.id_seed),
            self,
            stages=(*plan.stages, _ResultStage(self)),
            log_faults=plan.is_served,
            pending=plan.pending_calls,
        )

    # --- reading -------------------------------------------------------------------------------------------------

    async def read(self) -> list[Event] | None:
        """Return the next events, or None after the end of the run.

        Raises:
            Exception: The error that ended the run, if it did not complete.
        """
        try:
            if not self._is_open:
                await self.open()
            batch = await self._run.read()
            if batch is None and self._failure is not None:
                raise self._failure
            return None if batch is None else batch.events
        except PellucidError as error:
            # The request of the first turn failed. Later turns end the run by themselves.
            if self._failure is error:
                raise
            self._failure = error
            return self._run.fail(error.info)
        except BaseException:
            self.cancel()
            raise

    async def finish(self) -> AgentRunResult[Out]:
        """Read to the end and return the result.

        Raises:
            Exception: The error that ended the run, if it did not complete.
        """
        while await self.read() is not None:
            pass
        return self.result

    def cancel(self) -> None:
        """Stop at once. The messages stay, and can be sent again."""
        try:
            self._run.cancel()
        finally:
            self._run.close()

    async def __aenter__(self) -> AgentRun[Out]:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if not self.is_over:
            self.cancel()
        if isinstance(error, PellucidError):  # also one that the reader of the run raised
            error.messages = self.all_messages()

    # --- as a `runs.RunSource`: errors are events, and are not raised -----------------------------------------------

    async def open(self) -> None:
        """Open the first turn of the model.

        Raises:
            PellucidError: The turn could not be requested.
        """
        self._is_open = True
        await self._run.open()

    @property
    def origin(self) -> Origin:
        """The origin of the model's answers."""
        return self._run.origin

    @property
    def queued(self) -> bool:
        """Whether the run began with a wait for a busy model."""
        return self._run.queued

    @property
    def is_interrupted(self) -> bool:
        """Whether only this delivery ended, and not the run (see `runs.RunSource`)."""
        return self._run.is_interrupted

    @property
    def ended(self) -> RunEndEvent | None:
        """The last event of the run, or None before its end."""
        return self._run.ended

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        """Deliver batches until the run ends (see `runs.RunSource`)."""
        await self._run.deliver(receive, texts)

    def pause(self) -> None:
        """Stop reading from the model until `resume` is called."""
        self._run.pause()

    def resume(self) -> None:
        """Read from the model again."""
        self._run.resume()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        """End the run early, with an error if one is passed."""
        await self._run.stop(error)

    # --- state and result ----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._run.run.run_end is not None

    @property
    def result(self) -> AgentRunResult[Out]:
        """The result, once the run has ended. Raises `RuntimeError` before."""
        if self._result is None:
            raise RuntimeError("this run has not ended, or has failed: there is no result")
        return self._result

    def all_messages(self) -> list[ModelMessage]:
        """Return the conversation so far. A turn in progress is added when it ends."""
        messages = [*self._plan.call.messages, *self._run.run.messages]
        end = self._run.run.run_end
        if end is not None and end.status != "completed":
            _answer_calls(messages)
        return messages

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages that this run added to the history."""
        return self.all_messages()[len(self._plan.history) :]

    @property
    def last_response(self) -> ModelResponse | None:
        """The model's last turn, or None."""
        turns = (message for message in reversed(self._run.run.messages) if isinstance(message, ModelResponse))
        return next(turns, None)

    @property
    def usage(self) -> RunUsage:
        """The tokens, requests and calls of the run so far."""
        tokens = msgspec.structs.asdict(self._run.run.usage)
        return RunUsage(**tokens, requests=self._requests, tool_calls=self._tool_calls)

    @property
    def warnings(self) -> list[str]:
        """Settings that the model does not support, and other warnings, as plain sentences."""
        return list(self._plan.warnings)

    @property
    def allows_text(self) -> bool:
        """Whether plain text is an output of this run."""
        return self._plan.output.allows_text

    @property
    def ctx(self) -> RunContext[Any]:
        """The context that functions and handlers get in the present state of the run."""
        return replace(
            self._plan.context,
            usage=self.usage,
            messages=self.all_messages(),
            run_step=self._requests,
            on_side_event=self._run.emit,
        )

    # --- as a `runs.TurnHandler`: between two turns ---------------------------------------------------------------

    async def begin_run(self, call: ModelCall) -> ModelCall:
        """Return the call unchanged."""
        return call

    def end_run(self) -> None:
        """Do nothing: the run holds no resources."""

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        """Return the call with processed messages, and the instructions first."""
        self._plan.limits.check_request(self.usage)
        self._requests += 1
        is_resumed = self._plan.pending_calls or self._plan.deferred_results.calls
        messages = join_messages(call.messages) if is_resumed else list(call.messages)
        for processor in self._plan.processors:
            messages = await _call_function(processor, self.ctx, messages)
        return msgspec.structs.replace(call, messages=_with_instructions(messages, self._plan.instructions))

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        """Call the functions, unless one of the calls is the output."""
        plan = self._plan
        plan.limits.check_tokens(self.usage)
        answers: dict[int, Result] = {}
        for index, call in enumerate(calls):
            if call.tool_name in plan.output.tools and not self._output:
                answers[index] = await self._output_result(call)
        if self._output:
            results = [answers.get(index) or _skipped_result(call) for index, call in enumerate(calls)]
            return ToolOutcomes(results, has_output=True)
        functions = []
        for index, call in enumerate(calls):
            decision = plan.deferred_results.approval(call.tool_call_id) if plan.pending_calls else None
            if isinstance(decision, ToolDenied):
                answers[index] = ToolReturnPart(call.tool_name, decision.message, call.tool_call_id, "denied")
            elif isinstance(decision, ToolApproved) and decision.override_args is not None:
                functions.append(msgspec.structs.replace(call, args=decision.override_args))
            elif index not in answers:
                functions.append(call)
        plan.limits.check_calls(self.usage, len(functions))
        self._tool_calls += len(functions)
        deferrals = self._deferrals = Deferrals([call.tool_call_id for call in plan.pending_calls])
        call_results = await call_tools(plan.toolset, functions, self.ctx, self._failures, deferrals)
        if deferrals.by_call_id:
            self._deferred_calls = [call for call in calls if call.tool_call_id in deferrals.by_call_id]
            for call in self._deferred_calls:
                self._run.emit(deferred_event(call, deferrals.by_call_id[call.tool_call_id]))
        results_by_id = {result.tool_call_id: result for result in (*answers.values(), *call_results)}
        results = [results_by_id[call.tool_call_id] for call in calls if call.tool_call_id in results_by_id]
        return ToolOutcomes(results, client_call_ids=frozenset(deferrals.by_call_id))

    async def check_output(self, response: ModelResponse) -> RetryPromptPart | None:
        """Check that an answer without calls is a valid output. Return the message to the model if it is not."""
        self._plan.limits.check_tokens(self.usage)
        refusal = next((part.content for part in response.parts if isinstance(part, RefusalPart)), None)
        if refusal is not None:
            raise UnexpectedModelBehavior("the model refused", "refusal", refusal)
        try:
            if not (response.text or "").strip():
                raise ModelRetry("There was no answer. Give one, or call a tool.")
            await self._accept_output(self._plan.output.parse_text(response.text or ""))
        except ModelRetry as error:
            self._failures.record_failure(_OUTPUT_NAME, self._plan.output_retries, _OUTPUT_NAME, str(error))
            return RetryPromptPart(str(error))
        return None

    async def _output_result(self, call: ToolCallPart) -> Result:
        """Return the result of a call of an output tool."""
        try:
            try:
                value = self._plan.output.tools[call.tool_name].validate(decoded_arguments(call))
            except ValueError as error:
                raise ModelRetry(f"The arguments do not fit: {error}\n\nFix the errors and try again.") from error
            await self._accept_output(value)
        except ModelRetry as error:
            self._failures.record_failure(_OUTPUT_NAME, self._plan.output_retries, _OUTPUT_NAME, str(error))
            return RetryPromptPart(str(error), call.tool_name, call.tool_call_id)
        return ToolReturnPart(call.tool_name, "This was taken as the answer.", call.tool_call_id)

    async def _accept_output(self, value: Any) -> None:
        """Validate a value and store it as the output of the run. Raises `ModelRetry` if a validator refuses it."""
        for validator in self._plan.validators:
            value = await _call_function(validator, self.ctx, value)
        self._output = [value]

    # --- events --------------------------------------------------------------------------------------------------

    def _process_events(self, events: list[Event]) -> list[Event]:
        events = self._mark_final_result(events)
        if events and isinstance(events[-1], RunEndEvent):
            self._handle_run_end(events[-1])
        return events

    def _mark_final_result(self, batch: list[Event]) -> list[Event]:
        """Return the events with a `FinalResultEvent` where the final answer begins."""
        out: list[Event] = []
        for event in batch:
            out.append(event)
            if isinstance(event, ResponseStartEvent):
                self._has_final_result = False
            elif isinstance(event, PartStartEvent) and not self._has_final_result:
                part = event.part
                if isinstance(part, TextPart) and self._plan.output.accepts_text:
                    out.append(FinalResultEvent())
                elif isinstance(part, ToolCallPart) and part.tool_name in self._plan.output.tools:
                    out.append(FinalResultEvent(part.tool_name, part.tool_call_id))
                else:
                    continue
                self._has_final_result = True
        return out

    def _handle_run_end(self, end: RunEndEvent) -> None:
        """Make the result, or store the error that readers get."""
        if self._captured_messages is not None:
            self._captured_messages[:] = self.all_messages()
        if end.status == "failed":
            error = ModelError(end.error or ErrorInfo("server_error", "the run failed"))
            self._failure = self._failure or self._run.exception or error
        elif end.status == "incomplete":
            self._handle_incomplete(end)
        if isinstance(self._failure, PellucidError):
            self._failure.messages = self.all_messages()
        if not self._output and end.status == "completed":
            self._output = [self._deferred_requests()]
        if not self._output:
            return
        [output] = self._output
        self._result = AgentRunResult(output, self.usage, self.warnings, self.all_messages(), len(self._plan.history))

    def _deferred_requests(self) -> DeferredToolRequests:
        """Return the output of a run that ended with calls which it could not answer."""
        last, deferrals = self.last_response, self._deferrals.by_call_id
        last_calls = last.tool_calls if last is not None else []
        external_calls = [call for call in last_calls if call.tool_name in self._plan.external_tools]
        approvals = [
            call for call in self._deferred_calls if isinstance(deferrals[call.tool_call_id], ApprovalRequired)
        ]
        metadata = {id: deferral.metadata for id, deferral in deferrals.items() if deferral.metadata is not None}
        return DeferredToolRequests(
            [*external_calls, *(call for call in self._deferred_calls if call not in approvals)], approvals, metadata
        )

    def _handle_incomplete(self, end: RunEndEvent) -> None:
        """Handle a cut-off answer: text is returned as it is; an incomplete value of another type is an error."""
        last = self._run.run.messages[-1] if self._run.run.messages else None
        text = last.text if isinstance(last, ModelResponse) else None
        warning = f"the model's answer was cut off ({end.incomplete_reason})"
        if not (text and self._plan.output.allows_text):
            self._failure = UnexpectedModelBehavior(
                f"{warning} before it was complete; it may need a larger max_tokens", "incomplete"
            )
            return
        self._plan.warnings.append(warning)
        warn(warning)
        self._output = [text]


class EventReader:
    """Reads the events of a run one by one."""

    def __init__(self, run: AgentRun[Any]) -> None:
        self._run = run
        self._batch: list[Event] = []
        """The rest of the last batch."""

    async def next(self) -> Event | None:
        """Return the next event, or None after the end of the run. Raises what the run raises."""
        while not self._batch:
            batch = await self._run.read()
            if batch is None:
                return None
            self._batch = list(batch)
        return self._batch.pop(0)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events that are still to come."""
        while (event := await self.next()) is not None:
            yield event

    def peek(self) -> Event | None:
        """Return the next event if it is in the same batch as the last one, else None."""
        return self._batch[0] if self._batch else None


class StreamedRunResult(Generic[Out]):
    """A run whose final answer has begun. Read it as a stream, or wait for all of it.

    If the model calls functions after the answer began, the run continues, and so does the text.
    """

    def __init__(self, run: AgentRun[Out], reader: EventReader) -> None:
        self._run = run
        self._reader = reader
        self._text = ""

    async def stream_text(self, *, delta: bool = False) -> AsyncIterator[str]:
        """Yield the text of the answer as it comes.

        Args:
            delta: Whether to yield each new piece, instead of all text of the present turn so far.
        """
        async for event in self.stream_events():
            if isinstance(event, ResponseStartEvent):
                self._text = ""
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
                self._text += text
                if text:
                    yield text if delta else self._text

    def stream_events(self) -> AsyncIterator[Event]:
        """Yield every event that is still to come, in order."""
        return self._reader.events()

    async def stream_output(self) -> AsyncIterator[Out]:
        """Yield the output so far: text grows; a value of another type comes once, when it is complete."""
        if self._run.allows_text:
            async for text in self.stream_text():
                yield text  # type: ignore[misc]
        else:
            yield await self.get_output()

    async def get_output(self) -> Out:
        """Read to the end and return the output. Raises what the run raises."""
        async for _ in self.stream_events():
            pass
        return self._run.result.output

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended."""
        return self._run.is_over

    @property
    def result(self) -> AgentRunResult[Out]:
        """The result, once the run has ended."""
        return self._run.result

    def all_messages(self) -> list[ModelMessage]:
        """Return the conversation so far. A turn in progress is added when it ends."""
        return self._run.all_messages()

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages that this run added to the history."""
        return self._run.new_messages()

    @property
    def usage(self) -> RunUsage:
        """The tokens, requests and calls of the run so far."""
        return self._run.usage

    @property
    def warnings(self) -> list[str]:
        """Settings that the model does not support, and other warnings, as plain sentences."""
        return self._run.warnings


def warn(message: str) -> None:
    """Warn the caller of the run: the first frame outside this package and the libraries through which it is called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


_INTERNAL_PACKAGES = ("pellucid", "asyncio", "contextlib")


class _ResultStage(Stage):
    """Marks where the final answer begins, and makes the run's result at its end."""

    wants_deltas = False

    def __init__(self, run: AgentRun[Any]) -> None:
        self._run = run

    def process(self, batch: Batch) -> Batch:
        return Batch(batch.time_ms, self._run._process_events(batch.events))


class _AllExcept:
    def __init__(self, excluded: Container[str]) -> None:
        self._excluded = excluded

    def __contains__(self, name: object) -> bool:
        return not isinstance(name, str) or name not in self._excluded


def _answer_calls(messages: list[ModelMessage]) -> None:
    """Add a result for each call of the last turn that has none, because the turn broke off before they were called."""
    calls = [call for call in unanswered_calls(messages).values() if call.complete]
    results: list[Any] = [
        ToolReturnPart(call.tool_name, "Not called: the run ended before.", call.tool_call_id, "failed")
        for call in calls
    ]
    if not results:
        return
    last = messages[-1]
    if isinstance(last, ModelRequest):
        messages[-1] = msgspec.structs.replace(last, parts=[*last.parts, *results])
    else:
        messages.append(ModelRequest(results))


def _skipped_result(call: ToolCallPart) -> ToolReturnPart:
    return ToolReturnPart(call.tool_name, "Not called: the answer had been given.", call.tool_call_id)


def _with_instructions(messages: list[ModelMessage], instructions: str | None) -> list[ModelMessage]:
    """Return the messages with the instructions of this run first, and without those of earlier runs.

    Instructions hold for one run. Many models accept them only in the first place.
    """
    out: list[ModelMessage] = [
        msgspec.structs.replace(message, instructions=None)
        if isinstance(message, ModelRequest) and message.instructions is not None
        else message
        for message in messages
    ]
    if instructions is None:
        return out
    if out and isinstance(out[0], ModelRequest):
        return [msgspec.structs.replace(out[0], instructions=instructions), *out[1:]]
    return [ModelRequest([], instructions=instructions), *out]


async def _call_function(function: Callable[..., Any], context: RunContext[Any], value: Any) -> Any:
    """Call `function(value)`, or `function(context, value)` if it takes a context."""
    result: Any | Awaitable[Any] = function(context, value) if takes_context(function) else function(value)
    return await result if isawaitable(result) else result
