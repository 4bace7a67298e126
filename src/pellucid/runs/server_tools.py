"""Turn handlers of a run on the server: they call the server's functions, and tools of MCP servers in the request.

A turn may call functions of the server and of the client. The server's functions are called here; the client's end the
run and wait for the client (see `run`). The MCP servers of the request are connected when the run opens, and closed
when it is over. A server that cannot be reached or is not allowed is an error of `open`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..background_tasks import start_task
from ..errors import PellucidError
from ..parts import ToolCallPart
from ..settings import ModelCall
from ..tools import AnyTool, RunContext, ServerToolset, collect_tools
from .live_run import ToolOutcomes, TurnHandler

if TYPE_CHECKING:
    from ..tools.mcp import MCPServer


class ServerTurnHandler(TurnHandler):
    """Turn handler that calls those functions of `tools` whose names are in `tool_names`."""

    def __init__(self, tools: ServerToolset, tool_names: Container[str], context: RunContext[Any]) -> None:
        self.tool_names = tool_names
        self._tools = tools
        self._context = context

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        return ToolOutcomes(await self._tools.call(calls, self._context))


class RequestServers(NamedTuple):
    """The MCP servers of a request, and how their tools are added to its call."""

    servers: Mapping[str, MCPServer]
    """By the path of the request's field that names the server."""
    server_tools: Sequence[AnyTool]
    """The gateway's own tools, which precede the tools of MCP servers."""
    client_tool_names: Collection[str]
    """Names of the client's functions, which other tools must not have."""
    plan_call: Callable[[list[AnyTool]], tuple[ModelCall, Sequence[AnyTool]]]
    """Takes all tools; returns the call with them, and the tools that are called here."""


class MCPTurnHandler(TurnHandler):
    """Turn handler that connects the MCP servers of a request, and calls their tools and the gateway's own."""

    def __init__(
        self, request_servers: RequestServers, make_handler: Callable[[ModelCall, Sequence[AnyTool]], TurnHandler]
    ) -> None:
        """
        Args:
            request_servers: The MCP servers to connect.
            make_handler: Makes the handler that calls the given tools, for the given call.
        """
        self._request_servers = request_servers
        self._connected = dict(request_servers.servers)
        self._make_handler = make_handler
        self._inner = TurnHandler()

    async def begin_run(self, call: ModelCall) -> ModelCall:
        call, tools = self._request_servers.plan_call(await self._connect())
        self._inner = self._make_handler(call, tools)
        self.tool_names = self._inner.tool_names
        return call

    async def _connect(self) -> list[AnyTool]:
        servers = list(self._connected.values())
        results = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
        for location, result in zip(self._connected, results, strict=True):
            if isinstance(result, PellucidError):
                info = result.info
                raise PellucidError(replace(info, message=f"{location}: {info.message}", param=location)) from result
        return await collect_tools(
            self._request_servers.server_tools,
            servers,
            required=True,
            taken_names=self._request_servers.client_tool_names,
        )

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        return await self._inner.call_tools(calls)

    def end_run(self) -> None:
        connected, self._connected = self._connected, {}
        for server in connected.values():
            start_task(server.aclose(), "the connection to an MCP server could not be closed")
