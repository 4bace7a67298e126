"""`/v1/conversations`: an ordered list of items with an id, to which responses add their items.

The output of a response is stored as its model's messages, and shown to each viewer as their view allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...asgi.http import warning_headers
from ...emit import part_events
from ...errors import RequestError
from ...events import (
    ITEM_OF,
    Event,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
)
from ...parts import ModelMessage, ModelRequest, ModelResponse, Origin, messages_from_json
from ...protocols.decoding import invalid
from ...protocols.openresponses import (
    ClientTool,
    Encoder,
    KnownCall,
    ReferenceContext,
    item_messages,
    request_from,
)
from ...protocols.openresponses import types as t
from ...run import Minter
from ...runs import Batch
from ...runs.seal_stage import SealStage
from ...sealing import Sealed, SealError, attach, edited_warnings
from ...storage import AlreadyStored, ConversationEntry, StoredConversation
from ...view import Redactor, Viewer
from ..exchange import Exchange, new_minter
from ..routing import Handlers
from ..stored_runs import max_view_of
from .input_redaction import redact_input_items
from .run_header import client_tools_of
from .stored_responses import item_list, page_params

MAX_ITEMS = 20
"""Maximum number of items that one request may add, as in OpenAI's API."""

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


StoredItemParam = (
    t.MessageParam | t.ReasoningParam | t.FunctionCallParam | t.FunctionCallOutputParam | t.CompactionParam
)


class CreateConversation(msgspec.Struct):
    metadata: Metadata | None = None
    items: Annotated[list[StoredItemParam], Meta(max_length=MAX_ITEMS)] | None = None


class UpdateConversation(msgspec.Struct):
    metadata: Metadata | None


class AddItems(msgspec.Struct):
    items: Annotated[list[StoredItemParam], Meta(min_length=1, max_length=MAX_ITEMS)]


