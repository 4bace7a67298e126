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
from ...parts import ModelMessage, ModelResponse, SealedPart, messages_from_json, messages_to_json
from ...protocols.openresponses import Dialect, Encoder, Framing, Known, Request, item_messages
from ...protocols.openresponses import types as t
from ...run import Mint
from ...runs import Running
from ...sealing import Attached, Sealed, SealError, attach
from ...settings import ModelCall
from ...storage import ConversationEntry, StoredResponse
from ...tools import AnyTool
from ...view import Reader, Redactor, view_of
from ..exchange import Exchange
from ..services import Services, definitions

EVENTS_HEADER = "openresponses-reasoning-events"
VIEW_HEADER = "pellucid-view"
MAX_ENTRIES = 10_000


class Header(msgspec.Struct, frozen=True):
    """What is kept of how a response was asked for, so that it can be told again."""

    response: t.Response
    """As it was before anything had come."""
    dialect: Dialect
    view: str
    seals: bool = False
    summaries: bool = False
    obfuscate: bool = False
    protocol: str = "openresponses"

    def reader(self, exchange: Exchange) -> Reader:
        """Who reads it now: with what they were given then, unless they ask otherwise."""
        may = exchange.principal.policy.reader
        asked = _view_asked(exchange)
        # What its key may see can have become less since.
        view = asked if asked is not None else max(view_of(self.view), may.view, key=_rank)
        return may.asking(view, summaries=self.summaries)

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


_VIEWS = ("raw", "summary", "sealed", "hidden")


def _rank(view: str) -> int:
    return _VIEWS.index(view)


def _view_asked(exchange: Exchange) -> Any:
    asked = exchange.header(VIEW_HEADER) or exchange.asked("view")
    return view_of(asked.lower(), "view") if asked is not None else None


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
        self.request = request
        self.name = name
        self.model = model
        self.mint = mint
        self.id = mint("resp")
        self.created_at = time.time()
        self.reader = policy.reader.asking(_view_asked(exchange), summaries=request.wants_summaries)
        self.dialect = dialect_of(exchange, services)
        self.seals = request.wants_seals or self.reader.view == "sealed"
        kept_by_default = services.config.storage.store and policy.store
        self.store = policy.may_store(request.body.store if request.body.store is not None else kept_by_default)
        self.conversation = _conversation_of(request.body.conversation)
        self.items = request.input_items(mint)
        self.tools: list[AnyTool] = []
        self.before: Sequence[ModelMessage] = []
        """The conversation until now."""
        self.new: Sequence[ModelMessage] = []
        """What the input adds to it."""
        self.attached = Attached([], [], [])
        self.call = ModelCall(name, [])

    @property
    def header(self) -> Header:
        body = self.request.body
        response = self.request.response(self.id, self.name, int(self.created_at))
        response.store = self.store
        response.background = bool(body.background)
        response.previous_response_id = body.previous_response_id
        response.max_output_tokens = self.principal.policy.output_tokens(body.max_output_tokens)
        return Header(
            response,
            self.dialect,
            self.reader.view,
            self.seals,
            self.request.wants_summaries,
            self.request.obfuscate,
        )

    def run(self) -> Running:
        summaries = self.reader.view == "summary" or (self.request.wants_summaries and self.reader.view == "raw")
        return self.services.run(
            self.model,
            self.call,
            self.mint,
            self.principal,
            tools=self.tools,
            seals=self.seals,
            summaries=summaries,
            max_tool_calls=self.request.body.max_tool_calls,
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
            previous_id=body.previous_response_id,
            conversation_id=self.conversation,
            background=bool(body.background),
            header=msgspec.json.encode(header),
            input=msgspec.json.encode(self.items),
            messages=messages_to_json(list(self.new)),
        )

    def redactor(self) -> Redactor:
        return Redactor(self.reader)

    @property
    def warnings(self) -> list[str]:
        """What was asked for and could not be done, which is no reason to refuse."""
        found = []
        if foreign := self.attached.foreign(self.model.origin):
            found.append(
                f"{len(foreign)} sealed item(s) were made by another model: this one gets what of them is readable, "
                "as far as it takes such"
            )
        if self.attached.unclaimed:
            found.append(f"{len(self.attached.unclaimed)} sealed signature(s) fit no text or call of the input")
        return found


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
    asking.before = await _before(services, asking, recent)
    known = Known(_calls(asking.before), await _referred(services, principal.owner, request.references))
    new = request.messages(known)
    if any(isinstance(part, SealedPart) for said in new if isinstance(said, ModelResponse) for part in said.parts):
        asking.attached = attach(new, _opener(services, principal.owner, request))
        new = asking.attached.messages
    asking.new = new
    call = request.call(joined(asking.before, new), definitions(asking.tools))
    most = principal.policy.output_tokens(call.settings.get("max_tokens"))
    settings = call.settings if most is None else {**call.settings, "max_tokens": most}
    asking.call = msgspec.structs.replace(call, settings=settings)
    return asking


