"""What a request for a response asks of this server: its reader, what it goes on from, and the row it leaves.

`Asking` is the request with everything looked up; `responding` makes runs and encoders of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...conversation import joined
from ...errors import RequestError
from ...models import Asked
from ...models.shortening import Shortening
from ...parts import ModelMessage, ModelResponse, SealedPart, messages_to_json
from ...protocols.openresponses import Dialect, Encoder, Framing, Known, Request, Server
from ...protocols.openresponses import types as t
from ...run import Mint
from ...runs import Running
from ...runs.reaching import ReachingRun
from ...sealing import Attached, Sealed, SealError, attach
from ...settings import ModelCall
from ...storage import StoredResponse
from ...storage.names import check_names
from ...tools import AnyTool
from ...tools.mcp import MCPServer
from ...view import Reader, Redactor, View, lesser
from ..access import Principal
from ..exchange import Exchange
from ..services import Services, definitions
from .compacted import told
from .earlier import Earlier, Recent, calls_in, of_chain, of_conversation, referred

EVENTS_HEADER = "openresponses-reasoning-events"
NAMED_SECONDS = 10.0
"""How long an MCP server that a request names may take to answer before the run begins."""


class Header(msgspec.Struct, frozen=True):
    """What is kept of how a response was asked for, so that it can be told again."""

    response: t.Response
    """As it was before anything had come."""
    dialect: Dialect
    view: View
    seals: bool = False
    summaries: bool = False
    obfuscate: bool = False
    protocol: str = "openresponses"
    most: View = "raw"
    """What anybody might see of its model."""

    def reader(self, exchange: Exchange, most: View) -> Reader:
        """Who reads it now: with what they were given then, unless they ask otherwise. `most`: what anybody may see of
        its model by now; what was not to be seen then is not to be seen later either."""
        return exchange.reads(lesser(self.most, most), self.view, summaries=self.summaries)

    def encoder(
        self,
        reader: Reader,
        *,
        dialect: Dialect | None = None,
        seals: bool | None = None,
        after: int = -1,
        framing: Framing = "events",
    ) -> Encoder:
        return Encoder(
            msgspec.structs.replace(self.response),
            dialect or self.dialect,
            obfuscate=self.obfuscate,
            seals=(self.seals if seals is None else seals) or reader.view == "sealed",
            after=after,
            framing=framing,
        )


def dialect_of(exchange: Exchange, services: Services) -> Dialect:
    """Whose names reasoning events have. Raises `RequestError`."""
    asked = exchange.header(EVENTS_HEADER)
    match asked.lower() if asked is not None else None:
        case None:
            return exchange.principal.policy.reasoning_events or services.config.server.reasoning_events
        case "openresponses":
            return "openresponses"
        case "openai":
            return "openai"
        case other:
            raise RequestError(
                f"the header OpenResponses-Reasoning-Events must be openresponses or openai, not {other!r}",
                code="invalid_header",
            )


class Asking:
    """One request, everything looked up. `asking_for` makes it."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: Request,
        name: str,
        model: Asked,
        mint: Mint,
    ) -> None:
        policy = exchange.principal.policy
        self.services = services
        self.principal = exchange.principal
        self.watch = exchange.watch
        self.request = request
        self.name = name
        self.model = model
        self.mint = mint
        self.id = mint("resp")
        self.watch.model, self.watch.response_id = name, self.id
        self.created_at = time.time()
        self.most = services.catalog.most(name)
        self.reader = exchange.reads(self.most, summaries=request.wants_summaries)
        self.dialect = dialect_of(exchange, services)
        self.seals = request.wants_seals or self.reader.view == "sealed"
        kept_by_default = services.config.storage.store and policy.store
        self.store = policy.may_store(request.body.store if request.body.store is not None else kept_by_default)
        if request.body.background and not self.store:
            raise RequestError(
                "background: a response that nobody waits for must be stored, and here none is unless it is asked for; "
                "send store: true"
                if policy.store
                else "background: it must be stored, and you may not have that",
                kind="invalid_request" if policy.store else "forbidden",
                code="store_required" if policy.store else "store_not_allowed",
                param="background",
            )
        self.conversation = _conversation_of(request.body.conversation)
        self.items = request.input_items(mint)
        if self.store:
            check_names(**{f"input[{index}].id": item["id"] for index, item in enumerate(self.items)})
        self.tools: list[AnyTool] = []
        self.servers: dict[str, MCPServer] = {}
        """Those that the request names, by where it does."""
        self.before: Sequence[ModelMessage] = []
        """The conversation until now."""
        self.new: Sequence[ModelMessage] = []
        """What the input adds to it."""
        self.chained = True
        """Whether what this goes on from is in the store."""
        self.attached = Attached([], [], [])
        self.call = ModelCall(name, [])
        """What to ask the model, unless the request names servers."""

    @property
    def adds(self) -> bool:
        """Whether its conversation gets what it says: one that is not stored only reads it."""
        return self.store and self.conversation is not None

    @property
    def header(self) -> Header:
        body = self.request.body
        response = self.request.response(self.id, self.name, int(self.created_at))
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
            most=self.most,
        )

    def call_with(self, tools: Sequence[AnyTool]) -> ModelCall:
        """What to ask the model, with these tools of ours beside the caller's. Raises `RequestError`."""
        call = self.request.call(told([*self.before, *self.new]), definitions(tools))
        most = self.principal.policy.output_tokens(call.settings.get("max_tokens"))
        settings = call.settings if most is None else {**call.settings, "max_tokens": most}
        return msgspec.structs.replace(call, settings=settings)

    def run(self) -> Running:
        if not self.servers:
            return self._run(self.call, self.tools)
        # What these offer is known when they were reached.
        callers = {tool.name for tool in self.request.functions}
        return ReachingRun(self.servers, self.tools, lambda tools: self._run(self.call_with(tools), tools), callers)

    def _run(self, call: ModelCall, tools: Sequence[AnyTool]) -> Running:
        callers = {tool.name for tool in self.request.functions}
        summaries = self.reader.view == "summary" or (self.request.wants_summaries and self.reader.view == "raw")
        model = self.model
        if self.request.body.truncation == "auto":
            model = Shortening(model, self.services.catalog.context(self.name))
        return self.services.run(
            model,
            call,
            self.mint,
            self.principal,
            tools=[tool for tool in tools if tool.name not in callers],
            seals=self.seals,
            summaries=summaries,
            max_tool_calls=self.request.body.max_tool_calls,
            watch=self.watch,
        )

    def row(self, header: Header) -> StoredResponse:
        body = self.request.body
        return StoredResponse(
            id=self.id,
            owner=self.principal.owner,
            created_at=self.created_at,
            updated_at=self.created_at,
            expires_at=self.services.expiry(self.principal),
            status="in_progress",
            model=self.name,
            previous_id=body.previous_response_id if self.chained else None,
            conversation_id=self.conversation,
            background=bool(body.background),
            header=msgspec.json.encode(header),
            input=msgspec.json.encode(self.items),
            # Nobody else could find what is remembered by a socket alone.
            messages=messages_to_json(list(self.new) if self.chained else joined(self.before, self.new)),
        )

    def redactor(self) -> Redactor:
        return Redactor(self.reader)

    @property
    def warnings(self) -> list[str]:
        """What was asked for and could not be done, which is no reason to refuse."""
        return self.attached.warnings(self.model.origin)


