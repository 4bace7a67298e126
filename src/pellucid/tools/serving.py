"""The tools of a server, for anybody's run: whatever a tool does, the run goes on.

`gather` puts together what the operator has registered and what MCP servers offer; `ServerTools` calls it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import PellucidError
from ..parts import ToolCallPart
from ..settings import ToolDefinition
from ..telemetry import log, place_of
from .calling import Attempts, Result, Rules, Toolbox, Watch, call_all
from .context import RunContext
from .protocol import AnyTool

if TYPE_CHECKING:
    from .mcp import MCPServer, MCPTool


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
