"""The life of a WebSocket, whatever is said over it: taken or turned away, listened to, spoken to, closed.

    socket = WebSocket(exchange)
    await socket.refuse(error)                  # before it is taken: with a status, where the server can say one
    await socket.accept()
    end = await socket.listen(heard)            # until there is no more to hear: gone, over or stopping
    await socket.close(1000)

* A server that stops says so in the same words in which a client leaves, and the socket is still open then: whoever
  listens hears that it is `stopping`, finishes what is under way, and closes.
* Whoever serves the socket may say at any moment that it is over (`end_now`): `listen` returns.
* Nobody is there any more: `http.ClientGone`, whatever the server calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from ..asgi import http
from ..asgi.streaming import FAULT, MAX_BUFFERED, STOPPING, is_client_error
from ..errors import PellucidError
from ..runs import RunSource
from ..spaces.runtime.seats import wire_of
from ..telemetry import log, place_of
from .access.errors import headers_of
from .exchange import Exchange
from .uvicorn_adapter import FRAMES, Frames

OVER, STOPPED, REFUSED = 1000, 1012, 1008
"""Codes with which a socket is closed: its time is over, the server stops, it was not taken."""

End = Literal["gone", "over", "stopping"]
"""Why listening ends: the client left, the socket's time is over, the server stops."""

Heard = Callable[[str | bytes], Awaitable[None]]


class WebSocket:
    """One socket, after its `websocket.connect`."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._time: asyncio.Timeout | None = None
        self._is_over = False

    # --- the upgrade -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises `PellucidError` where the server begins nothing new."""
        if self.exchange.scope["closing"]:
            raise PellucidError(STOPPING)

    async def accept(self, subprotocol: str | None = None, most: int | None = None) -> None:
        """Take the socket, with the exchange's headers. Raises `http.ClientGone`.

        `most`: bytes of one message, until `take` says otherwise; None: as many as the server takes."""
        self.exchange.watch.status = 101
        message: dict[str, Any] = {"type": "websocket.accept", "headers": self.exchange.headers}
        if subprotocol is not None:
            message["subprotocol"] = subprotocol
        await self.send(message)
        self.take(most)

    def take(self, most: int | None = None) -> None:
        """Of messages that begin from now on: the most bytes of one."""
        frames = self.exchange.scope.get("extensions", {}).get(FRAMES)
        if isinstance(frames, Frames):
            frames.take(most)

    async def refuse(self, error: Exception) -> None:
        """Do not take it: with a status, where the server can say one."""
        exchange = self.exchange
        if isinstance(error, PellucidError) and is_client_error(error):
            info, more = error.info, [*headers_of(error), *http.retry_after(error.info)]
        else:
            log.error("a fault while opening a socket: %s", place_of(error))
            info, more = FAULT, []
        body, status = exchange.form.error_body(info), exchange.form.status_of(info)
        exchange.watch.refused(status, info)
        if "websocket.http.response" not in exchange.scope.get("extensions", {}):
            await exchange.send({"type": "websocket.close", "code": REFUSED})
            return
        encoded = msgspec.json.encode(body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(encoded)).encode()),
            *exchange.headers,
            *more,
        ]
        await exchange.send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "websocket.http.response.body", "body": encoded})

    # --- what comes --------------------------------------------------------------------------------------------

    async def listen(self, heard: Heard, seconds: float | None = None) -> End:
        """Take one message after another, each when the last was heard, until there are to be no more.

        `seconds`: how long; None: for as long as the socket is open.
        """
        try:
            async with asyncio.timeout(0 if self._is_over else seconds) as self._time:
                while (message := await self.exchange.receive())["type"] != "websocket.disconnect":
                    await heard(message.get("text") or message.get("bytes") or "")
        except TimeoutError:
            if self._time is None or not self._time.expired():
                raise
            return "over"
        finally:
            self._time = None
        return "stopping" if self.stopping else "gone"

    def end_now(self) -> None:
        """No more is listened to, from any task: `listen` returns `over`, now or as soon as it is asked."""
        self._is_over = True
        if self._time is not None and not self._time.expired():
            self._time.reschedule(0)

    async def left(self) -> None:
        """Until the client leaves. What it says meanwhile is not heard."""
        told = self.stopping
        while True:
            if (await self.exchange.receive())["type"] == "websocket.disconnect":
                if told or not self.stopping:
                    return
                told = True  # that was the server, which says so once

    @property
    def stopping(self) -> bool:
        return bool(self.exchange.scope.get("state", {}).get("stopping"))

    # --- what goes ---------------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        """Raises `http.ClientGone`."""
        await self.send({"type": "websocket.send", "text": text})

    def writer(self) -> FrameWriter | MessageWriter:
        """Writes a stream, whose lines are messages."""
        frames = self.exchange.scope.get("extensions", {}).get(FRAMES)
        return FrameWriter(frames) if isinstance(frames, Frames) else MessageWriter(self)

    async def close(self, code: int, reason: str = "") -> None:
        """Raises `http.ClientGone`."""
        try:
            await self.send({"type": "websocket.close", "code": code, "reason": reason})
        except RuntimeError:
            # The other end broke the protocol a moment ago, and the server has closed for that.
            raise http.ClientGone from None

    async def send(self, message: http.Message) -> None:
        """As ASGI has it. Raises `http.ClientGone`."""
        try:
            await self.exchange.send(message)
        except OSError:
            # That is how servers say that nobody is there.
            raise http.ClientGone from None


class FrameWriter:
    """Writes a stream of lines straight to the transport, each as one message (a `BodyWriter`)."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._source: RunSource | None = None

    def start(self, source: RunSource) -> None:
        self._source = source
        self._frames.watch(self._changed)
        self._changed()

    def write(self, data: bytes) -> None:
        self._frames.write(b"".join(map(wire_of, data.splitlines())))

    async def end(self, data: bytes) -> None:
        self.write(data)

    def close(self) -> None:
        self._source = None
        self._frames.watch(None)

    def _changed(self) -> None:
        if self._source is not None:
            if self._frames.is_slow:
                self._source.pause()
            else:
                self._source.resume()


class MessageWriter:
    """Writes a stream of lines, each as one message (a `BodyWriter`), from a task of its own."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._source: RunSource | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._more = asyncio.Event()
        self._is_ending = False
        self._failure: Exception | None = None
        """What the socket raised."""
        self._task: asyncio.Task[None] | None = None

    def start(self, source: RunSource) -> None:
        self._source = source
        self._task = asyncio.create_task(self._send_messages())

    def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED and self._source is not None:
            self._source.pause()
        self._more.set()

    async def end(self, data: bytes) -> None:
        self._pieces.append(data)
        self._is_ending = True
        self._more.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send_messages(self) -> None:
        while not self._is_ending or self._pieces:
            await self._more.wait()
            self._more.clear()
            pieces, self._pieces, self._size = self._pieces, [], 0
            try:
                for line in b"".join(pieces).splitlines():
                    await self._socket.say(line.decode())
            except Exception as error:
                self._failure = error
            if self._source is not None:
                self._source.resume()  # also after a failure, which is raised where the next data is written
            if self._failure is not None:
                return
