"""Stream a run to a client: one batch of the run is one write.

The code is the same for all protocols (their encoders differ), for live, stored and replayed runs (their sources
differ), for all viewers (their redactors differ), and for all servers (their writers differ).

Long silence is normal: a model may think for minutes before its first token. The head of a stream is sent with the
first event, or after `HEAD_SECONDS`; until then, an error is a status. Then `PING_SECONDS` of silence are followed by a
ping, because proxies and clients close a connection on which nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from ..errors import ErrorInfo, IllegalEvent, PellucidError
from ..events import Event, PartDeltaEvent, RunEndEvent
from ..models import TextWriter
from ..protocols import Encoder
from ..runs import Batch, RunSource, clock_ms
from ..telemetry import error_location, log
from . import http

FAULT = ErrorInfo("server_error", "the gateway failed; the operator's log says where")
STOPPING = ErrorInfo("unavailable", "the gateway is stopping; ask again in a moment", code="stopping", retry_after=1.0)

HEAD_SECONDS = 5.0
"""How long the head of a stream waits for the first event."""

PING_SECONDS = 15.0
"""After how much silence a ping is sent, at the earliest; at the latest after a third more."""

MAX_BUFFERED = 64 * 1024
"""Bytes that may wait for a client until the run is paused, where ASGI's `send` is used."""


class Redactor(Protocol):
    """Removes what a viewer may not see from events (see `view.Redactor`)."""

    @property
    def wants_deltas(self) -> bool:
        """Whether `feed` must be called for a batch that is one `PartDeltaEvent`, as nearly all batches are.

        The value can change with each call of `feed`.
        """
        ...

    def feed(self, events: list[Event], /) -> list[Event]: ...


class BodyWriter(Protocol):
    """Writes the body of one streamed response."""

    writes: int
    """How often something was written."""

    def start(self, source: RunSource) -> None:
        """Start to pause and resume `source` as the client reads."""
        ...

    def write(self, data: bytes) -> None:
        """Write now, or as soon as the client reads. It never waits; after a disconnect it does nothing."""
        ...

    async def end(self, data: bytes) -> None:
        """Write the last data and the end of the body in one write."""
        ...

    def close(self) -> None:
        """Release the writer at the end of the response: nothing is written any more, and the source is not paused."""
        ...


class StreamExchange(http.DisconnectSource, Protocol):
    """A request whose response can be streamed."""

    send: http.Send

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        """Send the head of a streamed response, and return the writer of its body."""
        ...


class ASGIWriter:
    """Writes with ASGI's `send` from a task of its own, for any server or middleware. A `BodyWriter`."""

    def __init__(self, send: http.Send) -> None:
        self.send = send
        self.writes = 0
        self._source: RunSource | None = None
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._data_ready = asyncio.Event()
        self._is_ending = False
        self._failure: Exception | None = None
        """The exception that `send` raised."""
        self._task: asyncio.Task[None] | None = None

    def start(self, source: RunSource) -> None:
        self._source = source

    def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            self._task = asyncio.create_task(self._write_pieces())
        self.writes += 1
        self._pieces.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > MAX_BUFFERED and self._source is not None:
            self._source.pause()
        self._data_ready.set()

    async def end(self, data: bytes) -> None:
        self._is_ending = True
        self._data_ready.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._failure is None:
            await self._send_piece([*self._pieces, data], last=True)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _write_pieces(self) -> None:
        while self._failure is None:
            await self._data_ready.wait()
            if self._is_ending:
                return
            self._data_ready.clear()
            pieces, self._pieces, self._buffered_bytes = self._pieces, [], 0
            await self._send_piece(pieces)
            if self._source is not None:
                self._source.resume()  # Also after a failure, which the next `write` raises.

    async def _send_piece(self, pieces: list[bytes], *, last: bool = False) -> None:
        try:
            await self.send_data(b"".join(pieces), last=last)
        except OSError:
            self._failure = http.ClientGone()  # Servers report a disconnect as an OSError.
        except Exception as error:
            self._failure = error

    async def send_data(self, data: bytes, *, last: bool) -> None:
        """Send the data, which is the last if `last` is set."""
        await self.send(http.body_message(data, last=last))


