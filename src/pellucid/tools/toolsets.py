"""Toolsets: what tools a run has, at each of its steps.

    weather = FunctionToolset([temperature, forecast])
    agent = Agent("openai:gpt-5", toolsets=[weather.prefixed("weather").approval_required()])

A toolset lists its tools before each request to the model (`get_tools`), with the context of the run, and every call
goes through it (`call_tool`). A wrapper has another toolset inside and changes one of the two: which tools there are,
how they are described, or how they are called. Wrappers can be nested in any order.

The names are Pydantic AI's. A toolset of your own is a subclass of `AbstractToolset`, whose `get_tools` returns `Tool`s
or other objects with the interface `AnyTool`; or a subclass of `WrapperToolset` with its own `call_tool`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, overload

from ..errors import RequestError
from ..settings import ToolDefinition
from .context import RunContext
from .deferred import ApprovalRequired, CallDeferred
from .function_tool import Tool, call_function
from .protocol import AnyTool

F = TypeVar("F", bound=Callable[..., Any])

ToolFilter = Callable[[RunContext[Any], ToolDefinition], bool | Awaitable[bool]]
ToolsPrepare = Callable[
    [RunContext[Any], list[ToolDefinition]], list[ToolDefinition] | Awaitable[list[ToolDefinition] | None] | None
]
ApprovalFilter = Callable[[RunContext[Any], ToolDefinition, dict[str, Any]], bool]
ToolsetFunction = Callable[..., Any]
"""A function that takes a context, if it wants one, and returns a toolset or None."""
Instructions = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]


def tools_by_name(tools: Iterable[AnyTool | Callable[..., Any]]) -> dict[str, AnyTool]:
    """Return tools by their names; a function becomes a `Tool`. Raises `RequestError` if two have the same name."""
    out: dict[str, AnyTool] = {}
    for entry in tools:
        _add(out, entry if isinstance(entry, AnyTool) else Tool(entry))
    return out


def _add(tools: dict[str, AnyTool], tool: AnyTool, owner: str = "") -> None:
    if tool.name in tools:
        hint = f"; those of {owner} can have a prefix: toolset.prefixed('…')" if owner else ""
        raise RequestError(f"there are two tools with the name {tool.name!r}; give one another name{hint}")
    tools[tool.name] = tool


class AbstractToolset(ABC):
    """A set of tools of a run."""

    max_retries: int | None = None
    """How often in a row each tool may fail that does not say it itself; None: as the agent's `retries`."""
    timeout: float | None = None
    """Seconds for each call of a tool that does not say it itself; None: as the agent's `tool_timeout`."""

    @property
    def id(self) -> str | None:
        """A name of the toolset for readers of messages."""
        return None

    @property
    def label(self) -> str:
        """The toolset in an error message."""
        return f"{type(self).__name__} {self.id!r}" if self.id else type(self).__name__

    @abstractmethod
    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Return the tools for the next request to the model, by name."""
        ...

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: AnyTool) -> Any:
        """Call a tool.

        Args:
            name: Its name in this toolset.
            tool_args: The validated arguments.
            ctx: The context of the call.
            tool: The tool, as `get_tools` returned it.

        Returns:
            The result.
        """
        return await tool.call(ctx, tool_args)

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Return instructions for the use of these tools, which each request to the model includes."""
        return None

    async def __aenter__(self) -> Self:
        """Connect to what the tools need. A run enters its toolsets, and leaves them at its end.

        A toolset may be entered more than once: by an agent (`async with agent`), and by each of its runs.
        """
        return self

    async def __aexit__(self, *error: object) -> None:  # noqa: B027
        """Disconnect."""

    # --- wrappers ------------------------------------------------------------------------------------------------

    def filtered(self, filter_func: ToolFilter) -> FilteredToolset:
        """Return a toolset with those tools for which `filter_func(ctx, definition)` is true."""
        return FilteredToolset(self, filter_func)

    def prefixed(self, prefix: str) -> PrefixedToolset:
        """Return a toolset with the same tools, each named `PREFIX_NAME`."""
        return PrefixedToolset(self, prefix)

    def renamed(self, name_map: dict[str, str]) -> RenamedToolset:
        """Return a toolset with other names for some tools: `{new name: present name}`."""
        return RenamedToolset(self, name_map)

    def prepared(self, prepare_func: ToolsPrepare) -> PreparedToolset:
        """Return a toolset whose definitions are those that `prepare_func(ctx, definitions)` returns."""
        return PreparedToolset(self, prepare_func)

    def approval_required(self, approval_required_func: ApprovalFilter | None = None) -> ApprovalRequiredToolset:
        """Return a toolset whose calls need an approval; only those for which the function is true, if there is one."""
        return ApprovalRequiredToolset(self, approval_required_func)


