"""One WebSocket: uvicorn's protocol, with what uvicorn leaves to others.

* A client that reads none of its pending data for `unread_seconds` is disconnected, as over HTTP.
* A stopping server does not close during a response. The application receives `websocket.disconnect`, with `stopping`
  in the scope's state, while the socket is still open, and closes it when the response is over.
* Text that is not UTF-8 closes the socket (1007), and none of it gets into a log.
* A frame for many sockets is encoded once: `scope["extensions"]["pellucid.frames"]` accepts encoded frames, writes them
  immediately, and reports how many bytes the client has not taken yet (`FrameTransport`).
* A client that violates the protocol gets the close frame: a connection that is closed with unread input is reset, and
  the client would lose the frame. So its input is read and dropped for `LINGER_SECONDS`.
* The maximum size of messages can be set for each socket (`FrameTransport.set_max_message_bytes`), and is small before
  the client is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from .write_timeout import WriteTimeout

FRAMES_EXTENSION = "pellucid.frames"
CLOSE_RESTARTING = 1012
CLOSE_INVALID_TEXT = 1007
LINGER_SECONDS = 5.0
MAX_BYTES_BEFORE_ACCEPT = 64 * 1024
"""Maximum size of a message from a client that sends before it is accepted."""


class FrameTransport:
    """Writes encoded frames to one socket without ASGI's `send`, between its accept and its close.

    Calls of `send` may come in between, because both write whole frames.
    """

    def __init__(self, socket: WebSocketsSansIOProtocol) -> None:
        self._socket = socket
        self._on_change: Callable[[], None] | None = None

    @property
    def raw_write(self) -> Callable[[bytes], object] | None:
        """The transport's `write`, which may be called with frames without a check, while this is its value.

        None: the socket is not open, or much data is pending, so `write` must be used.
        """
        return self._socket.transport.write if self._is_open and self._socket.writable.is_set() else None

    def watch(self, on_change: Callable[[], None] | None) -> None:
        """Set a callback for each change of `raw_write`."""
        self._on_change = on_change

    def notify(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def set_max_message_bytes(self, max_bytes: int | None) -> None:
        """Set the maximum size of messages that begin from now on; None: the server's maximum."""
        socket = self._socket
        socket.conn.max_message_size = min(socket.config.ws_max_size, max_bytes or socket.config.ws_max_size)

    @property
    def _is_open(self) -> bool:
        socket = self._socket
        is_established = socket.handshake_complete and not (socket.close_sent or socket.disconnected)
        return is_established and not socket.transport.is_closing()

    def write(self, wire: bytes) -> None:
        """Write one or more encoded frames. Never waits and never raises; on a closing socket, it does nothing."""
        if self._is_open:
            self._socket.transport.write(wire)

    @property
    def is_slow(self) -> bool:
        """Whether the client is connected and does not take what was written."""
        return not self._socket.writable.is_set() and not self._socket.disconnected

    @property
    def buffered_bytes(self) -> int:
        """Bytes that neither the client nor its network has taken yet; 0 while they are few.

        This is read for each frame, and a transport is slow to count.
        """
        return self._socket.transport.get_write_buffer_size() if self.is_slow else 0

    async def wait_drained(self) -> None:
        """Wait until few bytes are pending, or the client is gone."""
        await self._socket.writable.wait()


def websocket_protocol_class(unread_seconds: float) -> type[WebSocketsSansIOProtocol]:
    """Return the protocol class for uvicorn's `ws` setting. `unread_seconds`: as for HTTP."""

    class Socket(WebSocketsSansIOProtocol):
        _write_timeout: WriteTimeout
        _is_lingering = False
        _frames: FrameTransport | None = None
        _close_sent = False

        @property
        def close_sent(self) -> bool:
            return self._close_sent

        @close_sent.setter
        def close_sent(self, sent: bool) -> None:
            # No frame may follow a close frame, whichever side sent it.
            self._close_sent = sent
            self._notify()

        def _notify(self) -> None:
            if self._frames is not None:
                self._frames.notify()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            # Before the client is accepted, its frames must not fill the memory.
            self.conn.max_message_size = min(self.config.ws_max_size, MAX_BYTES_BEFORE_ACCEPT)
            self._write_timeout = WriteTimeout(self.loop, cast("asyncio.Transport", transport), unread_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._write_timeout.stop()
            super().connection_lost(exc)
            self._notify()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._notify()
            self._write_timeout.start()

        def resume_writing(self) -> None:
            if not self.transport.is_closing():
                self._write_timeout.stop()
            super().resume_writing()
            self._notify()

        def handle_connect(self, event: Request) -> None:
            super().handle_connect(event)
            if not self.handshake_complete:
                extensions = cast("dict[str, Any]", self.scope["extensions"])
                extensions[FRAMES_EXTENSION] = self._frames = FrameTransport(self)

        def data_received(self, data: bytes) -> None:
            if not self._is_lingering:
                super().data_received(data)

        def handle_parser_exception(self) -> None:
            close = self.conn.close_sent
            assert close is not None
            self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.write_eof()
            self.close_sent = self._is_lingering = True
            if self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()
            self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

        async def run_asgi(self) -> None:
            app = self.app

            async def handle(scope: Any, receive: Any, send: Any) -> None:
                # uvicorn would log these as errors of the application: a refusal, which is a complete response; and the
                # end of a socket that takes too long while the server stops, which cancels it.
                is_over = False
                try:
                    await app(scope, receive, send)
                except asyncio.CancelledError:
                    is_over = True
                if is_over or (self.initial_response is not None and self.close_sent):
                    self.handshake_complete = True

            self.app = handle
            await super().run_asgi()
            if not self.disconnected:
                # Pending data may still be read, within the time limit.
                self._write_timeout.start()

        def shutdown(self) -> None:
            if not self.handshake_complete or self.close_sent:
                super().shutdown()
            else:
                self.scope["state"]["stopping"] = True
                self.queue.put_nowait({"type": "websocket.disconnect", "code": CLOSE_RESTARTING})

        def send_receive_event_to_app(self) -> None:
            if self.curr_msg_data_type == "text":
                try:
                    b"".join(self.frames).decode()
                except UnicodeDecodeError:
                    self.frames = []
                    self.conn.send_close(CLOSE_INVALID_TEXT)
                    self.handle_parser_exception()
                    return
            super().send_receive_event_to_app()

    return Socket
