"""Outlets: where the frames of a session are written. Each is one socket.

* The usual outlet writes directly to the transport (`FrameTransport`): a frame is encoded once for all its receivers.
* With another ASGI server, frames go through ASGI's `send`, in order, from a queue.

`write` never waits and never raises; `buffered_bytes` is what the client has not taken yet. To end a session, the space
calls `close`: the socket stops listening, and is closed with that reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...asgi import http
from ...spaces.runtime.session import Frame, RawWrite
from ..uvicorn_adapter import FRAMES_EXTENSION, FrameTransport
from ..websocket import WebSocket

LOW_WATER_BYTES = 16 * 1024
"""Maximum number of buffered bytes of a client that keeps up."""


class CloseReason(NamedTuple):
    """The code and the reason with which a socket is closed."""

    code: int
    reason: str


class DirectOutlet:
    """Writes directly to the transport."""

    def __init__(self, socket: WebSocket, frames: FrameTransport) -> None:
        self._socket = socket
        self._frames = frames
        self.close_reason: CloseReason | None = None

    @property
    def raw_write(self) -> RawWrite | None:
        return self._frames.raw_write if self.close_reason is None else None

    def watch(self, changed: Callable[[], None] | None) -> None:
        self._frames.watch(changed)

    def write(self, frames: Sequence[Frame]) -> None:
        if self.close_reason is None:
            # Usually there is one frame: a commit is sent to all receivers at once, and most commits hold one envelope.
            self._frames.write(frames[0].wire if len(frames) == 1 else b"".join([frame.wire for frame in frames]))

    @property
    def buffered_bytes(self) -> int:
        return self._frames.buffered_bytes

    async def wait_drained(self) -> None:
        await self._frames.wait_drained()

    def close(self, code: int, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = CloseReason(code, reason)
            self._frames.notify()
            self._socket.stop_listening()

    async def aclose(self) -> None:
        """Called when nothing more is to be written."""


class QueuedOutlet:
    """Writes with ASGI's `send`, one frame after another."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self.close_reason: CloseReason | None = None
        self._queue: deque[Frame] = deque()
        self._waiting = 0
        self._has_drained = asyncio.Event()
        self._has_drained.set()
        self._send_task: asyncio.Task[None] | None = None
        self._client_gone = False

    @property
    def raw_write(self) -> None:
        """None, always: frames are sent in the order of the queue."""
        return None

    def watch(self, changed: Callable[[], None] | None) -> None:
        """Do nothing, because `raw_write` does not change."""

    def write(self, frames: Sequence[Frame]) -> None:
        if self._client_gone or self.close_reason is not None:
            return
        self._queue.extend(frames)
        self._waiting += sum(len(frame.text) for frame in frames)
        if self._waiting > LOW_WATER_BYTES:
            self._has_drained.clear()
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send())

    @property
    def buffered_bytes(self) -> int:
        return self._waiting

    async def wait_drained(self) -> None:
        await self._has_drained.wait()

    def close(self, code: int, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = CloseReason(code, reason)
            self._socket.stop_listening()

    async def aclose(self) -> None:
        if self._send_task is not None:
            await self._send_task

    async def _send(self) -> None:
        try:
            while self._queue:
                frame = self._queue[0]
                await self._socket.send_text(frame.text.decode())
                self._queue.popleft()
                self._waiting -= len(frame.text)
                if self._waiting <= LOW_WATER_BYTES:
                    self._has_drained.set()
        except http.ClientGone:
            self._client_gone = True
            self._queue.clear()
            self._waiting = 0
            self._has_drained.set()


def create_outlet(socket: WebSocket) -> DirectOutlet | QueuedOutlet:
    """Return the fastest outlet that the server supports."""
    frames = socket.exchange.scope.get("extensions", {}).get(FRAMES_EXTENSION)
    return DirectOutlet(socket, frames) if isinstance(frames, FrameTransport) else QueuedOutlet(socket)
