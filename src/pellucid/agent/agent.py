"""The agent: a model with its instructions, its tools and the type of its output.

    agent = Agent("anthropic:claude-sonnet-4-0", instructions="Be brief.", tools=[weather])
    result = agent.run_sync("Will it rain in Lyon?")
    result.output, result.thinking, result.all_messages(), result.usage

Settings are merged shallowly: the model's own, then the agent's, then the run's. The later one wins. The agent's and
the run's may be functions, which are called before each request to the model (`ctx.model_settings`: what there is so
far).

A handler gets events while a run goes on: `handler(event)` for each, or `handler(ctx, events)` for all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypedDict, TypeGuard, TypeVar, Unpack, get_args, overload

from msgspec import structs

from ..conversation import without_cut_turn
from ..errors import RequestError
from ..events import Event, FinalResultEvent
from ..models import ChatModel
from ..parts import ModelMessage, ModelRequest, ModelRequestPart, SystemPromptPart, Text, UserContent, UserPromptPart
from ..settings import ModelCall, ToolChoice, ToolDefinition, check_tool_name, merge_settings, validate_settings
from ..tools import (
    AbstractToolset,
    AnyTool,
    CombinedToolset,
    DeferredToolResults,
    ExecutionOptions,
    ExternalToolset,
    FunctionToolset,
    RunContext,
    RunUsage,
)
from ..tools.function_tool import call_function, takes_context
from ..tools.toolsets import DynamicToolset, Instructions, ToolsPrepare, instruction_list
from .agent_run import AgentRun, AnySettings, EndStrategy, EventReader, RunPlan, StreamedRunResult, warn
from .nodes import CallToolsNode, End, ModelRequestNode, SteppedRun, UserPromptNode
from .output import NativeOutput, PromptedOutput, TextOutput, ToolOutput, build_output
from .results import AgentRunResult, AgentRunResultEvent, UsageLimits
from .run_input import RunInput, name_conflict, resume_history

EventHandler: TypeAlias = (
    Callable[[Event], Awaitable[None] | None] | Callable[[RunContext[Any], AsyncIterator[Event]], Awaitable[None]]
)


async def _call_event_handler(handler: EventHandler, context: RunContext[Any], events: AsyncIterator[Event]) -> None:
    """Pass all `events` to `handler`. Events that it does not read are read here."""
    function: Callable[..., Any] = handler
    if takes_context(handler, 1):
        result = function(context, events)
        if inspect.isawaitable(result):
            await result
        async for _ in events:
            pass
    else:
        async for event in events:
            result = function(event)
            if inspect.isawaitable(result):
                await result


Deps = TypeVar("Deps")
Out = TypeVar("Out")
F = TypeVar("F", bound=Callable[..., Any])

Prompt = str | Sequence[str | UserContent]
AnyToolset = AbstractToolset | Callable[..., Any]
"""A toolset, or a function that takes a context, if it wants one, and returns a toolset or None."""


class Retries(TypedDict, total=False):
    """How often in a row something may fail before the run fails; 1 for what is not there."""

    tools: int
    """Each tool."""
    output: int


class AgentOptions(TypedDict, total=False):
    """Arguments of an agent in addition to its model and its output type."""

    instructions: Instructions | None
    """Instructions of every run. Functions are called before each request. Not part of the message history."""
    system_prompt: str | Sequence[str]
    """System prompts at the start of a conversation, as part of it."""
    deps_type: type[Any]
    """The type of `ctx.deps`, for type checkers and readers."""
    name: str
    model_settings: AnySettings | None
    retries: int | Retries
    """How often in a row a function, or the output, may fail before the run fails (default: 1)."""
    output_retries: int
    """The same for the output alone."""
    tools: Sequence[AnyTool | Callable[..., Any]]
    toolsets: Sequence[AnyToolset]
    """Toolsets, and functions that return one, which are called before each request to the model."""
    prepare_tools: ToolsPrepare | None
    """Called before each request with the context and the definitions of all tools; returns those to be sent."""
    end_strategy: EndStrategy
    """What becomes of the other calls of a turn that has an output (default: `graceful`)."""
    tool_timeout: float | None
    """Seconds for each call of a function."""
    history_processors: Sequence[Callable[..., Any]]
    """Functions that get the messages (and the context first, if they take it) and return those to be sent."""
    event_stream_handler: EventHandler | None


class RunOptions(TypedDict, total=False):
    """Arguments of a run in addition to the user's message."""

    message_history: Sequence[ModelMessage] | None
    """The conversation so far."""
    model: ChatModel | str | None
    """A model or its name, in place of the agent's."""
    model_settings: AnySettings | None
    """Settings that are merged over the agent's, or a function that returns them."""
    deps: Any
    """The value of `ctx.deps`."""
    instructions: Instructions | None
    """Instructions in addition to the agent's."""
    usage_limits: UsageLimits | None
    """Limits of requests, calls and tokens."""
    usage: RunUsage | None
    """An object in which this run is counted, too: `ctx.usage` of another run, or one of your own."""
    toolsets: Sequence[AnyToolset]
    """Toolsets in addition to the agent's."""
    output_type: Any
    """The output type, in place of the agent's."""
    external_tools: Sequence[ToolDefinition]
    """Tools that the caller runs."""
    deferred_tool_results: DeferredToolResults | None
    """Results and approvals of the calls that the last run deferred."""


