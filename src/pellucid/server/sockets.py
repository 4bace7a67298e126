"""One WebSocket: uvicorn's protocol, with what it leaves to others.

* Whoever reads nothing for `unread_seconds` of what waits for them is let go, as over HTTP.
* A server that stops does not close under a response: the application is told (`websocket.disconnect`, with `stopping`
  in the scope's state, while the socket is still open), and closes when the response is over.
* Text that is not UTF-8 ends the socket (1007), and nothing of it reaches a log.
* Whoever broke the protocol hears so: a connection that is closed with input unread is reset, and the client would lose
  the word; so what they still send is read into nothing, for `LINGER_SECONDS`.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .unread import Unread

RESTARTING = 1012
INVALID_TEXT = 1007
LINGER_SECONDS = 5.0


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


__all__ = ["sockets"]
