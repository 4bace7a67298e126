"""Use a Pydantic AI agent as a model: one turn of the model is one run of the agent.

    app = create_app(config, more=[PydanticAgent(agent)])

* Thoughts and text are streamed in order, as the agent receives them, from all model requests of the run.
* A function that the agent calls is shown as a tool that the model's provider runs: a call and its return within the
  turn. (A function call would ask the caller to run it.) Tools of the caller are function calls, and end the turn.
* The arguments of an output tool are the text of the answer.
* An error is an event. Before the first event, it is raised. An exception in the agent's code is reported without its
  text.
* `cancel` stops the run at once: it cancels the run's task and what that waits for.

The agent's history is preserved: a response of this model is sent back to the agent as the calls, results and answers
that it consisted of, each with the opaque data of the agent's own model.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UsageLimitExceeded, UserError
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.usage import UsageLimits

from ... import parts as ours
from ...agent.run_input import RunInput, name_conflict
from ...emit import Emitter
from ...errors import ErrorInfo, ErrorKind, ModelError, RequestError
from ...events import ModelEvent, SideEvent
from ...models import ModelEventReceiver, ModelStream, TextReceiver
from ...providers.errors import as_code
from ...run import Minter
from ...runs import Batch, LiveRun, Stage
from ...settings import ModelCall
from ...telemetry import error_location, log
from . import from_pydantic_ai
from . import settings as conversion
from .agui_events import interrupts_of, results_to, side_event_of, side_events_of
from .messages import to_pydantic
from .turn_splitter import TurnSplitter, as_tool_return, is_agent_function

API = "pydantic_ai"
MAX_EVENTS_AHEAD = 256
"""Largest number of events that a run may be ahead of its reader."""


class PydanticAgent:
    """A Pydantic AI agent as a model.

    Args:
        agent: The agent.
        name: Its public name; by default the agent's own.
        deps: Makes the dependencies of each run.
        run: Further arguments of every run (`usage_limits`, `retries`, …).

    Raises:
        ValueError: Neither `name` nor the agent has a name.
    """

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        name: str | None = None,
        *,
        deps: Callable[[ModelCall], Any] | None = None,
        run: dict[str, Any] | None = None,
    ) -> None:
        public_name = name or agent.name
        if not public_name:
            raise ValueError("the agent has no name; give it one: PydanticAgent(agent, 'name')")
        self.name = public_name
        self.origin = ours.Origin("pydantic_ai", API, public_name)
        self._agent = agent
        self._deps = deps
        self._run_options = run or {}

    async def __aenter__(self) -> Self:
        """Enter the agent, so that its connections to MCP servers are kept between runs."""
        await self._agent.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._agent.__aexit__(None, None, None)

    def warnings(self, call: ModelCall) -> list[str]:
        """Return no warnings: which settings the agent's own model supports is not known here."""
        return []

    async def open(self, call: ModelCall) -> ModelStream:
        """Begin a run.

        Raises:
            ModelError: The run failed before its first event.
            RequestError: The call has tools, and the agent has output validators.
        """
        return await self._open(call, None)

    async def start(self, run_input: RunInput) -> LiveRun:
        """Create a run that serves the agent itself (see `pellucid.agui`), with its functions as function calls.

        A `RequestError` is raised when the run is opened, as in `open`.
        """
        mint = Minter(secrets.token_bytes(16))
        return LiveRun(
            run_input.wrap_model(_ServedRun(self, run_input)),
            ModelCall(self.name, run_input.messages, run_input.settings, tuple(run_input.tools)),
            mint,
            stages=(_TurnStage(TurnSplitter(mint)), *run_input.stages),
            log_faults=True,
        )

    @property
    def _has_output_validators(self) -> bool:
        return bool(getattr(self._agent, "_output_validators", None))

    async def _open(self, call: ModelCall, run_input: RunInput | None) -> ModelStream:
        if call.tools and self._has_output_validators:
            # A run with the caller's tools can end with calls of them. Pydantic AI validates every output, so this
            # agent has no such run.
            raise RequestError(
                "tools: an agent with output validators cannot be given tools; send none",
                kind="unsupported",
                param="tools",
            )
        stream = AgentStream(self.origin, frozenset(tool.name for tool in call.tools), is_served=run_input is not None)
        stream.begin(lambda: self._run_agent(call, stream, run_input))
        try:
            await stream.wait_for_first_event()
        except BaseException:
            stream.cancel()
            raise
        if stream.early_error is not None:
            stream.cancel()
            raise ModelError(stream.early_error)
        return stream

    async def _run_agent(self, call: ModelCall, stream: AgentStream, run_input: RunInput | None) -> None:
        instructions, history = _agent_history(call.messages, self.origin)
        options = dict(self._run_options)
        if call.tools:
            options["toolsets"] = [*options.get("toolsets", ()), ExternalToolset(conversion.tools_to(call.tools))]
        if call.tools or (run_input is not None and not self._has_output_validators):
            options["output_type"] = [self._agent.output_type, DeferredToolRequests]
        if run_input is not None and (run_input.results.approvals or run_input.results.calls):
            options["deferred_tool_results"] = results_to(run_input.results)
        if run_input is not None and run_input.deps is not None:
            options["deps"] = run_input.deps
        elif self._deps is not None:
            options["deps"] = self._deps(call)
        if run_input is not None and run_input.max_tool_calls is not None:
            limits = options.get("usage_limits") or UsageLimits()
            if limits.tool_calls_limit is None or limits.tool_calls_limit > run_input.max_tool_calls:
                options["usage_limits"] = dataclasses.replace(limits, tool_calls_limit=run_input.max_tool_calls)
        options["capabilities"] = [*options.get("capabilities", ()), ReinjectSystemPrompt()]
        events = self._agent.run_stream_events(
            message_history=history,
            instructions=instructions,
            model_settings=conversion.settings_to(call.settings),
            **options,
        )
        try:
            async with events as event_stream:
                async for event in event_stream:
                    await stream.forward(event)
        except UserError as error:
            # The names of an agent's tools are known only within a run, because its toolsets may differ in each run.
            for index, tool in enumerate(call.tools):
                if "conflicts" in str(error) and f"{tool.name!r}" in str(error):
                    raise name_conflict(index, tool.name, _RequestRejected) from None
            raise


