"""The life of a WebSocket, for any protocol over it: accept or refuse, receive, send, close.

    socket = WebSocket(exchange)
    await socket.refuse(error)                     # before accept: with a status, where the server supports it
    await socket.accept()
    reason = await socket.listen(on_message)       # returns when there are no more messages: gone, over or stopping
    await socket.close(1000)

* A stopping server sends the same ASGI message as a client that leaves, and the socket is still open then. `listen`
  returns `stopping`; the caller finishes what is in progress, and closes.
* The code that serves the socket can end it at any time (`stop_listening`): `listen` returns.
* If the client is gone, methods raise `http.ClientGone`, whatever error the server raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from ..asgi import http
from ..asgi.streaming import STOPPING, ASGIWriter, error_for_client
from ..errors import PellucidError
from ..protocols.errors import status_of
from ..runs import RunSource
from ..spaces.runtime.session import websocket_frame
from .access.errors import headers_of
from .exchange import Exchange
from .uvicorn_adapter import FRAMES_EXTENSION, FrameTransport

CLOSE_NORMAL, CLOSE_RESTARTING, CLOSE_POLICY_VIOLATION = 1000, 1012, 1008
"""Close codes (RFC 6455 §7.4.1 and IANA's registry): the socket's time is over, the server stops, it was not accepted.
"""

EndReason = Literal["gone", "over", "stopping"]
"""Why `listen` returned: the client left, the socket's time is over, or the server stops."""

MessageHandler = Callable[[str | bytes], Awaitable[None]]
"""Handles one message."""


class WebSocket:
    """One socket, after its `websocket.connect`."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._listen_timeout: asyncio.Timeout | None = None
        self._has_ended = False

    # --- the upgrade -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `PellucidError` if the server accepts nothing new."""
        if self.exchange.scope["closing"]:
            raise PellucidError(STOPPING)

    async def accept(self, subprotocol: str | None = None, max_message_bytes: int | None = None) -> None:
        """Accept the socket, with the exchange's response headers.

        Args:
            subprotocol: The chosen subprotocol.
            max_message_bytes: Maximum size of a message until `set_max_message_bytes`; None: the server's maximum.

        Raises:
            http.ClientGone: The client is gone.
        """
        self.exchange.telemetry.status = 101
        message: dict[str, Any] = {"type": "websocket.accept", "headers": self.exchange.response_headers}
        if subprotocol is not None:
            message["subprotocol"] = subprotocol
        await self.send(message)
        self.set_max_message_bytes(max_message_bytes)

    def set_max_message_bytes(self, max_bytes: int | None = None) -> None:
        """Set the maximum size of messages that begin from now on; None: the server's maximum."""
        frames = self.exchange.scope.get("extensions", {}).get(FRAMES_EXTENSION)
        if isinstance(frames, FrameTransport):
            frames.set_max_message_bytes(max_bytes)

    async def refuse(self, error: Exception) -> None:
        """Refuse the socket before it is accepted: with an HTTP status, where the server supports it."""
        exchange, info = self.exchange, error_for_client(error, "a fault while opening a socket")
        body, status = exchange.error_format.body(info), status_of(info)
        exchange.telemetry.record_error(status, info)
        if "websocket.http.response" not in exchange.scope.get("extensions", {}):
            await exchange.send({"type": "websocket.close", "code": CLOSE_POLICY_VIOLATION})
            return
        encoded = msgspec.json.encode(body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(encoded)).encode()),
            *exchange.response_headers,
            *headers_of(error),
            *http.retry_headers(info),
        ]
        await exchange.send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "websocket.http.response.body", "body": encoded})

    # --- receiving ---------------------------------------------------------------------------------------------

    async def listen(self, on_message: MessageHandler, timeout_seconds: float | None = None) -> EndReason:
        """Pass one message after another to a handler, until there are no more.

        Args:
            on_message: Is awaited for each message before the next one is received.
            timeout_seconds: How long to listen; None: as long as the socket is open.

        Returns:
            Why there are no more messages.
        """
        try:
            async with asyncio.timeout(0 if self._has_ended else timeout_seconds) as self._listen_timeout:
                while (message := await self.exchange.receive())["type"] != "websocket.disconnect":
                    await on_message(message.get("text") or message.get("bytes") or "")
        except TimeoutError:
            if self._listen_timeout is None or not self._listen_timeout.expired():
                raise
            return "over"
        finally:
            self._listen_timeout = None
        return "stopping" if self.is_stopping else "gone"

    def stop_listening(self) -> None:
        """Make `listen` return `over`, now or when it is called. May be called from any task."""
        self._has_ended = True
        if self._listen_timeout is not None and not self._listen_timeout.expired():
            self._listen_timeout.reschedule(0)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client leaves. Messages that come meanwhile are dropped."""
        knows_stopping = self.is_stopping
        while True:
            if (await self.exchange.receive())["type"] == "websocket.disconnect":
                if knows_stopping or not self.is_stopping:
                    return
                knows_stopping = True  # this message was the server's, which sends it once

    @property
    def is_stopping(self) -> bool:
        return bool(self.exchange.scope.get("state", {}).get("stopping"))

    # --- sending -----------------------------------------------------------------------------------------------

    async def send_text(self, text: str) -> None:
        """Send a text message. Raises `http.ClientGone`."""
        await self.send({"type": "websocket.send", "text": text})

    def create_writer(self) -> FrameWriter | MessageWriter:
        """Return a writer for a stream whose lines are messages."""
        frames = self.exchange.scope.get("extensions", {}).get(FRAMES_EXTENSION)
        return FrameWriter(frames) if isinstance(frames, FrameTransport) else MessageWriter(self)

    async def close(self, code: int, reason: str = "") -> None:
        """Close the socket. Raises `http.ClientGone`."""
        await self.send({"type": "websocket.close", "code": code, "reason": reason})

    async def send(self, message: http.Message) -> None:
        """Send an ASGI message. Raises `http.ClientGone`."""
        try:
            await self.exchange.send(message)
        except (OSError, RuntimeError):
            # ASGI servers raise OSError when the client is gone. uvicorn raises RuntimeError if it has just closed the
            # socket itself, because the client violated the protocol.
            raise http.ClientGone from None


class FrameWriter:
    """Writes a stream of lines directly to the transport, one message for each line. A `BodyWriter`."""

    writes = 0
    """Not counted: sockets have pings of their own."""

    def __init__(self, frames: FrameTransport) -> None:
        self._frames = frames
        self._source: RunSource | None = None

    def start(self, source: RunSource) -> None:
        self._source = source
        self._frames.watch(self._on_change)
        self._on_change()

    def write(self, data: bytes) -> None:
        self._frames.write(b"".join(map(websocket_frame, data.splitlines())))

    async def end(self, data: bytes) -> None:
        self.write(data)

    def close(self) -> None:
        self._source = None
        self._frames.watch(None)

    def _on_change(self) -> None:
        if self._source is not None:
            if self._frames.is_slow:
                self._source.pause()
            else:
                self._source.resume()


class MessageWriter(ASGIWriter):
    """Writes a stream of lines with ASGI's `send`, one message for each line."""

    def __init__(self, socket: WebSocket) -> None:
        super().__init__(socket.send)

    async def send_data(self, data: bytes, *, last: bool) -> None:
        for line in data.splitlines():
            await self.send({"type": "websocket.send", "text": line.decode()})
