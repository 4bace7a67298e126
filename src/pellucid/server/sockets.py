"""One WebSocket: uvicorn's protocol, with what it leaves to others.

* Whoever reads nothing for `unread_seconds` of what waits for them is let go, as over HTTP.
* A server that stops does not close under a response: the application is told (`websocket.disconnect`, with `stopping`
  in the scope's state, while the socket is still open), and closes when the response is over.
* Text that is not UTF-8 ends the socket (1007), and nothing of it reaches a log.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .unread import Unread

RESTARTING = 1012
INVALID_TEXT = 1007


def sockets(unread_seconds: float) -> type[WebSocketsSansIOProtocol]:
    """The protocol for uvicorn's `ws` setting."""

    class Socket(WebSocketsSansIOProtocol):
        _unread: Unread

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
