"""One WebSocket: uvicorn's protocol, with what it leaves to others.

* Whoever reads nothing for `unread_seconds` of what waits for them is let go, as over HTTP.
* A server that stops does not close under a response: the application is told (`websocket.disconnect`, with `stopping`
  in the scope's state, while the socket is still open), and closes when the response is over.
* Text that is not UTF-8 ends the socket (1007), and nothing of it reaches a log.
* Who says the same to many sockets makes the frame once: `scope["extensions"]["pellucid.frames"]` takes it as it is on
  the wire, writes it at once, and tells how much the client has not taken yet (`Frames`).
* Whoever broke the protocol hears so: a connection that is closed with input unread is reset, and the client would lose
  the word; so what they still send is read into nothing, for `LINGER_SECONDS`.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from .unread import Unread

FRAMES = "pellucid.frames"
RESTARTING = 1012
INVALID_TEXT = 1007
LINGER_SECONDS = 5.0


class Frames:
    """What is written to one socket without a call of `send`: between its accept and its close, and in any order with
    `send`'s, as each writes whole frames."""

    def __init__(self, socket: WebSocketsSansIOProtocol) -> None:
        self._socket = socket

    def write(self, wire: bytes) -> None:
        """One or more of them. Never waits and never fails: to a socket that is closing, nothing is written."""
        socket = self._socket
        transport = socket.transport
        if socket.handshake_complete and not (socket.close_sent or socket.disconnected or transport.is_closing()):
            transport.write(wire)

    @property
    def waiting(self) -> int:
        """Bytes that the client has not taken yet, and its network neither; 0 while they are few (this is asked for
        each frame, and a transport is slow to count)."""
        socket = self._socket
        return 0 if socket.writable.is_set() or socket.disconnected else socket.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Until little waits; also when nobody is there any more."""
        await self._socket.writable.wait()


def sockets(unread_seconds: float) -> type[WebSocketsSansIOProtocol]:
    """The protocol for uvicorn's `ws` setting."""

    class Socket(WebSocketsSansIOProtocol):
        _unread: Unread
        _lingers = False

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._unread = Unread(self.loop, cast("asyncio.Transport", transport), unread_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._unread.stop()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread.watch()

        def resume_writing(self) -> None:
            if not self.transport.is_closing():
                self._unread.stop()
            super().resume_writing()

        def handle_connect(self, event: Request) -> None:
            super().handle_connect(event)
            if not self.handshake_complete:
                extensions = cast("dict[str, Any]", self.scope["extensions"])
                extensions[FRAMES] = Frames(self)

        def data_received(self, data: bytes) -> None:
            if not self._lingers:
                super().data_received(data)

        def handle_parser_exception(self) -> None:
            close = self.conn.close_sent
            assert close is not None
            self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.write_eof()
            self.close_sent = self._lingers = True
            if self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()
            self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

        async def run_asgi(self) -> None:
            app = self.app

            async def answering(scope: Any, receive: Any, send: Any) -> None:
                await app(scope, receive, send)
                # A refusal is a whole answer, which uvicorn takes for a fault that it tells in its log.
                if self.initial_response is not None and self.close_sent:
                    self.handshake_complete = True

            self.app = answering
            await super().run_asgi()
            if not self.disconnected:
                # What is left to be read has its time, and no more.
                self._unread.watch()

        def shutdown(self) -> None:
            if not self.handshake_complete or self.close_sent:
                super().shutdown()
            else:
                self.scope["state"]["stopping"] = True
                self.queue.put_nowait({"type": "websocket.disconnect", "code": RESTARTING})

        def send_receive_event_to_app(self) -> None:
            if self.curr_msg_data_type == "text":
                try:
                    b"".join(self.frames).decode()
                except UnicodeDecodeError:
                    self.frames = []
                    self.conn.send_close(INVALID_TEXT)
                    self.handle_parser_exception()
                    return
            super().send_receive_event_to_app()

    return Socket


__all__ = ["FRAMES", "Frames", "sockets"]
