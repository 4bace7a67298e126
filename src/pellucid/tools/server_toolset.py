"""The tools of a server, for the runs of all its users: whatever a tool does, the run continues.

`collect_tools` joins the tools that the operator registered with those of MCP servers; `ServerToolset` calls them.

`load_tools` loads registered tools by name: `package.module:function`, or an entry point of the group `pellucid.tools`.

A name may refer to a function, a `Tool`, or a list of these. Nothing is loaded without being named: an installed
package is not a reason to run its code.
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
from ..telemetry import error_location, log
from .context import RunContext
from .execution import MAX_RESULT_BYTES, CallObserver, ExecutionOptions, FailureCounter, Result, call_tools
from .function_tool import Tool
from .protocol import AnyTool
from .toolsets import tools_by_name

if TYPE_CHECKING:
    from .mcp import MCPServer, MCPTool


ENTRY_POINT_GROUP = "pellucid.tools"


def load_tools(entries: Sequence[str], *, key: str = "tools") -> list[AnyTool]:
    """Load tools by name.

    Args:
        entries: The names of functions or entry points.
        key: The configuration key of the entries, for error messages.

    Returns:
        The tools, in the order of `entries`.

    Raises:
        ConfigError: It lists every invalid entry.
    """
    errors: list[str] = []
    tools: dict[str, AnyTool] = {}
    for index, entry in enumerate(entries):
        try:
            for tool in _tools_of(_import_entry(entry)):
                if tool.name in tools:
                    raise _InvalidEntry(f"an earlier tool has the name {tool.name!r}; give one another name")
                tools[tool.name] = tool
        except _InvalidEntry as error:
            errors.append(f"{key}[{index}]: {entry!r}: {error}")
    if errors:
        raise ConfigError(errors)
    return list(tools.values())


class _InvalidEntry(Exception):
    """An entry is invalid. The message says what would be valid."""


def _import_entry(entry: str) -> Any:
    module, colon, path = entry.partition(":")
    if not colon:
        installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        if entry not in installed:
            available = ", ".join(sorted(installed)) or "none"
            raise _InvalidEntry(
                f"write `package.module:function`, or the name of an entry point of the group {ENTRY_POINT_GROUP} "
                f"(there are: {available})"
            )
        module, _, path = installed[entry].value.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), *path.split("."))):
        raise _InvalidEntry("write `package.module:function`")
    try:
        target: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise _InvalidEntry(f"there is no module {error.name!r}; install it, or put it on PYTHONPATH") from error
    except (Exception, SystemExit) as error:
        # The text of the exception may quote anything; its location is in the traceback of the cause.
        raise _InvalidEntry(f"the module {module!r} cannot be imported ({type(error).__name__}: {error})") from error
    for name in path.split("."):
        if not hasattr(target, name):
            close_matches = get_close_matches(name, [known for known in dir(target) if not known.startswith("_")], 1)
            hint = f"; did you mean {close_matches[0]!r}?" if close_matches else ""
            raise _InvalidEntry(f"{getattr(target, '__name__', module)} has no {name!r}{hint}")
        target = getattr(target, name)
    return target


def _tools_of(target: Any) -> Iterable[AnyTool]:
    for entry in target if isinstance(target, (list, tuple)) else [target]:
        if isinstance(entry, AnyTool) and not isinstance(entry, type):
            yield entry
        elif callable(entry) and not isinstance(entry, type):
            try:
                yield Tool(entry)
            except RequestError as error:
                raise _InvalidEntry(error.info.message) from error
        else:
            raise _InvalidEntry(f"it must be a function, a Tool, or a list of these, and is a {type(entry).__name__}")


class ServerToolset:
    """Tools that a server calls, for any number of runs.

    Args:
        tools: The tools.
        timeout: Seconds for each call of a tool that has no time-out of its own.
        parallel: Whether calls of one turn run together.
        observer: Returns a context manager that is entered around each call, and whose value is called with the result.

    Raises:
        RequestError: Two tools have the same name.
    """

    def __init__(
        self,
        tools: Sequence[AnyTool | Callable[..., Any]],
        *,
        timeout: float | None = 60.0,
        parallel: bool = True,
        observer: CallObserver | None = None,
    ) -> None:
        self._tools = tools_by_name(tools)
        self._options = ExecutionOptions(
            timeout=timeout,
            parallel=parallel,
            observer=observer,
            on_error="report",
            max_result_bytes=MAX_RESULT_BYTES,
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of all tools."""
        return frozenset(self._tools)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The descriptions of all tools, for a model."""
        return tuple(tool.definition for tool in self._tools.values())

    async def call(self, calls: Sequence[ToolCallPart], context: RunContext[Any]) -> list[Result]:
        """Return one result for each call, in order. Raises nothing.

        A failure is reported to the model as a result with the outcome `failed`, or as a `RetryPromptPart` for a call
        that reached no tool.
        """
        return await call_tools(self._tools, self._options, calls, context, FailureCounter())


async def collect_tools(
    registered: Sequence[AnyTool],
    servers: Sequence[MCPServer],
    *,
    required: bool = False,
    taken_names: Collection[str] = (),
) -> list[AnyTool]:
    """Join the server's registered tools with those of all MCP servers, which are listed at the same time.

    A tool of an MCP server is renamed to `SERVER_TOOL` (its server's name, an underscore, its own name) if another tool
    has its name, or `taken_names` contains it. Names of registered tools stay.

    Args:
        registered: The tools that the operator registered.
        servers: The MCP servers.
        required: Whether a server that cannot be listed is an error; otherwise it is left out and logged, once.
        taken_names: Names that no tool may have.

    Raises:
        PellucidError: A server could not be listed, and `required` is true.
    """
    listings = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
    mcp_tools: list[MCPTool] = []
    for server, tools in zip(servers, listings, strict=True):
        if isinstance(tools, list):
            mcp_tools += tools
        elif required or not isinstance(tools, PellucidError):
            raise tools
        elif tools is not server.last_logged_error:
            server.last_logged_error = tools
            log.warning("the tools of the MCP server %s are left out: %s", server.name, error_location(tools))
    reserved_names = {tool.name for tool in registered} | set(taken_names)
    name_counts = Counter([*reserved_names, *(tool.name for tool in mcp_tools)])
    names = reserved_names | {name for name, times in name_counts.items() if times == 1}
    out: list[AnyTool] = list(registered)
    for tool in mcp_tools:
        if name_counts[tool.name] > 1:
            tool = tool.with_name(_unique_name(f"{tool.server.name}_{tool.name}", names))
            names.add(tool.name)
        out.append(tool)
    return out


def _unique_name(name: str, taken: set[str]) -> str:
    from .mcp import tool_name

    number, candidate = 1, tool_name(name)
    while candidate in taken:
        number += 1
        candidate = tool_name(f"{name}_{number}")
    return candidate
