"""The paths of OpenResponses; `POST /v1/responses`, live, whole or in the background; `POST /v1/responses/compact`.

A compaction is a conversation in fewer words, in an item that only this gateway can read: the model itself writes what
must not be lost, and that is sealed. A client sends the item in place of what it stands for, to any replica, and any
model goes on from it. Nothing is stored here.
"""

from __future__ import annotations

import time

from msgspec.structs import replace
from starlette.routing import BaseRoute, WebSocketRoute

from ...asgi.streaming import read_to_end, serve_response, serve_stream
from ...conversation import joined
from ...errors import ErrorInfo, PellucidError, RequestError
from ...fold import Fold
from ...parts import CompactionPart, ModelRequest, ModelResponse, Usage, UserPromptPart
from ...protocols import openresponses
from ...protocols.openresponses import parse_request, read_json, request_of
from ...protocols.openresponses import types as t
from ...protocols.openresponses.encode import usage_of
from ...runs import Batch, RunSource
from ...sealing import Sealed
from ...settings import ToolChoice
from ...view import Redactor, redact_usage
from ..exchange import Door, Endpoint, Exchange, new_minter, route
from ..services import Services
from .asking import Asking, asking_for
from .conversations import Conversations
from .header import Header
from .kept import KeptResponses
from .socket import ResponsesSocket

EMPTY_COMPACTION = ErrorInfo(
    "model_error", "the model wrote nothing to stand for the conversation", code="empty_compaction"
)
CUT_COMPACTION = ErrorInfo(
    "model_error",
    "the model did not finish what is to stand for the conversation, so that something would be missing from it",
    code="incomplete_compaction",
)
COMPACTION_PROMPT = (
    "Write a summary of the conversation so far that can stand in its place: someone who reads only it must be able to "
    "go on. Keep every fact, decision, name, number, open question and instruction that may matter, and what was tried "
    "and came of it. Write plain prose, no greeting, nothing about this task."
)


class Compact:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        raw = read_json(await exchange.body(services.config.server))
        if not isinstance(raw.get("model"), str):
            raise RequestError("model: required: who is to tell it again", code="missing", param="model")
        known = ("model", "input", "previous_response_id", "instructions", "prompt_cache_key")
        request = request_of({**{name: raw[name] for name in known if raw.get(name) is not None}, "store": False})
        mint = new_minter()
        asking = await asking_for(services, exchange, request, mint)
        assert asking.call is not None
        messages = joined(asking.call.messages, [ModelRequest([UserPromptPart(COMPACTION_PROMPT)])])
        call = replace(asking.call, messages=messages, tools=(), tool_choice=ToolChoice())
        text, usage = await _written(exchange, asking.prepared.run(call, (), seals=False))
        sealed = Sealed([CompactionPart(text)], asking.model.origin, mint("cmp"), int(time.time()))
        token = services.sealer.seal(sealed, tenant=principal.owner)
        await exchange.answer(
            t.CompactedResponse(
                id=asking.id,
                created_at=int(asking.created_at),
                output=[t.CompactionItem(id=sealed.item_id or "", encrypted_content=token)],
                usage=usage_of(redact_usage(usage, exchange.reader))
                or t.Usage(0, 0, 0, t.InputTokensDetails(0), t.OutputTokensDetails(0)),
            )
        )


async def _written(exchange: Exchange, run: RunSource) -> tuple[str, Usage]:
    """What the model wrote, whole, and what that took. Raises `PellucidError` for less."""
    fold = Fold()

    def receive(batch: Batch) -> None:
        for event in batch.events:
            fold.feed(event)

    end = await read_to_end(exchange, run, lambda: run.deliver(receive))
    if end.error is not None:
        raise PellucidError(end.error)
    if end.status != "completed":
        raise PellucidError(CUT_COMPACTION)
    text = "".join(message.text or "" for message in fold.messages if isinstance(message, ModelResponse))
    if not text.strip():
        raise PellucidError(EMPTY_COMPACTION)
    return text, end.usage


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
