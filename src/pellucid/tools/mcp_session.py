"""One connection to one MCP server, from its handshake to its end.

* The context managers of the MCP package must be entered and left in one task, so the session has a task of its own.
  Calls over it come from any task, any number at the same time.
* The session knows when the other side has closed it (`is_closed`). The next caller opens a new one and does not have
  to fail first.
* The MCP package's log messages about this traffic are suppressed, because they quote arguments and results.
"""

from __future__ import annotations

import asyncio
import codecs
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

_in_pellucid: ContextVar[bool] = ContextVar("pellucid_mcp", default=False)


class _MuteFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _in_pellucid.get()


_mute_filter = _MuteFilter()
for _name in (
    *("client", "httpx2", "mcp.client.client", "mcp.client.session", "mcp.client.stdio", "mcp.client.streamable_http"),
    *("mcp.client.caching", "mcp.shared.jsonrpc_dispatcher", "mcp.os.posix.utilities"),
):
    logging.getLogger(_name).addFilter(_mute_filter)


@contextmanager
def _mute_mcp_logging() -> Iterator[None]:
    """Suppress log messages of the MCP package in this block, and in tasks that it starts."""
    token = _in_pellucid.set(True)
    try:
        yield
    finally:
        _in_pellucid.reset(token)


class MCPSession:
    """A connection to an MCP server, made with `await MCPSession.open(…)` in the task of its first caller."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        """Whether the other side has closed the connection, or this side is closing it."""
        self._close_requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, streams: Streams, timeout_seconds: float, on_tools_changed: Callable[[], None]) -> MCPSession:
        """Connect to a server.

        Args:
            streams: Context manager of the streams to the server.
            timeout_seconds: Seconds for the handshake.
            on_tools_changed: Called when the server's tools have changed.

        Raises:
            TimeoutError: The handshake took too long.
            Exception: Any other error of the connection.
        """
        sessions: list[MCPSession] = []

        async def on_message(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                on_tools_changed()

        def on_closed() -> None:
            for session in sessions:
                session.close()

        client = Client(
            _observe_end(streams, on_closed),
            message_handler=on_message,
            client_info=Implementation(name="pellucid", version="1"),
            cache=None,
        )
        session = cls(client)
        sessions.append(session)
        ready: asyncio.Future[None] = session.loop.create_future()
        session._task = asyncio.create_task(session._run(ready, timeout_seconds), name="pellucid-mcp")
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            session.is_closed = True
            session._task.cancel()
            await asyncio.wait([session._task])
            raise
        return session

    async def _run(self, ready: asyncio.Future[None], timeout_seconds: float) -> None:
        _in_pellucid.set(True)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(timeout_seconds):
                    await stack.enter_async_context(self._client)
                if not ready.done():
                    ready.set_result(None)
                await self._close_requested.wait()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
            if not ready.done():
                cancelled = isinstance(error, asyncio.CancelledError)
                ready.set_exception(ConnectionError("the connection attempt was cancelled") if cancelled else error)
                ready.exception()  # retrieved, because the caller may have been cancelled
            if isinstance(error, asyncio.CancelledError):
                raise
            # An error while the connection is closing can be ignored: no caller could fix it.
        finally:
            self.is_closed = True

    async def list_tools(self, cursor: str | None) -> Any:
        """Return a page of the server's tools. Raises what the MCP package raises."""
        with _mute_mcp_logging():
            return await self._client.list_tools(cursor=cursor)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the `CallToolResult` of a call. Raises what the MCP package raises."""
        with _mute_mcp_logging():
            return await self._client.call_tool(name, arguments)

    def close(self) -> None:
        """Start to close the connection. May be called more than once. Calls in progress fail."""
        self.is_closed = True
        self._close_requested.set()

    async def aclose(self) -> None:
        """Close the connection and wait for it. A server that was started here has then ended."""
        self.close()
        if self._task is not None and self.loop is asyncio.get_running_loop():
            await asyncio.wait([self._task])


@asynccontextmanager
async def stdio_streams(
    command: str, args: list[str], env: dict[str, str], cwd: str | None, stderr: bool, max_characters: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and use its standard streams. Its standard error is dropped, unless `stderr` is true.

    A message of more than `max_characters` is dropped: a call that it answers ends with its time limit.
    """
    encoding = f"{_CODEC_PREFIX}{max_characters}"
    parameters = StdioServerParameters(command=command, args=args, env=env, cwd=cwd, encoding=encoding)
    with open(os.devnull, "w") as devnull:  # noqa: ASYNC230
        options: dict[str, Any] = {} if stderr else {"errlog": devnull}
        async with stdio_client(parameters, **options) as streams:
            yield streams


_CODEC_PREFIX = "pellucid_lines_"


class LineLimitDecoder(codecs.IncrementalDecoder):
    """Decodes UTF-8, and drops what exceeds the limit in a line. What is left of such a line is no valid JSON.

    The MCP package collects each line of a server whole, without a limit; its decoder is an option.
    """

    max_characters = 0

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._length = 0
        """The length of the line so far."""

    def decode(self, data: Any, final: bool = False) -> str:
        """Decode the next bytes."""
        text = self._decoder.decode(data, final)
        end = text.find("\n")
        length = self._length + (len(text) if end < 0 else end)
        self._length = length if end < 0 else len(text) - text.rfind("\n") - 1
        if length <= self.max_characters:
            return text
        return "" if end < 0 else text[end:]


def _find_codec(name: str) -> codecs.CodecInfo | None:
    limit = name.removeprefix(_CODEC_PREFIX)
    if limit == name or not limit.isdecimal():
        return None

    class Decoder(LineLimitDecoder):
        max_characters = int(limit)

    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=Decoder, name=name)


codecs.register(_find_codec)


@asynccontextmanager
async def http_streams(
    url: str, headers: dict[str, str], policy: EgressPolicy, connect_timeout: float, max_bytes: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to a server over streamable HTTP."""
    import httpx2

    from ..egress.httpx_transport import EgressTransport

    async with (
        httpx2.AsyncClient(
            transport=EgressTransport(policy, max_bytes),
            headers=headers,
            timeout=httpx2.Timeout(connect_timeout, read=600.0),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


@asynccontextmanager
async def _observe_end(streams: Streams, on_closed: Callable[[], None]) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (read, write):
        yield _ObservedStream(read, on_closed), write


class _ObservedStream:
    """A stream that calls a function when it ends."""

    def __init__(self, stream: Any, on_closed: Callable[[], None]) -> None:
        self._stream = stream
        self._on_closed = on_closed

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except Exception:
            self._on_closed()
            raise

    def __aiter__(self) -> _ObservedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (Exception, StopAsyncIteration):
            self._on_closed()
            raise

    async def __aenter__(self) -> _ObservedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
