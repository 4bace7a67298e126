"""One HTTP connection: uvicorn's protocol, with the limits that uvicorn leaves to proxies.

* Bytes that complete nothing (a head or a trailer without end, chunk extensions) are limited to `MAX_UNPARSED_BYTES`,
  and a head to `request_seconds`. Both give a response in the protocol's own form (431, 408), as does input that is not
  HTTP.
* A client that reads none of its pending data for `unread_seconds` is disconnected and its buffers dropped, also when
  the response is complete and only its end is unread.
* The head of a response is sent in one write with what follows it in the same iteration of the event loop.
* Input after a request does not affect its response: garbage after it is refused when the response is complete.
* An upgrade to anything but WebSocket is ignored, as HTTP allows, and the request is served as it is. Java's client and
  curl offer HTTP/2 in this way, with a body after it. An upgrade to WebSocket is also ignored while an earlier request
  is being answered.
* A client that leaves is noticed by the request that is being answered, whatever is pipelined after it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...asgi.http import Scope, Send
from ...errors import ErrorInfo
from ...protocols.openresponses import error_body
from ...runs import RunSource
from .write_timeout import WriteTimeout

MAX_UNPARSED_BYTES = 64 * 1024
"""Other servers limit a head to 8 to 16 KiB."""

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


CONNECTION_EXTENSION = "pellucid.connection"
"""The extension of the ASGI scope that holds the connection."""


class CorkedTransport:
    """Transport for responses that can delay a write.

    After `cork`, the next data is held, and sent in one write with all that follows in the same iteration of the event
    loop: each write is a system call, and may wake the client up.
    """

    __slots__ = ("_flushing", "_held", "_loop", "_transport", "write")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._flushing: asyncio.Handle | None = None
        self.write: Callable[[bytes], None] = transport.write

    def cork(self) -> None:
        self.write = self._hold

    def flush(self) -> None:
        self.write = self._transport.write
        if self._flushing is not None:
            # The next request may be corked before this scheduled flush runs, and must not be flushed by it.
            self._flushing.cancel()
            self._flushing = None
        if self._held:
            data, self._held = b"".join(self._held), []
            if not self._transport.is_closing():
                self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self.write = self._held.append
        self._flushing = self._loop.call_soon(self.flush)


class DirectWriter:
    """Writes a response's body to the transport of its connection, as uvicorn's `send` would. A `BodyWriter`."""

    __slots__ = ("_cycle", "_source", "_transport", "writes")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self.writes = 0
        self._source: RunSource | None = None

    def start(self, source: RunSource) -> None:
        self._source = source
        if self._cycle.flow.write_paused:
            source.pause()

    def write(self, data: bytes) -> None:
        self.writes += 1
        cycle = self._cycle
        if not cycle.disconnected and not cycle.response_complete:
            write = self._transport.write
            write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self, data: bytes) -> None:
        await self._cycle.send({"type": "http.response.body", "body": data, "more_body": False})

    def close(self) -> None:
        self._source = None

    def pause(self) -> None:
        """The client does not read."""
        if self._source is not None:
            self._source.pause()

    def resume(self) -> None:
        """The client reads again."""
        if self._source is not None:
            self._source.resume()


def direct_writer(scope: Scope, send: Send) -> DirectWriter | None:
    """Return a writer for a response that has begun.

    None if `send` is not uvicorn's own, or the body is not chunked.
    """
    cycle = _cycle_of(scope, send)
    if cycle is None or not cycle.chunked_encoding or cycle.response_complete:
        return None
    writer = scope["extensions"][CONNECTION_EXTENSION].writer = DirectWriter(cycle)
    return writer


def on_disconnect(scope: Scope, send: Send, callback: Callable[[], None] | None) -> bool:
    """Call `callback` when the client of this request disconnects; None: no longer.

    Returns:
        False if `send` is not uvicorn's own: the callback will not be called.
    """
    cycle = _cycle_of(scope, send)
    if cycle is None:
        return False
    if callback is not None and cycle.disconnected:
        asyncio.get_running_loop().call_soon(callback)
    scope["extensions"][CONNECTION_EXTENSION].disconnected = callback
    return True


def _cycle_of(scope: Scope, send: Send) -> RequestResponseCycle | None:
    """Return uvicorn's state of this request, if `send` is its own and the request is the connection's current one."""
    cycle = getattr(send, "__self__", None)
    connection = scope.get("extensions", {}).get(CONNECTION_EXTENSION)
    if isinstance(cycle, RequestResponseCycle) and connection is not None and connection.answered is cycle:
        return cycle
    return None


def http_protocol_class(request_seconds: float, unread_seconds: float) -> type[HttpToolsProtocol]:
    """Return the protocol class for uvicorn's `http` setting.

    Args:
        request_seconds: How long the head of a request may take.
        unread_seconds: How long a client may leave pending data unread.
    """

    class Connection(HttpToolsProtocol):
        _unparsed_bytes = 0
        """Bytes since the parser last completed something."""
        _has_progress = False
        _in_head = False
        _head_timer: asyncio.TimerHandle | None = None
        _write_timeout: WriteTimeout
        _corked: CorkedTransport
        _ignores_upgrade = False
        """Whether the parser is about to stop at an upgrade that is ignored."""
        answered: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` may be the next one, which waits."""
        writer: DirectWriter | None = None
        """The writer of the current response, if it writes to the transport."""
        disconnected: Callable[[], None] | None = None
        """Called when the client of the current request disconnects."""

        # --- receiving -------------------------------------------------------------------------------------------

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._write_timeout = WriteTimeout(self.loop, transport, unread_seconds)
            self._corked = CorkedTransport(transport, self.loop)
            self._start_head_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            self._write_timeout.stop()
            if self.answered is not None and not self.answered.response_complete:
                self.answered.disconnected = True
                self.answered.message_event.set()
            super().connection_lost(exc)
            if self.disconnected is not None:
                self.disconnected()

        def data_received(self, data: bytes) -> None:
            self._has_progress = False
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._ignores_upgrade:
                    self._reparse_without_upgrade(data[upgrade.args[0] :])
                else:
                    self.handle_websocket_upgrade()
                return
            except httptools.HttpParserError:
                self._refuse(400, "this is not an HTTP request", "not_http")
                return
            self._unparsed_bytes = 0 if self._has_progress else self._unparsed_bytes + len(data)
            if self._unparsed_bytes > MAX_UNPARSED_BYTES:
                self._refuse(431, f"the head of a request is limited to {MAX_UNPARSED_BYTES} bytes", "head_too_large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._has_progress = self._in_head = True
            self._unset_keepalive_if_required()
            if self._head_timer is None:
                self._start_head_timer()

        def on_headers_complete(self) -> None:
            self._has_progress = True
            self._in_head = False
            self._stop_head_timer()
            is_free = self.answered is None or self.answered.response_complete
            is_get = self.parser.get_method() == b"GET"
            if self.parser.should_upgrade() and not (is_free and is_get and self._should_upgrade()):
                self._ignores_upgrade = True
                return
            if self.url[:1] not in (b"/", b"*"):
                self._use_host_of_target()
            previous = self.cycle
            super().on_headers_complete()
            extensions = cast("dict[str, Any]", self.scope.setdefault("extensions", {}))
            extensions[CONNECTION_EXTENSION] = self
            if self.cycle is not previous:  # otherwise it is an upgrade
                self.cycle.transport = cast("asyncio.Transport", self._corked)
                self._corked.cork()

        def _use_host_of_target(self) -> None:
            """Replace the Host by the one of a target in absolute form (RFC 9112, 3.2.2)."""
            authority = re.split(rb"[/?#]", self.url.partition(b"://")[2], maxsplit=1)[0]
            self.headers[:] = [header for header in self.headers if header[0] != b"host"]
            self.headers.append((b"host", authority))

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
            self.answered = cycle
            super()._start_asgi_task(cycle, app)

        def on_body(self, body: bytes) -> None:
            self._has_progress = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._has_progress = True
            if not self._ignores_upgrade:
                super().on_message_complete()

        def _reparse_without_upgrade(self, rest: bytes) -> None:
            """Parse the same request again, without the headers of the upgrade."""
            self._ignores_upgrade = False
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            if method == b"CONNECT":
                self._refuse(400, "this server is not a proxy", "not_http")
                return
            closes = any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)
            headers = [
                b"%b: %b\r\n" % header
                for header in self.headers
                if header[0] not in (b"upgrade", b"connection", b"http2-settings")
            ]
            head = b"%b %b HTTP/%b\r\n%b%b\r\n" % (
                method,
                self.url,
                version,
                b"".join(headers),
                b"connection: close\r\n" if closes else b"",
            )
            self.parser = httptools.HttpRequestParser(self)
            self.data_received(head + rest)

        # --- timeout of heads --------------------------------------------------------------------------------------

        def _start_head_timer(self) -> None:
            self._head_timer = self.loop.call_later(request_seconds, self._on_head_timeout)

        def _stop_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _on_head_timeout(self) -> None:
            self._head_timer = None
            if self._in_head:
                self._refuse(
                    408, f"the head of this request was not complete within {request_seconds:g} s", "head_too_slow"
                )
            else:
                self._close()  # the client connected and sent nothing

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "this is not an HTTP request", "not_http")

        def _refuse(self, status: int, message: str, code: str) -> None:
            """Send an error and close. If a response is in progress, complete it, and close after it."""
            self._stop_head_timer()
            if self.transport.is_closing():
                return
            cycle = self.cycle
            if cycle is not None and not cycle.response_complete and (cycle.response_started or not cycle.more_body):
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            body = msgspec.json.encode(error_body(ErrorInfo("invalid_request", message, code=code)))
            head = (
                f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self._close()

        # --- sending -----------------------------------------------------------------------------------------------

        def on_response_complete(self) -> None:
            self._corked.flush()
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._write_timeout.start()
            if self.writer is not None:
                self.writer.pause()

        def resume_writing(self) -> None:
            if not self.transport.is_closing():
                self._write_timeout.stop()
            super().resume_writing()
            if self.writer is not None:
                self.writer.resume()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._close()

        def _close(self) -> None:
            """Close the connection. Data that is not read in time is dropped."""
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self._write_timeout.start()

    return Connection
