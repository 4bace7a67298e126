"""`POST /v1/responses`: live, whole, or in the background."""

from __future__ import annotations

from ...asgi.streaming import serve_response, serve_stream
from ...protocols.openresponses import parse_request
from ...view import Redactor
from ..exchange import Exchange
from ..minting import new_minter
from ..services import Services
from .asking import Asking, asking_for
from .header import Header


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