class _TurnStage(Stage):
    """Shows the agent's own functions as function calls, with a turn for each model request."""

    def __init__(self, splitter: TurnSplitter) -> None:
        self._splitter = splitter

    def process(self, batch: Batch) -> Batch:
        return Batch(batch.time_ms, self._splitter.feed(batch.events))


class _RequestRejected(RequestError):
    """A request that the agent cannot serve. The caller gets the reason."""


class _ServedRun:
    """The agent as the model of one run that serves it."""

    def __init__(self, agent: PydanticAgent, run_input: RunInput) -> None:
        self.name = agent.name
        self.origin = agent.origin
        self.warnings = agent.warnings
        self._agent = agent
        self._run_input = run_input

    async def open(self, call: ModelCall) -> ModelStream:
        return await self._agent._open(call, self._run_input)


class AgentStream:
    """The stream of one turn, which a run of an agent produces.

    Args:
        origin: The origin of the parts.
        client_tools: The names of the caller's tools.
        is_served: Whether the agent is served, so that events of the application are sent as AG-UI events.
    """

    queued = False
    request_id = None

    def __init__(self, origin: ours.Origin, client_tools: frozenset[str], *, is_served: bool = False) -> None:
        self.early_error: ErrorInfo | None = None
        """The error, if the run failed before its first event."""
        self._translator = EventTranslator(origin, client_tools, is_served=is_served)
        self._early_events: list[ModelEvent] = []
        """Events that came before `start`."""
        self._receive: ModelEventReceiver | None = None
        self._has_delivered = False
        self._is_over = False
        self._is_paused = False
        self._first_event_ready = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: Callable[[], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._run(run), name="pydantic-ai agent")

    async def wait_for_first_event(self) -> None:
        """Wait until the agent produced its first event, or failed or ended."""
        await self._first_event_ready.wait()

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        final_events: list[ModelEvent] = []
        try:
            await run()
            final_events = self._translator.end()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._is_over or (task is not None and task.cancelling()):
                raise
            # Something that the agent waited for was cancelled, and not the agent.
            final_events = self._end_with_error(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit and panics of native code, too
            final_events = self._end_with_error(error)
        self._deliver(final_events)
        self._is_over = True

    def _end_with_error(self, error: BaseException) -> list[ModelEvent]:
        info = _error_info(error)
        if not self._has_delivered:
            self.early_error = info
        return self._translator.emit.end("error", info)

    async def forward(self, event: Any) -> None:
        events = self._translator.translate(event)
        if not events:
            return
        self._has_delivered = True
        self._deliver(events)
        if len(self._early_events) > MAX_EVENTS_AHEAD:
            self._resumed.clear()
        await self._resumed.wait()

    def _deliver(self, events: list[ModelEvent]) -> None:
        if self._receive is None:
            self._early_events += events
            self._first_event_ready.set()
        elif not self._is_over:
            self._receive(events)

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive = receive
        early_events, self._early_events = self._early_events, []
        if early_events:
            receive(early_events)
        if not self._is_paused:
            self._resumed.set()

    def pause(self) -> None:
        self._is_paused = True
        self._resumed.clear()

    def resume(self) -> None:
        self._is_paused = False
        self._resumed.set()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._is_over and self._receive is not None:
            return []
        if self._task is not None and not self._task.done():
            self._task.cancel()
        early_events, self._early_events = self._early_events, []
        self._is_over = True
        return early_events + self._translator.emit.end("cancelled" if error is None else "error", error)


class EventTranslator:
    """Translates Pydantic AI's events of a run to the events of one turn. It has no task and no clock.

    Args:
        origin: The origin of the parts.
        client_tools: The names of the caller's tools.
        is_served: Whether events of the application are sent as AG-UI events.
    """

    def __init__(self, origin: ours.Origin, client_tools: frozenset[str], *, is_served: bool = False) -> None:
        self.emit = Emitter(origin)
        self._is_served = is_served
        self._client_tools = client_tools
        """The names of the tools that the caller runs."""
        self._request_index = 0
        """The index of the current model request in the run. Each request counts its parts from 0."""
        self._opened_parts: dict[int, Any] = {}
        """The parts of the current request as they started, by index."""
        self._undecided_call: tuple[int, theirs.ToolCallPart] | None = None
        """A call for which only the next event shows whether it is the agent's answer."""
        self._answer_indexes: set[int] = set()
        self._finish_reason: ours.FinishReason | None = None

    def translate(self, event: Any) -> list[ModelEvent]:
        side_events: list[ModelEvent] = []
        if not isinstance(event, theirs.FinalResultEvent):
            self._resolve_call()
        match event:
            case theirs.PartStartEvent():
                self._start(event.index, event.part)
            case theirs.PartDeltaEvent():
                self._delta(event.index, event.delta)
            case theirs.PartEndEvent():
                self.emit.close((self._request_index, event.index))
            case theirs.FinalResultEvent():
                self._resolve_call(event.tool_call_id)
            case theirs.FunctionToolResultEvent():
                self._result(event.part)
                side_events += side_events_of(event.part) if self._is_served else []
            case AgentRunResultEvent():
                self._run_result(event.result)
                side_events += interrupts_of(event.result.output, self._client_tools) if self._is_served else []
            case theirs.FunctionToolCallEvent():
                # The call was shown when the model made it. Nothing more comes until it returns.
                self.emit.close_open_blocks()
            case theirs.OutputToolCallEvent() | theirs.OutputToolResultEvent():
                pass  # The call was shown when the model made it. How the agent reads its own answer is not shown.
            case _:
                side_events.append((side_event_of(event) if self._is_served else None) or _unmapped_event(event))
        return [*self.emit.take(), *side_events]

    def end(self) -> list[ModelEvent]:
        self._resolve_call()
        self.emit.finish(self._finish_reason)
        return self.emit.end()

    # --- parts -----------------------------------------------------------------------------------------------

    def _start(self, index: int, part: theirs.ModelResponsePart) -> None:
        if index == 0 and 0 in self._opened_parts:
            self._request_index += 1
            self._opened_parts = {}
            self._answer_indexes = set()
        self._opened_parts[index] = part
        key = (self._request_index, index)
        match part:
            case theirs.ThinkingPart():
                form = from_pydantic_ai.thinking_form(part)
                details = _opaque_details(part)
                self.emit.thinking(key, part.content, form=form, signature=part.signature, details=details)
            case theirs.TextPart():
                self.emit.text(key, part.content, item=("message", self._request_index), details=_opaque_details(part))
            case theirs.ToolCallPart() if part.tool_name in self._client_tools:
                self.emit.tool_call(
                    key, _args(part.args), name=part.tool_name, call_id=part.tool_call_id, details=_opaque_details(part)
                )
            case theirs.ToolCallPart():
                self._undecided_call = (index, part)
            case theirs.NativeToolCallPart():
                self._call(key, part)
            case theirs.SpeechPart():
                self.emit.text(key, part.transcript or "", item=("message", self._request_index))
            case _:
                converted = from_pydantic_ai.response_part(part)
                if converted is not None:
                    is_native_return = isinstance(converted, ours.BuiltinToolReturnPart)
                    details = _native_details(part) if is_native_return else None
                    part_of_agent: Any = replace(
                        converted, provider_name=self.emit.origin.provider, provider_details=details
                    )
                    self.emit.whole_part(part_of_agent)

    def _call(self, key: Any, part: theirs.ToolCallPart | theirs.NativeToolCallPart) -> None:
        details = _native_details(part) if isinstance(part, theirs.NativeToolCallPart) else _opaque_details(part)
        self.emit.builtin_call(key, _args(part.args), name=part.tool_name, call_id=part.tool_call_id, details=details)

    def _resolve_call(self, answer_call_id: str | None = None) -> None:
        """Show the undecided call: as the agent's answer if it has this id, else as a tool that the agent runs."""
        if self._undecided_call is None:
            return
        (index, part), self._undecided_call = self._undecided_call, None
        if answer_call_id is not None and part.tool_call_id == answer_call_id:
            self._answer_indexes.add(index)
            self.emit.text((self._request_index, index), part.args_as_json_str() if part.args else "", item="answer")
        else:
            self._call((self._request_index, index), part)

    def _delta(self, index: int, delta: Any) -> None:
        key = (self._request_index, index)
        match delta:
            case theirs.ThinkingPartDelta():
                details = delta.provider_details if isinstance(delta.provider_details, dict) else None
                if delta.signature_delta or details:
                    opened_part = self._opened_parts[index]
                    details = _opaque_details(opened_part, details, delta.provider_name)
                self.emit.thinking(key, delta.content_delta or "", signature=delta.signature_delta, details=details)
            case theirs.TextPartDelta():
                details = self._delta_details(index, delta)
                self.emit.text(key, delta.content_delta, item=("message", self._request_index), details=details)
            case theirs.SpeechPartDelta():
                self.emit.text(key, delta.transcript_delta or "", item=("message", self._request_index))
            case theirs.ToolCallPartDelta():
                args = delta.args_delta or ""
                details = self._delta_details(index, delta)
                if index in self._answer_indexes:
                    self.emit.text(key, args if isinstance(args, str) else ours.json_text(args), item="answer")
                elif self._opened_parts[index].tool_name in self._client_tools:
                    self.emit.tool_call(key, args, details=details)
                elif args or details:
                    self.emit.builtin_call(key, args, details=details)

    def _delta_details(
        self, index: int, delta: theirs.TextPartDelta | theirs.ToolCallPartDelta
    ) -> dict[str, Any] | None:
        details = delta.provider_details
        return _opaque_details(self._opened_parts[index], details) if details else None

    def _result(self, part: theirs.ToolReturnPart) -> None:
        self.emit.whole_part(
            ours.BuiltinToolReturnPart(
                part.tool_name,
                from_pydantic_ai.jsonable(part.content),
                part.tool_call_id,
                provider_name=self.emit.origin.provider,
                provider_details=None if part.outcome == "success" else {"outcome": part.outcome},
            )
        )

    def _run_result(self, result: AgentRunResult[Any]) -> None:
        self.emit.usage = from_pydantic_ai.usage(result.usage)
        is_deferred = isinstance(result.output, DeferredToolRequests)
        reason = result.response.finish_reason
        # The run is complete, whatever ended its last request (often a tool call).
        self._finish_reason = (
            "tool_call" if is_deferred else reason if reason in ("length", "content_filter") else "stop"
        )


def _args(args: Any) -> str | dict[str, Any]:
    converted = from_pydantic_ai.args(args)
    return "" if converted is None else converted


def _native_details(part: Any) -> dict[str, Any]:
    """Return the details of a part of a tool that the agent's provider runs, to distinguish it from a function."""
    return {"native": True, **(_opaque_details(part) or {})}


def _opaque_details(
    part: Any, details: dict[str, Any] | None = None, provider_name: str | None = None
) -> dict[str, Any] | None:
    """Return the opaque data of the agent's model on a part, with its provider's name; None if there is none."""
    fields: dict[str, Any] = {
        "provider_name": provider_name or part.provider_name,
        "id": part.id if hasattr(part, "id") else None,
        "details": from_pydantic_ai.details({**(part.provider_details or {}), **(details or {})}),
    }
    is_opaque = fields["details"] or fields["id"] or getattr(part, "signature", None) or details or provider_name
    return {"pydantic_ai": {name: value for name, value in fields.items() if value}} if is_opaque else None


def _unmapped_event(event: Any) -> SideEvent:
    """Return the side event for an event that is not of the model: of the application, of a new tool, …"""
    try:
        value = from_pydantic_ai.jsonable(event)
    except ValueError:
        value = None
    return SideEvent("pydantic_ai", str(getattr(event, "event_kind", type(event).__name__)), value)


_KIND_OF_STATUS: dict[int, ErrorKind] = {429: "too_many_requests", 503: "unavailable", 504: "timeout"}


def _error_info(error: BaseException) -> ErrorInfo:
    if isinstance(error, _RequestRejected):
        return error.info
    if isinstance(error, ModelHTTPError):
        return ErrorInfo(
            _KIND_OF_STATUS.get(error.status_code, "model_error"),
            f"the agent's model answered {error.status_code}",
            code=as_code(error.provider_error_code),
            retry_after=error.retry_after,
            upstream_message=error.message,
        )
    if isinstance(error, ModelAPIError):
        code = as_code(error.provider_error_code)
        return ErrorInfo("model_error", "the agent's model failed", code=code, upstream_message=error.message)
    if isinstance(error, UsageLimitExceeded):
        return ErrorInfo("model_error", "the agent reached the usage limit of a run", code="usage_limit")
    if isinstance(error, AgentRunError):
        return ErrorInfo("model_error", "the agent got no usable answer from its model", code="agent_failed")
    # The text of the exception can contain anything, so the log has its location only.
    log.error("an agent failed: %s", error_location(error))
    return ErrorInfo("server_error", "the agent failed; the operator's log says where", code="agent_failed")


# --- the history of the agent ------------------------------------------------------------------------------------


def _agent_history(
    messages: Sequence[ours.ModelMessage], origin: ours.Origin
) -> tuple[str | None, list[theirs.ModelMessage]]:
    """Return the caller's instructions, and the rest of the conversation for the agent.

    The instructions are passed in addition to the agent's own. As a system prompt in the history they would replace
    those.
    """
    instructions: list[str] = []
    history: list[ours.ModelMessage] = []
    for message in messages:
        if isinstance(message, ours.ModelResponse):
            history += _split_run(message, origin)
            continue
        instructions += [part.content for part in message.parts if isinstance(part, ours.SystemPromptPart)]
        instructions += (
            [message.instructions] if message.instructions and message.instructions not in instructions else []
        )
        parts = [part for part in message.parts if not isinstance(part, ours.SystemPromptPart)]
        if parts:
            history.append(replace(message, parts=parts, instructions=None))
    return "\n\n".join(instructions) or None, to_pydantic(history)


def _split_run(response: ours.ModelResponse, origin: ours.Origin) -> list[ours.ModelMessage]:
    """Split a run that was shown as one turn into its responses and results."""
    if not any((getattr(part, "origin", None) or response.origin) == origin for part in response.parts):
        return [response]
    out: list[ours.ModelMessage] = []
    response_parts: list[Any] = []
    results: list[ours.ModelRequestPart] = []

    def flush() -> None:
        if response_parts:
            out.append(ours.ModelResponse(list(response_parts), model_name=response.model_name))
            response_parts.clear()
        if results:
            out.append(ours.ModelRequest(list(results)))
            results.clear()

    for part in response.parts:
        is_function = is_agent_function(part)
        if is_function and isinstance(part, ours.BuiltinToolReturnPart):
            results.append(as_tool_return(part))
            continue
        if results:
            flush()
        opaque = (getattr(part, "provider_details", None) or {}).get("pydantic_ai")
        opaque = opaque if isinstance(opaque, dict) else {}
        opaque_fields = {
            "provider_name": opaque.get("provider_name"),
            "id": opaque.get("id"),
            "provider_details": opaque.get("details"),
            "origin": None,
        }
        opaque_fields = {name: value for name, value in opaque_fields.items() if hasattr(part, name)}
        if is_function and isinstance(part, ours.BuiltinToolCallPart):
            shared: Any = {name: value for name, value in opaque_fields.items() if name != "origin"}
            response_parts.append(ours.ToolCallPart(part.tool_name, part.args, part.tool_call_id, **shared))
        else:
            response_parts.append(replace(part, **opaque_fields))
    flush()
    return out
