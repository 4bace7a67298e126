"""Any run, to any client, in any protocol: one read of the run is one write to the client.

What differs between protocols is in the encoder; between live, kept and replayed runs, in the run; between readers, in
the redactor. Nothing here knows which it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..errors import ErrorInfo, IllegalEvent, PellucidError
from ..events import Event, RunEndEvent
from ..runs import Running
from ..telemetry import log, place_of
from . import http

FAULT = ErrorInfo("server_error", "the gateway failed; the operator's log says where")
STOPPING = ErrorInfo("unavailable", "the gateway is stopping; ask again in a moment", code="stopping", retry_after=1.0)

Redact = Callable[[list[Event]], list[Event]]


class Answering(Protocol):
    """A request that is being answered."""

    receive: http.Receive
    send: http.Send

    async def stream(self, content_type: str = http.EVENT_STREAM) -> None:
        """Begin to answer with a stream."""
        ...


class Encoder(Protocol):
    """A protocol's encoder (see `protocols.openresponses.Encoder`)."""

    def start(self, *, queued: bool = False) -> bytes: ...

    def feed(self, events: list[Event], now: int) -> bytes: ...


async def serve_stream(
    exchange: Answering, run: Running, redact: Redact, encoder: Encoder, content_type: str = http.EVENT_STREAM
) -> None:
    """Open the run and stream it. What is wrong before it speaks is raised; after that it is an event.

    A client that leaves stops the run.
    """
    async with http.Client(exchange.receive) as client:
        await opened(run, client)
        try:
            await exchange.stream(content_type)
            await _stream(exchange.send, run, redact, encoder, client)
        finally:
            await let_go(run)


async def serve_whole(exchange: Answering, run: Running, redact: Redact, encoder: Encoder) -> ErrorInfo | None:
    """Open the run and read it to its end; the error it ended with. What is wrong before it speaks is raised.

    Raises `http.ClientGone` when the client left meanwhile.
    """
    ended: RunEndEvent | None = None
    async with http.Client(exchange.receive) as client:
        await opened(run, client)
        try:
            encoder.start()
            while True:
                await run.wait()
                events = run.take()
                if events is None:
                    break
                encoder.feed(redact(events), run.now)
            ended = run.ended
        except asyncio.CancelledError:
            if client.gone:
                raise
            raise PellucidError(STOPPING) from None
        finally:
            await let_go(run)
    if client.gone:
        raise http.ClientGone
    return ended.error if ended is not None else FAULT


async def opened(run: Running, client: http.Client) -> None:
    """Open it; a shutdown meanwhile is an error like others."""
    try:
        await run.open()
    except asyncio.CancelledError:
        if client.gone:
            raise
        raise PellucidError(STOPPING) from None


async def let_go(run: Running) -> None:
    """Whatever ended it (the client, a shutdown, a fault of ours): the upstream is not left working."""
    if run.ended is None:
        try:
            await run.stop()
        except Exception as error:
            log.error("a run could not be let go: %s", place_of(error))


async def _stream(send: http.Send, run: Running, redact: Redact, encoder: Encoder, client: http.Client) -> None:
    last = b""
    try:
        await send(http.piece(encoder.start(queued=run.waiting)))
        while True:
            await run.wait()
            events = run.take()
            if events is None:
                break
            piece = encoder.feed(redact(events), run.now)
            if run.ended is not None:
                last = piece
            elif piece:
                await send(http.piece(piece))
    except asyncio.CancelledError:
        if client.gone:
            raise
        last = await last_words(run, redact, encoder, STOPPING)
    except Exception as error:
        log.error("a fault while streaming: %s", place_of(error))
        last = await last_words(run, redact, encoder, FAULT)
    # The last events and the end of the body are one write.
    await send(http.piece(last, last=True))


async def last_words(run: Running, redact: Redact, encoder: Encoder, why: ErrorInfo) -> bytes:
    """What ends a stream in the middle, closing what is open as far as it can still be closed."""
    end = RunEndEvent("failed", error=why)
    try:
        events = await run.stop(why)
        # A run that is over has nothing more to tell; but its end did not reach the client.
        return encoder.feed(redact(events if events else [end]), run.now)
    except Exception as error:
        log.error("a stream could not be closed in form: %s", place_of(error))
        return encoder.feed([end], run.now)


def is_told(error: Exception) -> bool:
    """Whether what the error says is meant for whoever asked."""
    return isinstance(error, PellucidError) and not isinstance(error, IllegalEvent)


__all__ = ["FAULT", "STOPPING", "Answering", "Encoder", "Redact", "last_words", "let_go", "serve_stream", "serve_whole"]
