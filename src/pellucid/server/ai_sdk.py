"""The AI SDK's `useChat` on `POST /api/chat`: the whole conversation comes with each request, and nothing is kept.

The answer is its request's, and ends with it: `resume` finds nothing to take up. What is refused is told as a sentence,
which its page shows.
"""

from __future__ import annotations

from typing import Any

from ..asgi.streaming import serve_stream
from ..protocols import ai_sdk
from ..protocols.ai_sdk import Encoder, parse_request
from ..view import Redactor
from .exchange import Exchange
from .minting import new_minter
from .prepare import prepare
from .services import Services


class AISDK:
    """The endpoint, for whoever knows that a body is the AI SDK's (`protocols.ai_sdk.recognises`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, exchange: Exchange, body: bytes | dict[str, Any]) -> None:
        """`body`: its bytes, or the JSON that was read of them."""
        exchange.form = ai_sdk
        exchange.watch.protocol = "ai_sdk"
        request = parse_request(body)
        mint = new_minter()
        prepared = await prepare(self._services, exchange, request, request.model, mint)
        if request.body.view is not None:
            exchange.reader = exchange.reader.asking(request.body.view)
        call = prepared.call(prepared.opened(request.messages))
        prepared.warn()
        exchange.watch.response_id = mint("msg")
        encoder = Encoder(request.goes_on or exchange.watch.response_id, prepared.name)
        run = prepared.run(call, seals=exchange.reader.rule.seals)
        exchange.headers.append(ai_sdk.HEADER)
        await serve_stream(exchange, run, Redactor(exchange.reader), encoder)

    async def resume(self, exchange: Exchange) -> None:
        """`GET /api/chat/{id}/stream`, where a page looks for an answer that goes on without it: 204, there is none."""
        exchange.form = ai_sdk
        await exchange.answer_nothing()
