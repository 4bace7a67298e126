"""A model server on loopback, whose every byte is determined by the test.

    name = upstream.plays(script)        # the script answers calls of the model of that name
    async def script(call):              # runs on the upstream's own thread
        await call.head()
        await call.event(delta(content="Hi"))
        await call.wait_for_disconnect()

`upstream.calls(name)` and `upstream.connections` record what happened, with events that a test can wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.waiting import LIMIT_SECONDS

Script = Callable[["Call"], Awaitable[None]]


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a streamed Chat Completion."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def say(reasoning: str = "Let me see. ", text: str = "42.", usage: dict[str, Any] | None = None) -> Script:
    """Return a script that sends reasoning, text and usage."""

    async def script(call: Call) -> None:
        await call.head()
        for word in reasoning.split(" "):
            await call.event(delta(reasoning_content=word + " "))
        for word in text.split(" "):
            await call.event(delta(content=word + " "))
        await call.event(delta("stop"))
        await call.event({"choices": [], "usage": usage or {"prompt_tokens": 7, "completion_tokens": 9}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def abandoned_then(first: Script, then: Script) -> tuple[Script, Script]:
    """Return scripts of consecutive calls: the second one answers once the gateway has disconnected from the first.

    So if the client continues, the gateway disconnected while the client was still connected, and not because it ended.
    """
    left = asyncio.Event()

    async def is_left(call: Call) -> None:
        await first(call)
        await call.wait_for_disconnect()
        left.set()

    async def goes_on(call: Call) -> None:
        try:
            await asyncio.wait_for(left.wait(), LIMIT_SECONDS)
        except TimeoutError:
            await call.answer(400, b"the gateway has not left the call before this one")
        else:
            await then(call)

    return is_left, goes_on


class Connection:
    """A connection of the gateway to the upstream."""

    def __init__(self) -> None:
        self.opened = time.monotonic()
        self.closed = threading.Event()
        self.closed_at = 0.0
        self.written = 0
        """Bytes that the kernel took."""


class Call:
    """A request, and the methods to respond to it."""

    def __init__(
        self, connection: Connection, writer: asyncio.StreamWriter, head: bytes, body: bytes, leaves: asyncio.Event
    ) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines if x)}
        self.body: dict[str, Any] = json.loads(body) if body else {}
        self.connection = connection
        self.at = time.monotonic()
        self.chunked = False
        self.keep = True
        self._writer = writer
        self._leaves = leaves

    async def raw(self, data: bytes) -> None:
        """Send these bytes unchanged."""
        self._writer.write(data)
        await self._writer.drain()
        self.connection.written += len(data)

    async def head(
        self, status: int = 200, type: str = "text/event-stream", framing: str = "chunked", **more: str
    ) -> None:
        """Send the head. `framing`: chunked; close (until the connection ends); or the length of the body."""
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        self.chunked = framing == "chunked"
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif framing == "close":
            lines.append("Connection: close")
            self.keep = False
        else:
            lines.append(f"Content-Length: {framing}")
        await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def data(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    async def event(self, value: Any) -> None:
        await self.data(event(value))

    async def end(self) -> None:
        """Send the end of the body."""
        if self.chunked:
            await self.raw(b"0\r\n\r\n")

    async def answer(self, status: int, body: bytes, type: str = "application/json", **headers: str) -> None:
        """Send a complete response."""
        await self.head(status, type, str(len(body)), **headers)
        await self.raw(body)

    async def wait_for_disconnect(self) -> None:
        """Wait until the gateway has disconnected."""
        await self._leaves.wait()

    def close(self) -> None:
        """Close the connection regularly, even if the body is incomplete."""
        self.keep = False

    def reset(self) -> None:
        """Close the connection with RST."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        self.keep = False


class Upstream:
    """The server, on its own thread."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.port = 0
        self._calls: dict[str, list[Call]] = {}
        self._scripts: dict[str, Script] = {}
        self._numbers = itertools.count(1)
        self._came = threading.Condition()
        self._loop = asyncio.new_event_loop()
        # Tests provoke disconnects of the gateway; they are not logged.
        self._loop.set_exception_handler(lambda loop, context: None)
        self._thread = threading.Thread(target=self._loop.run_forever, name="upstream", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def plays(self, *scripts: Script, family: str = "model") -> str:
        """Return a new model name, whose calls are answered by the scripts in order; the last one repeats."""
        name = f"{family}-{next(self._numbers)}"
        left = list(scripts)

        async def script(call: Call) -> None:
            await (left.pop(0) if len(left) > 1 else left[0])(call)

        self._scripts[name] = script
        return name

    def calls(self, name: str, at_least: int = 0, within: float = LIMIT_SECONDS) -> list[Call]:
        """Wait until the model has `at_least` calls, and return its calls so far."""
        with self._came:
            came = self._came.wait_for(lambda: len(self._calls.get(name, ())) >= at_least, within)
            assert came, f"{name} was called {len(self._calls.get(name, ()))} times"
            return list(self._calls.get(name, ()))

    @property
    def open(self) -> int:
        """The number of open connections."""
        return sum(not connection.closed.is_set() for connection in self.connections)

    def __enter__(self) -> Upstream:
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(LIMIT_SECONDS)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(LIMIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_SECONDS)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        self.connections.append(connection)
        # Small, so that back-pressure of a slow reader is noticed soon.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        writer.transport.set_write_buffer_limits(high=0)
        first = b""
        try:
            while True:
                head = first + await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(x.partition(b":")[2]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")),
                    0,
                )
                body = await reader.readexactly(length)
                leaves = asyncio.Event()
                call = Call(connection, writer, head[:-4], body, leaves)
                watch = asyncio.create_task(self._watch(reader, connection, leaves))
                await self._play(call)
                if not call.keep:
                    watch.cancel()
                    return
                first = await watch
                if not first:
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._note_end(connection)
            writer.close()

    async def _play(self, call: Call) -> None:
        # Some wires name the model only in the path; and a server's own path has any models.
        named = (name for name in self._scripts if f"/{name}:" in call.path or f"/{name}/" in call.path)
        model = call.body.get("model", "")
        name = model if model and model in self._scripts else next(named, model)
        with self._came:
            self._calls.setdefault(name, []).append(call)
            self._came.notify_all()
        script = self._scripts.get(name, say())
        with contextlib.suppress(OSError):
            await script(call)

    async def _watch(self, reader: asyncio.StreamReader, connection: Connection, leaves: asyncio.Event) -> bytes:
        """Return the first byte of the gateway's next request, or nothing if it disconnects."""
        try:
            first = await reader.read(1)
        except OSError:
            first = b""
        if not first:
            self._note_end(connection)
            leaves.set()
        return first

    def _note_end(self, connection: Connection) -> None:
        if not connection.closed.is_set():
            connection.closed_at = time.monotonic()
            connection.closed.set()
