"""The heads of requests: how large they may be, and how long they may take.

The server below has no such limits: a head of any size would be kept, and who sends a byte a minute would hold a
connection for ever. Here both end with an answer in the protocol's own form (431, 408), and so does what is not HTTP.
"""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import ErrorInfo
from ..protocols.openresponses import error_body

MAX_HEAD_BYTES = 64 * 1024
"""Of a request line and its headers. Others stop at 8 to 16 KiB."""

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


def limited_heads(seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, with these limits; `seconds` is how long a head may take."""

    class Protocol(HttpToolsProtocol):
        """One connection."""

        _head: int | None = None
        """Bytes of the head under way, not counting the read that brought its beginning."""
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._over()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            under_way = self._head is not None
            super().data_received(data)
            if under_way and self._head is not None:
                self._head += len(data)
                if self._head > MAX_HEAD_BYTES:
                    self._refuse(431, f"the head of a request may hold {MAX_HEAD_BYTES} bytes", "head_too_large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0
            if self._timer is None:
                self._begin()

        def on_headers_complete(self) -> None:
            self._over()
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "this is not an HTTP request", "not_http")

        def _begin(self) -> None:
            self._timer = self.loop.call_later(seconds, self._too_slow)

        def _over(self) -> None:
            self._head = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            if self._head is not None:
                self._refuse(408, f"the head of this request did not come within {seconds:g} s", "head_too_slow")
            else:
                self.transport.close()  # somebody connected and said nothing

        def _refuse(self, status: int, message: str, code: str) -> None:
            """Answer, if this connection still can, and close it."""
            self._over()
            if self.transport.is_closing():
                return
            if self.cycle is None or self.cycle.response_complete:
                body = msgspec.json.encode(error_body(ErrorInfo("invalid_request", message, code=code)))
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
            self.transport.close()

    return Protocol


__all__ = ["MAX_HEAD_BYTES", "limited_heads"]
