"""One connection to a server. It carries one request and its response at a time, and can then be reused.

* Each read of the socket is one call of the parser and one call of the receiver. It creates no task, future or timer.
* A server that sends faster than its data is processed gets 32 KiB for each iteration of the event loop. (libuv would
  make up to 32 reads of 256 KB before it calls anything else.)
* The request body is sent in pieces, one for each iteration of the event loop, as fast as the server reads it. A server
  may respond before it has read the whole body. The rest is then sent while the response arrives, or not at all if the
  response has status 300 or above (RFC 9112, section 9.3).
* The connection is reusable if both bodies were transferred completely, neither side requested `close`, and no byte
  followed the response (RFC 9112, sections 9.3 and 9.6). Any byte that arrives while it is idle makes it unusable.
* `close` closes it at once, even if bytes are still to be sent or read. The server then stops generating.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import cast

from .parsing import ResponseHead, ResponseParser
from .request import Endpoint

_PIECE_BYTES = 1 << 18
_MAX_EARLY_BYTES = 1 << 16
"""Bytes of a response body that are buffered before there is a receiver."""
MAX_READ_BYTES = 1 << 15
"""Bytes that are processed in one iteration of the event loop."""
KEEP_ALIVE_SECONDS = 60.0


class Connection(asyncio.Protocol):
    """A socket, and the state of the exchange on it.

    `send` returns the head of the response. `receive` then sets the receiver of its body. The end of the body is
    reported once, unless the connection was closed on this side.
    """

    __slots__ = (
        "_deliver",
        "_early_body",
        "_head_future",
        "_is_early_full",
        "_is_paused",
        "_is_write_paused",
        "_keeps_alive",
        "_loop",
        "_next_read",
        "_on_closed",
        "_on_end",
        "_parser",
        "_transport",
        "_unread",
        "_unsent_body",
        "body_bytes",
        "endpoint",
        "has_served",
        "is_closed",
        "usable_until",
    )

    def __init__(self, endpoint: Endpoint, on_closed: Callable[[Connection], None]) -> None:
        """Create the protocol object; `loop.create_connection` connects it.

        Args:
            endpoint: Where it is connected to.
            on_closed: Called once, as soon as the connection is known to be closed.
        """
        self.endpoint = endpoint
        self.body_bytes = 0
        """Bytes of the response body that have arrived, before decompression."""
        self.has_served = False
        """Whether it has carried a request and its response before."""
        self.is_closed = False
        self.usable_until = 0.0
        """The time (`time.monotonic`) until which the server can be expected to keep it open while it is idle."""
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: ResponseParser | None = None
        self._head_future: asyncio.Future[ResponseHead] | None = None
        self._deliver: Callable[[bytes], None] | None = None
        self._on_end: Callable[[bool], None] | None = None
        self._early_body = b""
        self._unsent_body: memoryview | None = None
        """The part of the request body that has not been sent."""
        self._keeps_alive = True
        self._is_paused = False
        """Whether the receiver has paused reading."""
        self._is_early_full = False
        """Whether reading is paused because the early body has reached its limit."""
        self._unread = b""
        """The rest of a large read. While there is one, the transport is paused."""
        self._next_read: asyncio.Handle | None = None
        """The scheduled call of `_read_more`."""
        self._is_write_paused = False

    async def send(self, head: bytes, body: bytes, *, keeps_alive: bool = True) -> ResponseHead:
        """Send a request and wait for the head of its response. Cancelling closes the connection.

        Args:
            head: The request head, including the empty line that ends it.
            body: The request body. Its length must be the `Content-Length` of the head.
            keeps_alive: False if the head has `Connection: close`.

        Returns:
            The head of the final response.

        Raises:
            DisconnectError: The connection ended before the head was complete.
            InvalidResponse: The response is not HTTP/1.1.
        """
        self._parser = ResponseParser()
        self._head_future = self._loop.create_future()
        self._keeps_alive = keeps_alive
        self.body_bytes = 0
        if len(body) <= _PIECE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._unsent_body = memoryview(body)
            self._send_more()
        try:
            return await self._head_future
        except BaseException:
            self.close()
            raise
        finally:
            self._head_future = None

    def receive(self, deliver: Callable[[bytes], None], end: Callable[[bool], None]) -> None:
        """Pass the body to `deliver`, then call `end`. Neither is called after `close`.

        Args:
            deliver: Called with each read. Bytes that have arrived already are delivered within this call.
            end: Called once, with whether the body is complete.
        """
        early, self._early_body = self._early_body, b""
        self._deliver, self._on_end = deliver, end
        if early:
            # The receiver may pause before this call or within it. It may also close: then there is no parser.
            if self._is_early_full:
                self._is_early_full = False
                self._resume_transport()
            deliver(early)
        parser = self._parser
        if parser is not None and parser.is_over:
            self._finish_response()

    def redirect(self, deliver: Callable[[bytes], None]) -> None:
        """Pass the rest of the body to another function. Does nothing if the body has ended."""
        if self._deliver is not None:
            self._deliver = deliver

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and carries no request."""
        return self._parser is None and not self.is_closed and not self._transport.is_closing()

    def pause_reading(self) -> None:
        """Stop reading from the socket. Its buffers fill, so the server has to wait. Idempotent."""
        if not self._is_paused and not self.is_closed and not self._transport.is_closing():
            self._is_paused = True
            if not self._is_early_full:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading. Idempotent."""
        if self._is_paused:
            self._is_paused = False
            self._resume_transport()

    def _resume_transport(self) -> None:
        if self._is_paused or self._is_early_full or self.is_closed or self._transport.is_closing():
            return
        if not self._unread:
            self._transport.resume_reading()
        elif self._next_read is None:
            self._next_read = self._loop.call_soon(self._read_more)

    def _split(self, data: bytes) -> bytes:
        """Return the first part of a large read. The rest is processed in the next iterations of the event loop."""
        self._unread = data[MAX_READ_BYTES:]
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._next_read = self._loop.call_soon(self._read_more)
        return data[:MAX_READ_BYTES]

    def _read_more(self) -> None:
        self._next_read = None
        if not (self._is_paused or self._is_early_full or self.is_closed):
            self._read_part()
            self._resume_transport()

    def _read_part(self) -> None:
        data, self._unread = self._unread[:MAX_READ_BYTES], self._unread[MAX_READ_BYTES:]
        self.data_received(data)

    def _read_rest(self) -> None:
        """Process what was read before the connection ended."""
        while self._unread and not self.is_closed:
            self._read_part()

    def close(self) -> None:
        """Close the connection at once. Nothing is reported after this. Idempotent."""
        self._deliver = self._on_end = None
        self._early_body = self._unread = b""
        self._abort(None)
        parser, self._parser = self._parser, None
        if parser is not None:
            parser.close()

    def fail(self) -> None:
        """Close the connection at once, and report an unfinished body as incomplete. Idempotent."""
        self._abort(None)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self.close()  # data without a request
            return
        if len(data) > MAX_READ_BYTES:
            data = self._split(data)
        body = parser.feed(data)
        if body:
            self.body_bytes += len(body)
            deliver = self._deliver
            if deliver is not None:
                deliver(body)
            else:
                self._buffer_early(body)
        if self._head_future is not None:
            self._resolve_head(parser)
        if parser.is_over and self._on_end is not None:
            self._finish_response()

    def eof_received(self) -> None:
        self._read_rest()
        self._abort(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._read_rest()
        self._abort(error)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._unsent_body is not None:
            self._send_more()

    def _send_more(self) -> None:
        body = self._unsent_body
        if body is None or self._is_write_paused or self.is_closed:
            return
        self._unsent_body = body[_PIECE_BYTES:] if len(body) > _PIECE_BYTES else None
        self._transport.write(bytes(body[:_PIECE_BYTES]))
        if self._unsent_body is not None and not self._is_write_paused:
            self._loop.call_soon(self._send_more)

    def _buffer_early(self, body: bytes) -> None:
        """Buffer a part of the body that arrives before there is a receiver."""
        self._early_body += body
        if len(self._early_body) >= _MAX_EARLY_BYTES and not self._is_early_full:
            self._is_early_full = True
            if not (self._is_paused or self._transport.is_closing()):
                self._transport.pause_reading()

    def _resolve_head(self, parser: ResponseParser) -> None:
        """Resolve the future of the response head, if the head is complete or invalid."""
        future = self._head_future
        if future is None or future.done():
            return
        if parser.head is not None:
            if parser.head.status >= 300:
                self._abandon_body()
            future.set_result(parser.head)
        elif parser.error is not None:
            future.set_exception(parser.error)

    def _abandon_body(self) -> None:
        """Stop sending the request body, because the server has refused the request."""
        if self._unsent_body is not None:
            self._unsent_body = None
            self._keeps_alive = False

    def _abort(self, error: Exception | None) -> None:
        """Abort the transport and end the exchange. Every way in which a connection can end calls this."""
        if self.is_closed:
            return
        self.is_closed = True
        self._unsent_body = None
        self._unread = b""
        self._transport.abort()  # not `close`, which waits until the server has read everything
        self._on_closed(self)
        parser = self._parser
        if parser is None:
            return
        try:
            parser.end(error)
        except Exception as reason:
            if self._head_future is not None and not self._head_future.done():
                self._head_future.set_exception(reason)
        if self._on_end is not None:
            self._finish_response()

    def _finish_response(self) -> None:
        """Report the end of the response, and make the connection idle or close it."""
        end, self._on_end, self._deliver = self._on_end, None, None
        parser, self._parser = self._parser, None
        if parser is None or end is None:
            return
        is_reusable = (
            parser.is_reusable
            and self._keeps_alive
            and not self.is_closed
            and self._unsent_body is None
            and not self._unread
            and not self._transport.get_write_buffer_size()
        )
        head = parser.head
        parser.close()
        self.has_served = True
        idle_seconds = _keep_alive_seconds(head) if is_reusable and head is not None else 0.0
        if idle_seconds > 0:
            self.usable_until = monotonic() + idle_seconds
            self.resume_reading()
        else:
            self._abort(None)
        end(parser.is_complete)


def _keep_alive_seconds(head: ResponseHead) -> float:
    """Return the seconds for which the connection may be idle.

    This is the timeout of the `Keep-Alive` header, less one second for the latency to the server.
    """
    for parameter in head.headers.get("keep-alive", "").split(","):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "timeout" and value.strip().isdecimal():
            return min(KEEP_ALIVE_SECONDS, float(value) - 1)
    return KEEP_ALIVE_SECONDS
