"""The endpoints of protocols whose answer depends on nothing but its request, made from `CLIENT_PROTOCOLS`, as the
tables of their operations are.

The whole conversation comes with each request, and nothing is kept: Chat Completions at a path of its own, and the AI
SDK's `useChat`, whose requests the chat's endpoint recognises.
"""

from __future__ import annotations

import time
from typing import Any

from starlette.routing import BaseRoute

from ..asgi.streaming import serve_response, serve_stream
from ..errors import ErrorInfo
from ..protocols.client_protocols import CLIENT_PROTOCOLS, Served
from ..view import Redactor
from .exchange import Door, Endpoint, Exchange, new_minter, protocol_name
from .prepare import prepare
from .routing import VIEW, ErrorBody, Operation, Table
from .services import Services


class StatelessEndpoint:
    """The endpoint of the protocol with this name."""

    def __init__(self, services: Services, name: str) -> None:
        protocol = CLIENT_PROTOCOLS[name]
        assert protocol.stateless is not None
        self._services = services
        self._form = protocol.form
        self._whole = protocol.whole
        self._row = protocol.stateless

    async def __call__(self, exchange: Exchange) -> None:
        await self.answer(exchange, await exchange.body(self._services.config.server))

    async def answer(self, exchange: Exchange, body: bytes | dict[str, Any]) -> None:
        """Answer a request. `body`: its bytes, or the JSON that was read of them."""
        exchange.form = self._form
        exchange.watch.protocol = protocol_name(self._form)
        request = self._row.parse(body)
        mint = new_minter()
        prepared = await prepare(self._services, exchange, request, request.model, mint)
        if request.view is not None:
            exchange.reader = exchange.reader.asking(request.view)
        call = prepared.call(prepared.opened(request.messages))
        prepared.warn()
        id = exchange.watch.response_id = mint(self._row.id_prefix)
        server_tools = {tool.name for tool in prepared.offered(call)}
        encoder = request.encoder(id, prepared.name, int(time.time()), server_tools)
        run = prepared.run(call, seals=exchange.reader.rule.seals)
        redactor = Redactor(exchange.reader)
        if self._whole is None or request.stream:
            exchange.headers += self._row.headers
            await serve_stream(exchange, run, redactor, encoder)
            return
        await serve_response(exchange, run, redactor, encoder)
        whole = self._whole(encoder)
        if isinstance(whole, ErrorInfo):
            await exchange.refuse(whole)
        else:
            await exchange.answer(whole)


def _table(served: Served) -> Table:
    by_media = {"application/json": served.whole, "text/event-stream": (served.event, ErrorBody)}
    return Table(
        [
            Operation(
                *("POST", served.path, StatelessEndpoint.__call__, served.operation_id, served.summary),
                *(by_media, [VIEW], served.request),
                description=served.description,
            )
        ]
    )


TABLES = {
    name: _table(row.stateless.served)
    for name, row in CLIENT_PROTOCOLS.items()
    if row.stateless is not None and row.stateless.served is not None
}
"""The operations of each protocol that has a path of its own."""

SPOKEN = [f"{row.method} {row.path}" for table in TABLES.values() for row in table.operations]


def routes(services: Services) -> list[BaseRoute]:
    def of(name: str, table: Table) -> list[BaseRoute]:
        def door(_: Operation, endpoint: Endpoint) -> Door:
            return Door(endpoint, CLIENT_PROTOCOLS[name].form, lambda: services.guard)

        return table.routes([StatelessEndpoint(services, name)], door)

    return [route for name, table in TABLES.items() for route in of(name, table)]
