"""One run of an agent, while it runs.

It owns a `LiveRun`: the machine decides what comes next, this says what happens then. Before the model is asked,
processors see the messages and limits are looked at; functions are called; an answer is read as the type that was asked
for, or goes back to the model with what is wrong.

Whatever ends a run, its messages can be sent again: what was cut off is marked, and calls that were not answered are.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
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
from .results import AgentRunResult, RunUsage, UnexpectedModelBehavior, UsageLimits, run_usage

Out = TypeVar("Out")

_OUTPUT_NAME = "the answer"
"""Under which name failed attempts at the output count."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What an agent is to do in one run, all layers of settings laid over each other."""

    model: ChatModel
    call: ModelCall
    """What is asked first; its messages begin with the history."""
    history: list[ModelMessage]
    instructions: str | None
    output: Output
    toolset: Toolset
    context: RunContext[Any]
    limits: UsageLimits
    output_retries: int
    validators: Sequence[Callable[..., Any]] = ()
    processors: Sequence[Callable[..., Any]] = ()
    id_seed: bytes = b""
    warnings: list[str] = field(default_factory=list)
    external_tools: frozenset[str] = frozenset()
    """The functions that are called by whoever asked."""
    pending_calls: tuple[ToolCallPart, ...] = ()
    """Calls that the run before left, and of which `results` say whether they may be made."""
    deferred_results: DeferredToolResults = field(default_factory=DeferredToolResults)
    stages: tuple[Stage, ...] = ()
    is_served: bool = False
    """Whether nobody raises what ended the run, so that it has to be logged."""


class AgentRun(Generic[Out]):
    """Read it batch by batch, serve it as any other run, or use it as an async context manager that leaves nothing
    running."""

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
        """What to raise once all that came was read."""
        self.tool_names: Container[str] = _AllExcept(plan.external_tools)
        """Every call is answered here, but for those that whoever asked answers: what is no function is told to the
        model."""
        self._deferred_calls: list[ToolCallPart] = []
        """Calls that wait for somebody, and why."""
        self._deferrals = Deferrals()
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
        """What came next; None when the run is over. Raises what ended the run, if it did not end well."""
        try:
            if not self._is_open:
                await self.open()
            batch = await self._run.read()
            if batch is None and self._failure is not None:
                raise self._failure
            return None if batch is None else batch.events
        except PellucidError as error:
            # The first turn could not be asked for; later ones end the run by themselves.
            if self._failure is error:
                raise
            self._failure = error
            return self._run.fail(error.info)
        except BaseException:
            self.cancel()
            raise

    async def finish(self) -> AgentRunResult[Out]:
        """Read to the end."""
        while await self.read() is not None:
            pass
        return self.result

    def cancel(self) -> None:
        """Stop now. The messages stay, and can be sent again."""
        try:
            self._run.cancel()
        finally:
            self._run.close()

    async def __aenter__(self) -> AgentRun[Out]:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.is_over:
            self.cancel()

    # --- being served (see `runs.RunSource`): what goes wrong is an event, and is not raised -----------------------

    async def open(self) -> None:
        self._is_open = True
        await self._run.open()

    @property
    def origin(self) -> Origin:
        """The model's."""
        return self._run.origin

    @property
    def queued(self) -> bool:
        return self._run.queued

    @property
    def is_interrupted(self) -> bool:
        return self._run.is_interrupted

    @property
    def ended(self) -> RunEndEvent | None:
        return self._run.ended

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        await self._run.deliver(receive, texts)

    def pause(self) -> None:
        self._run.pause()

    def resume(self) -> None:
        self._run.resume()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        await self._run.stop(error)

    # --- what there is -------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._run.run.run_end is not None

    @property
    def result(self) -> AgentRunResult[Out]:
        """The result, once the run is over. Raises `RuntimeError` before."""
        if self._result is None:
            raise RuntimeError("this run is not over, or did not end well: there is no result")
        return self._result

    def all_messages(self) -> list[ModelMessage]:
        """The conversation as far as it has come; a turn under way is in it when it is over."""
        return [*self._plan.call.messages, *self._run.run.messages]

    def new_messages(self) -> list[ModelMessage]:
        return self.all_messages()[len(self._plan.history) :]

    @property
    def last_response(self) -> ModelResponse | None:
        """The model's last turn, if there was one."""
        turns = (message for message in reversed(self._run.run.messages) if isinstance(message, ModelResponse))
        return next(turns, None)

    @property
    def usage(self) -> RunUsage:
        return run_usage(self._run.run.usage, self._requests, self._tool_calls)

    @property
    def warnings(self) -> list[str]:
        return list(self._plan.warnings)

    @property
    def allows_text(self) -> bool:
        return self._plan.output.allows_text

    @property
    def ctx(self) -> RunContext[Any]:
        """What functions and handlers are told of this run."""
        return replace(
            self._plan.context,
            usage=self.usage,
            messages=self.all_messages(),
            run_step=self._requests,
            on_side_event=self._run.emit,
        )

    # --- what happens between two turns (see `runs.TurnHandler`) --------------------------------------------------

    async def begin_run(self, call: ModelCall) -> ModelCall:
        return call

    def end_run(self) -> None:
        pass

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        """The call with what processors made of its messages, and the instructions first."""
        self._plan.limits.check_request(self.usage)
        self._requests += 1
        is_resumed = self._plan.pending_calls or self._plan.deferred_results.calls
        messages = join_messages(call.messages) if is_resumed else list(call.messages)
        for processor in self._plan.processors:
            messages = await _call_function(processor, self.ctx, messages)
        return msgspec.structs.replace(call, messages=_with_instructions(messages, self._plan.instructions))

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        """Call the functions, unless one of the calls is the answer."""
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
        """Whether an answer without calls is what was asked for."""
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
        """What to say to a call that is the answer, or would be."""
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
        """The run's value, if its validators let it pass. Raises `ModelRetry` if not."""
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
        """The batch, with a word where the answer begins."""
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
        """Make the result, or keep what went wrong for who reads on."""
        if end.status == "failed":
            error = ModelError(end.error or ErrorInfo("server_error", "the run failed"))
            self._failure = self._failure or self._run.exception or error
        elif end.status == "incomplete":
            self._handle_incomplete(end)
        if not self._output and end.status == "completed":
            self._output = [self._deferred_requests()]
        if not self._output:
            return
        [output] = self._output
        self._result = AgentRunResult(output, self.usage, self.warnings, self.all_messages(), len(self._plan.history))

    def _deferred_requests(self) -> DeferredToolRequests:
        """What a run gives that ended with calls for somebody else."""
        last, deferrals = self.last_response, self._deferrals.by_call_id
        external_calls = (
            [] if last is None else [call for call in last.tool_calls if call.tool_name in self._plan.external_tools]
        )
        approvals = [
            call for call in self._deferred_calls if isinstance(deferrals[call.tool_call_id], ApprovalRequired)
        ]
        metadata = {id: deferral.metadata for id, deferral in deferrals.items() if deferral.metadata is not None}
        return DeferredToolRequests(
            [*external_calls, *(call for call in self._deferred_calls if call not in approvals)], approvals, metadata
        )

    def _handle_incomplete(self, end: RunEndEvent) -> None:
        """Text that was cut off is what there is; of anything else a piece is nothing."""
        last = self._run.run.messages[-1] if self._run.run.messages else None
        text = last.text if isinstance(last, ModelResponse) else None
        warning = f"the model's answer was cut off ({end.incomplete_reason})"
        if not (text and self._plan.output.allows_text):
            self._failure = UnexpectedModelBehavior(
                f"{warning} before it was whole; it may need more max_tokens", "incomplete"
            )
            return
        self._plan.warnings.append(warning)
        warn(warning)
        self._output = [text]