@dataclass(frozen=True)
class ToolsetTool:
    """A tool as a toolset offers it: perhaps with another definition, and with calls that go through the toolset."""

    toolset: AbstractToolset | None
    """The toolset through which it is called; None: directly."""
    tool: AnyTool
    definition: ToolDefinition

    @property
    def name(self) -> str:
        """The name that the model knows."""
        return self.definition.name

    @property
    def tool_def(self) -> ToolDefinition:
        """The definition, by the name that Pydantic AI has for it."""
        return self.definition

    @property
    def max_retries(self) -> int | None:
        """How often in a row it may fail; None: as its caller's default."""
        default = self.toolset.max_retries if self.toolset is not None else None
        return default if self.tool.max_retries is None else self.tool.max_retries

    @property
    def timeout(self) -> float | None:
        """Seconds for each call; None: as its caller's default."""
        default = self.toolset.timeout if self.toolset is not None else None
        return default if self.tool.timeout is None else self.tool.timeout

    @property
    def sequential(self) -> bool:
        """Whether it must run alone."""
        return self.tool.sequential

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments. Raises `ValueError` that says what is wrong."""
        return self.tool.validate(arguments)

    async def call(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Call it through its toolset, with the name that it has there."""
        context = replace(context, tool_name=self.tool.name)
        if self.toolset is None:
            return await self.tool.call(context, arguments)
        return await self.toolset.call_tool(self.tool.name, arguments, context, self.tool)


# --- toolsets that hold tools ------------------------------------------------------------------------------------


class FunctionToolset(AbstractToolset):
    """Functions as tools.

    Args:
        tools: Functions, `Tool`s, and other tools.
        max_retries: How often in a row each tool may fail that does not say it itself.
        timeout: Seconds for each call of a tool that does not say it itself.
        id: A name for messages.
        instructions: Text, or functions that return it, for the use of these tools.
        defaults: Arguments of `Tool` for every function that is added (`sequential`, `requires_approval`, …).

    Raises:
        RequestError: A function cannot be described to a model, or two tools have the same name.
    """

    def __init__(
        self,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        *,
        max_retries: int | None = None,
        timeout: float | None = None,
        id: str | None = None,
        instructions: Instructions | None = None,
        **defaults: Any,
    ) -> None:
        self.max_retries = max_retries
        self.timeout = timeout
        self._id = id
        self._defaults = defaults
        self._instructions = instruction_list(instructions)
        self.tools: dict[str, AnyTool] = {}
        """The tools by name. A tool that is added during a run is there from the next request on."""
        for tool in tools:
            if isinstance(tool, AnyTool):
                self.add_tool(tool)
            else:
                self.add_function(tool)

    @property
    def id(self) -> str | None:
        """The name for messages."""
        return self._id

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Decorator: add a function that takes a `RunContext` first.

        Args:
            function: The function, where the decorator is used without arguments.
            options: The arguments of `Tool`; `retries` is another name of `max_retries`.
        """
        return self._decorator(function, {"takes_ctx": True, **options})

    @overload
    def tool_plain(self, function: F, /) -> F: ...

    @overload
    def tool_plain(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool_plain(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Decorator: add a function that takes no context.

        Args:
            function: The function, where the decorator is used without arguments.
            options: The arguments of `Tool`; `retries` is another name of `max_retries`.
        """
        return self._decorator(function, {"takes_ctx": False, **options})

    def _decorator(self, function: F | None, options: dict[str, Any]) -> F | Callable[[F], F]:
        def add(function: F) -> F:
            self.add_function(function, **options)
            return function

        return add if function is None else add(function)

    def instructions(self, function: F) -> F:
        """Decorator: add a function that returns instructions for the use of these tools."""
        self._instructions.append(function)
        return function

    def add_function(self, function: Callable[..., Any], /, **options: Any) -> None:
        """Add a function.

        Args:
            function: The function.
            options: The arguments of `Tool`; `retries` is another name of `max_retries`.
        """
        options = self._defaults | options
        if "retries" in options:
            options["max_retries"] = options.pop("retries")
        self.add_tool(Tool(function, **options))

    def add_tool(self, tool: AnyTool) -> None:
        """Add a tool. Raises `RequestError` if there is a tool with the same name."""
        _add(self.tools, tool)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, AnyTool]:
        """Return the tools, as their `prepare` functions describe them."""
        out: dict[str, AnyTool] = {}
        for tool in list(self.tools.values()):
            prepare = getattr(tool, "prepare", None)
            if prepare is not None:
                # A copy: functions change the schema in place.
                definition = await call_function(prepare, ctx, copy.deepcopy(tool.definition))
                if definition is None:
                    continue
                tool = ToolsetTool(None, tool, definition)
            _add(out, tool)
        return out

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Return the toolset's instructions."""
        return await instruction_text(self._instructions, ctx)