class AgentOverrides(TypedDict, total=False):
    """Arguments of `Agent.override`."""

    model: ChatModel | str
    """A model or its name, in place of the agent's and the run's."""
    deps: Any
    """The value of `ctx.deps`, in place of the run's."""
    tools: Sequence[AnyTool | Callable[..., Any]]
    """Functions in place of the agent's."""
    toolsets: Sequence[AnyToolset]
    """Toolsets in place of the agent's and the run's."""
    instructions: Instructions | None
    """Instructions in place of the agent's and the run's."""


_overrides: ContextVar[Mapping[Any, AgentOverrides]] = ContextVar("agent_overrides", default=MappingProxyType({}))
"""The overrides by agent."""


class Agent(Generic[Deps, Out]):
    """Runs a model with tools until it gives an output of the wanted type: `Agent[type of ctx.deps, output type]`.

    One agent serves any number of runs at the same time.
    """

    @overload
    def __init__(
        self: Agent[Any, str], model: ChatModel | str | None = None, **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[Any, Out],
        model: ChatModel | str | None = None,
        *,
        output_type: type[Out],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[Any, Out],
        model: ChatModel | str | None = None,
        *,
        output_type: ToolOutput[Out] | NativeOutput[Out] | PromptedOutput[Out],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[Any, Any],
        model: ChatModel | str | None = None,
        *,
        output_type: TextOutput | Sequence[Any] | Callable[..., Any],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self, model: ChatModel | str | None = None, *, output_type: Any = str, **options: Unpack[AgentOptions]
    ) -> None:
        """Create an agent.

        Args:
            model: A model or its name, such as `"openai:gpt-5"`. None where each run names one.
            output_type: A type, a function, several of these, `ToolOutput`, `NativeOutput`, `PromptedOutput` or
                `TextOutput`; text by default.
            options: See `AgentOptions`.

        Raises:
            RequestError: A tool or an output type cannot be described to a model.
            TypeError: An option is unknown.
        """
        _check_names("Agent()", options, ("model", "output_type", *AgentOptions.__annotations__))
        retries = options.get("retries", 1)
        if isinstance(retries, int):
            retries = {"tools": retries, "output": retries}
        system_prompt = options.get("system_prompt", ())
        self.name = options.get("name")
        self.output_type = output_type
        self._model = model
        self._model_settings = options.get("model_settings")
        self._instructions = instruction_list(options.get("instructions"))
        static_prompts = [system_prompt] if isinstance(system_prompt, str) else list(system_prompt)
        self._system_prompts = [_SystemPrompt(text) for text in static_prompts]
        self._output = build_output(output_type)
        self._functions = _Functions(options.get("tools", ()))
        self._toolsets: list[AbstractToolset | _ToolsetFunction] = _toolset_list(options.get("toolsets", ()))
        self._prepare_tools = options.get("prepare_tools")
        self._end_strategy = options.get("end_strategy", "graceful")
        if self._end_strategy not in get_args(EndStrategy):
            raise TypeError(f"end_strategy is one of {', '.join(get_args(EndStrategy))}, not {self._end_strategy!r}")
        self._execution = ExecutionOptions(max_retries=retries.get("tools", 1), timeout=options.get("tool_timeout"))
        self._output_retries = options.get("output_retries", retries.get("output", 1))
        self._processors = list(options.get("history_processors", ()))
        self._validators: list[Callable[..., Any]] = []
        self._event_handler = options.get("event_stream_handler")
        self._entered: list[AbstractToolset] = []

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names that no other tool of its runs may have: those of its functions and of its output tools."""
        return (*self._active_functions.tools, *self._output.tools)

    @property
    def model(self) -> ChatModel | None:
        """The agent's model; None where each run names one.

        Raises:
            RequestError: There is no model with the agent's name for it.
        """
        model = self._overridden.get("model") or self._model
        return None if model is None else _resolve_model(model)

    @property
    def max_tokens(self) -> int | None:
        """The limit of one answer in tokens that the agent's settings have; None if a function returns the settings."""
        settings = self._model_settings
        return None if settings is None or callable(settings) else settings.get("max_tokens")

    @property
    def toolsets(self) -> list[AbstractToolset]:
        """The toolsets of every run: the agent's functions, and those that it was given."""
        return [self._functions, *(toolset for toolset in self._toolsets if isinstance(toolset, AbstractToolset))]

    async def __aenter__(self) -> Self:
        """Enter the agent's toolsets, so that connections to MCP servers are kept between its runs."""
        toolset = CombinedToolset(self.toolsets)
        await toolset.__aenter__()
        self._entered.append(toolset)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._entered.pop().__aexit__(*error)

    # --- decorators ----------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Decorator: register a function that the model may call and that takes a `RunContext` first.

        Args:
            function: The function, where the decorator is used without arguments.
            options: The arguments of `Tool`; `retries` is another name of `max_retries`.
        """
        return self._functions.tool(function, **options)

    @overload
    def tool_plain(self, function: F, /) -> F: ...

    @overload
    def tool_plain(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool_plain(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Decorator: register a function that the model may call and that takes no context.

        Args:
            function: The function, where the decorator is used without arguments.
            options: The arguments of `Tool`; `retries` is another name of `max_retries`.
        """
        return self._functions.tool_plain(function, **options)

    @overload
    def toolset(self, function: F, /) -> F: ...

    @overload
    def toolset(self, function: None = None, /, *, per_run_step: bool = True) -> Callable[[F], F]: ...

    def toolset(self, function: F | None = None, /, *, per_run_step: bool = True) -> F | Callable[[F], F]:
        """Decorator: register a function that returns a toolset, or None.

        Args:
            function: The function, where the decorator is used without arguments.
            per_run_step: Whether it is called before each request to the model, or once in a run.
        """

        def add(function: F) -> F:
            self._toolsets.append(_ToolsetFunction(function, per_run_step))
            return function

        return add if function is None else add(function)

    def instructions(self, function: F) -> F:
        """Decorator: register a function that returns instructions. It is called before each request to the model."""
        self._instructions.append(function)
        return function

    @overload
    def system_prompt(self, function: F, /) -> F: ...

    @overload
    def system_prompt(self, function: None = None, /, *, dynamic: bool = False) -> Callable[[F], F]: ...

    def system_prompt(self, function: F | None = None, /, *, dynamic: bool = False) -> F | Callable[[F], F]:
        """Decorator: register a function that returns a system prompt at the start of a conversation.

        Args:
            function: The function, where the decorator is used without arguments.
            dynamic: Whether later runs, which continue the conversation, call it again and replace its prompt.
        """

        def add(function: F) -> F:
            self._system_prompts.append(_SystemPrompt(function, dynamic))
            return function

        return add if function is None else add(function)

    def output_validator(self, function: F) -> F:
        """Decorator: register a function that gets the output, and returns it or raises `ModelRetry`."""
        self._validators.append(function)
        return function

    # --- nodes of `iter`, as programs for Pydantic AI distinguish them ---------------------------------------------

    @staticmethod
    def is_user_prompt_node(node: object) -> TypeGuard[UserPromptNode]:
        """Check that the run begins."""
        return isinstance(node, UserPromptNode)

    @staticmethod
    def is_model_request_node(node: object) -> TypeGuard[ModelRequestNode]:
        """Check that the next step is a request to the model."""
        return isinstance(node, ModelRequestNode)

    @staticmethod
    def is_call_tools_node(node: object) -> TypeGuard[CallToolsNode]:
        """Check that the next step calls functions, or checks the answer."""
        return isinstance(node, CallToolsNode)

    @staticmethod
    def is_end_node(node: object) -> TypeGuard[End[Any]]:
        """Check that the run has ended."""
        return isinstance(node, End)

    # --- testing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def override(self, **overrides: Unpack[AgentOverrides]) -> Iterator[None]:
        """Replace the agent's model, dependencies, tools or instructions for the runs that begin in this block.

        It applies to the block's own task or thread, and to those that it starts. Blocks nest; the inner one wins.

        Args:
            overrides: See `AgentOverrides`.

        Raises:
            TypeError: An argument is unknown.
        """
        _check_names("Agent.override()", overrides, AgentOverrides.__annotations__)
        active = _overrides.get()
        token = _overrides.set({**active, self: {**active.get(self, {}), **overrides}})
        try:
            yield
        finally:
            _overrides.reset(token)

    @property
    def _overridden(self) -> AgentOverrides:
        return _overrides.get().get(self, {})

    @property
    def _active_functions(self) -> FunctionToolset:
        tools = self._overridden.get("tools")
        return self._functions if tools is None else _Functions(tools)

    # --- running -------------------------------------------------------------------------------------------------

    async def run(
        self,
        user_prompt: Prompt | None = None,
        *,
        event_stream_handler: EventHandler | None = None,
        **options: Unpack[RunOptions],
    ) -> AgentRunResult[Out]:
        """Run to the end.

        Args:
            user_prompt: The user's message. None where the message history already ends with what is to be answered.
            event_stream_handler: Handler of the run's events, in place of the agent's.
            options: See `RunOptions`.

        Returns:
            The result, with the output, the messages and the usage.

        Raises:
            ModelError: The model's provider failed.
            UnexpectedModelBehavior: The model did something from which the agent cannot continue.
            UsageLimitExceeded: The run would exceed, or exceeded, its usage limits.
            RequestError: The run cannot be requested in this way.
            Exception: Any exception of a function.
        """
        async with self.iter(user_prompt, **options) as run:
            handler = event_stream_handler or self._event_handler
            if handler is not None:
                await _call_event_handler(handler, run.ctx, EventReader(run).events())
            return await run.finish()

    def run_sync(
        self,
        user_prompt: Prompt | None = None,
        *,
        event_stream_handler: EventHandler | None = None,
        **options: Unpack[RunOptions],
    ) -> AgentRunResult[Out]:
        """Run to the end, in a program without an event loop.

        Args:
            user_prompt: The user's message.
            event_stream_handler: Handler of the run's events, in place of the agent's.
            options: See `RunOptions`.

        Raises:
            RuntimeError: An event loop is running.
            Exception: Everything that `run` raises.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("run_sync cannot be used where an event loop is running; use: await agent.run(…)")

        async def run() -> AgentRunResult[Out]:
            from ..models.connection_pool import close_shared_pool

            try:
                return await self.run(user_prompt, event_stream_handler=event_stream_handler, **options)
            finally:
                await close_shared_pool()

        return asyncio.run(run())

    @asynccontextmanager
    async def run_stream(
        self,
        user_prompt: Prompt | None = None,
        *,
        event_stream_handler: EventHandler | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncIterator[StreamedRunResult[Out]]:
        """Run until the final answer begins, and return it as a stream.

        The part of the answer that is not read when the block ends is not requested from the model. The handler gets
        every event before the answer.

        Args:
            user_prompt: The user's message.
            event_stream_handler: Handler of the events, in place of the agent's.
            options: See `RunOptions`.

        Raises:
            Exception: Everything that `run` raises.
        """
        async with self.iter(user_prompt, **options) as run:
            reader = EventReader(run)
            events = _until_final(reader)
            handler = event_stream_handler or self._event_handler
            if handler is not None:
                await _call_event_handler(handler, run.ctx, events)
            else:
                async for _ in events:
                    pass
            yield StreamedRunResult(run, reader)

    def run_stream_events(self, user_prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> EventStream[Out]:
        """Return every event of a run, and last an `AgentRunResultEvent`.

        Use it as `async for event in …`, or as `async with … as events`.

        Args:
            user_prompt: The user's message.
            options: See `RunOptions`.
        """
        return EventStream(self.iter(user_prompt, **options))

    @asynccontextmanager
    async def iter(
        self, user_prompt: Prompt | None = None, **options: Unpack[RunOptions]
    ) -> AsyncIterator[SteppedRun[Out]]:
        """Run step by step: `async for node in run`, or `await run.next(node)`. Leaving the block ends the run.

        A run without a `user_prompt` whose message history ends with a turn that broke off repeats this turn.

        A call of an external tool ends the run. So does a tool that raises `ApprovalRequired` or `CallDeferred`. The
        output is then `DeferredToolRequests`. The next run continues with the messages as its history, and the results
        of the calls as `deferred_tool_results`.

        Args:
            user_prompt: The user's message.
            options: See `RunOptions`.

        Raises:
            RequestError: The run cannot be requested in this way.
        """
        _check_names("Agent.iter()", options, RunOptions.__annotations__)
        if user_prompt is None:
            options["message_history"] = without_cut_turn(options.get("message_history") or ())
        plan = await self._plan(user_prompt, options)
        async with plan.toolset, SteppedRun[Out](plan) as run:
            yield run

    async def start(self, run_input: RunInput) -> AgentRun[Out]:
        """Start a run for a server (see `pellucid.agui`). Event handlers get none of its events.

        Args:
            run_input: The conversation, the client's tools and the settings.

        Raises:
            RequestError: The agent cannot be run with this input.
        """
        messages = run_input.messages
        context = RunContext(
            self._overridden.get("deps", run_input.deps),
            _resolve_model(self._overridden.get("model") or self._model),
            messages=messages,
        )
        # The functions of dynamic prompts are called once, with the whole history (`_with_dynamic_prompts`).
        prompts = [
            SystemPromptPart("", dynamic_ref=prompt.dynamic_ref) if prompt.is_dynamic else await prompt.part(context)
            for prompt in self._system_prompts
        ]
        options: RunOptions = {
            "message_history": _with_system_prompts(_prompts_with_text(prompts), messages),
            "model_settings": run_input.settings,
            "deps": run_input.deps,
            "external_tools": run_input.tools,
            "deferred_tool_results": run_input.results,
        }
        plan = await self._plan(None, options)
        return AgentRun(
            replace(
                plan,
                model=run_input.wrap_model(plan.model),
                stages=tuple(run_input.stages),
                is_served=True,
                max_tool_calls=run_input.max_tool_calls,
            )
        )

    async def _plan(self, user_prompt: Prompt | None, options: RunOptions) -> RunPlan:
        output_type, external_tools = options.get("output_type"), options.get("external_tools", ())
        overridden, functions = self._overridden, self._active_functions
        output = self._output if output_type is None else build_output(output_type)
        duplicates = set(output.tools) & set(functions.tools)
        if duplicates:
            raise RequestError(f"the tool {duplicates.pop()!r} has the name of the output: give one another name")
        for index, tool in enumerate(external_tools):
            if tool.name in output.tools or tool.name in functions.tools:
                raise name_conflict(index, tool.name)
        model = _resolve_model(overridden.get("model") or options.get("model") or self._model)
        results = options.get("deferred_tool_results") or DeferredToolResults()
        usage = options.get("usage")
        context = RunContext(
            overridden.get("deps", options.get("deps")),
            model,
            RunUsage() if usage is None else usage,
            prompt=_content(user_prompt),
        )
        history = await self._with_dynamic_prompts(options.get("message_history") or (), context)
        context = replace(context, messages=history)
        messages, pending = resume_history(history, results)
        instructions = [*self._instructions, *instruction_list(options.get("instructions"))]
        if "instructions" in overridden:
            instructions = instruction_list(overridden["instructions"])
        toolsets = [*self._toolsets, *_toolset_list(options.get("toolsets", ()))]
        if "toolsets" in overridden:
            toolsets = _toolset_list(overridden["toolsets"])
        layers = (self._model_settings, options.get("model_settings"))
        must_call = output.tools and not output.accepts_text
        call = ModelCall(
            model.name,
            [*messages, *await self._new_request(user_prompt, history, context)],
            validate_settings(merge_settings(*(layer for layer in layers if not callable(layer)))),
            tool_choice=ToolChoice("required" if must_call else "auto", is_preference=True),
            output=output.format,
        )
        warnings = model.warnings(call)
        for warning in warnings:
            warn(warning)
        return RunPlan(
            model=model,
            call=call,
            settings_layers=layers if any(callable(layer) for layer in layers) else (),
            history=history,
            instructions=instructions,
            output=output,
            toolset=self._combined_toolset([functions, *toolsets], external_tools),
            options=self._execution,
            end_strategy=self._end_strategy,
            context=context,
            limits=options.get("usage_limits") or UsageLimits(),
            output_retries=self._output_retries,
            validators=self._validators,
            processors=self._processors,
            id_seed=secrets.token_bytes(16),
            warnings=warnings,
            pending_calls=pending,
            deferred_results=results,
        )

    def _combined_toolset(
        self, toolsets: Sequence[AbstractToolset | _ToolsetFunction], external_tools: Sequence[ToolDefinition]
    ) -> AbstractToolset:
        """Return all tools of one run as one toolset."""
        members = [DynamicToolset(*entry) if isinstance(entry, _ToolsetFunction) else entry for entry in toolsets]
        if external_tools:
            members.append(ExternalToolset(external_tools))
        combined = CombinedToolset(members)
        return combined if self._prepare_tools is None else combined.prepared(self._prepare_tools)

    async def _with_dynamic_prompts(
        self, history: Sequence[ModelMessage], context: RunContext[Any]
    ) -> list[ModelMessage]:
        """Return a history with those system prompts replaced whose functions are dynamic."""
        dynamic = {prompt.dynamic_ref: prompt for prompt in self._system_prompts if prompt.dynamic_ref is not None}
        out = list(history)
        if not dynamic:
            return out
        context = replace(context, messages=out)
        for index, message in enumerate(history):
            if isinstance(message, ModelRequest):
                parts = [
                    await dynamic[part.dynamic_ref].part(context)
                    if isinstance(part, SystemPromptPart) and part.dynamic_ref in dynamic
                    else part
                    for part in message.parts
                ]
                out[index] = structs.replace(message, parts=parts)
        return out

    async def _new_request(
        self, prompt: Prompt | None, history: list[ModelMessage], context: RunContext[Any]
    ) -> list[ModelMessage]:
        prompts = [] if history else self._system_prompts
        parts = _prompts_with_text([await prompt.part(context) for prompt in prompts])
        content = _content(prompt)
        if content is not None:
            parts.append(UserPromptPart(_user_content(content)))
        if not parts and not history:
            raise RequestError("there is no message to answer: give a user_prompt or a message_history")
        return [ModelRequest(parts, timestamp=datetime.now(UTC))] if parts else []


class _Functions(FunctionToolset):
    """The functions of an agent. Models get them under their own names; those of other toolsets may be renamed."""

    def add_tool(self, tool: AnyTool) -> None:
        """Add a tool. Raises `RequestError` if providers refuse its name, or if there is a tool with the same name."""
        check_tool_name(tool.name, "a tool")
        super().add_tool(tool)


class _SystemPrompt(NamedTuple):
    """A system prompt, or a function that returns one."""

    text: str | Callable[..., Any]
    is_dynamic: bool = False

    @property
    def dynamic_ref(self) -> str | None:
        """The name by which a later run finds the function."""
        return getattr(self.text, "__qualname__", None) if self.is_dynamic else None

    async def part(self, context: RunContext[Any]) -> SystemPromptPart:
        text = self.text if isinstance(self.text, str) else await call_function(self.text, context)
        return SystemPromptPart(text or "", dynamic_ref=self.dynamic_ref)


class _ToolsetFunction(NamedTuple):
    function: Callable[..., Any]
    per_run_step: bool = True


def _toolset_list(toolsets: Sequence[AnyToolset]) -> list[AbstractToolset | _ToolsetFunction]:
    return [entry if isinstance(entry, AbstractToolset) else _ToolsetFunction(entry) for entry in toolsets]


class EventStream(Generic[Out]):
    """The events of a run.

    Iterate over it, or enter it first as a context manager, which ends the run when it is left.
    """

    def __init__(self, run: AbstractAsyncContextManager[AgentRun[Out]]) -> None:
        self._run = run
        self._entered = False
        self._events: AsyncIterator[Event | AgentRunResultEvent[Out]] | None = None
        """Set only after entering. Otherwise the last reader closes the iterator."""

    async def _all_events(self) -> AsyncIterator[Event | AgentRunResultEvent[Out]]:
        async with self._run as run:
            async for event in EventReader(run).events():
                yield event
            yield AgentRunResultEvent(run.result)

    def __aiter__(self) -> AsyncIterator[Event | AgentRunResultEvent[Out]]:
        if not self._entered:
            return self._all_events()
        if self._events is None:
            self._events = self._all_events()
        return self._events

    async def __aenter__(self) -> EventStream[Out]:
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()

    def __await__(self) -> Generator[Any, None, None]:
        raise TypeError("run_stream_events is not awaited: use `async for event in …` or `async with … as events`")


async def _until_final(reader: EventReader) -> AsyncIterator[Event]:
    """Yield events up to the start of the final answer."""
    async for event in reader.events():
        yield event
        if isinstance(event, FinalResultEvent):
            return


def _check_names(function: str, options: Collection[str], known: Collection[str]) -> None:
    """Raise `TypeError` if an option is unknown."""
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise TypeError(f"{function} has no argument {name!r}; {hint}")


def _prompts_with_text(parts: Sequence[SystemPromptPart]) -> list[ModelRequestPart]:
    """Return the prompts that are not empty, and those that a later run may replace."""
    return [part for part in parts if part.content or part.dynamic_ref]


def _with_system_prompts(system_parts: list[ModelRequestPart], messages: list[ModelMessage]) -> list[ModelMessage]:
    """Put the agent's system prompts in front of a client's conversation, which does not contain them."""
    if not system_parts:
        return messages
    first = messages[0] if messages else None
    if isinstance(first, ModelRequest):
        return [structs.replace(first, parts=[*system_parts, *first.parts]), *messages[1:]]
    return [ModelRequest(system_parts), *messages]


def _resolve_model(model: ChatModel | str | None) -> ChatModel:
    if model is None:
        raise RequestError("this agent has no model: pass one to the agent or to the run")
    if isinstance(model, str):
        from ..models.infer import infer_model

        return infer_model(model)
    return model


def _content(prompt: Prompt | None) -> str | list[str | UserContent] | None:
    return prompt if prompt is None or isinstance(prompt, str) else list(prompt)


def _user_content(content: str | list[str | UserContent]) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [Text(piece) if isinstance(piece, str) else piece for piece in content]
