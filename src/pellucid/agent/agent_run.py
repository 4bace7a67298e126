"""One run of an agent, while it goes on.

An `AgentRun` owns a `LiveRun`. The state machine decides what comes next; this module does it. Before a request to the
model, history processors get the messages and the limits are checked. Functions are called. An answer is converted to
the output type, or returned to the model with the error.

However a run ends, its messages can be sent again: cut-off parts are marked, and every call has a result. An error of
this package that ends a run has them (`PellucidError.messages`); for all others there is `capture_run_messages`.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from ..background_tasks import start_task
from ..conversation import has_split_results, join_messages
from ..errors import ErrorInfo, ModelError, PellucidError, RequestError
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
    ToolCallPartDelta,
    ToolReturnPart,
    Usage,
    messages_to_json,
)
from ..run import Minter, RunState
from ..runs import Batch, BatchReceiver, LiveRun, Stage, TextSink, ToolOutcomes, TurnHandler
from ..settings import ModelCall, ModelSettings, merge_settings, validate_settings
from ..tools import (
    AbstractToolset,
    AnyTool,
    ApprovalRequired,
    Deferrals,
    DeferredToolRequests,
    DeferredToolResults,
    ExecutionOptions,
    FailureCounter,
    ModelRetry,
    RunContext,
    RunUsage,
    ToolApproved,
    ToolDenied,
    call_tools,
    deferred_event,
)
from ..tools.execution import Result, decoded_arguments
from ..tools.function_tool import call_function
from ..tools.toolsets import instruction_text
from .output import Output, OutputSchema
from .partial_json import PartialJSON
from .results import AgentRunResult, UnexpectedModelBehavior, UsageLimits
from .run_input import unanswered_calls

Out = TypeVar("Out")

EndStrategy = Literal["early", "graceful", "exhaustive"]
"""What becomes of the other calls of a turn that has an output.

* `early`: outputs come first, and after one that is valid nothing else is called.
* `graceful`: functions are called, also those that follow the output. Of several outputs, the first valid one counts,
  and the others are not called.
* `exhaustive`: everything is called.