class Conversation(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: Metadata


class DeletedConversation(msgspec.Struct):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True


class ConversationHandlers(Handlers):
    """Handlers of the conversation routes."""

    async def create(self, exchange: Exchange) -> None:
        limits = self._services.config.server
        data = await exchange.read_body(limits)
        body = await exchange.decode_json(data, limits.max_items, limits.max_tools) if data.strip() else {}
        exchange.principal.policy.may_store(True)
        mint = new_minter()
        entries = await self._entries(exchange, body, mint, required=False)
        conversation = StoredConversation(
            id=mint("conv"),
            owner=exchange.principal.owner,
            created_at=time.time(),
            metadata=_parse_metadata(body),
            expires_at=self._services.expires_at(exchange.principal),
        )
        await self._services.store.conversations.create(conversation)
        if entries:
            await self._append(exchange, conversation.id, entries)
        await exchange.send_json(_conversation_resource(conversation))

    async def get(self, exchange: Exchange) -> None:
        await exchange.send_json(_conversation_resource(await self._find_conversation(exchange)))

    async def update(self, exchange: Exchange) -> None:
        body = await exchange.read_json(self._services.config.server)
        if "metadata" not in body:
            raise invalid("metadata", "required: the new metadata", "missing")
        metadata = _parse_metadata(body)
        owner, id = exchange.principal.owner, exchange.path_params["id"]
        updated = await self._services.store.conversations.update(owner, id, metadata)
        if updated is None:
            raise _not_found(id)
        await exchange.send_json(_conversation_resource(updated))

    async def delete(self, exchange: Exchange) -> None:
        owner, id = exchange.principal.owner, exchange.path_params["id"]
        if not await self._services.store.conversations.delete(owner, id):
            raise _not_found(id)
        await exchange.send_json(DeletedConversation(id))

    async def items(self, exchange: Exchange) -> None:
        limit, order = page_params(exchange)
        owner, id, after = exchange.principal.owner, exchange.path_params["id"], exchange.query_param("after")
        items: list[dict[str, Any]] = []
        has_more = True
        # Items that this viewer may not see do not count: an empty page would have no cursor for the next one.
        while has_more and len(items) <= limit:
            entries = await self._services.store.conversations.entries(
                owner, id, after=after, limit=limit + 1, order="asc" if order == "asc" else "desc"
            )
            if entries is None:
                raise _not_found(id) if after is None else _cursor_not_found(id, after)
            items += [item for entry in entries if (item := await self._item_for_viewer(exchange, entry)) is not None]
            has_more = len(entries) > limit
            after = entries[-1].id if entries else after
        await exchange.send_json(item_list(items[:limit], has_more=len(items) > limit))

    async def add(self, exchange: Exchange) -> None:
        exchange.principal.policy.may_store(True)
        body = await exchange.read_json(self._services.config.server)
        entries = await self._entries(exchange, body, new_minter(), required=True)
        await self._append(exchange, exchange.path_params["id"], entries)
        await exchange.send_json(item_list([msgspec.json.decode(entry.item) for entry in entries], has_more=False))

    async def item(self, exchange: Exchange) -> None:
        owner, id, item_id = exchange.principal.owner, exchange.path_params["id"], exchange.path_params["item_id"]
        entry = await self._services.store.conversations.entry(owner, id, item_id)
        item = await self._item_for_viewer(exchange, entry) if entry is not None else None
        if item is None:
            raise _not_found(id, item_id)
        await exchange.send_json(item)

    async def delete_item(self, exchange: Exchange) -> None:
        owner, id, item_id = exchange.principal.owner, exchange.path_params["id"], exchange.path_params["item_id"]
        if not await self._services.store.conversations.delete_entry(owner, id, item_id):
            raise _not_found(id, item_id)
        await exchange.send_json(_conversation_resource(await self._find_conversation(exchange)))

    # --- helpers -----------------------------------------------------------------------------------------------

    async def _item_for_viewer(self, exchange: Exchange, entry: ConversationEntry) -> dict[str, Any] | None:
        owner = exchange.principal.owner
        message = messages_from_json(entry.message)[0] if entry.message is not None else None
        if not isinstance(message, ModelResponse):
            return item_for_viewer(entry, exchange.viewer_for("raw"))
        responses = self._services.store.responses
        id = await responses.find_item(owner, entry.id)
        row = await responses.get(owner, id) if id is not None else None
        # The fullest view that anyone gets of an item is that of the model that made it. The model's public name, and
        # the client's tools, are stored with its response, which may be deleted.
        view = self._services.catalog.max_view_of_origin(message.origin)
        if row is not None:
            view = max_view_of(self._services, row)
        stage = SealStage(self._services.sealer.for_tenant(owner).seal)
        tools = client_tools_of(row) if row is not None else {}
        return item_for_viewer(entry, exchange.viewer_for(view), tools, stage)

    async def _find_conversation(self, exchange: Exchange) -> StoredConversation:
        id = exchange.path_params["id"]
        conversation = await self._services.store.conversations.get(exchange.principal.owner, id)
        if conversation is None:
            raise _not_found(id)
        return conversation

    async def _entries(
        self, exchange: Exchange, body: dict[str, Any], mint: Minter, *, required: bool
    ) -> list[ConversationEntry]:
        """Return the items of a request; a warning tells whether the text of sealed reasoning was changed."""
        principal, edited = exchange.principal, list[Sealed]()

        visible_forms = self._services.catalog.visible_forms(principal.policy.viewer)

        def open_seals(messages: list[ModelMessage]) -> None:
            sealer = self._services.sealer.for_tenant(principal.owner)
            edited.extend(attach(messages, lambda part: sealer.open(part.token), visible_forms).edited)

        entries = await exchange.compute(_parse_entries, body, mint, open_seals, required=required)
        exchange.response_headers += warning_headers(edited_warnings(edited))
        return entries

    async def _append(self, exchange: Exchange, id: str, entries: list[ConversationEntry]) -> None:
        expires_at = self._services.expires_at(exchange.principal)
        try:
            added = await self._services.store.conversations.append(
                exchange.principal.owner, id, entries, keep_until=expires_at
            )
        except AlreadyStored as error:
            raise invalid(
                "items", "an item with one of these ids is in the conversation already", "already_exists"
            ) from error
        if added is None:
            raise _not_found(id)


def item_for_viewer(
    entry: ConversationEntry, viewer: Viewer, tools: Mapping[str, ClientTool] = {}, seal_stage: SealStage | None = None
) -> dict[str, Any] | None:
    """Return the item as this viewer may see it; None if it is not visible.

    Args:
        entry: The item.
        viewer: The viewer.
        tools: The client's tools that are not plain functions, by the name of their function.
        seal_stage: Makes the seal of a compaction, which is nothing else.
    """
    if entry.message is None:
        return next(iter(redact_input_items([msgspec.json.decode(entry.item)], viewer)), None)
    encoder = Encoder(request_from({"input": "."}).response("", "", 0), tools=tools)
    encoder.start()
    events = _item_events(messages_from_json(entry.message), entry.id)
    is_compaction = any(isinstance(event, ItemStartEvent) and event.kind == "compaction" for event in events)
    if seal_stage is not None and is_compaction:
        events = seal_stage.process(Batch(0, events)).events
    encoder.feed(Redactor(viewer).feed(events), 0)
    output = encoder.response.output
    return msgspec.to_builtins(output[0]) if output else None


def _item_events(messages: list[ModelMessage], id: str) -> list[Event]:
    """Return the events of one stored item."""
    [message] = messages
    if isinstance(message, ModelRequest):
        return [FunctionToolResultEvent(part, id) for part in message.parts]  # type: ignore[arg-type]
    is_incomplete = any(not getattr(part, "complete", True) for part in message.parts)
    events: list[Event] = [ResponseStartEvent(message.origin or Origin("", "", ""))]
    events.append(ItemStartEvent(0, ITEM_OF[type(message.parts[0])], id=id))
    for index, part in enumerate(message.parts):
        events += part_events(index, part, None)
    return [*events, ItemEndEvent(0, "incomplete" if is_incomplete else "completed"), ResponseEndEvent("stop")]


def _parse_entries(
    body: dict[str, Any], mint: Minter, open_seals: Callable[[list[ModelMessage]], None], *, required: bool
) -> list[ConversationEntry]:
    value = body.get("items")
    if value in (None, []) and not required:
        return []
    if not isinstance(value, list) or not 0 < len(value) <= MAX_ITEMS:
        raise invalid("items", f"a list of 1 to {MAX_ITEMS} items")
    try:
        items = request_from({"input": value}).input_items(mint)
    except RequestError as error:
        raise _relocate_error(error, "input", "items") from error
    seen: set[str] = set()
    for index, item in enumerate(items):
        path = f"items[{index}]"
        _check_item(item, path, open_seals)
        if item["id"] in seen:
            raise invalid(f"{path}.id", f"another of these items has the id {item['id']!r}", "already_exists")
        seen.add(item["id"])
    return [ConversationEntry(id=item["id"], item=msgspec.json.encode(item)) for item in items]


def _check_item(item: dict[str, Any], path: str, open_seals: Callable[[list[ModelMessage]], None]) -> None:
    """Check that the item can be sent to a model: a mistake that shows later would make the conversation unusable."""
    if item["type"] == "item_reference":
        raise RequestError(f"{path}: a conversation holds items themselves", code="invalid_value", param=f"{path}.type")
    try:
        # The call of a result may be in the conversation already; a result without a call is not sent to a model.
        open_seals(item_messages(msgspec.json.encode(item), ReferenceContext({item.get("call_id", ""): KnownCall("")})))
    except SealError as error:
        raise error.at(f"{path}.encrypted_content") from None
    except RequestError as error:
        raise _relocate_error(error, "input[0]", path) from error


def _relocate_error(error: RequestError, old_path: str, new_path: str) -> RequestError:
    """Return the error with the field's name in this request."""
    info = error.info
    param = (info.param or old_path).replace(old_path, new_path, 1)
    return RequestError(info.message.replace(old_path, new_path, 1), kind=info.kind, code=info.code, param=param)


def _parse_metadata(body: dict[str, Any]) -> dict[str, str]:
    try:
        value = body.get("metadata")
        return msgspec.convert({} if value is None else value, Metadata)
    except msgspec.ValidationError:
        raise invalid("metadata", "at most 16 pairs of texts, with 64 characters of name and 512 of value") from None


def _conversation_resource(conversation: StoredConversation) -> Conversation:
    return Conversation(id=conversation.id, created_at=int(conversation.created_at), metadata=conversation.metadata)


def _cursor_not_found(id: str, after: str) -> RequestError:
    return invalid("after", f"there is no item {after!r} in a conversation {id!r} here")


def _not_found(id: str, item_id: str | None = None) -> RequestError:
    what = f"there is no conversation {id!r} here" if item_id is None else f"there is no item {item_id!r} in {id!r}"
    code = "conversation_not_found" if item_id is None else "item_not_found"
    return RequestError(what, kind="not_found", code=code, param="conversation_id" if item_id is None else "item_id")
