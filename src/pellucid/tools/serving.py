"""The tools of a server, for anybody's run: whatever a tool does, the run goes on.

`gather` puts together what the operator has registered and what MCP servers offer; `ServerTools` calls it.

Tools that an operator registers by name: `package.module:function`, or an entry point of the group `pellucid.tools`.

What is found may be a function, a `Tool`, or a list of these. Nothing is loaded that is not named: that a package is
installed is no reason to run it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, PellucidError, RequestError
from ..parts import ToolCallPart
from ..settings import ToolDefinition
from ..telemetry import log, place_of
from .calling import Attempts, Result, Rules, Toolbox, Watch, call_all
from .context import RunContext
from .functions import Tool
from .protocol import AnyTool

if TYPE_CHECKING:
    from .mcp import MCPServer, MCPTool


GROUP = "pellucid.tools"


def load_tools(entries: Sequence[str], *, key: str = "tools") -> list[AnyTool]:
    """The tools, in the order of `entries`. Raises `ConfigError` that names each mistake, under `key`."""
    mistakes: list[str] = []
    tools: dict[str, AnyTool] = {}
    for index, entry in enumerate(entries):
        try:
            for tool in _tools_of(_found(entry)):
                if tool.name in tools:
                    raise _Mistake(f"there is a tool with the name {tool.name!r} before it; give one another name")
                tools[tool.name] = tool
        except _Mistake as mistake:
            mistakes.append(f"{key}[{index}]: {entry!r}: {mistake}")
    if mistakes:
        raise ConfigError(mistakes)
    return list(tools.values())


class _Mistake(Exception):
    """What is wrong with an entry, and what would be right."""


def _found(entry: str) -> Any:
    module, colon, path = entry.partition(":")
    if not colon:
        installed = {point.name: point for point in entry_points(group=GROUP)}
        if entry not in installed:
            there = ", ".join(sorted(installed)) or "none"
            raise _Mistake(
                f"write `package.module:function`, or the name of an entry point of the group {GROUP} "
                f"(there are: {there})"
            )
        module, _, path = installed[entry].value.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), *path.split("."))):
        raise _Mistake("write `package.module:function`")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise _Mistake(f"there is no module {error.name!r}; install it, or put it on PYTHONPATH") from error
    except (Exception, SystemExit) as error:
        # Its words may quote anything; its place is in the traceback of the cause.
        raise _Mistake(f"the module {module!r} cannot be imported ({type(error).__name__}: {error})") from error
    for name in path.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _Mistake(f"{getattr(found, '__name__', module)} has no {name!r}{hint}")
        found = getattr(found, name)
    return found


def _tools_of(found: Any) -> Iterable[AnyTool]:
    for one in found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(one, AnyTool) and not isinstance(one, type):
            yield one
        elif callable(one) and not isinstance(one, type):
            try:
                yield Tool(one)
            except RequestError as error:
                raise _Mistake(error.info.message) from error
        else:
            raise _Mistake(f"it must be a function, a Tool, or a list of these, and is a {type(one).__name__}")


class ServerTools:
    """Tools that a server calls. One for any number of runs.

    `timeout` is in seconds, for each call of a tool that has none of its own. Raises `RequestError` for two tools of
    one name. `watch` is entered around each call, and told its result.
    """

    def __init__(
        self,
        tools: Sequence[AnyTool | Callable[..., Any]],
        *,
        timeout: float | None = 60.0,
        parallel: bool = True,
        watch: Watch | None = None,
    ) -> None:
        self._box = Toolbox(tools, Rules(timeout=timeout, parallel=parallel, watch=watch, faults="tell"))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._box.names)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(self._box.definitions)

    async def call(self, calls: Sequence[ToolCallPart], context: RunContext[Any]) -> list[Result]:
        """One result for each call, in order. Raises nothing: what went wrong is told to the model, as a result with
        the outcome `failed`, or as a `RetryPromptPart` for a call that no tool was given."""
        return await call_all(self._box, calls, context, Attempts())


async def gather(
    own: Sequence[AnyTool], servers: Sequence[MCPServer], *, required: bool = False, taken: Collection[str] = ()
) -> list[AnyTool]:
    """The server's own tools, and those of all MCP servers, listed together.

    A tool whose name another one has too, or that is `taken`, is called `server_tool` instead; names of `own` stay. A
    server that cannot be listed is left out and logged, once; with `required` its `PellucidError` is raised.
    """
    listed = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
    found: list[MCPTool] = []
    for server, tools in zip(servers, listed, strict=True):
        if isinstance(tools, list):
            found += tools
        elif required or not isinstance(tools, PellucidError):
            raise tools
        elif tools is not server.complained_of:
            server.complained_of = tools
            log.warning("the tools of the MCP server %s are left out: %s", server.name, place_of(tools))
    kept = {tool.name for tool in own} | set(taken)
    count = Counter([*kept, *(tool.name for tool in found)])
    names = kept | {name for name, times in count.items() if times == 1}
    out: list[AnyTool] = list(own)
    for tool in found:
        if count[tool.name] > 1:
            tool = tool.named(_free(f"{tool.server.name}_{tool.name}", names))
            names.add(tool.name)
        out.append(tool)
    return out


def _free(name: str, taken: set[str]) -> str:
    from .mcp import tool_name

    number, free = 1, tool_name(name)
    while free in taken:
        number += 1
        free = tool_name(f"{name}_{number}")
    return free