If a function of the turn wants to be called again (`ModelRetry`, or arguments that do not fit), `graceful` and
`exhaustive` withdraw the output, and the run continues.
"""

AnySettings: TypeAlias = ModelSettings | Callable[[RunContext[Any]], ModelSettings | Awaitable[ModelSettings]]
"""Settings, or a function that returns them before each request to the model."""

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
    settings_layers: Sequence[AnySettings | None]
    """The layers of settings, if one of them is a function; otherwise none. Its settings are not in `call`."""
    history: list[ModelMessage]
    instructions: Sequence[str | Callable[..., Any]]
    output: Output
    toolset: AbstractToolset
    options: ExecutionOptions
    end_strategy: EndStrategy
    context: RunContext[Any]
    limits: UsageLimits
    output_retries: int
    validators: Sequence[Callable[..., Any]]
    processors: Sequence[Callable[..., Any]]
    id_seed: bytes
    warnings: list[str]
    pending_calls: tuple[ToolCallPart, ...]
    """Calls that the previous run deferred and that `deferred_results` approve or deny."""
    deferred_results: DeferredToolResults
    stages: tuple[Stage, ...] = ()
    is_served: bool = False
    """Whether a server reads the run, so that an error is not raised and must be logged."""
    max_tool_calls: int | None = None


class AgentRun(TurnHandler, Generic[Out]):
    """One run of an agent.

    Read it batch by batch, serve it as any other run, or use it as an async context manager, which leaves nothing
    running. Each request to the model has the tools that the toolsets list at that time.
    """

    checks_output = True

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._failures = FailureCounter(UnexpectedModelBehavior)
        self._requests = 0
        self._counted_usage = Usage()
        """The tokens of this run that are in `plan.context.usage`, which other runs may share."""
        self._tools: Mapping[str, AnyTool] = {}
        """The tools of the present step."""
        self._entered_toolset: AbstractToolset | None = None
        self._output: list[Any] = []
        """The run's value, once there is one."""
        self._output_call_id: str | None = None
        """The id of the call that has the value; None if it is text."""
        self._is_open = False
        self._has_final_result = False
        self._final_part: TextPart | ToolCallPart | None = None
        """The part with which the final answer of the present turn began, as it began."""
        self._result: AgentRunResult[Out] | None = None
        self._failure: Exception | None = None
        """The exception to raise after all events were read."""
        self.tool_names = _AnsweredNames(self)
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
            max_tool_calls=plan.max_tool_calls,
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

    # --- as a `runs.DrivenRun`: errors are events, and are not raised -----------------------------------------------

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

    async def abort(self, error: ErrorInfo) -> None:
        """End the run as failed, from another task (see `runs.DrivenRun`)."""
        await self._run.abort(error)

    @property
    def state(self) -> RunState:
        """What the run does now."""
        return self._run.state

    @property
    def characters(self) -> int:
        """The size of the model's output so far, reasoning included."""
        return self._run.characters

    # --- state and result ----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._run.run.run_end is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled before its end."""
        end = self._run.run.run_end
        return end is not None and end.status == "cancelled"

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
        """The tokens, requests and calls so far: of the run, and of those with which it shares its `usage`."""
        usage, current = self._plan.context.usage, self._run.run.usage
        usage.replace_turns(self._counted_usage, current)
        self._counted_usage = current
        return usage

    @property
    def warnings(self) -> list[str]:
        """Settings that the model does not support, and other warnings, as plain sentences."""
        return list(self._plan.warnings)

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
        """Return the call unchanged. A served run enters its toolsets; others are entered by `Agent.iter`."""
        if self._plan.is_served:
            self._entered_toolset = await self._plan.toolset.__aenter__()
        if self._plan.pending_calls:
            self._tools = await self._list_tools()
        return call

    def end_run(self) -> None:
        """Leave the toolsets of a served run."""
        toolset, self._entered_toolset = self._entered_toolset, None
        if toolset is not None:
            start_task(toolset.__aexit__(None, None, None), "a toolset of an agent could not be closed")

    async def prepare_call(self, call: ModelCall) -> ModelCall:
        """Return the call with the tools of this step, processed messages, and the instructions first."""
        plan = self._plan
        plan.limits.check_request(self.usage)
        self._requests += 1
        plan.context.usage.requests += 1
        context = self.ctx
        self._tools = await self._list_tools()
        definitions = [tool.definition for tool in self._tools.values()]
        texts = (
            await instruction_text(plan.instructions, context),
            await plan.toolset.get_instructions(context),
            plan.output.instructions,
        )
        instructions = "\n\n".join(text for text in texts if text) or None
        messages = join_messages(call.messages) if has_split_results(call.messages) else list(call.messages)
        for processor in plan.processors:
            messages = await call_function(processor, context, messages)
        return msgspec.structs.replace(
            call,
            settings=await self._settings(call, context),
            messages=_with_instructions(messages, instructions),
            tools=(*definitions, *plan.output.definitions),
        )

    async def _settings(self, call: ModelCall, context: RunContext[Any]) -> ModelSettings:
        """Return the settings of one request, with those that functions return."""
        if not self._plan.settings_layers:
            return call.settings
        settings = ModelSettings()
        for layer in self._plan.settings_layers:
            if callable(layer):
                layer = await call_function(layer, replace(context, model_settings=self._with_own(settings)))
            settings = merge_settings(settings, layer)
        for warning in self._plan.model.warnings(msgspec.structs.replace(call, settings=validate_settings(settings))):
            if warning not in self._plan.warnings:
                self._plan.warnings.append(warning)
                warn(warning)
        return settings

    def _with_own(self, settings: ModelSettings) -> ModelSettings:
        """Return settings over those that the model has itself."""
        return merge_settings(getattr(self._plan.model, "settings", None), settings)

    async def _list_tools(self) -> Mapping[str, AnyTool]:
        tools = await self._plan.toolset.get_tools(self.ctx)
        for name in self._plan.output.tools:
            if name in tools:
                raise RequestError(f"the tool {name!r} has the name of the output: give one another name")
        return tools

    def is_external(self, name: str) -> bool:
        """Whether the caller of the run calls the tool with this name."""
        tool = self._tools.get(name)
        return tool is not None and tool.definition.kind == "external"

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        """Answer the calls of one turn: functions and outputs, as the end strategy says."""
        plan = self._plan
        self._check_tokens()
        strategy = plan.end_strategy
        outputs = [call for call in calls if call.tool_name in plan.output.tools]
        functions = [call for call in calls if call.tool_name not in plan.output.tools]
        self._deferrals = Deferrals([call.tool_call_id for call in plan.pending_calls])
        results: dict[str, Result] = {}
        if strategy == "early":
            if not outputs and functions:
                await self._accept_early_text()
            for call in outputs:
                await self._add_output_result(call, results)
            if not self._output:
                results |= await self._call_functions(functions)
        else:
            # Functions complete before the output that follows them in the turn.
            batch: list[ToolCallPart] = []
            for call in calls:
                if call.tool_name not in plan.output.tools:
                    batch.append(call)
                    continue
                if strategy == "graceful":
                    results |= await self._call_functions(batch)
                    batch = []
                await self._add_output_result(call, results)
            results |= await self._call_functions(batch)
            self._withdraw_output_for_retries(outputs, functions, results)
        deferred = self._deferrals.by_call_id
        if self._output:
            ordered = [results.get(call.tool_call_id) or _skipped_result(call) for call in calls]
            return ToolOutcomes(ordered, has_output=True)
        self._deferred_calls = [call for call in calls if call.tool_call_id in deferred]
        for call in self._deferred_calls:
            self._run.emit(deferred_event(call, deferred[call.tool_call_id]))
        ordered = [results[call.tool_call_id] for call in calls if call.tool_call_id in results]
        return ToolOutcomes(ordered, client_call_ids=frozenset(deferred))

    def _check_tokens(self) -> None:
        """Check the limits of tokens after a turn. Raises `UsageLimitExceeded`."""
        last = self.last_response
        self._plan.limits.check_tokens(self.usage, None if last is None else last.usage)

    async def _add_output_result(self, call: ToolCallPart, results: dict[str, Result]) -> None:
        """Answer the call of an output tool. After the first output, only the strategy `exhaustive` calls others."""
        if not self._output:
            results[call.tool_call_id] = await self._output_result(call)
        elif self._plan.end_strategy == "exhaustive":
            accepted = self._output, self._output_call_id
            with suppress(UnexpectedModelBehavior):
                await self._output_result(call)
            self._output, self._output_call_id = accepted
            results[call.tool_call_id] = ToolReturnPart(
                call.tool_name, "Not the answer: another call of this turn was.", call.tool_call_id
            )

    async def _accept_early_text(self) -> None:
        """Accept the text of a turn that also calls functions, if it has the form that was requested."""
        last = self.last_response
        if self._plan.output.text_schema is not None and last is not None and last.text:
            with suppress(ModelRetry):
                await self._accept_text(last.text)

    def _withdraw_output_for_retries(
        self, outputs: list[ToolCallPart], functions: list[ToolCallPart], results: dict[str, Result]
    ) -> None:
        """Withdraw the output of a turn in which a function wants to be called again: it may rest on that call."""
        retried = [
            call
            for call in functions
            if call.tool_name in self._tools and isinstance(results.get(call.tool_call_id), RetryPromptPart)
        ]
        if not (self._output and retried):
            return
        self._output, self._output_call_id = [], None
        for call in outputs:
            if isinstance(results.get(call.tool_call_id), ToolReturnPart) or call.tool_call_id not in results:
                reason = f"Not taken as the answer: {retried[0].tool_name} must be called again first."
                results[call.tool_call_id] = ToolReturnPart(call.tool_name, reason, call.tool_call_id)

    async def _call_functions(self, calls: list[ToolCallPart]) -> dict[str, Result]:
        """Call functions together; return the results by call id. Deferred calls have none."""
        plan = self._plan
        results: dict[str, Result] = {}
        functions: list[ToolCallPart] = []
        for call in calls:
            decision = plan.deferred_results.approval(call.tool_call_id) if plan.pending_calls else None
            if isinstance(decision, ToolDenied):
                denial = ToolReturnPart(call.tool_name, decision.message, call.tool_call_id, "denied")
                results[call.tool_call_id] = denial
            elif isinstance(decision, ToolApproved) and decision.override_args is not None:
                functions.append(msgspec.structs.replace(call, args=decision.override_args))
            else:
                functions.append(call)
        if functions:
            plan.limits.check_calls(self.usage, len(functions))
            plan.context.usage.tool_calls += len(functions)
            options = replace(plan.options, observer=self._record_result)
            for result in await call_tools(self._tools, options, functions, self.ctx, self._failures, self._deferrals):
                results[result.tool_call_id] = result
        return results

    @contextmanager
    def _record_result(self, _: ToolCallPart) -> Iterator[Callable[[Result], None]]:
        """Store the result of a call at once: if another function of the turn raises, the run ends with it."""
        yield self._run.run.record_result

    async def check_output(self, response: ModelResponse) -> RetryPromptPart | None:
        """Check that an answer without calls is a valid output. Return the message to the model if it is not."""
        self._check_tokens()
        refusal = next((part.content for part in response.parts if isinstance(part, RefusalPart)), None)
        if refusal is not None:
            raise UnexpectedModelBehavior("the model refused", "refusal", refusal)
        try:
            text = response.text or ""
            if text.strip():
                await self._accept_text(text)
            elif self._plan.output.allows_none:
                await self._accept_output(None)
            else:
                raise ModelRetry("There was no answer. Give one, or call a tool.")
        except ModelRetry as error:
            self._count_output_failure(error, None)
            return RetryPromptPart(str(error))
        return None

    async def _output_result(self, call: ToolCallPart) -> Result:
        """Return the result of a call of an output tool."""
        schema = self._plan.output.tools[call.tool_name]
        try:
            try:
                candidate = schema.validate(decoded_arguments(call))
            except ValueError as error:
                raise ModelRetry(f"The arguments do not fit: {error}\n\nFix the errors and try again.") from error
            context = self._output_context(schema, call)
            await self._accept_output(await candidate.finish(context), context)
            self._output_call_id = call.tool_call_id
        except ModelRetry as error:
            self._count_output_failure(error, schema)
            return RetryPromptPart(str(error), call.tool_name, call.tool_call_id)
        return ToolReturnPart(call.tool_name, "This was taken as the answer.", call.tool_call_id)

    def _count_output_failure(self, error: ModelRetry, schema: OutputSchema | None) -> None:
        limit = self._output_context(schema).max_retries
        self._failures.record_failure(_OUTPUT_NAME, limit, _OUTPUT_NAME, str(error), error)

    def _output_context(
        self, schema: OutputSchema | None = None, call: ToolCallPart | None = None, *, is_partial: bool = False
    ) -> RunContext[Any]:
        """Return the context of output functions and validators."""
        limit = schema.max_retries if schema is not None else None
        return replace(
            self.ctx,
            tool_name=None if call is None else call.tool_name,
            tool_call_id=None if call is None else call.tool_call_id,
            retry=self._failures.count(_OUTPUT_NAME),
            max_retries=self._plan.output_retries if limit is None else limit,
            partial_output=is_partial,
        )

    async def _accept_text(self, text: str) -> None:
        context = self._output_context()
        await self._accept_output(await self._plan.output.finish_text(text, context), context)

    async def _accept_output(self, value: Any, context: RunContext[Any] | None = None) -> None:
        """Validate a value and store it as the output of the run. Raises `ModelRetry` if a validator refuses it."""
        self._output = [await self._validated(value, context or self._output_context())]

    async def _validated(self, value: Any, context: RunContext[Any]) -> Any:
        for validator in self._plan.validators:
            value = await call_function(validator, context, value)
        return value

    async def _partial_output(self, text: str, schema: OutputSchema | None, values: Sequence[Any]) -> Any:
        """Return the output of an answer that is still being streamed.

        Args:
            text: The text of the answer so far, for an output that is text.
            schema: The schema of an output that is JSON.
            values: Its values so far, the one with the most first: the first that fits is used.

        Raises:
            ModelRetry: There is none yet.
        """
        context = self._output_context(schema, is_partial=True)
        if schema is None:
            return await self._validated(await self._plan.output.finish_text(text, context), context)
        for value in values:
            with suppress(ValueError):
                return await self._validated(await schema.validate(value).finish(context), context)
        raise ModelRetry("not yet")

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
                self._has_final_result, self._final_part = False, None
            elif isinstance(event, PartStartEvent) and not self._has_final_result:
                part = event.part
                if isinstance(part, TextPart) and self._plan.output.accepts_text:
                    out.append(FinalResultEvent())
                elif isinstance(part, ToolCallPart) and part.tool_name in self._plan.output.tools:
                    out.append(FinalResultEvent(part.tool_name, part.tool_call_id))
                else:
                    continue
                self._has_final_result, self._final_part = True, part
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
        self._result = AgentRunResult(
            output, self.usage, self.warnings, self.all_messages(), len(self._plan.history), self._output_call_id
        )

    def _deferred_requests(self) -> DeferredToolRequests:
        """Return the output of a run that ended with calls which it could not answer."""
        last, deferrals = self.last_response, self._deferrals.by_call_id
        last_calls = last.tool_calls if last is not None else []
        external_calls = [call for call in last_calls if self.is_external(call.tool_name)]
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


