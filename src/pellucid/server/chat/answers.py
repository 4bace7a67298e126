"""The answers of a chat: how the question was asked, which its row keeps, and `/api/chat/{event_id}`, which serves an
answer again from any frame, live or over, on any replica, or cancels it.

Each batch is encoded with the time at which it came, so that a stream that is read again is the same to the last byte,
wherever a cursor stood and however the log was read. A run has its own end. Where only the reading breaks off (this
server stops, the live log is lost), nothing is made up in its place: the stream stops short, and its reader asks again
from the last frame. An answer of another tenant does not exist.
"""

from __future__ import annotations

import asyncio

import msgspec

from ...asgi.streaming import serve_stream
from ...errors import RequestError
from ...protocols import ai_sdk
from ...protocols.chat import Answer, Encoder, answer
from ...runs.log import unpack
from ...runs.replay import FinishedLog, LiveLog
from ...storage import StoredResponse
from ...view import Reader, Redactor, View, lesser
from ..exchange import VIEW_HEADER, Exchange, whole_number
from ..services import Services, protocol_of
from .response_types import Status


class Header(msgspec.Struct, frozen=True):
    """`protocol` says whose it is: rows of all protocols stand in one table."""

    conversation_id: str
    model: str
    """Its public name."""
    view: View
    """In what form the reasoning was asked for."""
    most: View
    """What anybody might see of the model."""
    created_at: int
    """In milliseconds since 1970."""
    effort: str | None = None
    protocol: str = "chat"

    def reader(self, exchange: Exchange, services: Services) -> Reader:
        """Who reads the answer now: with what the question was asked with, unless they ask otherwise. Raises
        `RequestError` (forbidden) if they ask for more than may be seen of it."""
        return exchange.reads(self._most(services), self.view)

    def reader_among_others(self, exchange: Exchange, services: Services) -> Reader:
        """The same for an answer that stands beside those of other models: whoever asks for more than may be seen of
        this one gets that."""
        asked = exchange.header(VIEW_HEADER) or exchange.asked("view")
        most = self._most(services)
        return exchange.reads().lesser(most if asked else lesser(most, self.view))

    def _most(self, services: Services) -> View:
        """What was not to be seen of the model then is not to be seen later either."""
        return lesser(self.most, services.catalog.most(self.model))


_decode = msgspec.json.Decoder(Header).decode
encode_header = msgspec.json.Encoder().encode


def read_header(row: StoredResponse) -> Header:
    """Of a row that `is_chat`."""
    return _decode(row.header)


def is_chat(row: StoredResponse) -> bool:
    """Rows of all protocols stand in one table."""
    return protocol_of(row.header) == "chat"


def no_event(id: str, param: str) -> RequestError:
    """It is not there, or is another tenant's: which, is not said."""
    return RequestError(
        f"{param}: there is no event {id[:80]!r} here; it may have been deleted, or have expired",
        kind="not_found",
        code="event_not_found",
        param=param,
    )


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


LAST_EVENT_ID = "last-event-id"


class Answers:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, exchange: Exchange) -> None:
        """`GET`: the stream, from behind the frame that its reader has."""
        row = await self._row(exchange, log=True)
        header = read_header(row)
        exchange.reader = header.reader(exchange, self._services)
        await tell(exchange, self._services.reading(row), row.id, header, after=_after(exchange))

    async def cancel(self, exchange: Exchange) -> None:
        """`POST …/cancel`: stop it; what is over stays as it is."""
        row = await self._row(exchange)
        if not row.finished:
            await self._services.cancel(row)
            row = await self._row(exchange)
        await exchange.answer(Status(row.id, row.status))

    async def no_stream(self, exchange: Exchange) -> None:
        """`GET …/stream`, where the AI SDK looks for an answer that goes on without it: 204, there is none."""
        exchange.form = ai_sdk
        await exchange.answer_nothing()

    async def _row(self, exchange: Exchange, *, log: bool = False) -> StoredResponse:
        id = exchange.params["event_id"]
        row = await self._services.store.responses.get(exchange.principal.owner, id, log=log)
        if row is None or not is_chat(row):
            raise no_event(id, "event_id")
        return row


def _after(exchange: Exchange) -> int:
    """The last frame that need not be told. The query says what is meant; a browser sends the header by itself."""
    for text, name in ((exchange.asked("after"), "after"), (exchange.header(LAST_EVENT_ID), "Last-Event-ID")):
        if text is not None:
            return whole_number(text, name, 0)
    return -1
