"""One connection to one MCP server, from its handshake to its end.

* It is entered and left in one task of its own, as what it is made of demands; whoever calls over it does so from where
  they are, any number at once.
* It knows when the other side has gone (`over`): whoever calls next makes a new one, and need not find out by failing.
* What the MCP package would log of what travels here is not logged: it quotes arguments and results.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, ToolListChangedNotification

from ..egress import EgressPolicy

Streams = AbstractAsyncContextManager[tuple[Any, Any]]

_ours: ContextVar[bool] = ContextVar("pellucid_mcp", default=False)


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _ours.get()


_quiet = _Quiet()
for _name in (
    *("client", "httpx2", "mcp.client.client", "mcp.client.session", "mcp.client.stdio", "mcp.client.streamable_http"),
    *("mcp.client.caching", "mcp.shared.jsonrpc_dispatcher", "mcp.os.posix.utilities"),
):
    logging.getLogger(_name).addFilter(_quiet)


@contextmanager
def quietly() -> Iterator[None]:
    """Whatever is done in here, and whatever that starts, is not logged by the MCP package."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class Session:
    """Made with `await Session.open(…)`, in the task of whoever needs it first."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.over = False
        """Whether the other side has gone, or this one is being left."""
        self._leave = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, streams: Streams, seconds: float, changed: Callable[[], None]) -> Session:
        """`changed` is called when the server's tools have changed. Raises `TimeoutError` after `seconds`, or whatever
        keeps the connection from being made."""
        sessions: list[Session] = []

        async def heard(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                changed()

        def gone() -> None:
            for session in sessions:
                session.close()

        client = Client(
            _watched(streams, gone),
            message_handler=heard,
            client_info=Implementation(name="pellucid", version="1"),
            cache=None,
        )
        session = cls(client)
        sessions.append(session)
        ready: asyncio.Future[None] = session.loop.create_future()
        session._owner = asyncio.create_task(session._own(ready, seconds), name="pellucid-mcp")
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            session.over = True
            session._owner.cancel()
            await asyncio.wait([session._owner])
            raise
        return session

    async def _own(self, ready: asyncio.Future[None], seconds: float) -> None:
        _ours.set(True)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(seconds):
                    await stack.enter_async_context(self.client)
                if not ready.done():
                    ready.set_result(None)
                await self._leave.wait()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
            if not ready.done():
                cancelled = isinstance(error, asyncio.CancelledError)
                ready.set_exception(ConnectionError("the connection was given up") if cancelled else error)
                ready.exception()  # whoever waited for it may have gone
            if isinstance(error, asyncio.CancelledError):
                raise
            # What goes wrong while a connection is left is nobody's to mend.
        finally:
            self.over = True

    def close(self) -> None:
        """Leave it; idempotent. Calls that are under way fail."""
        self.over = True
        self._leave.set()

    async def aclose(self) -> None:
        """Leave it, and wait until it is left: a server that was started here has ended then."""
        self.close()
        if self._owner is not None and self.loop is asyncio.get_running_loop():
            await asyncio.wait([self._owner])


def by_stdio(command: str, args: list[str], env: dict[str, str], cwd: str | None, stderr: bool) -> Streams:
    """A server that is started here. What it writes to its standard error is dropped, unless `stderr`."""
    return _by_stdio(StdioServerParameters(command=command, args=args, env=env, cwd=cwd), stderr)


@asynccontextmanager
async def _by_stdio(parameters: StdioServerParameters, stderr: bool) -> AsyncIterator[tuple[Any, Any]]:
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230
        more: dict[str, Any] = {} if stderr else {"errlog": nowhere}
        async with stdio_client(parameters, **more) as streams:
            yield streams


@asynccontextmanager
async def by_http(
    url: str, headers: dict[str, str], policy: EgressPolicy, connect: float, max_bytes: int
) -> AsyncIterator[tuple[Any, Any]]:
    """A server elsewhere, over streamable HTTP."""
    import httpx2

    from ..egress.httpx import EgressTransport

    async with (
        httpx2.AsyncClient(
            transport=EgressTransport(policy, max_bytes),
            headers=headers,
            timeout=httpx2.Timeout(connect, read=600.0),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


@asynccontextmanager
async def _watched(streams: Streams, gone: Callable[[], None]) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (read, write):
        yield _Watched(read, gone), write


class _Watched:
    """A stream of what comes that tells when no more does."""

    def __init__(self, stream: Any, gone: Callable[[], None]) -> None:
        self._stream = stream
        self._gone = gone

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except Exception:
            self._gone()
            raise

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (Exception, StopAsyncIteration):
            self._gone()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