class ExternalToolset(AbstractToolset):
    """Tools that the caller of the run calls: a call of one ends the run, with `DeferredToolRequests` as its output.

    Args:
        tool_defs: The descriptions of the tools.
        id: A name for messages.
    """

    def __init__(self, tool_defs: Iterable[ToolDefinition], *, id: str | None = None) -> None:
        self._id = id
        self._tools = tools_by_name(ExternalTool(replace(definition, kind="external")) for definition in tool_defs)

    @property
    def id(self) -> str | None:
        """The name for messages."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, AnyTool]:
        """Return the tools."""
        return dict(self._tools)


@dataclass(frozen=True)
class ExternalTool:
    """A tool that the caller of the run calls."""

    definition: ToolDefinition
    max_retries: int | None = None
    timeout: float | None = None
    sequential: bool = False

    @property
    def name(self) -> str:
        """The name that the model knows."""
        return self.definition.name

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged: the caller validates them."""
        return arguments

    async def call(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Raise `CallDeferred`."""
        raise CallDeferred


class CombinedToolset(AbstractToolset):
    """Several toolsets as one. Tools of different toolsets must have different names.

    Args:
        toolsets: The toolsets.
    """

    def __init__(self, toolsets: Sequence[AbstractToolset]) -> None:
        self.toolsets = list(toolsets)
        self._exits: list[AsyncExitStack] = []

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, AnyTool]:
        """Return the tools of all toolsets. Raises `RequestError` if two have the same name."""
        out: dict[str, AnyTool] = {}
        for toolset in self.toolsets:
            for tool in (await toolset.get_tools(ctx)).values():
                _add(out, ToolsetTool(toolset, tool, tool.definition), toolset.label)
        return out

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Return the instructions of all toolsets."""
        texts = [await toolset.get_instructions(ctx) for toolset in self.toolsets]
        return "\n\n".join(text for text in texts if text) or None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for toolset in self.toolsets:
                await stack.enter_async_context(toolset)
            self._exits.append(stack.pop_all())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exits.pop().aclose()


class DynamicToolset(AbstractToolset):
    """The toolset that a function returns, for one run.

    Args:
        function: Takes a context, if it wants one, and returns a toolset or None.
        per_run_step: Whether it is called before each request to the model, or once in a run.
    """

    def __init__(self, function: ToolsetFunction, per_run_step: bool = True) -> None:
        self._function = function
        self._per_run_step = per_run_step
        self._is_built = False
        self._inner: AbstractToolset | None = None

    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Build the toolset if it is time to, and return its tools."""
        if self._per_run_step or not self._is_built:
            built = await call_function(self._function, ctx)
            if built is not self._inner:
                await self.__aexit__()
                self._inner = None if built is None else await built.__aenter__()
            self._is_built = True
        if self._inner is None:
            return {}
        inner = self._inner
        return {name: ToolsetTool(inner, tool, tool.definition) for name, tool in (await inner.get_tools(ctx)).items()}

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Return the instructions of the present toolset."""
        return None if self._inner is None else await self._inner.get_instructions(ctx)

    async def __aexit__(self, *error: object) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.__aexit__(*error)


# --- toolsets that change another --------------------------------------------------------------------------------


class WrapperToolset(AbstractToolset):
    """Another toolset, unchanged. Subclasses change the list of its tools (`get_tools`), or their calls (`call_tool`).

    Args:
        wrapped: The other toolset.
    """

    def __init__(self, wrapped: AbstractToolset) -> None:
        self.wrapped = wrapped

    @property
    def id(self) -> str | None:
        """The name of the other toolset."""
        return self.wrapped.id

    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Return the tools of the other toolset, which are called through it."""
        return {name: self._bind(tool) for name, tool in (await self.wrapped.get_tools(ctx)).items()}

    def _bind(self, tool: AnyTool, definition: ToolDefinition | None = None) -> ToolsetTool:
        return ToolsetTool(self.wrapped, tool, definition or tool.definition)

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Return the instructions of the other toolset."""
        return await self.wrapped.get_instructions(ctx)

    async def __aenter__(self) -> Self:
        await self.wrapped.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.wrapped.__aexit__(*error)


class FilteredToolset(WrapperToolset):
    """Those tools for which `filter_func(ctx, definition)` is true, before each request to the model."""

    def __init__(self, wrapped: AbstractToolset, filter_func: ToolFilter) -> None:
        super().__init__(wrapped)
        self.filter_func = filter_func

    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Return the tools that pass the filter."""
        return {
            name: tool
            for name, tool in (await super().get_tools(ctx)).items()
            if await call_function(self.filter_func, ctx, tool.definition)
        }


class RenamedToolset(WrapperToolset):
    """The same tools, some with other names.

    Args:
        wrapped: The other toolset.
        name_map: `{new name: present name}`.
    """

    def __init__(self, wrapped: AbstractToolset, name_map: dict[str, str]) -> None:
        super().__init__(wrapped)
        self.name_map = name_map

    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Return the tools with their new names. Raises `RequestError` if two have the same name."""
        out: dict[str, AnyTool] = {}
        for tool in (await self.wrapped.get_tools(ctx)).values():
            _add(out, self._bind(tool, replace(tool.definition, name=self._new_name(tool.name))))
        return out

    def _new_name(self, name: str) -> str:
        return next((new for new, present in self.name_map.items() if present == name), name)


class PrefixedToolset(RenamedToolset):
    """The same tools, each named `PREFIX_NAME`."""

    def __init__(self, wrapped: AbstractToolset, prefix: str) -> None:
        super().__init__(wrapped, {})
        self.prefix = prefix

    def _new_name(self, name: str) -> str:
        return f"{self.prefix}_{name}"


class PreparedToolset(WrapperToolset):
    """The tools whose definitions `prepare_func(ctx, definitions)` returns, with these definitions.

    The function may leave tools out and change their descriptions. It cannot add or rename tools.
    """

    def __init__(self, wrapped: AbstractToolset, prepare_func: ToolsPrepare) -> None:
        super().__init__(wrapped)
        self.prepare_func = prepare_func

    async def get_tools(self, ctx: RunContext[Any]) -> Mapping[str, AnyTool]:
        """Return the prepared tools. Raises `RequestError` for a definition whose name no tool has."""
        tools = await self.wrapped.get_tools(ctx)
        prepared = await call_function(
            self.prepare_func, ctx, [copy.deepcopy(tool.definition) for tool in tools.values()]
        )
        out: dict[str, AnyTool] = {}
        for definition in prepared or ():
            if definition.name not in tools:
                raise RequestError(
                    f"a prepare function returned the tool {definition.name!r}, which was not there: to add a tool, "
                    "use FunctionToolset.add_function; to rename one, toolset.renamed"
                )
            out[definition.name] = self._bind(tools[definition.name], definition)
        return out


class ApprovalRequiredToolset(WrapperToolset):
    """The same tools, whose calls need an approval (see `ApprovalRequired`).

    Args:
        wrapped: The other toolset.
        approval_required_func: Whether a call needs one: `(ctx, definition, arguments)`. None: every call.
    """

    def __init__(self, wrapped: AbstractToolset, approval_required_func: ApprovalFilter | None = None) -> None:
        super().__init__(wrapped)
        self.approval_required_func = approval_required_func

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: AnyTool) -> Any:
        """Call the tool. Raises `ApprovalRequired` if the call needs an approval and has none."""
        needs_approval = self.approval_required_func
        if not ctx.tool_call_approved and (needs_approval is None or needs_approval(ctx, tool.definition, tool_args)):
            raise ApprovalRequired
        return await super().call_tool(name, tool_args, ctx, tool)


# --- instructions ------------------------------------------------------------------------------------------------


def instruction_list(instructions: Instructions | None) -> list[str | Callable[..., Any]]:
    """Return instructions as a list of texts and functions."""
    if instructions is None:
        return []
    return [instructions] if isinstance(instructions, str) or callable(instructions) else list(instructions)


async def instruction_text(instructions: Iterable[str | Callable[..., Any]], context: RunContext[Any]) -> str | None:
    """Return the texts, and those that the functions return, as one text; None if there is none."""
    texts = [text if isinstance(text, str) else await call_function(text, context) for text in instructions]
    return "\n\n".join(text for text in texts if text) or None
