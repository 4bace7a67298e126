"""Answers of a chat: the stored description of how each was requested, and `/api/chat/{event_id}`.

The route streams an answer from any frame, live or finished, on any replica, and cancels it. Each batch is encoded with
the time at which it was received, so a stream that is read again is the same to the byte, whatever its cursor, and
however the log was read. Only a run has an end of its own. If reading breaks off (this server stops, the live log is
lost), the stream just stops, and its reader continues from the last frame. Answers of other owners are not found.
"""

from __future__ import annotations

import asyncio

import msgspec

from ...asgi.streaming import serve_stream
from ...errors import RequestError
from ...protocols import StoredRunHeader
from ...protocols.chat import PROTOCOL, Answer, Encoder, MessageStarted, build_answer, message_started
from ...protocols.chat.types import SetFeedback
from ...protocols.decoding import decode, invalid
from ...runs.replay import FinishedLog, LiveLog
from ...runs.run_log import unpack_log
from ...storage import StoredResponse
from ...view import Redactor, View, Viewer
from ..exchange import Exchange, parse_int
from ..feed import ConversationChanged, window_of
from ..routing import Handlers
from ..stored_runs import find_row, max_view_of
from .response_types import FeedbackSet, Status


class ChatRunHeader(StoredRunHeader, frozen=True, kw_only=True):
    """How an answer was requested."""

    protocol: str = PROTOCOL
    conversation_id: str
    model: str
    """The model's public name."""
    created_at: int
    """In milliseconds since 1970."""
    effort: str | None = None

    def start_frame(self, event_id: str, view: View) -> MessageStarted:
        """Return the event that starts the answer, for a reader with this view."""
        return message_started(
            event_id, self.conversation_id, self.model, self.created_at, view=view, effort_level=self.effort
        )


decode_header = msgspec.json.Decoder(ChatRunHeader).decode


def event_not_found(id: str, param: str) -> RequestError:
    """Return the error for an event that does not exist, or belongs to another owner; the message is the same."""
    return invalid(
        param,
        f"there is no event {id[:80]!r} here; it may have been deleted, or have expired",
        "event_not_found",
        kind="not_found",
    )


INTERRUPTED_COMMENT = b": interrupted; send the request again with Last-Event-ID\n\n"
"""An SSE comment. It has no number, and is not part of the message."""

ReplaySource = FinishedLog | LiveLog


THREAD_LOG_BYTES = 50_000
"""Size of a log from which it is decoded in a thread, so that it does not block the event loop."""


async def serve_answer(
    exchange: Exchange, run: ReplaySource, event_id: str, header: ChatRunHeader, *, after_frame: int = -1
) -> None:
    """Stream the answer, after the frame `after_frame`."""
    viewer = exchange.viewer
    encoder = Encoder(header.start_frame(event_id, viewer.view), after=after_frame, live=run.is_live)
    await serve_stream(exchange, run, Redactor(viewer), encoder, interrupted_end=INTERRUPTED_COMMENT)


async def build_event(turn: StoredResponse, header: ChatRunHeader, viewer: Viewer) -> Answer:
    """Return the canonical event of a finished answer, for this viewer."""
    return (
        await asyncio.to_thread(_build_answer_event, turn, header, viewer)
        if len(turn.log) > THREAD_LOG_BYTES
        else _build_answer_event(turn, header, viewer)
    )


def _build_answer_event(turn: StoredResponse, header: ChatRunHeader, viewer: Viewer) -> Answer:
    redact = Redactor(viewer).feed
    batches = ((batch.time_ms, redact(batch.events)) for batch in unpack_log(turn.log))
    return build_answer(header.start_frame(turn.id, viewer.view), batches)


LAST_EVENT_ID = "last-event-id"


class AnswerHandlers(Handlers):
    """Handlers of the answer routes."""

    async def read(self, exchange: Exchange) -> None:
        """`GET`: stream the answer after the last frame that the reader has."""
        row = await self._row(exchange, log=True)
        header = decode_header(row.header)
        exchange.viewer = exchange.viewer_for(max_view_of(self._services, row), header.view)
        await serve_answer(exchange, self._services.replay(row), row.id, header, after_frame=_after_frame(exchange))

    async def cancel(self, exchange: Exchange) -> None:
        """`POST …/cancel`: cancel the answer; a finished one stays unchanged."""
        row = await self._row(exchange)
        await self._services.cancel(row)
        row = await self._row(exchange)
        await exchange.send_json(Status(row.id, row.status))

    async def set_feedback(self, exchange: Exchange) -> None:
        """`PUT …/feedback`: set what the reader thinks of the answer, or delete it."""
        row = await self._row(exchange)
        request = decode(await exchange.read_body(self._services.config.server), SetFeedback)
        if not row.is_finished:
            problem = "this answer is still in progress; rate it when it has ended"
            raise invalid("event_id", problem, "answer_in_progress", kind="conflict")
        store = self._services.store.feedback
        is_set = await store.set(row.owner, row.id, request.rating, request.comment)
        if request.rating is not None and not is_set:  # it was deleted meanwhile
            raise event_not_found(row.id, "event_id")
        changed = ConversationChanged(conversation_id=row.conversation_id or "", window=window_of(exchange))
        self._services.feed.publish(row.owner, changed)
        await exchange.send_json(
            FeedbackSet(row.id, request.rating, request.comment if request.rating is not None else "")
        )

    async def no_stream(self, exchange: Exchange) -> None:
        """`GET …/stream`, where the AI SDK looks for a running answer to resume: 204, there is none."""
        await exchange.send_no_content()

    async def _row(self, exchange: Exchange, *, log: bool = False) -> StoredResponse:
        id = exchange.path_params["event_id"]
        not_found = event_not_found(id, "event_id")
        return await find_row(self._services, exchange.principal.owner, id, PROTOCOL, not_found, log=log)


def _after_frame(exchange: Exchange) -> int:
    """Return the number of the last frame that the reader has; -1: none.

    The query takes precedence: browsers send the header `Last-Event-ID` on their own.
    """
    for text, name in (
        (exchange.query_param("after"), "after"),
        (exchange.request_header(LAST_EVENT_ID), "Last-Event-ID"),
    ):
        if text is not None:
            return parse_int(text, name, 0)
    return -1