class AnswerStream(Generic[Out]):
    """The final answer of a run, as a stream. Subclasses say which events are still to come."""

    def __init__(self, run: AgentRun[Out]) -> None:
        self._run = run
        self._text = ""

    def stream_events(self) -> AsyncIterator[Event]:
        """Yield every event that is still to come, in order."""
        raise NotImplementedError

    async def stream_text(self, *, delta: bool = False, debounce_by: float | None = None) -> AsyncIterator[str]:
        """Yield the text of the answer as it comes.

        Args:
            delta: Whether to yield each new piece, instead of all text of the present turn so far.
            debounce_by: Seconds for which pieces are collected. None: each piece is yielded at once.
        """
        pending = ""
        debounce = _Debounce(debounce_by)
        async for event in self.stream_events():
            if isinstance(event, ResponseStartEvent):
                self._text = ""
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
                self._text += text
                pending += text
                if pending and debounce.is_due():
                    yield pending if delta else self._text
                    pending = ""
        if pending:
            yield pending if delta else self._text

    async def stream_output(self, *, debounce_by: float | None = None) -> AsyncIterator[Out]:
        """Yield the output as it grows, and last the complete output.

        A value of a type is yielded as soon as what has come of it fits the type: fields that may be absent are filled
        one after the other, and texts grow. Output functions and validators get each of these values, with
        `ctx.partial_output` true; one that they refuse with `ModelRetry` is left out.

        Args:
            debounce_by: Seconds for which changes are collected. None: each is yielded at once.
        """
        debounce = _Debounce(debounce_by)
        last: list[Out] = []
        growth = _Growth(self._run)
        async for event in self.stream_events():
            if growth.feed(event) and debounce.is_due():
                value = await growth.output()
                if value not in ([], last):
                    last = value
                    yield value[0]
        value = await self._last_output(growth)
        if value not in ([], last):
            yield value[0]

    async def _last_output(self, growth: _Growth) -> list[Any]:
        """Return the output when all events were read, in a list; an empty one if there is none."""
        return await growth.output() if self._run._has_final_result else []

    async def cancel(self) -> None:
        """Stop the model, and end the run. The messages stay, and can be sent again."""
        self._run.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self._run.is_cancelled


