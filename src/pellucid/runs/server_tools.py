"""What happens between the turns of a run that a server drives: its own functions are called, and those of MCP servers
that the request names.

A turn may call the server's functions and the client's: ours are called here, the client's end the run and wait for
the client (see `run`). The named MCP servers are connected when the run opens, and left when it is over; one that
cannot be reached, or may not be, is an error of `open`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..errors import PellucidError
from ..parts import ToolCallPart
from ..settings import ModelCall
from ..tools import AnyTool, RunContext, ServerTools, gather
from .later import later
from .live_run import NullTurnHandler, ToolOutcomes, TurnHandler

if TYPE_CHECKING:
    from ..tools.mcp import MCPServer


class ServerTurnHandler(NullTurnHandler):
    """Calls the functions of `tools` whose names are in `names`."""

    def __init__(self, tools: ServerTools, names: Container[str], context: RunContext[Any]) -> None:
        self.tools = names
        self._tools = tools
        self._context = context

    async def answer(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        return ToolOutcomes(await self._tools.call(calls, self._context))


class NamedServers(NamedTuple):
    """The MCP servers that a request names."""

    servers: Mapping[str, MCPServer]
    """By where the request names each."""
    own: Sequence[AnyTool]
    """The server's own tools, which go before."""
    taken: Collection[str]
    """Names that the client's functions have."""
    plan: Callable[[list[AnyTool]], tuple[ModelCall, Sequence[AnyTool]]]
    """The call with all these tools, and those of them that are called here."""


class MCPTurnHandler(NullTurnHandler):
    """Connects the MCP servers that a request names, and calls their tools beside the server's own."""

    def __init__(self, named: NamedServers, make: Callable[[ModelCall, Sequence[AnyTool]], TurnHandler]) -> None:
        """`make`: what calls these tools in this call."""
        self._named = named
        self._connected = dict(named.servers)
        self._make = make
        self._inner: TurnHandler = NullTurnHandler()

    async def begin_run(self, call: ModelCall) -> ModelCall:
        call, tools = self._named.plan(await self._connect())
        self._inner = self._make(call, tools)
        self.tools = self._inner.tools
        return call

    async def _connect(self) -> list[AnyTool]:
        servers = list(self._connected.values())
        listed = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
        for at, found in zip(self._connected, listed, strict=True):
            if isinstance(found, PellucidError):
                info = found.info
                raise PellucidError(replace(info, message=f"{at}: {info.message}", param=at)) from found
        return await gather(self._named.own, servers, required=True, taken=self._named.taken)

    async def answer(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        return await self._inner.answer(calls)

    def end_run(self) -> None:
        connected, self._connected = self._connected, {}
        for server in connected.values():
            later(server.aclose(), "an MCP server cannot be left")
