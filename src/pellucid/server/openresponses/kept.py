"""What was kept of responses: read, followed from any cursor on any replica, cancelled, deleted.

What belongs to another tenant is not there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypedDict

import msgspec

from ...asgi.streaming import serve_stream
from ...errors import RequestError
from ...protocols.openresponses import types as t
from ...relay import RelayError
from ...runs import Batch
from ...runs.log import unpack
from ...runs.replay import MAX_BATCHES
from ...storage import StoredResponse
from ...view import Reader, Redactor, View, lesser
from ..exchange import Exchange, whole_number
from ..services import Services, protocol_of
from .given import told_given
from .header import EVENTS_HEADER, Header, dialect_of

_header = msgspec.json.Decoder(Header)


class KeptItem(TypedDict):
    """An item as it was received, or as the model made it, with an id."""

    id: str
    type: str


class ItemList(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[KeptItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(msgspec.Struct):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class KeptResponses:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get(self, exchange: Exchange) -> None:
        row = await self._row(exchange, log=True)
        stream = _flag(exchange, "stream")
        after = exchange.asked("starting_after")
        dialect = dialect_of(exchange, self._services) if exchange.header(EVENTS_HEADER) is not None else None
        if not stream:
            if after is not None:
                raise RequestError(
                    "starting_after: it is a place in the stream; ask with stream=true",
                    code="invalid_value",
                    param="starting_after",
                )
            await exchange.answer(await self._told(exchange, row))
            return
        header, reader = self._header(exchange, row)
        encoder = header.encoder(
            reader,
            dialect=dialect,
            seals=_seals_asked(exchange),
            after=-1 if after is None else whole_number(after, "starting_after", 0),
        )
        await serve_stream(exchange, self._services.reading(row), Redactor(reader), encoder)

    async def delete(self, exchange: Exchange) -> None:
        row = await self._row(exchange)
        if not row.finished:
            await self._services.cancel(row)
        if not await self._services.store.responses.delete(row.owner, row.id):
            raise not_found(row.id)
        if row.background:
            await self._services.detached.forget(row)
        await exchange.answer(DeletedResponse(row.id))

    async def cancel(self, exchange: Exchange) -> None:
        row = await self._row(exchange)
        if not row.background:
            raise RequestError(
                f"the response {row.id} does not run in the background; to stop one that is read, stop reading it",
                code="not_cancellable",
            )
        if not row.finished:
            await self._services.cancel(row)
        await exchange.answer(await self._told(exchange, await self._row(exchange, log=True)))

    async def input_items(self, exchange: Exchange) -> None:
        row = await self._row(exchange)
        items = msgspec.json.decode(row.input)
        # Thoughts that were given back are most likely its model's own.
        reader = exchange.reads(most_of(self._services, row))
        await exchange.answer(page(exchange, told_given(items, reader)))

    # --- what they share ---------------------------------------------------------------------------------------

    async def _row(self, exchange: Exchange, *, log: bool = False) -> StoredResponse:
        id = exchange.params["id"]
        row = await self._services.store.responses.get(exchange.principal.owner, id, log=log)
        if row is None or protocol_of(row.header) != "openresponses":
            raise not_found(id)
        return row

    def _header(self, exchange: Exchange, row: StoredResponse) -> tuple[Header, Reader]:
        header = _header.decode(row.header)
        exchange.reader = header.reader(exchange, self._services.catalog.most(row.model))
        return header, exchange.reader

    async def _said(self, row: StoredResponse, response: t.Response) -> list[Batch]:
        """What a response that is not over has come to, as far as the relay can tell."""
        try:
            said = await self._services.detached.said(row)
        except RelayError:
            return []
        if not said:
            response.status = "queued"
        return said

    async def _told(self, exchange: Exchange, row: StoredResponse) -> t.Response:
        """The response as it stands."""
        header, reader = self._header(exchange, row)
        encoder = header.encoder(reader, seals=_seals_asked(exchange))
        redact = Redactor(reader).feed
        encoder.start()
        for place, entry in enumerate(unpack(row.log) if row.finished else await self._said(row, encoder.response)):
            encoder.feed(redact(entry.events), entry.time_ms)
            if place % MAX_BATCHES == MAX_BATCHES - 1:
                await asyncio.sleep(0)
        if row.status == "cancelled":
            encoder.response.status = "cancelled"
        return encoder.response


def most_of(services: Services, row: StoredResponse) -> View:
    """What anybody may see of its model: the lesser of what it was then and is now."""
    return lesser(_header.decode(row.header).most, services.catalog.most(row.model))


def page(exchange: Exchange, items: list[dict[str, Any]]) -> ItemList:
    """A page of a list that is here whole. Raises `RequestError`."""
    limit, order = page_of(exchange)
    items = items if order == "asc" else items[::-1]
    after = exchange.asked("after")
    if after is not None:
        place = next((index for index, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise RequestError(f"after: there is no item {after!r} in this list", code="invalid_value", param="after")
        items = items[place + 1 :]
    return listed(items[:limit], more=len(items) > limit)


def page_of(exchange: Exchange) -> tuple[int, str]:
    """How many items are asked for, and in which order."""
    order = exchange.asked("order")
    order = "desc" if order is None else order
    if order not in ("asc", "desc"):
        raise RequestError("order: must be asc or desc", code="invalid_value", param="order")
    return exchange.number("limit", 20, 1, 100), order


def listed(items: list[Any], *, more: bool) -> ItemList:
    ids = [item["id"] for item in items]
    return ItemList(data=items, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=more)


def not_found(id: str) -> RequestError:
    return RequestError(
        f"there is no response {id!r} here; it may have expired, been deleted or not been stored",
        kind="not_found",
        code="response_not_found",
        param="response_id",
    )


def _flag(exchange: Exchange, name: str) -> bool:
    asked = exchange.asked(name)
    match "false" if asked is None else asked.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case other:
            raise RequestError(f"{name}: must be true or false, not {other!r}", code="invalid_value", param=name)


def _seals_asked(exchange: Exchange) -> bool | None:
    """Whether seals are asked for; None: as they were when the response was made."""
    asked = [value for key, value in exchange.query if key in ("include", "include[]")]
    return "reasoning.encrypted_content" in asked if asked else None