class _NullWriter:
    """Writes nothing: for a response that is not streamed."""

    writes = 0

    def start(self, source: RunSource) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    async def end(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class EncodedStream:
    """Redacts and encodes the batches of a run for one viewer, and writes them."""

    def __init__(
        self,
        source: RunSource,
        redactor: Redactor,
        encoder: Encoder,
        writer: BodyWriter,
        *,
        interrupted_end: bytes | None = None,
    ) -> None:
        """Create the stream.

        Args:
            source: The run.
            redactor: The redactor of the viewer.
            encoder: The encoder of the client protocol.
            writer: The writer of the response's body.
            interrupted_end: The bytes to end with if only the delivery was interrupted; None to end with the run's end
                as failed.
        """
        self._source = source
        self._redactor = redactor
        self._redacts_deltas = redactor.wants_deltas
        self._encoder = encoder
        self._write = writer.write
        self._writer = writer
        self._interrupted_end = interrupted_end
        self.end_data = b""
        """The encoded end of the run, which is written together with the end of the body."""

    async def run(self, client: http.Client) -> None:
        """Write the run from its beginning to its end. A shutdown, an interruption or a fault ends it as failed."""
        try:
            await self.deliver()
        except asyncio.CancelledError:
            if client.has_left:
                raise
            await self.stop(_reason_to_stop(client).info)
        except http.ClientGone:
            raise
        except Exception as error:
            log.error("a fault while streaming: %s", error_location(error))
            await self.stop(FAULT)
        else:
            await self._writer.end(self.end_data)

    async def deliver(self) -> None:
        """Write the run without its end, which is in `end_data` afterwards."""
        self._writer.start(self._source)
        self._start()
        await self._source.deliver(self._receive, self)

    def _start(self) -> None:
        # A function of its own, so that no local variable holds the bytes while the run is delivered.
        if opening := self._encoder.start(queued=self._source.queued):
            self._write(opening)

    def open_text(self, like: PartDeltaEvent) -> TextWriter | None:
        """Return a writer for deltas like this one that needs no events, or None (see `TextSink`)."""
        encode = None if self._redacts_deltas else self._encoder.text_encoder()
        return None if encode is None else TextWriter(encode, self._write, self._write_all)

    def _write_all(self, pieces: list[bytes]) -> None:
        """Write the pieces of one read of the upstream in one write."""
        self._write(b"".join(pieces))

    def _receive(self, batch: Batch) -> None:
        events = batch.events
        if self._redacts_deltas or len(events) != 1 or type(events[0]) is not PartDeltaEvent:
            events = self._redactor.feed(events)
            self._redacts_deltas = self._redactor.wants_deltas
        if self._source.ended is not None:
            self.end_data = self._encode_end(events, batch.time_ms)
        elif data := self._encoder.feed(events, batch.time_ms):
            self._write(data)

    def _encode_end(self, events: list[Event], now: int) -> bytes:
        if self._interrupted_end is not None and self._source.is_interrupted:
            return self._interrupted_end
        return self._encoder.feed(events, now)

    async def fail(self, error: ErrorInfo) -> None:
        """Write the stream of a run that could not be opened."""
        opening = self._encoder.start()
        end = self._redactor.feed([RunEndEvent("failed", error=error)])
        await self._writer.end(opening + self._encoder.feed(end, clock_ms()))

    async def stop(self, error: ErrorInfo) -> None:
        """Stop the run and end the stream before its time, with everything closed that can be closed."""
        is_over = self._source.ended is not None
        end = RunEndEvent("failed", error=error)
        try:
            # If the run is over, its end did not reach the client.
            await self._source.stop(error)
            # The end may have been encoded in the step of the event loop in which the server stopped.
            last = self.end_data or (self._encode_end(self._redactor.feed([end]), clock_ms()) if is_over else b"")
        except Exception as fault:
            log.error("a stream could not be ended properly: %s", error_location(fault))
            last = self._encode_end([end], clock_ms())
        await self._writer.end(last)


async def serve_stream(
    exchange: StreamExchange,
    source: RunSource,
    redactor: Redactor,
    encoder: Encoder,
    content_type: str = http.EVENT_STREAM,
    *,
    interrupted_end: bytes | None = None,
) -> None:
    """Open a run and stream it. A disconnect of the client stops the run.

    Args:
        exchange: The request.
        source: The run.
        redactor: The redactor of the viewer.
        encoder: The encoder of the client protocol.
        content_type: The media type of the response.
        interrupted_end: See `EncodedStream`.

    Raises:
        PellucidError: The run failed before its first event, and before the head was sent. Later errors are events of
            the stream.
    """
    async with http.Client(exchange) as client:
        head = _Head(exchange, content_type, encoder.ping)
        try:
            failure = await _open_after_head(source, client, head)
            try:
                writer = await head.writer()
                stream = EncodedStream(source, redactor, encoder, writer, interrupted_end=interrupted_end)
                await (stream.run(client) if failure is None else stream.fail(failure))
            finally:
                if failure is None:
                    await stop_source(source)
        finally:
            head.close()


async def _open_after_head(source: RunSource, client: http.Client, head: _Head) -> ErrorInfo | None:
    """Open a run.

    Returns:
        The error, if the run could not be opened and the head of the stream has been sent; else None.

    Raises:
        PellucidError: The run could not be opened, and nothing has been sent.
    """
    try:
        await open_source(source, client)
    except Exception as error:
        if not head.is_sent:
            raise
        return error_for_client(error, "a fault before a stream")
    return None


class _Head:
    """Sends the head of a stream, at the latest after `HEAD_SECONDS`, and pings whenever the stream is silent."""

    def __init__(self, exchange: StreamExchange, content_type: str, ping: bytes) -> None:
        self._exchange = exchange
        self._content_type = content_type
        self._ping = ping
        self._writer: BodyWriter | None = None
        self._sending: asyncio.Task[BodyWriter] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HEAD_SECONDS, self._send_early)
        self._seen_writes = 0
        self._silent_ticks = 0

    @property
    def is_sent(self) -> bool:
        """Whether the head has been sent, or is being sent."""
        return self._sending is not None or self._writer is not None

    async def writer(self) -> BodyWriter:
        """Send the head, unless that was done, and return the writer of the body."""
        if self._sending is not None:
            return await self._sending
        self._timer.cancel()
        return await self._send()

    def close(self) -> None:
        """Release the writer. No ping is sent any more."""
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        if self._writer is not None:
            self._writer.close()

    def _send_early(self) -> None:
        self._sending = self._loop.create_task(self._send())

    async def _send(self) -> BodyWriter:
        writer = self._writer = await self._exchange.stream(self._content_type)
        if self._ping:
            if self._sending is not None:
                writer.write(self._ping)
            self._timer = self._loop.call_later(PING_SECONDS / 3, self._tick)
        return writer

    def _tick(self) -> None:
        writer = self._writer
        if writer is None:
            return
        self._silent_ticks = self._silent_ticks + 1 if writer.writes == self._seen_writes else 0
        if self._silent_ticks == 3:
            self._silent_ticks = 0
            with contextlib.suppress(http.ClientGone, OSError):  # the run ends because of it, too
                writer.write(self._ping)
        self._seen_writes = writer.writes
        self._timer = self._loop.call_later(PING_SECONDS / 3, self._tick)


