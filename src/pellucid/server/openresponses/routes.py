"""The operations of OpenResponses; `POST /v1/responses`, live, whole or in the background; and `…/compact`.

A compaction is a conversation in fewer words, in an item that only this gateway can read: the model itself writes what
must not be lost, and that is sealed. A client sends the item in place of what it stands for, to any replica, and any
model goes on from it. Nothing is stored here.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.routing import BaseRoute, WebSocketRoute

from ...asgi.streaming import read_to_end, serve_response, serve_stream
from ...conversation import joined
from ...errors import ErrorInfo, PellucidError, RequestError
from ...fold import Fold
from ...parts import CompactionPart, ModelRequest, ModelResponse, Usage, UserPromptPart
from ...protocols import openresponses
from ...protocols.openresponses import Dialect, openapi, parse_request, read_json, request_of
from ...protocols.openresponses import types as t
from ...protocols.openresponses.encode import usage_of
from ...runs import Batch, RunSource
from ...sealing import Sealed
from ...settings import ToolChoice
from ...view import Redactor, redact_usage
from ..exchange import Door, Endpoint, Exchange, new_minter
from ..routing import VIEW, Operation, Socket, Table, parameter
from ..services import Services
from .asking import Asking, asking_for
from .conversations import (
    AddItems,
    Conversation,
    Conversations,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from .header import Header
from .kept import DeletedResponse, ItemList, KeptItem, KeptResponses
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


class CompactRequest(msgspec.Struct, kw_only=True):
    """What of a request for a response has a meaning here."""

    model: str
    input: str | list[t.ItemParam] | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None


class Compact:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        raw = read_json(await exchange.body(services.config.server))
        if not isinstance(raw.get("model"), str):
            raise RequestError("model: required: who is to tell it again", code="missing", param="model")
        known = {name: raw[name] for name in CompactRequest.__struct_fields__ if raw.get(name) is not None}
        request = request_of({**known, "store": False})
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
_CREATE, _ONE = "/v1/responses", "/v1/responses/{id}"
_LIST, _CONVERSATION = "/v1/conversations", "/v1/conversations/{id}"
_ITEMS, _ITEM = "/v1/conversations/{id}/items", "/v1/conversations/{id}/items/{item_id}"
_EVENTS = parameter("OpenResponses-Reasoning-Events", "header", "Whose names raw reasoning events have.", Dialect)
_PAGES = (
    parameter("limit", "query", "How many at most.", Annotated[int, Meta(ge=1, le=100)], 20),
    parameter("order", "query", "By time.", Literal["asc", "desc"], "desc"),
    parameter("after", "query", "The item after which to go on."),
    VIEW,
)
_RESUME = (
    parameter("stream", "query", "As the stream of its events.", bool),
    parameter(
        *("starting_after", "query", "With `stream`: the `sequence_number` after which to go on."),
        Annotated[int, Meta(ge=0, le=2**53)],
    ),
    parameter(
        *("include[]", "query", "What else is wanted. `include` is the same."),
        list[Literal["reasoning.encrypted_content"]],
    ),
)
_WHOLE_OR_STREAM = {"application/json": t.Response, "text/event-stream": {"schema": openapi.stream()}}
_CREATED = "The response, whole or as a stream of events that ends with `[DONE]`"


RESPONSES = Table(
    [
        Operation(
            *("POST", _CREATE, CreateResponse.__call__, "createResponse", "Ask a model; hear it think, then answer"),
            *(_WHOLE_OR_STREAM, [_EVENTS, VIEW], t.CreateResponse),
            description=_CREATED,
        ),
        Operation(
            *("POST", "/v1/responses/compact", Compact.__call__, "compactResponse"),
            "Compact a conversation into one item that stands for it",
            t.CompactedResponse,
            takes=CompactRequest,
        ),
        Operation(
            *("GET", _ONE, KeptResponses.get, "getResponse", "A response that was kept, or that is under way"),
            *(_WHOLE_OR_STREAM, [*_RESUME, _EVENTS, VIEW]),
            description=_CREATED,
        ),
        Operation(
            *("DELETE", _ONE, KeptResponses.delete),
            *("deleteResponse", "Delete a response; one that runs is stopped first", DeletedResponse),
        ),
        Operation(
            *("POST", "/v1/responses/{id}/cancel", KeptResponses.cancel),
            "cancelResponse",
            "Stop a response that runs in the background",
            t.Response,
            [VIEW],
        ),
        Operation(
            *("GET", "/v1/responses/{id}/input_items", KeptResponses.input_items),
            "listInputItems",
            "What the response was asked with",
            ItemList,
            _PAGES,
        ),
    ],
    names={"id": parameter("id", "path", "The response's id.")},
    sockets=[Socket(_CREATE, "x-openresponses-websocket", openapi.SOCKET)],
    components=openapi.components(),
    amend=openapi.amend,
)
CONVERSATIONS = Table(
    [
        Operation(
            *("POST", _LIST, Conversations.create, "createConversation", "Begin a conversation", Conversation),
            takes=CreateConversation,
            takes_nothing=True,
        ),
        Operation("GET", _CONVERSATION, Conversations.get, "getConversation", "One conversation", Conversation),
        Operation(
            *("POST", _CONVERSATION, Conversations.update, "updateConversation"),
            *("Replace the metadata of a conversation", Conversation, (), UpdateConversation),
        ),
        Operation(
            *("DELETE", _CONVERSATION, Conversations.delete),
            *("deleteConversation", "Delete a conversation", DeletedConversation),
        ),
        Operation("GET", _ITEMS, Conversations.items, "listItems", "The items of a conversation", ItemList, _PAGES),
        Operation(
            *("POST", _ITEMS, Conversations.add, "addItems", "Add items to a conversation", ItemList, (), AddItems)
        ),
        Operation("GET", _ITEM, Conversations.item, "getItem", "One item", KeptItem, [VIEW]),
        Operation("DELETE", _ITEM, Conversations.delete_item, "deleteItem", "Delete one item", Conversation),
    ],
    names={
        "id": parameter("id", "path", "The conversation's id."),
        "item_id": parameter("item_id", "path", "The item's id."),
    },
)


def routes(services: Services) -> list[BaseRoute]:
    def door(_: Operation, endpoint: Endpoint) -> Door:
        return Door(endpoint, openresponses, lambda: services.guard)

    return [
        *(WebSocketRoute(socket.path, ResponsesSocket(services)) for socket in RESPONSES.sockets),
        *RESPONSES.routes([CreateResponse(services), Compact(services), KeptResponses(services)], door),
        *CONVERSATIONS.routes([Conversations(services)], door),
    ]
