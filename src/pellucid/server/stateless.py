"""Endpoints of protocols that store nothing, made from `CLIENT_PROTOCOLS`.

The whole conversation comes with each request. A protocol without a path of its own (the AI SDK's `useChat`) is served
by the endpoint at whose path it recognises its requests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..asgi.streaming import serve_response, serve_stream
from ..errors import ErrorInfo
from ..protocols.client_protocols import CLIENT_PROTOCOLS, EndpointSpec
from ..view import Redactor
from .exchange import Exchange, new_minter
from .prepare import prepare
from .routing import VIEW, ErrorBody, Handlers, Operation, Table, error_statuses_of
from .services import Services


class StatelessHandler(Handlers):
    """Handler for the protocol with this name."""

    def __init__(self, services: Services, name: str) -> None:
        super().__init__(services)
        protocol = CLIENT_PROTOCOLS[name]
        assert protocol.stateless is not None
        self._protocol = name.replace("-", "_")
        """The protocol's name in metrics and logs."""
        self._whole_response = protocol.response_of
        self._row = protocol.stateless

    async def __call__(self, exchange: Exchange) -> None:
        await self.handle(exchange, await exchange.read_json(self._services.config.server))

    async def handle(self, exchange: Exchange, body: dict[str, Any]) -> None:
        """Handle a request.

        Args:
            exchange: The exchange.
            body: The JSON object of its body.
        """
        exchange.telemetry.protocol = self._protocol
        headers = exchange.request_headers(self._row.headers)
        request = await exchange.compute(self._row.parse, body, *((headers,) if headers else ()))
        mint = new_minter()
        prepared = await prepare(self._services, exchange, request, request.model, mint)
        if request.view is not None:
            exchange.viewer = exchange.viewer.for_request(request.view)
        call = await exchange.compute(prepared.stateless_call, request)
        prepared.add_warning_headers()
        id = exchange.telemetry.response_id = mint(self._row.id_prefix)
        encoder = request.encoder(id, prepared.model_name, int(time.time()), prepared.server_functions(call))
        run = await prepared.create_run(call, with_seals=exchange.viewer.rule.seals)
        redactor = Redactor(exchange.viewer)
        if self._whole_response is None or request.stream:
            exchange.response_headers += self._row.stream_headers
            await serve_stream(exchange, run, redactor, encoder)
            return
        await serve_response(exchange, run, redactor, encoder)
        response = self._whole_response(encoder)
        if isinstance(response, ErrorInfo):
            await exchange.send_error(response)
        else:
            await exchange.send_json(response)


def _table(name: str, path: str, endpoint: EndpointSpec, error_statuses: Sequence[int]) -> Table:
    error_type = endpoint.error_type or ErrorBody
    response_types = {} if endpoint.response_type is None else {"application/json": endpoint.response_type}
    operation = Operation(
        "POST",
        path,
        StatelessHandler.__call__,
        endpoint.operation_id,
        endpoint.summary,
        response_body=response_types | {"text/event-stream": (endpoint.event_type, error_type)},
        parameters=[VIEW],
        request_body=endpoint.request_type,
        description=endpoint.description,
        error_statuses=error_statuses,
    )
    return Table(
        [operation],
        protocol=name,
        handlers=[partial(StatelessHandler, name=name)],
        error_body=error_type,
        component_prefix=endpoint.component_prefix,
        advertised_routes=[f"POST {path}"],
    )


TABLES = {
    name: _table(name, protocol.paths[0], protocol.stateless.endpoint, error_statuses_of(protocol.error_format))
    for name, protocol in CLIENT_PROTOCOLS.items()
    if protocol.stateless is not None and protocol.stateless.endpoint is not None
}
"""The operation of each protocol that has its own path, by the protocol's name."""
