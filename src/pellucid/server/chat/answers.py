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
from ...protocols.chat import Answer, Encoder, build_answer
from ...runs.replay import FinishedLog, LiveLog
from ...runs.run_log import unpack_log
from ...storage import StoredResponse
from ...view import Redactor, View, Viewer, stricter
from ..exchange import VIEW_HEADER, Exchange, parse_int
from ..services import Services, protocol_of
from .response_types import Status


class ChatRunHeader(msgspec.Struct, frozen=True):
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

    def viewer(self, exchange: Exchange, services: Services) -> Viewer:
        """Who reads the answer now: with what the question was asked with, unless they ask otherwise. Raises
        `RequestError` (forbidden) if they ask for more than may be seen of it."""
        return exchange.viewer_for(self._max_view(services), self.view)

    def viewer_in_conversation(self, exchange: Exchange, services: Services) -> Viewer:
        """The same for an answer that stands beside those of other models: whoever asks for more than may be seen of
        this one gets that."""
        requested = exchange.request_header(VIEW_HEADER) or exchange.query_param("view")
        max_view = self._max_view(services)
        return exchange.viewer_for().limited_to(max_view if requested else stricter(max_view, self.view))

    def _max_view(self, services: Services) -> View:
        """What was not to be seen of the model then is not to be seen later either."""
        return stricter(self.most, services.catalog.max_view(self.model))


_decode_header = msgspec.json.Decoder(ChatRunHeader).decode
encode_header = msgspec.json.Encoder().encode


def decode_header(row: StoredResponse) -> ChatRunHeader:
    """Of a row that `is_chat`."""
    return _decode_header(row.header)


def is_chat(row: StoredResponse) -> bool:
    """Rows of all protocols stand in one table."""
    return protocol_of(row.header) == "chat"


def event_not_found(id: str, param: str) -> RequestError:
    """It is not there, or is another tenant's: which, is not said."""
    return RequestError(
        f"{param}: there is no event {id[:80]!r} here; it may have been deleted, or have expired",
        kind="not_found",
        code="event_not_found",
        param=param,
    )


INTERRUPTED_COMMENT = b": broken off; ask again with Last-Event-ID\n\n"
"""A comment, which has no number and no place in the message."""

ReplaySource = FinishedLog | LiveLog


THREAD_LOG_BYTES = 50_000
"""Bytes of a log, from which on it is read in a thread, where it keeps nobody waiting."""


async def serve_answer(
    exchange: Exchange, run: ReplaySource, event_id: str, header: ChatRunHeader, *, after_frame: int = -1
) -> None:
    """Serve it to whoever asks, from behind the frame `after`."""
    viewer = exchange.viewer
    encoder = Encoder(
        event_id,
        header.conversation_id,
        header.model,
        header.created_at,
        view=viewer.view,
        effort_level=header.effort,
        after=after_frame,
        live=run.is_live,
    )
    await serve_stream(exchange, run, Redactor(viewer), encoder, broken_off=INTERRUPTED_COMMENT)


async def answer_event(turn: StoredResponse, header: ChatRunHeader, viewer: Viewer) -> Answer:
    """The canonical event of an answer that is over, for this reader."""
    return (
        await asyncio.to_thread(_build_answer_event, turn, header, viewer)
        if len(turn.log) > THREAD_LOG_BYTES
        else _build_answer_event(turn, header, viewer)
    )


def _build_answer_event(turn: StoredResponse, header: ChatRunHeader, viewer: Viewer) -> Answer:
    redact = Redactor(viewer).feed
    return build_answer(
        turn.id,
        header.conversation_id,
        header.model,
        header.created_at,
        ((batch.time_ms, redact(batch.events)) for batch in unpack_log(turn.log)),
        view=viewer.view,
        effort_level=header.effort,
    )


LAST_EVENT_ID = "last-event-id"


class AnswerHandlers:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, exchange: Exchange) -> None:
        """`GET`: the stream, from behind the frame that its reader has."""
        row = await self._row(exchange, log=True)
        header = decode_header(row)
        exchange.viewer = header.viewer(exchange, self._services)
        await serve_answer(exchange, self._services.replay(row), row.id, header, after_frame=_after_frame(exchange))

    async def cancel(self, exchange: Exchange) -> None:
        """`POST …/cancel`: stop it; what is over stays as it is."""
        row = await self._row(exchange)
        if not row.is_finished:
            await self._services.cancel(row)
            row = await self._row(exchange)
        await exchange.send_json(Status(row.id, row.status))

    async def no_stream(self, exchange: Exchange) -> None:
        """`GET …/stream`, where the AI SDK looks for an answer that goes on without it: 204, there is none."""
        exchange.error_form = ai_sdk
        await exchange.send_no_content()

    async def _row(self, exchange: Exchange, *, log: bool = False) -> StoredResponse:
        id = exchange.path_params["event_id"]
        row = await self._services.store.responses.get(exchange.principal.owner, id, log=log)
        if row is None or not is_chat(row):
            raise event_not_found(id, "event_id")
        return row


def _after_frame(exchange: Exchange) -> int:
    """The last frame that need not be told. The query says what is meant; a browser sends the header by itself."""
    for text, name in (
        (exchange.query_param("after"), "after"),
        (exchange.request_header(LAST_EVENT_ID), "Last-Event-ID"),
    ):
        if text is not None:
            return parse_int(text, name, 0)
    return -1
