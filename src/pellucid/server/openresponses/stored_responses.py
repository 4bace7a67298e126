"""Routes of stored responses: read, stream from any cursor on any replica, cancel, delete.

Responses of other owners are not found.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypedDict

import msgspec

from ...asgi.streaming import serve_stream
from ...errors import RequestError
from ...offload import json_weight, offload
from ...protocols.decoding import invalid
from ...protocols.openresponses import DIALECTS, PROTOCOL
from ...protocols.openresponses import types as t
from ...relay import RelayError
from ...runs import Batch
from ...runs.replay import MAX_BATCHES
from ...runs.run_log import unpack_log
from ...storage import StoredResponse
from ...view import Redactor, Viewer
from ..exchange import Exchange, parse_int
from ..routing import Handlers
from ..stored_runs import find_row, max_view_of
from .input_redaction import redact_input_items
from .run_header import ResponseRunHeader, requested_dialect

_header_decoder = msgspec.json.Decoder(ResponseRunHeader)


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


class ResponseHandlers(Handlers):
    """Handlers of these routes."""

    async def get(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange, log=True)
        stream = _bool_param(exchange, "stream")
        after = exchange.query_param("starting_after")
        if not stream:
            if after is not None:
                raise invalid("starting_after", "it is a position in the stream; use it with stream=true")
            await exchange.send_json(await self._build_response(exchange, row))
            return
        header, viewer = self._decode_header(exchange, row)
        encoder = header.encoder(
            viewer,
            dialect=requested_dialect(exchange),
            seals=_requested_seals(exchange),
            after=-1 if after is None else parse_int(after, "starting_after", 0),
        )
        await serve_stream(exchange, self._services.replay(row), Redactor(viewer), encoder)

    async def delete(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange)
        await self._services.cancel(row)
        if not await self._services.store.responses.delete(row.owner, row.id):
            raise response_not_found(row.id)
        if row.background:
            await self._services.detached.drop_log(row)
        await exchange.send_json(DeletedResponse(row.id))

    async def cancel(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange)
        if not row.background:
            raise RequestError(
                f"the response {row.id} does not run in the background; to stop it, close its connection",
                code="not_cancellable",
            )
        await self._services.cancel(row)
        await exchange.send_json(await self._build_response(exchange, await self._find_row(exchange, log=True)))

    async def input_items(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange)
        # Reasoning in the input was most likely made by the same model.
        viewer = exchange.viewer_for(max_view_of(self._services, row))
        items = await offload(
            json_weight(row.input), lambda: redact_input_items(msgspec.json.decode(row.input), viewer)
        )
        await exchange.send_json(paginate(exchange, items))

    # --- helpers -----------------------------------------------------------------------------------------------

    async def _find_row(self, exchange: Exchange, *, log: bool = False) -> StoredResponse:
        id = exchange.path_params["id"]
        not_found = response_not_found(id)
        return await find_row(self._services, exchange.principal.owner, id, PROTOCOL, not_found, log=log)

    def _decode_header(self, exchange: Exchange, row: StoredResponse) -> tuple[ResponseRunHeader, Viewer]:
        header = _header_decoder.decode(row.header)
        dialect = requested_dialect(exchange) or header.dialect
        exchange.viewer = exchange.viewer_for(
            max_view_of(self._services, row),
            header.view,
            with_summaries=header.summaries and DIALECTS[dialect].is_raw_distinct,
        )
        return header, exchange.viewer

    async def _current_batches(self, row: StoredResponse, response: t.Response) -> list[Batch]:
        """Return the batches of a running response so far, as far as the relay has them."""
        try:
            batches = await self._services.detached.read_batches(row)
        except RelayError:
            return []
        if not batches:
            response.status = "queued"
        return batches

    async def _build_response(self, exchange: Exchange, row: StoredResponse) -> t.Response:
        """Return the response in its current state."""
        header, viewer = self._decode_header(exchange, row)
        encoder = header.encoder(viewer, dialect=requested_dialect(exchange), seals=_requested_seals(exchange))
        redact = Redactor(viewer).feed
        encoder.start()
        for index, batch in enumerate(
            unpack_log(row.log) if row.is_finished else await self._current_batches(row, encoder.response)
        ):
            encoder.feed(redact(batch.events), batch.time_ms)
            if index % MAX_BATCHES == MAX_BATCHES - 1:
                await asyncio.sleep(0)
        if row.status == "cancelled":
            encoder.response.status = "cancelled"
        return encoder.response


def paginate(exchange: Exchange, items: list[dict[str, Any]]) -> ItemList:
    """Return a page of a list that is in memory. Raises `RequestError`."""
    limit, order = page_params(exchange)
    items = items if order == "asc" else items[::-1]
    after = exchange.query_param("after")
    if after is not None:
        index = next((index for index, item in enumerate(items) if item["id"] == after), None)
        if index is None:
            raise invalid("after", f"there is no item {after!r} in this list")
        items = items[index + 1 :]
    return item_list(items[:limit], has_more=len(items) > limit)


def page_params(exchange: Exchange) -> tuple[int, str]:
    """Return the requested number of items, and their order."""
    order = exchange.query_param("order")
    order = "desc" if order is None else order
    if order not in ("asc", "desc"):
        raise invalid("order", "must be asc or desc")
    return exchange.query_int("limit", 20, 1, 100), order


def item_list(items: list[Any], *, has_more: bool) -> ItemList:
    ids = [item["id"] for item in items]
    return ItemList(data=items, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=has_more)


def response_not_found(id: str) -> RequestError:
    return RequestError(
        f"there is no response {id!r} here; it may have expired, been deleted or not been stored",
        kind="not_found",
        code="response_not_found",
        param="response_id",
    )


def _bool_param(exchange: Exchange, name: str) -> bool:
    value = exchange.query_param(name)
    match "false" if value is None else value.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case other:
            raise invalid(name, f"must be true or false, not {other!r}")


def _requested_seals(exchange: Exchange) -> bool | None:
    """Return whether the request includes sealed tokens; None: as when the response was made."""
    included = [value for key, value in exchange.query if key in ("include", "include[]")]
    return "reasoning.encrypted_content" in included if included else None
