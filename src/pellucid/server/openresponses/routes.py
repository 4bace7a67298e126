"""Routes of OpenResponses, with the handlers of `POST /v1/responses` and of what is not stored.

A response is streamed, whole, or made in the background.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from ...asgi.http import warning_headers
from ...asgi.streaming import serve_response, serve_stream
from ...errors import PellucidError
from ...protocols import openresponses
from ...protocols.client_protocols import CLIENT_PROTOCOLS
from ...protocols.decoding import invalid
from ...protocols.openresponses import FORWARDED_HEADERS, Dialect, openapi, request_from
from ...protocols.openresponses import types as t
from ...view import Redactor
from ..exchange import Exchange, new_minter
from ..routing import VIEW, Handlers, Operation, Socket, Table, parameter
from ..token_counts import count_input_tokens
from .conversations import (
    AddItems,
    Conversation,
    ConversationHandlers,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from .resolve import ResolvedRequest, resolve_request
from .run_header import ResponseRunHeader
from .socket import ResponsesSocket
from .stored_responses import DeletedResponse, ItemList, KeptItem, ResponseHandlers


class CompactRequest(msgspec.Struct, kw_only=True):
    """The fields of a request for a response that a compaction uses."""

    model: str
    input: str | list[t.ItemParam] | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None


class CompactHandler(Handlers):
    """Handler of `POST /v1/responses/compact`."""

    async def __call__(self, exchange: Exchange) -> None:
        raw = await exchange.read_json(self._services.config.server)
        if not isinstance(raw.get("model"), str):
            raise invalid("model", "required: the model that writes the compaction", "missing")
        fields = {name: raw[name] for name in CompactRequest.__struct_fields__ if raw.get(name) is not None}
        request = await exchange.compute(request_from, {**fields, "store": False, "input": _with_trigger(fields)})
        resolved = await resolve_request(self._services, exchange, request, new_minter())
        encoder = resolved.run_header.encoder(resolved.viewer)
        error = await serve_response(exchange, await resolved.create_run(), Redactor(resolved.viewer), encoder)
        if error is not None:
            raise PellucidError(error)
        response = encoder.response
        await exchange.send_json(
            t.CompactedResponse(
                id=response.id,
                created_at=response.created_at,
                output=[item for item in response.output if isinstance(item, t.CompactionItem)],
                usage=response.usage or t.Usage(0, 0, 0, t.InputTokensDetails(0), t.OutputTokensDetails(0)),
            )
        )


def _with_trigger(fields: dict[str, Any]) -> Any:
    """Return the input of a request with a trigger at its end; unchanged if nothing could be compacted."""
    input = fields.get("input")
    items = [{"role": "user", "content": input}] if isinstance(input, str) else input or []
    if not isinstance(items, list) or not (items or "previous_response_id" in fields):
        return input
    return [*items, {"type": "compaction_trigger"}]


class InputTokensHandler(Handlers):
    """Handler of `POST /v1/responses/input_tokens`."""

    async def __call__(self, exchange: Exchange) -> None:
        raw = await exchange.read_json(self._services.config.server)
        request = await exchange.compute(request_from, {**raw, "store": False, "background": None})
        resolved = await resolve_request(self._services, exchange, request, new_minter())
        call = resolved.call
        if call is None:
            messages = [*resolved.previous.messages, *resolved.new_messages]
            call = await exchange.compute(resolved.prepared.model_call, messages)
        resolved.prepared.add_warning_headers()
        count = await count_input_tokens(resolved.model, call, exchange.viewer)
        await exchange.send_json(
            t.InputTokens(input_tokens=count.tokens, estimated=True if count.is_estimate else UNSET)
        )


class CreateResponseHandler(Handlers):
    """Handler of `POST /v1/responses`."""

    async def __call__(self, exchange: Exchange) -> None:
        services = self._services
        raw = await exchange.read_json(services.config.server)
        request = await exchange.compute(request_from, raw, exchange.request_headers(FORWARDED_HEADERS))
        resolved = await resolve_request(services, exchange, request, new_minter())
        resolved.prepared.add_warning_headers()
        header = resolved.run_header
        if request.body.background:
            await self._start_detached(exchange, resolved, header)
            return
        run = await resolved.create_run(resolved.make_row(header) if resolved.is_stored else None)
        encoder, redactor = header.encoder(resolved.viewer), Redactor(resolved.viewer)
        if request.stream:
            await serve_stream(exchange, run, redactor, encoder)
            return
        error = await serve_response(exchange, run, redactor, encoder)
        exchange.response_headers += warning_headers(encoder.warnings)
        if error is not None and not encoder.response.output:
            await exchange.send_error(error)
        else:
            await exchange.send_json(encoder.response)

    async def _start_detached(self, exchange: Exchange, resolved: ResolvedRequest, header: ResponseRunHeader) -> None:
        services, row = self._services, resolved.make_row(header)
        await services.start_detached(exchange.principal, row, await resolved.create_run())
        if resolved.request.stream:
            run = services.detached.follow(row)
            await serve_stream(exchange, run, Redactor(resolved.viewer), header.encoder(resolved.viewer))
        else:
            response = header.response
            response.status = "queued"
            await exchange.send_json(response)


_CREATE, _LIST = CLIENT_PROTOCOLS[openresponses.PROTOCOL].paths
_ONE, _CONVERSATION = f"{_CREATE}/{{id}}", f"{_LIST}/{{id}}"
_ITEMS, _ITEM = f"{_CONVERSATION}/items", f"{_CONVERSATION}/items/{{item_id}}"
_EVENTS = parameter("OpenResponses-Reasoning-Events", "header", "The names of raw reasoning events.", Dialect)
_PAGES = (
    parameter("limit", "query", "How many at most.", Annotated[int, Meta(ge=1, le=100)], 20),
    parameter("order", "query", "By time.", Literal["asc", "desc"], "desc"),
    parameter("after", "query", "The item after which the page begins."),
    VIEW,
)
_RESUME = (
    parameter("stream", "query", "As the stream of its events.", bool),
    parameter(
        "starting_after",
        "query",
        "With `stream`: the `sequence_number` after which the stream begins.",
        Annotated[int, Meta(ge=0, le=2**53)],
    ),
    parameter(
        "include[]",
        "query",
        "What else to include. `include` means the same.",
        list[Literal["reasoning.encrypted_content"]],
    ),
)
_WHOLE_OR_STREAM = {"application/json": t.Response, "text/event-stream": {"schema": openapi.stream_event()}}
_CREATED = "The response, whole or as a stream of events that ends with `[DONE]`"


RESPONSES = Table(
    [
        Operation(
            "POST",
            _CREATE,
            CreateResponseHandler.__call__,
            "createResponse",
            "Run a model; its reasoning, then its answer",
            response_body=_WHOLE_OR_STREAM,
            parameters=[_EVENTS, VIEW],
            request_body=t.CreateResponse,
            description=_CREATED,
        ),
        Operation(
            "POST",
            f"{_CREATE}/input_tokens",
            InputTokensHandler.__call__,
            "countInputTokens",
            "Estimate the input tokens of a response",
            response_body=t.InputTokens,
            request_body=t.CreateResponse,
        ),
        Operation(
            "POST",
            f"{_CREATE}/compact",
            CompactHandler.__call__,
            "compactResponse",
            "Compact a conversation into one item that replaces it",
            response_body=t.CompactedResponse,
            request_body=CompactRequest,
        ),
        Operation(
            "GET",
            _ONE,
            ResponseHandlers.get,
            "getResponse",
            "A response that is stored or in progress",
            response_body=_WHOLE_OR_STREAM,
            parameters=[*_RESUME, _EVENTS, VIEW],
            description=_CREATED,
        ),
        Operation(
            "DELETE",
            _ONE,
            ResponseHandlers.delete,
            "deleteResponse",
            "Delete a response; a running one is stopped first",
            response_body=DeletedResponse,
        ),
        Operation(
            "POST",
            f"{_ONE}/cancel",
            ResponseHandlers.cancel,
            "cancelResponse",
            "Stop a response that runs in the background",
            response_body=t.Response,
            parameters=[VIEW],
        ),
        Operation(
            "GET",
            f"{_ONE}/input_items",
            ResponseHandlers.input_items,
            "listInputItems",
            "The input items of a response",
            response_body=ItemList,
            parameters=_PAGES,
        ),
    ],
    protocol=openresponses.PROTOCOL,
    handlers=[CreateResponseHandler, InputTokensHandler, CompactHandler, ResponseHandlers],
    path_parameters={"id": parameter("id", "path", "The response's id.")},
    sockets=[Socket(_CREATE, "x-openresponses-websocket", openapi.SOCKET, ResponsesSocket)],
    components=openapi.components(),
    amend_components=openapi.amend,
    advertised_routes=[f"POST {_CREATE}", f"GET {_CREATE} (WebSocket)", f"POST {_CREATE}/compact"],
)
CONVERSATIONS = Table(
    [
        Operation(
            "POST",
            _LIST,
            ConversationHandlers.create,
            "createConversation",
            "Begin a conversation",
            response_body=Conversation,
            request_body=CreateConversation,
            is_body_optional=True,
        ),
        Operation(
            "GET",
            _CONVERSATION,
            ConversationHandlers.get,
            "getConversation",
            "One conversation",
            response_body=Conversation,
        ),
        Operation(
            "POST",
            _CONVERSATION,
            ConversationHandlers.update,
            "updateConversation",
            "Replace the metadata of a conversation",
            response_body=Conversation,
            request_body=UpdateConversation,
        ),
        Operation(
            "DELETE",
            _CONVERSATION,
            ConversationHandlers.delete,
            "deleteConversation",
            "Delete a conversation",
            response_body=DeletedConversation,
        ),
        Operation(
            "GET",
            _ITEMS,
            ConversationHandlers.items,
            "listItems",
            "The items of a conversation",
            response_body=ItemList,
            parameters=_PAGES,
        ),
        Operation(
            "POST",
            _ITEMS,
            ConversationHandlers.add,
            "addItems",
            "Add items to a conversation",
            response_body=ItemList,
            request_body=AddItems,
        ),
        Operation(
            "GET", _ITEM, ConversationHandlers.item, "getItem", "One item", response_body=KeptItem, parameters=[VIEW]
        ),
        Operation(
            "DELETE",
            _ITEM,
            ConversationHandlers.delete_item,
            "deleteItem",
            "Delete one item",
            response_body=Conversation,
        ),
    ],
    protocol=openresponses.PROTOCOL,
    handlers=[ConversationHandlers],
    path_parameters={
        "id": parameter("id", "path", "The conversation's id."),
        "item_id": parameter("item_id", "path", "The item's id."),
    },
    advertised_routes=[f"POST {_LIST}"],
)
