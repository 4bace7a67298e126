"""Runs with tools of MCP servers that their request names: reached when the run opens, left when it is over.

What cannot be reached, or may not be, is raised by `open`: whoever names a server gets its tools, or hears why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import ErrorInfo, PellucidError
from ..events import Event, RunEndEvent
from ..tools import AnyTool, gather
from .later import later
from .running import Running, clock

if TYPE_CHECKING:
    from ..tools.mcp import MCPServer


class ReachingRun:
    """The run that `make` makes of the tools: `own`, and those of `servers`, by where the request names each.

    `taken`: names that the caller's own functions have.
    """

    def __init__(
        self,
        servers: Mapping[str, MCPServer],
        own: Sequence[AnyTool],
        make: Callable[[list[AnyTool]], Running],
        taken: Collection[str] = (),
    ) -> None:
        self._servers = dict(servers)
        self._own = own
        self._taken = taken
        self._make = make
        self._inner: Running | None = None
        self._ended: RunEndEvent | None = None
        """Where it came to no run."""

    async def open(self) -> None:
        try:
            self._inner = self._make(await self._tools())
            await self._inner.open()
        except BaseException:
            self._leave()
            raise

    async def _tools(self) -> list[AnyTool]:
        servers = list(self._servers.values())
        listed = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
        for at, found in zip(self._servers, listed, strict=True):
            if isinstance(found, PellucidError):
                info = found.info
                raise PellucidError(replace(info, message=f"{at}: {info.message}", param=at)) from found
        return await gather(self._own, servers, required=True, taken=self._taken)

    @property
    def waiting(self) -> bool:
        return self._inner is not None and self._inner.waiting

    @property
    def ended(self) -> RunEndEvent | None:
        return self._ended if self._inner is None else self._inner.ended

    @property
    def now(self) -> int:
        return clock() if self._inner is None else self._inner.now

    def wait(self) -> Awaitable[None]:
        assert self._inner is not None
        return self._inner.wait()

    def take(self) -> list[Event] | None:
        if self._inner is None:
            return None
        events = self._inner.take()
        if self._inner.ended is not None:
            self._leave()
        return events

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        try:
            if self._inner is not None:
                return await self._inner.stop(error)
            if self._ended is not None:
                return []
            self._ended = RunEndEvent("cancelled" if error is None else "failed", error=error)
            return [self._ended]
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leave the servers, while whoever reads the run reads on."""
        servers, self._servers = self._servers, {}
        for server in servers.values():
            later(server.aclose(), "an MCP server cannot be left")


__all__ = ["ReachingRun"]