async def serve_response(
    exchange: StreamExchange, source: RunSource, redactor: Redactor, encoder: Encoder
) -> ErrorInfo | None:
    """Open a run and read it to its end, into the encoder.

    Returns:
        The error that the run ended with, if any.

    Raises:
        PellucidError: The run failed before its first event.
        http.ClientGone: The client disconnected.
    """
    ended = await read_to_end(exchange, source, EncodedStream(source, redactor, encoder, _NullWriter()).deliver)
    return ended.error


async def read_to_end(
    exchange: StreamExchange, source: RunSource, deliver: Callable[[], Awaitable[None]]
) -> RunEndEvent:
    """Open a run and let `deliver` read it to its end while the client waits.

    Returns:
        The end of the run.

    Raises:
        http.ClientGone: The client disconnected.
        PellucidError: The run failed before its first event, the gateway stops, or the request was interrupted.
    """
    async with http.Client(exchange) as client:
        await open_source(source, client)
        try:
            await deliver()
        except asyncio.CancelledError:
            if client.has_left:
                raise
            raise _reason_to_stop(client) from None
        finally:
            await stop_source(source)
    if client.has_left:
        raise http.ClientGone
    return source.ended or RunEndEvent("failed", error=FAULT)


async def open_source(source: RunSource, client: http.Client) -> None:
    """Open a run.

    Raises:
        PellucidError: The run failed before its first event, the gateway stops, or the request was interrupted.
    """
    try:
        await source.open()
    except asyncio.CancelledError:
        if client.has_left:
            raise
        raise _reason_to_stop(client) from None


def _reason_to_stop(client: http.Client) -> PellucidError:
    """Return the error with which a response ends whose task was cancelled, although its client has not left."""
    return client.interruption or PellucidError(STOPPING)


async def stop_source(source: RunSource) -> None:
    """Stop a run that has not ended, so that the upstream does not continue after the delivery ended."""
    if source.ended is None:
        try:
            await source.stop()
        except http.ClientGone:
            pass
        except Exception as error:
            log.error("a run could not be stopped: %s", error_location(error))


def is_client_error(error: Exception) -> bool:
    """Return whether the message of an error is for the client."""
    return isinstance(error, PellucidError) and not isinstance(error, IllegalEvent)


def error_for_client(error: Exception, fault: str) -> ErrorInfo:
    """Return the error with which an exception is answered.

    Args:
        error: The exception.
        fault: What failed. If the message of the exception is not for the client, it is logged with this text, and the
            client gets `FAULT`.
    """
    if isinstance(error, PellucidError) and is_client_error(error):
        return error.info
    log.error("%s: %s", fault, error_location(error))
    return FAULT
