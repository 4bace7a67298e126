"""What is kept of a run, told to one reader: each batch with the time at which it came, so that a stream that is read
again is the same to the last byte, wherever a cursor stood and however the log was read.

A run has its own end. Where only the reading breaks off (this server stops, the live log is lost), nothing is made up
in its place: the stream stops short, and whoever reads it asks again from where they were.
"""

from __future__ import annotations

import asyncio

from ...asgi.serving import Redact, serve_stream
from ...events import Event, SideEvent
from ...protocols.chat import QUEUED, Answer, Encoder, answer
from ...runs.log import Entry, unpack
from ...runs.replay import FinishedLog, LiveLog
from ...storage import StoredResponse
from ...view import Reader, Redactor
from ..exchange import Exchange
from .header import Header

BROKEN_OFF = b": broken off; ask again with Last-Event-ID\n\n"
"""A comment, which has no number and no place in the message."""

Reading = FinishedLog | LiveLog


class Telling:
    """An encoder for `serve_stream`, of what `run` heard last. `redact` and `encoder` are this reader's own."""

    def __init__(self, run: Reading, redact: Redact, encoder: Encoder) -> None:
        self._run = run
        self._redact = redact
        self._encoder = encoder

    def start(self, *, queued: bool = False) -> bytes:
        """See `Encoder.start`."""
        return self._encoder.start(queued=queued)

    def feed(self, events: list[Event], now: int) -> bytes:
        """`events` and `now` are the reading's; what is told is what was kept, with its own times."""
        run = self._run
        entries, run.heard = run.heard, ()
        if entries:
            return b"".join([self._told(entry) for entry in entries])
        # What closes a reading that broke off is said by nobody but the reader itself.
        return BROKEN_OFF if events else b""

    def _told(self, entry: Entry) -> bytes:
        told = self._encoder.feed(self._redact(entry.events), entry.now)
        # Nobody waits any more for what is over.
        return told or (QUEUED if isinstance(self._run, LiveLog) and _waits(entry) else b"")


def _waits(entry: Entry) -> bool:
    """Whether all that it says is that the model has yet to become free."""
    return bool(entry.events) and all(isinstance(one, SideEvent) and one.namespace == "queue" for one in entry.events)


def _as_it_is(events: list[Event]) -> list[Event]:
    """Redacted later, batch by batch."""
    return events


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
    )
    await serve_stream(exchange, run, _as_it_is, Telling(run, Redactor(reader).feed, encoder))


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
        ((entry.now, redact(entry.events)) for entry in unpack(turn.log)),
        view=reader.view,
        effort_level=header.effort,
    )


__all__ = ["BROKEN_OFF", "tell", "whole"]
