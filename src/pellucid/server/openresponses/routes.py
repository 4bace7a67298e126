"""Which path is what.

`POST /v1/responses`: live, whole, or in the background.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute

from ...asgi.streaming import serve_response, serve_stream
from ...protocols import openresponses
from ...protocols.openresponses import parse_request
from ...view import Redactor
from ..exchange import Door, Endpoint, Exchange, new_minter, route
from ..services import Services
from .asking import Asking, asking_for
from .compact import Compact
from .conversations import Conversations
from .header import Header
from .kept import KeptResponses
from .socket import ResponsesSocket


class CreateResponse:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services = self._services
        request = parse_request(await exchange.body(services.config.server))
        asking = await asking_for(services, exchange, request, new_minter())
        asking.prepared.warn()
        header = asking.header
        if request.body.background:
            await self._in_background(exchange, asking, header)
            return
        run = asking.run(asking.row(header) if asking.store else None)
        encoder, redactor = header.encoder(asking.reader), Redactor(asking.reader)
        if request.stream:
            await serve_stream(exchange, run, redactor, encoder)
            return
        error = await serve_response(exchange, run, redactor, encoder)
        if error is not None and not encoder.response.output:
            await exchange.refuse(error)
        else:
            await exchange.answer(encoder.response)

    async def _in_background(self, exchange: Exchange, asking: Asking, header: Header) -> None:
        services, row = self._services, asking.row(header)
        # The run takes its place when it opens; whoever has none left is told so now, and not by a run that failed.
        async with services.guard.stream(exchange.principal):
            pass
        await services.detached.start(row, asking.run())
        if asking.request.stream:
            run = services.detached.follow(row)
            await serve_stream(exchange, run, Redactor(asking.reader), header.encoder(asking.reader))
        else:
            response = header.response
            response.status = "queued"
            await exchange.answer(response)


SPOKEN = [
    "POST /v1/responses",
    "GET /v1/responses (WebSocket)",
    "POST /v1/responses/compact",
    "POST /v1/conversations",
]
_ALSO = {"/v1/responses": ", and GET as a WebSocket (Upgrade: websocket)"}


def routes(services: Services) -> list[BaseRoute]:
    create, compact = CreateResponse(services), Compact(services)
    kept, conversations = KeptResponses(services), Conversations(services)
    table: dict[str, dict[str, Endpoint]] = {
        "/v1/responses": {"POST": create},
        "/v1/responses/compact": {"POST": compact},
        "/v1/responses/{id}": {"GET": kept.get, "DELETE": kept.delete},
        "/v1/responses/{id}/cancel": {"POST": kept.cancel},
        "/v1/responses/{id}/input_items": {"GET": kept.input_items},
        "/v1/conversations": {"POST": conversations.create},
        "/v1/conversations/{id}": {
            "GET": conversations.get,
            "POST": conversations.update,
            "DELETE": conversations.delete,
        },
        "/v1/conversations/{id}/items": {"GET": conversations.items, "POST": conversations.add},
        "/v1/conversations/{id}/items/{item_id}": {"GET": conversations.item, "DELETE": conversations.delete_item},
    }

    def door(endpoint: Endpoint) -> Door:
        return Door(endpoint, openresponses, lambda: services.guard)

    return [
        WebSocketRoute("/v1/responses", ResponsesSocket(services)),
        *(
            route(path, {method: door(endpoint) for method, endpoint in endpoints.items()}, _ALSO.get(path, ""))
            for path, endpoints in table.items()
        ),
    ]
