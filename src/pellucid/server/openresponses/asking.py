"""A request for a response with everything looked up: what it goes on from, what it adds, and the row that it leaves.

`asking_for` makes an `Asking` of a request; an `Asking` makes its run, its header and its row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...conversation import joined
from ...errors import RequestError
from ...models import Asked
from ...models.shortening import Shortening
from ...parts import ModelMessage, messages_to_json
from ...protocols.openresponses import Dialect, Known, Request, Server
from ...protocols.openresponses import types as t
from ...run import Mint
from ...runs import RunSource
from ...runs.server_tools import NamedServers
from ...settings import ModelCall
from ...storage import StoredResponse
from ...storage.names import check_names
from ...tools import AnyTool
from ...tools.mcp import MCPServer
from ...view import Reader
from ..access.policy import Principal
from ..exchange import Exchange
from ..prepare import Prepared, prepare
from ..services import Services
from .earlier import Earlier, Recent, calls_in, of_chain, of_conversation, referred
from .header import Header, dialect_of

NAMED_SECONDS = 10.0
"""How long an MCP server that a request names may take to answer before the run begins."""


class Asking(NamedTuple):
    """One request. `asking_for` makes it."""

    services: Services
    principal: Principal
    request: Request
    prepared: Prepared
    reader: Reader
    dialect: Dialect
    id: str
    created_at: float
    store: bool
    conversation: str | None
    items: list[dict[str, Any]]
    """The input, as it was received."""
    before: Sequence[ModelMessage]
    """The conversation until now."""
    new: Sequence[ModelMessage]
    """What the input adds to it."""
    chained: bool
    """Whether what this goes on from is in the store."""
    servers: dict[str, MCPServer]
    """Those that the request names, by where it does."""
    call: ModelCall | None
    """What to ask the model; None until it is known what those servers offer."""

    @property
    def model(self) -> Asked:
        return self.prepared.model

    @property
    def adds(self) -> bool:
        """Whether its conversation gets what it says: one that is not stored only reads it."""
        return self.store and self.conversation is not None

    @property
    def seals(self) -> bool:
        return self.request.wants_seals or self.reader.rule.only_seals

    @property
    def header(self) -> Header:
        body = self.request.body
        response = self.request.response(self.id, self.prepared.name, int(self.created_at))
        response.store = self.store
        response.background = bool(body.background)
        if self.adds:
            response.conversation = t.ConversationRef(self.conversation or "")
        response.previous_response_id = body.previous_response_id
        response.max_output_tokens = self.principal.policy.output_tokens(body.max_output_tokens)
        return Header(
            response,
            self.dialect,
            self.reader.view,
            self.seals,
            self.request.wants_summaries,
            self.request.obfuscate,
            most=self.services.catalog.most(self.prepared.name),
        )

    def run(self, stored_as: StoredResponse | None = None) -> RunSource:
        """`stored_as`: its row, where the run is stored before its end is shown."""
        model = self.model
        if self.request.body.truncation == "auto":
            model = Shortening(model, self.services.catalog.context(self.prepared.name))
        if self.call is not None:
            return self.prepared.run(self.call, self.prepared.tools, model=model, seals=self.seals, stored_as=stored_as)
        messages = [*self.before, *self.new]

        def plan(tools: list[AnyTool]) -> tuple[ModelCall, Sequence[AnyTool]]:
            call = self.prepared.call(messages, tools)
            return call, self.prepared.offered(call, tools)

        named = NamedServers(self.servers, self.prepared.tools, self.request.own_tools, plan)
        call = ModelCall(model.name, messages)
        return self.prepared.run(call, (), model=model, seals=self.seals, servers=named, stored_as=stored_as)

    def row(self, header: Header) -> StoredResponse:
        body = self.request.body
        return StoredResponse(
            id=self.id,
            owner=self.principal.owner,
            created_at=self.created_at,
            updated_at=self.created_at,
            expires_at=self.services.expiry(self.principal),
            status="in_progress",
            model=self.prepared.name,
            previous_id=body.previous_response_id if self.chained else None,
            conversation_id=self.conversation,
            background=bool(body.background),
            header=msgspec.json.encode(header),
            input=msgspec.json.encode(self.items),
            # Nobody else could find what is remembered by a socket alone.
            messages=messages_to_json(list(self.new) if self.chained else joined(self.before, self.new)),
        )


async def asking_for(
    services: Services, exchange: Exchange, request: Request, mint: Mint, recent: Recent | None = None
) -> Asking:
    """Look up everything that the request names. Raises `RequestError` and `StoreError`.

    `recent`: what a socket remembers of its own last response.
    """
    principal, body = exchange.principal, request.body
    prepared = await prepare(services, exchange, request, request.model, mint, summaries=request.wants_summaries)
    id = exchange.watch.response_id = mint("resp")
    store = _stores(services, principal, request)
    conversation = _conversation_of(body.conversation)
    items = request.input_items(mint)
    if store:
        check_names(**{f"input[{index}].id": item["id"] for index, item in enumerate(items)})
    servers = {server.at: _named(services, principal, server) for server in request.servers}
    chained = recent is None or recent.kept or recent.id != body.previous_response_id
    earlier = await _earlier(services, principal.owner, request, conversation, None if chained else recent)
    if store and conversation is not None:
        _check_new(items, earlier.ids)
    known = Known(calls_in(earlier.messages), await referred(services.store, principal.owner, request.references))
    new = prepared.opened(request.messages(known))
    return Asking(
        services,
        principal,
        request,
        prepared,
        exchange.reader,
        dialect_of(exchange, services),
        id,
        time.time(),
        store,
        conversation,
        items,
        earlier.messages,
        new,
        chained,
        servers,
        None if servers else prepared.call([*earlier.messages, *new]),
    )


def _stores(services: Services, principal: Principal, request: Request) -> bool:
    """Whether the response is kept. Raises `RequestError` if it must be and may not."""
    policy, asked = principal.policy, request.body.store
    store = policy.may_store(asked if asked is not None else services.config.storage.store and policy.store)
    if request.body.background and not store:
        raise RequestError(
            "background: a response that nobody waits for must be stored, and here none is unless it is asked for; "
            "send store: true"
            if policy.store
            else "background: it must be stored, and you may not have that",
            kind="invalid_request" if policy.store else "forbidden",
            code="store_required" if policy.store else "store_not_allowed",
            param="background",
        )
    return store


def _named(services: Services, principal: Principal, server: Server) -> MCPServer:
    """The MCP server that the request names, not reached yet. Raises `RequestError` for one that may not be."""
    try:
        url = services.egress.check(server.url)
        named = MCPServer(
            server.label,
            url=server.url,
            headers=server.headers,
            policy=services.egress,
            allowed_tools=server.allowed,
            connect_timeout=NAMED_SECONDS,
        )
    except RequestError as error:
        info = error.info
        raise RequestError(f"{server.at}: {info.message}", kind=info.kind, code=info.code, param=server.at) from error
    principal.policy.check_tool(f"mcp:{url.host}")
    return named


async def _earlier(
    services: Services, owner: str, request: Request, conversation: str | None, recent: Recent | None
) -> Earlier:
    if recent is not None:
        return Earlier(recent.messages)
    previous = request.body.previous_response_id
    if previous is not None:
        return await of_chain(services.store, owner, previous)
    if conversation is not None:
        return await of_conversation(services.store, owner, conversation, services.sealer.of(owner).open)
    return Earlier()


def _check_new(items: Sequence[dict[str, Any]], there: frozenset[str]) -> None:
    """Whether they can be added to their conversation. Raises `RequestError`."""
    seen = set(there)
    for index, item in enumerate(items):
        if item["type"] == "item_reference":
            raise RequestError(
                f"input[{index}]: an item_reference cannot be added to a conversation, whose items the model sees "
                "anyway; send the item itself, or use previous_response_id",
                code="invalid_value",
                param=f"input[{index}]",
            )
        if item["id"] in seen:
            raise RequestError(
                f"input[{index}].id: the item {item['id']!r} is in the conversation already; leave it out, or its id",
                code="already_exists",
                param=f"input[{index}].id",
            )
        seen.add(item["id"])


def _conversation_of(given: Any) -> str | None:
    match given:
        case None:
            return None
        case str(id) | {"id": str(id)}:
            return id
        case _:
            raise RequestError(
                "conversation: must be an id, or an object with one", code="invalid_value", param="conversation"
            )
