"""One connection to a server: it carries one request and its response at a time, and can be used again after that.

* A read of the socket is one call of the parser and one of the receiver. No task, future or timer is made for it.
* The body of a request goes out in pieces, a turn of the loop for each, and waits for the server to take them. A server
  may answer before it has taken all of it; then the rest is sent meanwhile, or not at all if the answer is a refusal
  (RFC 9112, section 9.3).
* It is reusable if both bodies went over wholly, neither side requested `close`, and nothing came behind the response
  (RFC 9112, sections 9.3 and 9.6). Whatever arrives while it is idle makes it unusable.
* `close` ends it at once, whatever is still to be sent or read: the server stops a work that has no reader.
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
"""How much of a body is read before somebody receives it."""
KEEP_ALIVE_SECONDS = 60.0


class Connection(asyncio.Protocol):
    """A socket, and the state of the exchange on it.

    `send` gives the head of the response. Then `receive` says who gets its body; the end of the body is reported once,
    unless the connection was closed on this side.
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
        "_on_closed",
        "_on_end",
        "_parser",
        "_transport",
        "_unsent_body",
        "body_bytes",
        "endpoint",
        "has_served",
        "is_closed",
        "usable_until",
    )

    def __init__(self, endpoint: Endpoint, on_closed: Callable[[Connection], None]) -> None:
        """`forget`: called once, as soon as the connection is known to be closed."""
        self.endpoint = endpoint
        self.body_bytes = 0
        """How many bytes of the response's body have arrived, as they were sent."""
        self.has_served = False
        """Whether it has carried a request before."""
        self.is_closed = False
        self.usable_until = 0.0
        """Until when (`time.monotonic`) the server can be expected to keep it open while it is idle."""
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: ResponseParser | None = None
        self._head_future: asyncio.Future[ResponseHead] | None = None
        self._deliver: Callable[[bytes], None] | None = None
        self._on_end: Callable[[bool], None] | None = None
        self._early_body = b""
        self._unsent_body: memoryview | None = None
        """What is left to be sent of the request's body."""
        self._keeps_alive = True
        self._is_paused = False
        """Whether the receiver wants nothing more for now."""
        self._is_early_full = False
        """Whether enough arrived before there is a receiver."""
        self._is_write_paused = False

    async def send(self, head: bytes, body: bytes, *, keeps_alive: bool = True) -> ResponseHead:
        """Send a request and wait for the head of its response. Cancelling closes the connection.

        Args:
            head: with the empty line that ends it.
            body: as long as the head says.
            keeps_alive: False if the head says `Connection: close`.

        Raises:
            Disconnected: the connection ended before that.
            InvalidResponse: what came is not HTTP/1.1.
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
        """Give the body to `deliver`, what has arrived already at once, and then call `end`.

        `end` is called with whether the body is whole. Neither is called after `close`.
        """
        early, self._early_body = self._early_body, b""
        self._deliver, self._on_end = deliver, end
        if early:
            # The receiver may pause, before this and within it; it may also close, and then there is no parser.
            if self._is_early_full:
                self._is_early_full = False
                self._resume_transport()
            deliver(early)
        parser = self._parser
        if parser is not None and parser.is_over:
            self._finish_response()

    def redirect(self, deliver: Callable[[bytes], None]) -> None:
        """Give the body to somebody else from now on, unless it is over."""
        if self._deliver is not None:
            self._deliver = deliver

    @property
    def is_idle(self) -> bool:
        """Whether it is open and carries no request."""
        return self._parser is None and not self.is_closed and not self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more from the socket: it fills up, and the server has to wait. Idempotent."""
        if not self._is_paused and not self.is_closed and not self._transport.is_closing():
            self._is_paused = True
            if not self._is_early_full:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again. Idempotent."""
        if self._is_paused:
            self._is_paused = False
            self._resume_transport()

    def _resume_transport(self) -> None:
        if not (self._is_paused or self._is_early_full or self.is_closed or self._transport.is_closing()):
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection now. Nothing is reported about it any more. Idempotent."""
        self._deliver = self._on_end = None
        self._early_body = b""
        self._abort(None)
        parser, self._parser = self._parser, None
        if parser is not None:
            parser.close()

    def fail(self) -> None:
        """End the connection now, and report a body that is not over as broken. Idempotent."""
        self._abort(None)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self.close()  # nothing was requested
            return
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
        self._abort(None)

    def connection_lost(self, error: Exception | None) -> None:
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
        """Keep what arrives before there is a receiver."""
        self._early_body += body
        if len(self._early_body) >= _MAX_EARLY_BYTES and not self._is_early_full:
            self._is_early_full = True
            if not (self._is_paused or self._transport.is_closing()):
                self._transport.pause_reading()

    def _resolve_head(self, parser: ResponseParser) -> None:
        """Resolve the head's future, when the head is complete or cannot be."""
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
        """Stop sending: the server refuses, and need not read the rest."""
        if self._unsent_body is not None:
            self._unsent_body = None
            self._keeps_alive = False

    def _abort(self, error: Exception | None) -> None:
        """The connection is gone, or as good as gone. Called for every way in which that is learnt."""
        if self.is_closed:
            return
        self.is_closed = True
        self._unsent_body = None
        self._transport.abort()  # not `close`, which waits until the server has taken everything
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
        """The response is over: report it, and get ready for the next request or close."""
        end, self._on_end, self._deliver = self._on_end, None, None
        parser, self._parser = self._parser, None
        if parser is None or end is None:
            return
        is_reusable = (
            parser.is_reusable
            and self._keeps_alive
            and not self.is_closed
            and self._unsent_body is None
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
    """Seconds for which the connection can be idle: as `Keep-Alive` says, less one for the way to the server."""
    for parameter in head.headers.get("keep-alive", "").split(","):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "timeout" and value.strip().isdecimal():
            return min(KEEP_ALIVE_SECONDS, float(value) - 1)
    return KEEP_ALIVE_SECONDS
