"""`POST /v1/chat/completions`: for clients that know nothing else, with their reasoning."""

from __future__ import annotations

import time

from starlette.routing import BaseRoute

from ..asgi.streaming import serve_response, serve_stream
from ..protocols import chat_completions
from ..protocols.chat_completions import Encoder, parse_request
from ..view import Redactor
from .exchange import Door, Exchange
from .minting import new_minter
from .prepare import prepare
from .routing import route
from .services import Services


class ChatCompletions:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services = self._services
        request = parse_request(await exchange.body(services.config.server))
        mint = new_minter()
        prepared = await prepare(services, exchange, request, request.model, mint)
        if request.exclude:
            exchange.reader = exchange.reader.lesser("hidden")
        call = prepared.call(prepared.opened(request.messages))
        prepared.warn()
        exchange.watch.response_id = mint("chatcmpl")
        encoder = Encoder(
            exchange.watch.response_id,
            prepared.name,
            int(time.time()),
            request.fields or "both",
            include_usage=request.include_usage,
            obfuscate=request.obfuscate,
            server_tools={tool.name for tool in prepared.offered(call)},
        )
        run = prepared.run(call, seals=exchange.reader.rule.seals)
        redactor = Redactor(exchange.reader)
        if request.stream:
            await serve_stream(exchange, run, redactor, encoder)
            return
        await serve_response(exchange, run, redactor, encoder)
        if encoder.error is not None:
            await exchange.refuse(encoder.error)
        else:
            await exchange.answer(encoder.whole)


SPOKEN = ["POST /v1/chat/completions"]


def routes(services: Services) -> list[BaseRoute]:
    door = Door(ChatCompletions(services), chat_completions, lambda: services.guard)
    return [route("/v1/chat/completions", {"POST": door})]
