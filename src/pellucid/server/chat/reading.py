"""`/api/chat/{event_id}`: an answer again, from any frame, live or over, on whichever replica; and its end, if wanted.

What belongs to another tenant is not there.
"""

from __future__ import annotations

from ...errors import RequestError
from ...storage import StoredResponse
from ..exchange import Exchange
from ..services import Services
from .header import is_chat, no_event, read_header
from .telling import tell

LAST_EVENT_ID = "last-event-id"


class Answers:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, exchange: Exchange) -> None:
        row = await self._row(exchange, log=True)
        header = read_header(row)
        exchange.reader = header.reader(exchange, self._services)
        await tell(exchange, self._services.reading(row), row.id, header, after=_after(exchange))

    async def cancel(self, exchange: Exchange) -> None:
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
    asked, name = exchange.asked("after"), "after"
    if asked is None:
        asked, name = exchange.header(LAST_EVENT_ID), "Last-Event-ID"
    if asked is None:
        return -1
    if not asked.isascii() or not asked.isdecimal() or len(asked) > 16:
        raise RequestError(
            f"{name}: must be the number of a frame, a whole number from 0, not {asked[:40]!r}",
            code="invalid_value",
            param=name,
        )
    return int(asked)


__all__ = ["LAST_EVENT_ID", "Answers"]
