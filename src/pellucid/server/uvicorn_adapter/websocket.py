"""One WebSocket: uvicorn's protocol, with what it leaves to others.

* Whoever reads nothing for `unread_seconds` of what waits for them is let go, as over HTTP.
* A server that stops does not close under a response: the application is told (`websocket.disconnect`, with `stopping`
  in the scope's state, while the socket is still open), and closes when the response is over.
* Text that is not UTF-8 ends the socket (1007), and nothing of it reaches a log.
* Who says the same to many sockets makes the frame once: `scope["extensions"]["pellucid.frames"]` takes it as it is on
  the wire, writes it at once, and tells how much the client has not taken yet (`Frames`).
* Whoever broke the protocol hears so: a connection that is closed with input unread is reset, and the client would lose
  the word; so what they still send is read into nothing, for `LINGER_SECONDS`.
* How large a message may be can be said of each socket (`Frames.set_max_message_bytes`): of one whose client is unknown yet, small.
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
"""Bytes of one message, of a client that does not wait to be taken."""


class FrameTransport:
    """What is written to one socket without a call of `send`: between its accept and its close, and in any order with
    `send`'s, as each writes whole frames."""

    def __init__(self, socket: WebSocketsSansIOProtocol) -> None:
        self._socket = socket
        self._on_change: Callable[[], None] | None = None

    @property
    def raw_write(self) -> Callable[[bytes], object] | None:
        """The transport's own `write`, to which frames may be given with nothing asked, for as long as it is this.
        None: the socket is not open, or much waits for the client, so `write` does it."""
        return self._socket.transport.write if self._is_open and self._socket.writable.is_set() else None

    def watch(self, on_change: Callable[[], None] | None) -> None:
        """It is called whenever `line` may be another."""
        self._on_change = on_change

    def notify(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def set_max_message_bytes(self, max_bytes: int | None) -> None:
        """Of messages that begin from now on: the most bytes of one. None: as many as the server takes of anything."""
        socket = self._socket
        socket.conn.max_message_size = min(socket.config.ws_max_size, max_bytes or socket.config.ws_max_size)

    @property
    def _is_open(self) -> bool:
        socket = self._socket
        is_established = socket.handshake_complete and not (socket.close_sent or socket.disconnected)
        return is_established and not socket.transport.is_closing()

    def write(self, wire: bytes) -> None:
        """One or more of them. Never waits and never fails: to a socket that is closing, nothing is written."""
        if self._is_open:
            self._socket.transport.write(wire)

    @property
    def is_slow(self) -> bool:
        """Whether the client is there, and does not take what was written."""
        return not self._socket.writable.is_set() and not self._socket.disconnected

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the client has not taken yet, and its network neither; 0 while they are few (this is asked for
        each frame, and a transport is slow to count)."""
        return self._socket.transport.get_write_buffer_size() if self.is_slow else 0

    async def wait_drained(self) -> None:
        """Until little waits; also when nobody is there any more."""
        await self._socket.writable.wait()


def websocket_protocol_class(unread_seconds: float) -> type[WebSocketsSansIOProtocol]:
    """The protocol for uvicorn's `ws` setting."""

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
            # After a close no frame may follow, whoever sent it and why.
            self._close_sent = sent
            self._notify()

        def _notify(self) -> None:
            if self._frames is not None:
                self._frames.notify()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            # Until somebody is let in, nobody's frames fill the memory.
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
                await app(scope, receive, send)
                # A refusal is a whole answer, which uvicorn takes for a fault that it tells in its log.
                if self.initial_response is not None and self.close_sent:
                    self.handshake_complete = True

            self.app = handle
            await super().run_asgi()
            if not self.disconnected:
                # What is left to be read has its time, and no more.
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
