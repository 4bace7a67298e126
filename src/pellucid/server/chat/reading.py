"""`/api/chat/{event_id}`: an answer again, from any frame, live or over, on whichever replica; and its end, if wanted.

What belongs to another tenant is not there.
"""

from __future__ import annotations

from ...storage import StoredResponse
from ..exchange import Exchange, whole_number
from ..services import Services
from .header import is_chat, no_event, read_header
from .telling import tell

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
        await exchange.answer({"id": row.id, "status": row.status})

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
