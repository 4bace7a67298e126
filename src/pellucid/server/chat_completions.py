"""`POST /v1/chat/completions`: for clients that know nothing else, with their reasoning."""

from __future__ import annotations

import secrets
import time

from msgspec.structs import replace
from starlette.routing import BaseRoute

from ..asgi.serving import serve_stream, serve_whole
from ..models import Asked
from ..parts import ModelResponse, SealedPart
from ..protocols import chat_completions
from ..protocols.chat_completions import Encoder, Request, parse_request
from ..run import Minter
from ..sealing import Sealed, SealError, attach
from ..settings import ModelCall
from ..tools import AnyTool
from ..view import Redactor
from .exchange import WARNING, Door, Exchange
from .routing import route
from .services import Services, definitions


class ChatCompletions:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        request = parse_request(await exchange.body(services.config.server))
        if request.model is not None:
            principal.policy.check_model(request.model)
        name, model = services.catalog.find(request.model)
        principal.policy.check_model(name)
        exchange.watch.model = name
        reader = exchange.reads(services.catalog.most(name), summaries=True)
        exchange.reader = reader.lesser("hidden") if request.exclude else reader
        tools = await services.tools_for(principal)
        call = self._call(exchange, request, model, tools)
        exchange.headers += await services.guard.spend(principal)
        mint = Minter(secrets.token_bytes(16))
        callers = {tool.name for tool in request.call.tools}
        may_call = call.tool_choice.mode != "none"
        offered = [t for t in tools if may_call and t.definition in call.tools and t.name not in callers]
        exchange.watch.response_id = mint("chatcmpl")
        encoder = Encoder(
            exchange.watch.response_id,
            name,
            int(time.time()),
            request.fields or "both",
            include_usage=request.include_usage,
            obfuscate=request.obfuscate,
            server_tools={tool.name for tool in offered},
        )
        run = services.run(
            model,
            call,
            mint,
            principal,
            tools=offered,
            seals=exchange.reader.view != "hidden",
            summaries=exchange.reader.view == "summary",
            watch=exchange.watch,
        )
        redact = Redactor(exchange.reader).feed
        if request.stream:
            await serve_stream(exchange, run, redact, encoder)
            return
        await serve_whole(exchange, run, redact, encoder)
        if encoder.error is not None:
            await exchange.refuse(encoder.error)
        else:
            await exchange.answer(encoder.whole)

    def _call(self, exchange: Exchange, request: Request, model: Asked, tools: list[AnyTool]) -> ModelCall:
        """The call with what came back sealed opened, and with this server's tools beside the caller's own."""
        call = request.call
        owner = exchange.principal.owner

        def open_(part: SealedPart) -> Sealed:
            try:
                return self._services.sealer.open(part.token, tenant=owner)
            except SealError as error:
                raise error.at(request.place_of(part)) from None

        messages = call.messages
        if any(isinstance(p, SealedPart) for said in messages if isinstance(said, ModelResponse) for p in said.parts):
            attached = attach(messages, open_)
            messages = attached.messages
            exchange.headers += [(WARNING, warning.encode()) for warning in attached.warnings(model.origin)]
        own = {tool.name for tool in call.tools}
        # Whoever names the tools that may be used means no others.
        more = [] if call.tool_choice.names else [tool for tool in definitions(tools) if tool.name not in own]
        most = exchange.principal.policy.output_tokens(call.settings.get("max_tokens"))
        settings = call.settings if most is None else {**call.settings, "max_tokens": most}
        if more and (parallel := request.body.parallel_tool_calls) is not None:
            settings = {**settings, "parallel_tool_calls": parallel}
        return replace(call, messages=messages, tools=(*call.tools, *more), settings=settings)


SPOKEN = ["POST /v1/chat/completions"]


def routes(services: Services) -> list[BaseRoute]:
    door = Door(ChatCompletions(services), chat_completions, lambda: services.guard)
    return [route("/v1/chat/completions", {"POST": door})]


__all__ = ["SPOKEN", "routes"]
