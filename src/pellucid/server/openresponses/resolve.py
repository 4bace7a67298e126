"""Resolution of a request for a response: the context it continues, the items it adds, and the row it is stored in.

`resolve_request` makes a `ResolvedRequest`, which makes its run, its header and its row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...conversation import count_parts, join_messages
from ...errors import RequestError
from ...events import Mint
from ...models import ChatModel
from ...models.truncation import TruncatingModel
from ...parts import ModelMessage, messages_to_json
from ...protocols.decoding import invalid
from ...protocols.openresponses import DIALECTS, Dialect, MCPServerSpec, ReferenceContext, Request
from ...protocols.openresponses import types as t
from ...runs import RunSource
from ...runs.server_tools import RequestServers
from ...settings import ModelCall
from ...storage import StoredResponse
from ...storage.names import check_names
from ...tools import AnyTool
from ...tools.mcp import MCPServer
from ...view import Viewer
from ..access.policy import Principal
from ..agent_model import AgentModel, unsupported
from ..exchange import Exchange
from ..prepare import PreparedRequest, prepare
from ..services import Services
from ..stored_runs import make_row
from .compaction import CompactionStage, compaction_call
from .previous_context import (
    CachedResponse,
    PreviousContext,
    calls_of,
    load_conversation,
    load_referenced_items,
    load_response_chain,
)
from .run_header import ResponseRunHeader, dialect_of

MCP_CONNECT_SECONDS = 10.0
"""How long an MCP server that a request names may take to answer before the run begins."""


class ResolvedRequest(NamedTuple):
    """One request with everything that was looked up. `resolve_request` creates it."""

    services: Services
    principal: Principal
    request: Request
    prepared: PreparedRequest
    viewer: Viewer
    dialect: Dialect
    id: str
    created_at: float
    is_stored: bool
    conversation_id: str | None
    input_items: list[dict[str, Any]]
    """The items of the input, as they were received."""
    previous: PreviousContext
    """The conversation before this request."""
    new_messages: Sequence[ModelMessage]
    """The messages of the input."""
    is_chained: bool
    """Whether the previous response is in the store, so that the row needs only the new messages."""
    mcp_servers: dict[str, MCPServer]
    """MCP servers that the request names, by their place in the request."""
    call: ModelCall | None
    """The call of the model; None until the tools of the MCP servers are known."""

    @property
    def model(self) -> ChatModel:
        return self.prepared.model

    @property
    def appends_to_conversation(self) -> bool:
        """Whether its items are added to the conversation. A response that is not stored only reads it."""
        return self.is_stored and self.conversation_id is not None

    @property
    def has_seals(self) -> bool:
        return self.request.wants_seals or self.request.is_compaction or self.viewer.rule.only_seals

    @property
    def run_header(self) -> ResponseRunHeader:
        body = self.request.body
        response = self.request.response(self.id, self.prepared.model_name, int(self.created_at))
        response.store = self.is_stored
        response.background = bool(body.background)
        if self.appends_to_conversation:
            response.conversation = t.ConversationRef(self.conversation_id or "")
        response.previous_response_id = body.previous_response_id
        response.max_output_tokens = self.principal.policy.output_token_limit(body.max_output_tokens)
        return ResponseRunHeader(
            response=response,
            dialect=self.dialect,
            view=self.viewer.view,
            seals=self.has_seals,
            summaries=self.viewer.summaries,
            obfuscate=self.request.obfuscate,
            max_view=self.services.catalog.max_view(self.prepared.model_name),
            tools=self.request.tools.by_function or msgspec.UNSET,
        )

    async def create_run(self, stored_as: StoredResponse | None = None) -> RunSource:
        """Create the run. `stored_as` is its row, if the run is stored before its end is shown.

        Raises:
            PellucidError: See `PreparedRequest.create_run`.
        """
        model = self.model
        if self.request.body.truncation == "auto" and not isinstance(model, AgentModel):
            model = TruncatingModel(model, self.services.catalog.context_tokens(self.prepared.model_name))
        call, mcp_servers = self.call, None
        if call is None:
            messages = [*self.previous.messages, *self.new_messages]
            call = ModelCall(model.name, messages)

            def plan(tools: list[AnyTool]) -> tuple[ModelCall, Sequence[AnyTool]]:
                call = self.prepared.model_call(messages, tools)
                return call, self.prepared.executable_tools(call, tools)

            mcp_servers = RequestServers(self.mcp_servers, self.prepared.tools, self.request.client_tools, plan)
        return await self.prepared.create_run(
            call,
            model=model,
            with_seals=self.has_seals,
            mcp_servers=mcp_servers,
            stored_as=stored_as,
            stages=[CompactionStage(self.prepared.mint)] if self.request.is_compaction else (),
        )

    def make_row(self, header: ResponseRunHeader) -> StoredResponse:
        body = self.request.body
        return make_row(
            self.services,
            self.principal,
            header,
            created_at=self.created_at,
            id=self.id,
            model=self.prepared.model_name,
            previous_id=body.previous_response_id if self.is_chained else None,
            conversation_id=self.conversation_id,
            background=bool(body.background),
            input=msgspec.json.encode(self.input_items),
            # A context that only the socket holds is stored here, too: it can be found nowhere else.
            messages=messages_to_json(
                list(self.new_messages) if self.is_chained else join_messages(self.previous.messages, self.new_messages)
            ),
        )


async def resolve_request(
    services: Services, exchange: Exchange, request: Request, mint: Mint, cached: CachedResponse | None = None
) -> ResolvedRequest:
    """Look up everything that the request names.

    Args:
        services: The gateway's services.
        exchange: The exchange.
        request: The decoded request.
        mint: Makes ids.
        cached: The last response of a socket.

    Raises:
        RequestError: Something is not there, not allowed, or not valid.
        StoreError: The store does not answer.
    """
    principal, body = exchange.principal, request.body
    dialect = dialect_of(exchange, services)
    is_raw_distinct = DIALECTS[dialect].is_raw_distinct
    # A client for which raw text and summaries are one thing gets a thought once: its summaries if the request asks for
    # them and the operator has named a model that writes them, else the text.
    only_summaries = not is_raw_distinct and request.wants_summaries and services.config.summaries.is_model_named
    prepared = await prepare(
        services,
        exchange,
        request,
        request.model,
        mint,
        default_view="summary" if only_summaries else "raw",
        with_summaries=request.wants_summaries and is_raw_distinct,
    )
    if isinstance(prepared.model, AgentModel):
        if request.is_compaction:
            raise unsupported("model", "is an agent, and only a model compacts a conversation", prepared.model_name)
        if body.truncation == "auto":
            prepared.warnings.append("truncation: the agent decides itself what its model reads")
    id = exchange.telemetry.response_id = mint("resp")
    is_stored = _is_stored(services, principal, request)
    if is_stored:
        await services.store.require_writable()
    conversation_id = _conversation_id_of(body.conversation)
    input_items = await exchange.compute(_input_items, request, mint, is_stored)
    mcp_servers = {
        server.path: _create_mcp_server(services, principal, server)
        for server in request.mcp_servers
        if not request.is_compaction
    }
    is_chained = cached is None or cached.is_stored or cached.id != body.previous_response_id
    previous = await _load_previous(services, principal.owner, request, conversation_id, None if is_chained else cached)
    exchange.weight += count_parts(previous.messages)
    prepared.request = request = await exchange.compute(request.after, previous.tool_items)
    if is_stored and conversation_id is not None:
        _check_new_items(input_items, previous.item_ids)
    known = ReferenceContext(
        await exchange.compute(calls_of, previous.messages),
        await load_referenced_items(services.store, principal.owner, request.references),
        "summary" if is_raw_distinct or not exchange.viewer.rule.is_full else "raw",
    )
    new_messages, call = await exchange.compute(_new_messages, request, prepared, known, previous, not mcp_servers)
    return ResolvedRequest(
        services,
        principal,
        request,
        prepared,
        exchange.viewer,
        dialect,
        id,
        time.time(),
        is_stored,
        conversation_id,
        input_items,
        previous,
        new_messages,
        is_chained,
        mcp_servers,
        compaction_call(call) if call is not None and request.is_compaction else call,
    )


def _input_items(request: Request, mint: Mint, is_stored: bool) -> list[dict[str, Any]]:
    """Return the items of the input. Raises `RequestError` if one has an id that cannot be stored."""
    items = request.input_items(mint)
    if is_stored:
        check_names(**{f"input[{index}].id": item["id"] for index, item in enumerate(items)})
    return items


def _new_messages(
    request: Request,
    prepared: PreparedRequest,
    known: ReferenceContext,
    previous: PreviousContext,
    is_call_known: bool,
) -> tuple[list[ModelMessage], ModelCall | None]:
    """Return the messages of the input, and the call of the model.

    With MCP servers, the call is made when their tools are known, which is after the head of the response.
    """
    messages = prepared.unseal(request.messages(known, prepared.warnings))
    if is_call_known:
        return messages, prepared.model_call([*previous.messages, *messages])
    prepared.warnings += prepared.model.warnings(request.call_without_choice(messages))
    return messages, None


def _is_stored(services: Services, principal: Principal, request: Request) -> bool:
    """Return whether the response is stored. Raises `RequestError` if it must be stored and may not."""
    policy, requested = principal.policy, request.body.store
    is_stored = policy.may_store(requested if requested is not None else services.config.storage.store and policy.store)
    if request.body.background and not is_stored:
        raise RequestError(
            "background: a background response must be stored, and this server stores only on request; send store: true"
            if policy.store
            else "background: a background response must be stored, and your key does not allow that",
            kind="invalid_request" if policy.store else "forbidden",
            code="store_required" if policy.store else "store_not_allowed",
            param="background",
        )
    return is_stored


def _create_mcp_server(services: Services, principal: Principal, server: MCPServerSpec) -> MCPServer:
    """Create the client of an MCP server that the request names, without connecting to it.

    Raises:
        RequestError: Its address or its use is not allowed.
    """
    try:
        url = services.egress.check_url(server.url)
        client = MCPServer(
            server.label,
            url=server.url,
            headers=server.headers,
            policy=services.egress,
            allowed_tools=server.allowed_tools,
            connect_timeout=MCP_CONNECT_SECONDS,
        )
    except RequestError as error:
        info = error.info
        raise RequestError(
            f"{server.path}: {info.message}", kind=info.kind, code=info.code, param=server.path
        ) from error
    principal.policy.check_tool(f"mcp:{url.host}")
    return client


async def _load_previous(
    services: Services, owner: str, request: Request, conversation_id: str | None, cached: CachedResponse | None
) -> PreviousContext:
    if cached is not None:
        return PreviousContext(cached.messages, cached.tool_items)
    previous_id = request.body.previous_response_id
    if previous_id is not None:
        return await load_response_chain(services.store, owner, previous_id)
    if conversation_id is not None:
        return await load_conversation(services.store, owner, conversation_id, services.sealer.for_tenant(owner).open)
    return PreviousContext()


def _check_new_items(items: Sequence[dict[str, Any]], existing_ids: frozenset[str]) -> None:
    """Check that items can be added to their conversation. Raises `RequestError`."""
    seen = set(existing_ids)
    for index, item in enumerate(items):
        if item["type"] == "item_reference":
            raise invalid(
                f"input[{index}]",
                "an item_reference cannot be added to a conversation, whose items the model sees "
                "anyway; send the item itself, or use previous_response_id",
            )
        if item["id"] in seen:
            raise invalid(
                f"input[{index}].id",
                f"the item {item['id']!r} is in the conversation already; leave it out, or its id",
                "already_exists",
            )
        seen.add(item["id"])


def _conversation_id_of(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str(id) | {"id": str(id)}:
            return id
        case _:
            raise invalid("conversation", "must be an id, or an object with one")