class Recent(msgspec.Struct):
    """A response that is known without a store."""

    id: str
    messages: list[ModelMessage]
    """The whole conversation with it."""


def _opener(services: Services, owner: str, request: Request) -> Callable[[SealedPart], Sealed]:
    def open_(part: SealedPart) -> Sealed:
        try:
            return services.sealer.open(part.token, tenant=owner)
        except SealError as error:
            items = request.raw_input
            at = next((i for i, item in enumerate(items) if item.get("encrypted_content") == part.token), 0)
            raise error.at(f"input[{at}].encrypted_content") from None

    return open_


async def _before(services: Services, asking: Asking, recent: Recent | None) -> Sequence[ModelMessage]:
    body, owner = asking.request.body, asking.principal.owner
    previous = body.previous_response_id
    if previous is not None:
        if recent is not None and recent.id == previous:
            return recent.messages
        rows = await services.store.responses.chain(owner, previous)
        if not rows:
            raise RequestError(
                f"previous_response_id: there is no response {previous!r} here; it may have expired, been deleted or "
                "not been stored",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        if not rows[-1].finished:
            raise RequestError(
                f"previous_response_id: the response {previous!r} is still under way; wait for its end, or cancel it",
                code="previous_response_not_finished",
                param="previous_response_id",
            )
        return joined(*(messages_from_json(row.messages) for row in rows))
    if asking.conversation is not None:
        entries = await services.store.conversations.entries(owner, asking.conversation, limit=MAX_ENTRIES)
        if entries is None:
            raise RequestError(
                f"conversation: there is no conversation {asking.conversation!r} here",
                kind="not_found",
                code="conversation_not_found",
                param="conversation",
            )
        return said_in(entries)
    return []


def said_in(entries: Sequence[ConversationEntry]) -> list[ModelMessage]:
    """The messages of a conversation's entries."""
    calls: dict[str, str] = {}
    said: list[ModelMessage] = []
    for entry in entries:
        more = item_messages(entry.item, Known(calls)) if entry.message is None else messages_from_json(entry.message)
        calls |= _calls(more)
        for message in more:
            last = said[-1] if said else None
            if isinstance(message, ModelResponse) and isinstance(last, ModelResponse) and message.origin == last.origin:
                said[-1] = msgspec.structs.replace(last, parts=[*last.parts, *message.parts])
            else:
                said.append(message)
    return joined(said)


def _calls(messages: Sequence[ModelMessage]) -> dict[str, str]:
    return {
        call.tool_call_id: call.tool_name
        for message in messages
        if isinstance(message, ModelResponse)
        for call in message.tool_calls
    }


async def _referred(services: Services, owner: str, ids: Sequence[str]) -> dict[str, list[ModelMessage]]:
    """What the items with these ids said, of those that there are."""
    found: dict[str, list[ModelMessage]] = {}
    for id in dict.fromkeys(ids):
        response = await services.store.responses.find_item(owner, id)
        row = await services.store.responses.get(owner, response) if response is not None else None
        if row is not None and (said := _item_of(row, id)) is not None:
            found[id] = said
    return found


def _item_of(row: StoredResponse, id: str) -> list[ModelMessage] | None:
    for item in msgspec.json.decode(row.input):
        if item.get("id") == id:
            return item_messages(msgspec.json.encode(item), Known())
    for message in messages_from_json(row.messages):
        if isinstance(message, ModelResponse):
            parts = [part for part in message.parts if part.item_id == id]
            # A part that travels alone says whose it is.
            if parts:
                return [ModelResponse([_whose(part, message) for part in parts])]
    return None


def _whose(part: Any, said: ModelResponse) -> Any:
    return part if getattr(part, "origin", None) is not None else msgspec.structs.replace(part, origin=said.origin)


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


__all__ = ["Asking", "Header", "Recent", "asking_for", "dialect_of", "said_in"]
