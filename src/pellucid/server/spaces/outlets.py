"""Where a seat's frames go: one socket.

* The usual way is straight to the transport (`Frames`): a frame is made once for all who get it.
* Under another server than ours, each goes through ASGI's `send`, in order, from a queue.

`write` never waits and never fails; what a client has not taken is `waiting`. Whoever seats somebody here and wants
them gone says so (`close`): the socket stops listening, and is closed with that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...asgi import http
from ...spaces.runtime.seats import Frame, Line
from ..uvicorn_adapter import FRAMES, Frames
from ..websocket import WebSocket

SMALL = 16 * 1024
"""What may wait for a client that keeps up, in bytes."""


class Farewell(NamedTuple):
    """With what a socket is to be closed."""

    code: int
    reason: str


class DirectOutlet:
    """Straight to the transport."""

    def __init__(self, socket: WebSocket, frames: Frames) -> None:
        self._socket = socket
        self._frames = frames
        self.farewell: Farewell | None = None

    @property
    def line(self) -> Line | None:
        return self._frames.line if self.farewell is None else None

    def watch(self, changed: Callable[[], None] | None) -> None:
        self._frames.watch(changed)

    def write(self, frames: Sequence[Frame]) -> None:
        if self.farewell is None:
            # One is the rule: what one commit holds goes to everybody at once, and most hold one.
            self._frames.write(frames[0].wire if len(frames) == 1 else b"".join([frame.wire for frame in frames]))

    @property
    def waiting(self) -> int:
        return self._frames.waiting

    async def drained(self) -> None:
        await self._frames.drained()

    def close(self, code: int, reason: str) -> None:
        if self.farewell is None:
            self.farewell = Farewell(code, reason)
            self._frames.change()
            self._socket.end_now()

    async def aclose(self) -> None:
        """When nothing more is to be written."""


class QueuedOutlet:
    """Through `send`, one after another."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self.farewell: Farewell | None = None
        self._queue: deque[Frame] = deque()
        self._waiting = 0
        self._less = asyncio.Event()
        self._less.set()
        self._sending: asyncio.Task[None] | None = None
        self._gone = False

    def write(self, frames: Sequence[Frame]) -> None:
        if self._gone or self.farewell is not None:
            return
        self._queue.extend(frames)
        self._waiting += sum(len(frame.text) for frame in frames)
        if self._waiting > SMALL:
            self._less.clear()
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    @property
    def waiting(self) -> int:
        return self._waiting

    async def drained(self) -> None:
        await self._less.wait()

    def close(self, code: int, reason: str) -> None:
        if self.farewell is None:
            self.farewell = Farewell(code, reason)
            self._socket.end_now()

    async def aclose(self) -> None:
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        try:
            while self._queue:
                frame = self._queue[0]
                await self._socket.say(frame.text.decode())
                self._queue.popleft()
                self._waiting -= len(frame.text)
                if self._waiting <= SMALL:
                    self._less.set()
        except http.ClientGone:
            self._gone = True
            self._queue.clear()
            self._waiting = 0
            self._less.set()


def outlet_of(socket: WebSocket) -> DirectOutlet | QueuedOutlet:
    """The fastest there is."""
    frames = socket.exchange.scope.get("extensions", {}).get(FRAMES)
    return DirectOutlet(socket, frames) if isinstance(frames, Frames) else QueuedOutlet(socket)
