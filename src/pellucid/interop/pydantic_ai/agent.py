"""Any Pydantic AI agent behind the gateway: asked for a turn, it plays a whole run.

    app = create_app(config, more=[PydanticAgent(agent)])

For whoever asks, the agent is the model, and its run is one turn of it:

* Thought and text come in order, each piece when the agent has it, whichever of the run's model requests it is from.
* A function that the agent runs itself is shown as a tool that the model's provider runs: a call and its return within
  the turn. (As a function call it would ask the caller to run it.) The caller's own tools are function calls, and end
  the turn.
* An output tool is how the agent answers: its arguments are the answer's text.
* What fails is an event, but before anything was said it is raised; nothing of the agent's own faults is told but that
  there was one.
* `cancel` stops the run at once: its task is cancelled, and with it whatever it waits for.

The agent's history is kept for it: a response that came from here goes back to it as the calls, results and answers
that it was, each with what the agent's own model signed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UsageLimitExceeded, UserError
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ExternalToolset

from ... import parts as ours
from ...agent.run_input import RunInput, name_conflict
from ...emit import Emitter
from ...errors import ErrorInfo, ErrorKind, ModelError, RequestError
from ...events import ModelEvent, SideEvent
from ...models import ModelEventReceiver, ModelStream
from ...providers.errors import as_code
from ...run import Minter
from ...runs import Batch, LiveRun, Stage
from ...settings import ModelCall
from ...telemetry import error_location, log
from . import inward
from . import settings as said
from .functions import AsFunctions
from .messages import to_pydantic
from .serving import aside_of, asides_of, interrupts_of, results_to

API = "pydantic_ai"
AHEAD = 256
"""How many events the run may be ahead of who reads it."""


class PydanticAgent:
    """A Pydantic AI agent as something to ask.

    `name` is its public name (the agent's own, if it has one). `deps` makes the dependencies of each run; `run` is
    handed to every run as it is (`usage_limits`, `retries`, …).
    """

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        name: str | None = None,
        *,
        deps: Callable[[ModelCall], Any] | None = None,
        run: dict[str, Any] | None = None,
    ) -> None:
        given = name or agent.name
        if not given:
            raise ValueError("the agent has no name to be asked by; give it one: PydanticAgent(agent, 'name')")
        self.name = given
        self.origin = ours.Origin("pydantic_ai", API, given)
        self._agent = agent
        self._deps = deps
        self._run = run or {}

    def warnings(self, call: ModelCall) -> list[str]:
        """Nothing is known of what the agent's own model honours; Pydantic AI has its own words for that."""
        return []

    async def open(self, call: ModelCall) -> ModelStream:
        """Begin a run. Raises `ModelError` when it fails before it has said anything."""
        return await self._open(call, None)

    async def start(self, run_input: RunInput) -> LiveRun:
        """A run of the agent itself, to be served (see `pellucid.agui`). Raises `RequestError`."""
        mint = Minter(secrets.token_bytes(16))
        return LiveRun(
            _Started(self, run_input),
            ModelCall(self.name, run_input.messages, run_input.settings, tuple(run_input.tools)),
            mint,
            stages=(_OwnFunctions(AsFunctions(mint)), *run_input.stages),
            log_faults=True,
        )

    async def _open(self, call: ModelCall, start: RunInput | None) -> ModelStream:
        if call.tools and getattr(self._agent, "_output_validators", None):
            # A run with the caller's tools may end with their calls, and Pydantic AI has no such run of this agent.
            raise RequestError(
                "tools: this agent checks its own answers, and so can be given no tools; ask without them",
                kind="unsupported",
                param="tools",
            )
        stream = AgentStream(self.origin, frozenset(tool.name for tool in call.tools), served=start is not None)
        stream.begin(lambda: self._events(call, stream, start))
        try:
            await stream.wait_until_begun()
        except BaseException:
            stream.cancel()
            raise
        if stream.failed_first is not None:
            stream.cancel()
            raise ModelError(stream.failed_first)
        return stream

    async def _events(self, call: ModelCall, stream: AgentStream, start: RunInput | None) -> None:
        instructions, history = _conversation(call.messages, self.origin)
        more = dict(self._run)
        if call.tools:
            more["toolsets"] = [*more.get("toolsets", ()), ExternalToolset(said.tools_to(call.tools))]
        if call.tools or (start is not None and not getattr(self._agent, "_output_validators", None)):
            more["output_type"] = [self._agent.output_type, DeferredToolRequests]
        if start is not None and (start.results.approvals or start.results.calls):
            more["deferred_tool_results"] = results_to(start.results)
        if start is not None and start.deps is not None:
            more["deps"] = start.deps
        elif self._deps is not None:
            more["deps"] = self._deps(call)
        more["capabilities"] = [*more.get("capabilities", ()), ReinjectSystemPrompt()]
        events = self._agent.run_stream_events(
            message_history=history,
            instructions=instructions,
            model_settings=said.settings_to(call.settings),
            **more,
        )
        try:
            async with events as each:
                async for event in each:
                    await stream.tell(event)
        except UserError as error:
            # Which tools an agent has is known within its run alone: toolsets may differ from one to the next.
            for index, tool in enumerate(call.tools):
                if "conflicts" in str(error) and f"{tool.name!r}" in str(error):
                    raise _Refused(**name_conflict(index, tool.name)) from None
            raise


class _OwnFunctions(Stage):
    """Shows the agent's own functions as functions that are called here."""

    def __init__(self, functions: AsFunctions) -> None:
        self._functions = functions

    def process(self, batch: Batch) -> Batch:
        return Batch(batch.time_ms, self._functions.feed(batch.events))


class _Refused(RequestError):
    """What was asked for cannot be, and who asked is told why."""


class _Started:
    """The agent as what is asked in one run of it that is served."""

    def __init__(self, agent: PydanticAgent, start: RunInput) -> None:
        self.name = agent.name
        self.origin = agent.origin
        self.warnings = agent.warnings
        self._agent = agent
        self._start = start

    async def open(self, call: ModelCall) -> ModelStream:
        return await self._agent._open(call, self._start)


class AgentStream:
    """A turn that an agent's run plays. `served`: what the application says beside its model is told as AG-UI's."""

    queued = False

    def __init__(self, origin: ours.Origin, callers: frozenset[str], *, served: bool = False) -> None:
        self.failed_first: ErrorInfo | None = None
        """Why it failed, if it did before it said anything."""
        self._teller = Teller(origin, callers, served=served)
        self._before: list[ModelEvent] = []
        """What came before anybody received."""
        self._receive: ModelEventReceiver | None = None
        self._told = False
        self._over = False
        self._paused = False
        self._began = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: Callable[[], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._play(run), name="pydantic-ai agent")

    async def wait_until_begun(self) -> None:
        """Until the agent said something, or failed."""
        await self._began.wait()

    async def _play(self, run: Callable[[], Awaitable[None]]) -> None:
        last: list[ModelEvent] = []
        try:
            await run()
            last = self._teller.end()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._over or (task is not None and task.cancelling()):
                raise
            last = self._failed(error)  # what the agent waited for was cancelled, and not the agent
        except Exception as error:
            last = self._failed(error)
        self._deliver(last)
        self._over = True

    def _failed(self, error: BaseException) -> list[ModelEvent]:
        info = _fault(error)
        if not self._told:
            self.failed_first = info
        return self._teller.emit.end("error", info)

    async def tell(self, event: Any) -> None:
        events = self._teller.tell(event)
        if not events:
            return
        self._told = True
        self._deliver(events)
        if len(self._before) > AHEAD:
            self._resumed.clear()
        await self._resumed.wait()

    def _deliver(self, events: list[ModelEvent]) -> None:
        if self._receive is None:
            self._before += events
            self._began.set()
        elif not self._over:
            self._receive(events)

    def start(self, receive: ModelEventReceiver) -> None:
        self._receive = receive
        before, self._before = self._before, []
        if before:
            receive(before)
        if not self._paused:
            self._resumed.set()

    def pause(self) -> None:
        self._paused = True
        self._resumed.clear()

    def resume(self) -> None:
        self._paused = False
        self._resumed.set()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._over and self._receive is not None:
            return []
        if self._task is not None and not self._task.done():
            self._task.cancel()
        before, self._before = self._before, []
        self._over = True
        return before + self._teller.emit.end("cancelled" if error is None else "error", error)


class Teller:
    """Pydantic AI's events of a run, one by one, as the events of one turn of ours. No task, no clock."""

    def __init__(self, origin: ours.Origin, callers: frozenset[str], *, served: bool = False) -> None:
        self.emit = Emitter(origin)
        self._served = served
        self._callers = callers
        """The tools that are the caller's to run."""
        self._request = 0
        """Which of the run's model requests is under way: each counts its parts from 0."""
        self._parts: dict[int, Any] = {}
        """The parts of the request under way, as they opened."""
        self._undecided: tuple[int, theirs.ToolCallPart] | None = None
        """A call of which only the next event tells whether it is the agent's answer."""
        self._answers: set[int] = set()
        self._reason: ours.FinishReason | None = None

    def tell(self, event: Any) -> list[ModelEvent]:
        side: list[ModelEvent] = []
        if not isinstance(event, theirs.FinalResultEvent):
            self._decide()
        match event:
            case theirs.PartStartEvent():
                self._start(event.index, event.part)
            case theirs.PartDeltaEvent():
                self._delta(event.index, event.delta)
            case theirs.PartEndEvent():
                self.emit.close((self._request, event.index))
            case theirs.FinalResultEvent():
                self._decide(event.tool_call_id)
            case theirs.FunctionToolResultEvent():
                self._result(event.part)
                side += asides_of(event.part) if self._served else []
            case AgentRunResultEvent():
                self._ended(event.result)
                side += interrupts_of(event.result.output, self._callers) if self._served else []
            case theirs.FunctionToolCallEvent():
                self.emit.close_open_blocks()  # the call was shown when the model made it, and now nothing comes until it returns
            case theirs.OutputToolCallEvent() | theirs.OutputToolResultEvent():
                pass  # the call was shown when the model made it, and how the agent takes its own answer is its own
            case _:
                side.append((aside_of(event) if self._served else None) or _aside(event))
        return [*self.emit.take(), *side]

    def end(self) -> list[ModelEvent]:
        self._decide()
        self.emit.finish(self._reason)
        return self.emit.end()

    # --- parts -----------------------------------------------------------------------------------------------

    def _start(self, index: int, part: theirs.ModelResponsePart) -> None:
        if index == 0 and 0 in self._parts:
            self._request += 1
            self._parts = {}
            self._answers = set()
        self._parts[index] = part
        key = (self._request, index)
        match part:
            case theirs.ThinkingPart():
                self.emit.thinking(key, part.content, signature=part.signature, details=_whose(part))
            case theirs.TextPart():
                self.emit.text(key, part.content, item=("message", self._request), details=_whose(part))
            case theirs.ToolCallPart() if part.tool_name in self._callers:
                self.emit.tool_call(
                    key, _args(part.args), name=part.tool_name, call_id=part.tool_call_id, details=_whose(part)
                )
            case theirs.ToolCallPart():
                self._undecided = (index, part)
            case theirs.NativeToolCallPart():
                self._call(key, part)
            case theirs.SpeechPart():
                self.emit.text(key, part.transcript or "", item=("message", self._request))
            case _:
                made = inward.response_part(part)
                if made is not None:
                    whole: Any = replace(made, provider_name=self.emit.origin.provider, provider_details=None)
                    if isinstance(made, ours.BuiltinToolReturnPart):
                        whole = replace(whole, provider_details={"native": True, **(_whose(part) or {})})
                    self.emit.whole_part(whole)

    def _call(self, key: Any, part: theirs.ToolCallPart | theirs.NativeToolCallPart) -> None:
        details = _whose(part) or {}
        if isinstance(part, theirs.NativeToolCallPart):
            details = {"native": True, **details}
        self.emit.builtin_call(
            key, _args(part.args), name=part.tool_name, call_id=part.tool_call_id, details=details or None
        )

    def _decide(self, answer: str | None = None) -> None:
        """Show a call as what it is: the agent's answer, if it has the id `answer`, or a tool that it runs itself."""
        if self._undecided is None:
            return
        (index, part), self._undecided = self._undecided, None
        if answer is not None and part.tool_call_id == answer:
            self._answers.add(index)
            self.emit.text((self._request, index), part.args_as_json_str() if part.args else "", item="answer")
        else:
            self._call((self._request, index), part)

    def _delta(self, index: int, delta: Any) -> None:
        key = (self._request, index)
        match delta:
            case theirs.ThinkingPartDelta():
                details = delta.provider_details if isinstance(delta.provider_details, dict) else None
                if delta.signature_delta or details:
                    told = self._parts[index]
                    details = _whose(told, details, delta.provider_name)
                self.emit.thinking(key, delta.content_delta or "", signature=delta.signature_delta, details=details)
            case theirs.TextPartDelta():
                details = _whose(self._parts[index], delta.provider_details) if delta.provider_details else None
                self.emit.text(key, delta.content_delta, item=("message", self._request), details=details)
            case theirs.SpeechPartDelta():
                self.emit.text(key, delta.transcript_delta or "", item=("message", self._request))
            case theirs.ToolCallPartDelta():
                args = delta.args_delta or ""
                details = _whose(self._parts[index], delta.provider_details) if delta.provider_details else None
                if index in self._answers:
                    self.emit.text(key, args if isinstance(args, str) else ours.json_text(args), item="answer")
                elif self._parts[index].tool_name in self._callers:
                    self.emit.tool_call(key, args, details=details)
                elif args or details:
                    self.emit.builtin_call(key, args, details=details)

    def _result(self, part: theirs.ToolReturnPart) -> None:
        content = inward.jsonable(part.content)
        details = {} if part.outcome == "success" else {"outcome": part.outcome}
        self.emit.whole_part(
            ours.BuiltinToolReturnPart(
                part.tool_name,
                content,
                part.tool_call_id,
                provider_name=self.emit.origin.provider,
                provider_details=details or None,
            )
        )

    def _ended(self, result: AgentRunResult[Any]) -> None:
        used = result.usage
        names = [name for name in ours.Usage.__struct_fields__ if name != "details"]
        self.emit.usage = ours.Usage(
            **{name: getattr(used, name, 0) or None for name in names}, details=dict(used.details)
        )
        deferred = isinstance(result.output, DeferredToolRequests)
        reason = result.response.finish_reason
        # The run is whole, whatever its last request ended with: a tool call, often.
        self._reason = "tool_call" if deferred else reason if reason in ("length", "content_filter") else "stop"


def _args(args: Any) -> str | dict[str, Any]:
    made: str | dict[str, Any] = inward.jsonable(args) if isinstance(args, dict) else args or ""
    return made


def _whose(part: Any, details: dict[str, Any] | None = None, provider_name: str | None = None) -> dict[str, Any] | None:
    """What only the model under the agent understands of a part, with its maker's name, for the way back."""
    found: dict[str, Any] = {
        "provider_name": provider_name or part.provider_name,
        "id": part.id if hasattr(part, "id") else None,
        "details": inward.details({**(part.provider_details or {}), **(details or {})}),
    }
    opaque = found["details"] or found["id"] or getattr(part, "signature", None) or details or provider_name
    return {"pydantic_ai": {name: value for name, value in found.items() if value}} if opaque else None


def _aside(event: Any) -> SideEvent:
    """What is neither said nor done by the model: the application's own events, a tool that became available, …"""
    try:
        value = inward.jsonable(event)
    except ValueError:
        value = None
    return SideEvent("pydantic_ai", str(getattr(event, "event_kind", type(event).__name__)), value)


_KIND_OF_STATUS: dict[int, ErrorKind] = {429: "too_many_requests", 503: "unavailable", 504: "timeout"}


def _fault(error: BaseException) -> ErrorInfo:
    if isinstance(error, _Refused):
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
        return ErrorInfo("model_error", "the agent came to the limit of what one run of it may use", code="usage_limit")
    if isinstance(error, AgentRunError):
        return ErrorInfo("model_error", "the agent got no usable answer from its model", code="agent_failed")
    # It may quote anything: the log says where it was, and the caller that it was.
    log.error("a fault of an agent: %s", error_location(error))
    return ErrorInfo("server_error", "the agent failed; the operator's log says where", code="agent_failed")


# --- the history, for the agent ----------------------------------------------------------------------------------


def _conversation(
    messages: Sequence[ours.ModelMessage], origin: ours.Origin
) -> tuple[str | None, list[theirs.ModelMessage]]:
    """What the caller instructs, and the rest.

    The caller's instructions go beside the agent's own, which a system prompt in the history would stand in for.
    """
    told: list[str] = []
    rest: list[ours.ModelMessage] = []
    for message in messages:
        if isinstance(message, ours.ModelResponse):
            rest += _as_it_was(message, origin)
            continue
        told += [part.content for part in message.parts if isinstance(part, ours.SystemPromptPart)]
        told += [message.instructions] if message.instructions and message.instructions not in told else []
        parts = [part for part in message.parts if not isinstance(part, ours.SystemPromptPart)]
        if parts:
            rest.append(replace(message, parts=parts, instructions=None))
    return "\n\n".join(told) or None, to_pydantic(rest)


def _as_it_was(response: ours.ModelResponse, origin: ours.Origin) -> list[ours.ModelMessage]:
    """A run that was shown as one turn, as the turns and results that it was."""
    if not any((getattr(part, "origin", None) or response.origin) == origin for part in response.parts):
        return [response]
    out: list[ours.ModelMessage] = []
    said_now: list[Any] = []
    returned: list[ours.ModelRequestPart] = []

    def flush() -> None:
        if said_now:
            out.append(ours.ModelResponse(list(said_now), model_name=response.model_name))
            said_now.clear()
        if returned:
            out.append(ours.ModelRequest(list(returned)))
            returned.clear()

    for part in response.parts:
        details = getattr(part, "provider_details", None) or {}
        whose = details.get("pydantic_ai")
        whose = whose if isinstance(whose, dict) else {}
        own = {
            "provider_name": whose.get("provider_name"),
            "id": whose.get("id"),
            "provider_details": whose.get("details"),
            "origin": None,
        }
        own = {name: value for name, value in own.items() if hasattr(part, name)}
        if isinstance(part, ours.BuiltinToolReturnPart) and not details.get("native"):
            outcome = details.get("outcome", "success")
            if outcome == "retried":
                text = part.content if isinstance(part.content, str) else ours.json_text(part.content)
                returned.append(ours.RetryPromptPart(text, part.tool_name, part.tool_call_id))
            else:
                known: Any = outcome if outcome in ("success", "failed", "denied") else "failed"
                returned.append(ours.ToolReturnPart(part.tool_name, part.content, part.tool_call_id, known))
            continue
        if returned:
            flush()
        if isinstance(part, ours.BuiltinToolCallPart) and not details.get("native"):
            shared: Any = {name: value for name, value in own.items() if name != "origin"}
            said_now.append(ours.ToolCallPart(part.tool_name, part.args, part.tool_call_id, **shared))
        else:
            said_now.append(replace(part, **own))
    flush()
    return out