class StreamedRunResult(Generic[Out]):
    """A run whose answer has begun; read it as it comes, or wait for all of it.

    If the model goes on to call functions after it began to answer, the run goes on too, and so does the text.
    """

    def __init__(self, run: AgentRun[Out], unread: list[Event]) -> None:
        self._run = run
        self._unread = unread
        """What came and was not read yet."""
        self._text = ""

    async def stream_text(self, *, delta: bool = False) -> AsyncIterator[str]:
        """The answer's text as it comes: with `delta` each new piece, else everything so far in its turn."""
        async for event in self.stream_events():
            if isinstance(event, ResponseStartEvent):
                self._text = ""
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
                self._text += text
                if text:
                    yield text if delta else self._text

    async def stream_events(self) -> AsyncIterator[Event]:
        """Everything that is still to come, in order."""
        while True:
            while self._unread:
                yield self._unread.pop(0)
            batch = await self._run.read()
            if batch is None:
                return
            self._unread = list(batch)

    async def stream_output(self) -> AsyncIterator[Out]:
        """The output so far: text grows; a value of another type comes once, when it is whole."""
        if self._run.allows_text:
            async for text in self.stream_text():
                yield text  # type: ignore[misc]
        else:
            yield await self.get_output()

    async def get_output(self) -> Out:
        """All of it. Raises what the run raises."""
        async for _ in self.stream_events():
            pass
        return self._run.result.output

    @property
    def is_complete(self) -> bool:
        return self._run.is_over

    @property
    def result(self) -> AgentRunResult[Out]:
        """The result, once the run is over."""
        return self._run.result

    def all_messages(self) -> list[ModelMessage]:
        return self._run.all_messages()

    def new_messages(self) -> list[ModelMessage]:
        return self._run.new_messages()

    @property
    def usage(self) -> RunUsage:
        return self._run.usage

    @property
    def warnings(self) -> list[str]:
        return self._run.warnings


def warn(message: str) -> None:
    """Warn whoever started the run: the first caller that is neither this package nor what it is called through."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


_INTERNAL_PACKAGES = ("pellucid", "asyncio", "contextlib")


class _ResultStage(Stage):
    """Marks where the answer begins, and makes the run's result at its end."""

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


def _skipped_result(call: ToolCallPart) -> ToolReturnPart:
    return ToolReturnPart(call.tool_name, "Not called: the answer had been given.", call.tool_call_id)


def _with_instructions(messages: list[ModelMessage], instructions: str | None) -> list[ModelMessage]:
    """Instructions hold for this run, not for earlier ones, and stand first: many models take them nowhere else."""
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
    """`function(value)`, or `function(context, value)` if it wants to know."""
    result: Any | Awaitable[Any] = function(context, value) if takes_context(function) else function(value)
    return await result if isawaitable(result) else result
