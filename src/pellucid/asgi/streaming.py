"""Any run, to any client, in any protocol: one read of the run is one write to the client.

What differs between protocols is in the encoder; between live, stored and replayed runs, in the source; between
readers, in the redactor; between servers, in the writer. Nothing here knows which it has.
"""

from __future__ import annotations

import asyncio
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

MAX_BUFFERED = 64 * 1024
"""Bytes that wait for a client before the run is paused, where another server's `send` is used."""


class Redactor(Protocol):
    """What one reader may see of a run (see `view.Redactor`)."""

    @property
    def wants_deltas(self) -> bool:
        """Whether `feed` is called for a batch that is one `PartDeltaEvent`, as nearly all are. It may be another
        after each call."""
        ...

    def feed(self, events: list[Event], /) -> list[Event]: ...


class BodyWriter(Protocol):
    """Writes the body of one streamed response."""

    def start(self, source: RunSource) -> None:
        """Pause and resume `source` from now on, as the client reads."""
        ...

    def write(self, data: bytes) -> None:
        """Write now, or as soon as the client takes it. Never waits; after a disconnect it does nothing."""
        ...

    async def end(self, data: bytes) -> None:
        """Write the last data and the end of the body, in one write."""
        ...

    def close(self) -> None:
        """The response is over, however it ended: nothing is written any more, and the source left alone."""
        ...


class Answering(http.Connected, Protocol):
    """A request that is being answered."""

    send: http.Send

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        """Begin to answer with a stream."""
        ...


class ASGIWriter:
    """Writes with ASGI's `send`, whatever server or middleware it is, from a task of its own."""

    def __init__(self, send: http.Send) -> None:
        self._send = send
        self._source: RunSource | None = None
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._data_ready = asyncio.Event()
        self._is_ending = False
        self._failure: Exception | None = None
        """What `send` raised."""
        self._task: asyncio.Task[None] | None = None

    def start(self, source: RunSource) -> None:
        self._source = source
        self._task = asyncio.create_task(self._write_pieces())

    def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
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
                self._source.resume()  # also after a failure, which is raised where the next data is written

    async def _send_piece(self, pieces: list[bytes], *, last: bool = False) -> None:
        try:
            await self._send(http.body_message(b"".join(pieces), last=last))
        except OSError:
            self._failure = http.ClientGone()  # this is how servers say so
        except Exception as error:
            self._failure = error


class _NullWriter:
    """For a response that is not streamed."""

    def start(self, source: RunSource) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    async def end(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class EncodedStream:
    """Redacts and encodes a run's batches for one reader, and writes them."""

    def __init__(
        self,
        source: RunSource,
        redactor: Redactor,
        encoder: Encoder,
        writer: BodyWriter,
        *,
        interrupted_end: bytes | None = None,
    ) -> None:
        """`broken_off`: what to end with where only the delivery ended, if not with the run's end as failed."""
        self._source = source
        self._redactor = redactor
        self._redacts_deltas = redactor.wants_deltas
        self._encoder = encoder
        self._write = writer.write
        self._writer = writer
        self._interrupted_end = interrupted_end
        self.end_data = b""
        """What the end of the run became: the end of the body goes with it."""

    async def run(self, client: http.Client) -> None:
        """Write the run, from its beginning to its end."""
        try:
            await self.deliver()
        except asyncio.CancelledError:
            if client.has_left:
                raise
            await self.stop(STOPPING)
        except http.ClientGone:
            raise
        except Exception as error:
            log.error("a fault while streaming: %s", error_location(error))
            await self.stop(FAULT)
        else:
            await self._writer.end(self.end_data)

    async def deliver(self) -> None:
        """Write the run, but not its end."""
        self._writer.start(self._source)
        self._start()
        await self._source.deliver(self._receive, self)

    def _start(self) -> None:
        # A function of its own: nothing keeps the bytes while the run is delivered.
        if opening := self._encoder.start(queued=self._source.queued):
            self._write(opening)

    def open_text(self, like: PartDeltaEvent) -> TextWriter | None:
        """See `TextSink`."""
        encode = None if self._redacts_deltas else self._encoder.text_encoder()
        return None if encode is None else TextWriter(encode, self._write, self._write_all)

    def _write_all(self, pieces: list[bytes]) -> None:
        """One read of the upstream, one write."""
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

    async def stop(self, error: ErrorInfo) -> None:
        """Stop the run, and end the stream in its middle, with everything closed that can still be closed."""
        is_over = self._source.ended is not None
        end = RunEndEvent("failed", error=error)
        try:
            # The end of a run that is over did not reach the client.
            await self._source.stop(error)
            # The end may have been encoded in the very step in which the server stopped.
            last = self.end_data or (self._encode_end(self._redactor.feed([end]), clock_ms()) if is_over else b"")
        except Exception as fault:
            log.error("a stream could not be closed in form: %s", error_location(fault))
            last = self._encode_end([end], clock_ms())
        await self._writer.end(last)


async def serve_stream(
    exchange: Answering,
    source: RunSource,
    redactor: Redactor,
    encoder: Encoder,
    content_type: str = http.EVENT_STREAM,
    *,
    interrupted_end: bytes | None = None,
) -> None:
    """Open the run and stream it. What is wrong before its first event is raised; after that it is an event.

    A client that disconnects stops the run. `broken_off`: see `EncodedStream`.
    """
    async with http.Client(exchange) as client:
        await open_source(source, client)
        writer: BodyWriter | None = None
        try:
            writer = await exchange.stream(content_type)
            await EncodedStream(source, redactor, encoder, writer, interrupted_end=interrupted_end).run(client)
        finally:
            if writer is not None:
                writer.close()
            await stop_source(source)


async def serve_response(
    exchange: Answering, source: RunSource, redactor: Redactor, encoder: Encoder
) -> ErrorInfo | None:
    """Open the run and read it to its end, into the encoder; the error it ended with. What is wrong before its first
    event is raised.

    Raises `http.ClientGone` when the client disconnected meanwhile.
    """
    ended = await read_to_end(exchange, source, EncodedStream(source, redactor, encoder, _NullWriter()).deliver)
    return ended.error


async def read_to_end(exchange: Answering, source: RunSource, deliver: Callable[[], Awaitable[None]]) -> RunEndEvent:
    """Open the run and let `deliver` read it, while the client waits; how it ended.

    Raises `http.ClientGone` when the client disconnected meanwhile, `PellucidError` when the gateway stops.
    """
    async with http.Client(exchange) as client:
        await open_source(source, client)
        try:
            await deliver()
        except asyncio.CancelledError:
            if client.has_left:
                raise
            raise PellucidError(STOPPING) from None
        finally:
            await stop_source(source)
    if client.has_left:
        raise http.ClientGone
    return source.ended or RunEndEvent("failed", error=FAULT)


async def open_source(source: RunSource, client: http.Client) -> None:
    """Open it; a shutdown meanwhile is an error like others."""
    try:
        await source.open()
    except asyncio.CancelledError:
        if client.has_left:
            raise
        raise PellucidError(STOPPING) from None


async def stop_source(source: RunSource) -> None:
    """Whatever ended it (the client, a shutdown, a fault of ours): the upstream is not left working."""
    if source.ended is None:
        try:
            await source.stop()
        except http.ClientGone:
            pass
        except Exception as error:
            log.error("a run could not be stopped: %s", error_location(error))


def is_client_error(error: Exception) -> bool:
    """Whether the message of an error is meant for the client."""
    return isinstance(error, PellucidError) and not isinstance(error, IllegalEvent)