class StreamedRunResult(AnswerStream[Out]):
    """A run whose final answer has begun. Read it as a stream, or wait for all of it.

    If the model calls functions after the answer began, the run continues, and so does the text.
    """

    def __init__(self, run: AgentRun[Out], reader: EventReader) -> None:
        super().__init__(run)
        self._reader = reader

    def stream_events(self) -> AsyncIterator[Event]:
        """Yield every event that is still to come, in order."""
        return self._reader.events()

    async def _last_output(self, growth: _Growth) -> list[Any]:
        return [] if self.cancelled else [self._run.result.output]

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

    @property
    def response(self) -> ModelResponse | None:
        """The model's last turn, or None. A turn in progress is there when it ends."""
        return self._run.last_response

    def all_messages(self) -> list[ModelMessage]:
        """Return the conversation so far. A turn in progress is added when it ends."""
        return self._run.all_messages()

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages that this run added to the history."""
        return self._run.new_messages()

    def all_messages_json(self) -> bytes:
        """Return the conversation so far as JSON, which `pellucid.messages_from_json` reads."""
        return messages_to_json(self.all_messages())

    def new_messages_json(self) -> bytes:
        """Return the messages of this run so far as JSON, which `pellucid.messages_from_json` reads."""
        return messages_to_json(self.new_messages())

    @property
    def usage(self) -> RunUsage:
        """The tokens, requests and calls of the run so far."""
        return self._run.usage

    @property
    def warnings(self) -> list[str]:
        """Settings that the model does not support, and other warnings, as plain sentences."""
        return self._run.warnings


class _Growth:
    """The final answer of a run while it is streamed."""

    def __init__(self, run: AgentRun[Any]) -> None:
        self._run = run
        self._text = ""
        self._json = PartialJSON()
        self._schema: OutputSchema | None = None
        self._index: int | None = None
        """The part that has the answer, if it is a call."""
        self._begin()

    def _begin(self) -> None:
        part, outputs = self._run._final_part, self._run._plan.output
        self._text, self._json, self._index = "", PartialJSON(), None
        self._schema = outputs.text_schema
        if isinstance(part, ToolCallPart):
            self._schema = outputs.tools[part.tool_name]
            self._json.feed(part.args_as_text())

    def feed(self, event: Event) -> bool:
        """Take the next event. Return whether the answer has grown."""
        if isinstance(event, FinalResultEvent):
            self._begin()
        if not isinstance(event, PartDeltaEvent):
            return False
        delta, is_call = event.delta, isinstance(self._run._final_part, ToolCallPart)
        if isinstance(delta, TextPartDelta) and not is_call:
            self._text += delta.content_delta
            if self._schema is not None:
                self._json.feed(delta.content_delta)
            return bool(delta.content_delta)
        if isinstance(delta, ToolCallPartDelta) and is_call and self._index in (None, event.index):
            self._index = event.index
            self._json.feed(delta.args_delta)
            return bool(delta.args_delta)
        return False

    async def output(self) -> list[Any]:
        """Return the output so far, in a list; an empty one if there is none yet."""
        values = []
        if self._schema is not None:
            for with_last in (True, False):
                with suppress(ValueError):
                    values.append(self._json.value(with_last=with_last))
        with suppress(ModelRetry):
            return [await self._run._partial_output(self._text, self._schema, values)]
        return []


class _Debounce:
    """Says when something is due that is to happen at most once in an interval."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._next = 0.0

    def is_due(self) -> bool:
        if self._seconds is None:
            return True
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


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


class _AnsweredNames:
    """The names of the calls that are answered here: all except those of the present step's external tools.

    A call of a name that is no function is answered with an error for the model.
    """

    def __init__(self, run: AgentRun[Any]) -> None:
        self._run = run

    def __contains__(self, name: object) -> bool:
        return not (isinstance(name, str) and self._run.is_external(name))


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