async def asking_for(
    services: Services, exchange: Exchange, request: Request, mint: Mint, recent: Recent | None = None
) -> Asking:
    """Look up everything that the request names. Raises `RequestError` and `StoreError`.

    `recent`: what a socket remembers of its own last response.
    """
    principal = exchange.principal
    if request.model is not None:
        principal.policy.check_model(request.model)
    name, model = services.catalog.find(request.model)
    principal.policy.check_model(name)
    asking = Asking(services, exchange, request, name, model, mint)
    exchange.reader = asking.reader
    asking.tools = await services.tools_for(principal)
    asking.servers = {server.at: _named(services, principal, server) for server in request.servers}
    earlier = await _earlier(services, asking, recent)
    asking.before = earlier.messages
    if asking.adds:
        _check_new(asking.items, earlier.ids)
    known = Known(calls_in(asking.before), await referred(services.store, principal.owner, request.references))
    new = request.messages(known)
    if any(isinstance(part, SealedPart) for said in new if isinstance(said, ModelResponse) for part in said.parts):
        asking.attached = attach(new, _opener(services, principal.owner, request))
        new = asking.attached.messages
    asking.new = new
    if not asking.servers:
        asking.call = asking.call_with(asking.tools)
    return asking


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


def _opener(services: Services, owner: str, request: Request) -> Callable[[SealedPart], Sealed]:
    def open_(part: SealedPart) -> Sealed:
        try:
            return services.sealer.open(part.token, tenant=owner)
        except SealError as error:
            items = request.raw_input
            at = next((i for i, item in enumerate(items) if item.get("encrypted_content") == part.token), 0)
            raise error.at(f"input[{at}].encrypted_content") from None

    return open_


async def _earlier(services: Services, asking: Asking, recent: Recent | None) -> Earlier:
    owner, previous = asking.principal.owner, asking.request.body.previous_response_id
    if previous is not None:
        if recent is not None and recent.id == previous and not recent.kept:
            asking.chained = False
            return Earlier(recent.messages)
        return await of_chain(services.store, owner, previous)
    if asking.conversation is not None:
        return await of_conversation(
            services.store, owner, asking.conversation, lambda token: services.sealer.open(token, tenant=owner)
        )
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


__all__ = ["Asking", "Header", "Recent", "asking_for", "dialect_of"]
