"""What is kept of a run, told to one reader: each batch with the time at which it came, so that a stream that is read
again is the same to the last byte, wherever a cursor stood and however the log was read.

A run has its own end. Where only the reading breaks off (this server stops, the live log is lost), nothing is made up
in its place: the stream stops short, and whoever reads it asks again from where they were.
"""

from __future__ import annotations

import asyncio

from ...asgi.streaming import serve_stream
from ...protocols.chat import Answer, Encoder, answer
from ...runs.log import unpack
from ...runs.replay import FinishedLog, LiveLog
from ...storage import StoredResponse
from ...view import Reader, Redactor
from ..exchange import Exchange
from .header import Header

BROKEN_OFF = b": broken off; ask again with Last-Event-ID\n\n"
"""A comment, which has no number and no place in the message."""

Reading = FinishedLog | LiveLog


LARGE = 50_000
"""Bytes of a log, from which on it is read in a thread, where it keeps nobody waiting."""


async def tell(exchange: Exchange, run: Reading, event_id: str, header: Header, *, after: int = -1) -> None:
    """Serve it to whoever asks, from behind the frame `after`."""
    reader = exchange.reader
    encoder = Encoder(
        event_id,
        header.conversation_id,
        header.model,
        header.created_at,
        view=reader.view,
        effort_level=header.effort,
        after=after,
        live=run.is_live,
    )
    await serve_stream(exchange, run, Redactor(reader), encoder, broken_off=BROKEN_OFF)


async def whole(turn: StoredResponse, header: Header, reader: Reader) -> Answer:
    """The canonical event of an answer that is over, for this reader."""
    return (
        await asyncio.to_thread(_whole, turn, header, reader) if len(turn.log) > LARGE else _whole(turn, header, reader)
    )


def _whole(turn: StoredResponse, header: Header, reader: Reader) -> Answer:
    redact = Redactor(reader).feed
    return answer(
        turn.id,
        header.conversation_id,
        header.model,
        header.created_at,
        ((batch.time_ms, redact(batch.events)) for batch in unpack(turn.log)),
        view=reader.view,
        effort_level=header.effort,
    )
