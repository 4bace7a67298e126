"""The context that a request continues, as messages: previous responses, a conversation, or items that its input names.

* All of it belongs to the owner; data of other owners is not found.
* A context that is incomplete is not continued: a missing part is an error that names it.
* A compaction stands for all before it, except for prompts of the system or a developer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...conversation import join_messages, system_prompts
from ...errors import RequestError
from ...events import FunctionToolResultEvent
from ...offload import json_weight, offload
from ...parts import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SealedPart,
    ToolReturnPart,
    messages_from_json,
)
from ...protocols.decoding import invalid
from ...protocols.openresponses import PROTOCOL, KnownCall, ReferenceContext, item_messages, tool_items
from ...protocols.openresponses import types as t
from ...runs.run_log import events_of, unpack_log
from ...sealing import Sealed, SealError, attach
from ...storage import ConversationEntry, PreviousResponseGone, Store, StoredResponse
from ...unicode import truncate
from ..stored_runs import protocol_of

MAX_ENTRIES = 10_000
"""Maximum number of items in a conversation that a response continues."""


MAX_REFERENCES = 100
"""Maximum number of items that an input may refer to by id. Each is looked up."""


class CachedResponse(msgspec.Struct):
    """A response that is known without the store: the last one of a socket."""

    id: str
    messages: list[ModelMessage]
    """The whole conversation, with this response."""
    tool_items: Sequence[t.ItemParam] = ()
    """The items of its input that added tools."""
    is_stored: bool = False
    """Whether it is also in the store, which knows if it was deleted since."""


class PreviousContext(NamedTuple):
    """The conversation before the request."""

    messages: Sequence[ModelMessage] = ()
    tool_items: Sequence[t.ItemParam] = ()
    """The items of its input that added tools."""
    item_ids: frozenset[str] = frozenset()
    """Ids of the conversation's items, which cannot be added to it again."""


async def load_response_chain(store: Store, owner: str, id: str) -> PreviousContext:
    """Load a response and all responses that it continues. Raises `RequestError`."""
    try:
        rows = await store.responses.chain(owner, id)
    except PreviousResponseGone as error:
        raise _previous_response_not_found(
            f"the response {error.missing_id!r}, which {id!r} continues, is not stored any more; send the whole "
            "conversation"
        ) from error
    if not rows or protocol_of(rows[-1]) != PROTOCOL:
        raise _previous_response_not_found(
            f"there is no response {truncate(id)!r} here; it may have expired, been deleted or not been stored"
        )
    if not rows[-1].is_finished:
        raise invalid(
            "previous_response_id",
            f"the response {id!r} is still in progress; wait for its end, or cancel it",
            "previous_response_not_finished",
        )
    return await offload(json_weight(*(row.messages for row in rows)), _context_of_chain, rows)


def _context_of_chain(rows: Sequence[StoredResponse]) -> PreviousContext:
    messages: list[ModelMessage] = []
    added_tools: list[t.ItemParam] = []
    for row in rows:
        messages += messages_from_json(row.messages)
        if b'"compaction_trigger"' in row.input:
            messages = since_compaction(messages)
        added_tools += _stored_tool_items(row.input)
    return PreviousContext(join_messages(messages), added_tools)


def _stored_tool_items(items: bytes) -> list[t.ItemParam]:
    """Return those of stored items that add tools. Hardly any do, so most are not decoded."""
    has_any = b'"additional_tools"' in items or b'"tool_search_output"' in items
    return tool_items(msgspec.json.decode(items)) if has_any else []


def since_compaction(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return what the output of a response leaves of the conversation, of which it may be a compaction."""
    return [*system_prompts(messages[:-1]), messages[-1]] if _is_compaction(messages[-1:]) else messages


def _is_compaction(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(part, CompactionPart) and part.is_own for message in messages for part in message.parts)


def _previous_response_not_found(reason: str) -> RequestError:
    return invalid("previous_response_id", reason, "previous_response_not_found")


async def load_conversation(store: Store, owner: str, id: str, opener: Callable[[str], Sealed]) -> PreviousContext:
    """Load all items of a conversation.

    Args:
        store: The store.
        owner: The owner of the conversation.
        id: The conversation.
        opener: Opens sealed tokens.

    Raises:
        RequestError: It does not exist, is too long, or holds a token that cannot be opened.
    """
    entries = await store.conversations.entries(owner, id, limit=MAX_ENTRIES + 1)
    if entries is None:
        raise invalid(
            "conversation",
            f"there is no conversation {truncate(id)!r} here",
            "conversation_not_found",
            kind="not_found",
        )
    if len(entries) > MAX_ENTRIES:
        raise invalid(
            "conversation",
            f"{id!r} has more than {MAX_ENTRIES} items; begin a new one, or delete some",
            "conversation_too_long",
        )

    return await offload(len(entries), _context_of_conversation, entries, opener)


def _context_of_conversation(entries: Sequence[ConversationEntry], opener: Callable[[str], Sealed]) -> PreviousContext:
    def unseal(part: SealedPart) -> Sealed:
        try:
            return opener(part.token)
        except SealError as error:
            raise error.at(f"conversation: its item {part.item_id!r}") from None

    return PreviousContext(
        attach(messages_of_entries(entries), unseal).messages,
        [item for entry in entries for item in _stored_tool_items(b"[%b]" % entry.item)],
        frozenset(entry.id for entry in entries),
    )


def messages_of_entries(entries: Sequence[ConversationEntry]) -> list[ModelMessage]:
    """Return the messages of a conversation's entries. A result whose call was deleted is left out."""
    calls: dict[str, KnownCall] = {}
    messages: list[ModelMessage] = []
    for entry in entries:
        entry_messages = _messages_of_entry(entry, calls)
        if entry.message is not None and _is_compaction(entry_messages):
            messages, calls = system_prompts(messages), {}
        calls |= calls_of(entry_messages)
        for message in entry_messages:
            last = messages[-1] if messages else None
            if isinstance(message, ModelResponse) and isinstance(last, ModelResponse) and message.origin == last.origin:
                messages[-1] = replace(last, parts=[*last.parts, *message.parts])
            else:
                messages.append(message)
    return join_messages(messages)


def _messages_of_entry(entry: ConversationEntry, calls: dict[str, KnownCall]) -> list[ModelMessage]:
    if entry.message is not None:
        return messages_from_json(entry.message)
    results_without_call: list[str] = []
    messages = item_messages(entry.item, ReferenceContext(calls), results_without_call)
    return [] if results_without_call else messages


def calls_of(messages: Sequence[ModelMessage]) -> dict[str, KnownCall]:
    """Return the complete calls in these messages by their ids, with the number of results that are missing."""
    called: dict[str, KnownCall] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = [call for call in message.tool_calls if call.complete]
            waits = Counter(call.tool_call_id for call in calls)
            called |= {call.tool_call_id: KnownCall(call.tool_name, waits[call.tool_call_id]) for call in calls}
            continue
        for part in message.parts:
            if (
                isinstance(part, ToolReturnPart | RetryPromptPart)
                and (call := called.get(part.tool_call_id))
                and call.pending_results
            ):
                called[part.tool_call_id] = call._replace(pending_results=call.pending_results - 1)
    return called


async def load_referenced_items(store: Store, owner: str, ids: Sequence[str]) -> dict[str, list[ModelMessage]]:
    """Load the messages of the items with these ids, of those that exist. Raises `RequestError` for too many ids."""
    unique_ids = list(dict.fromkeys(ids))
    if len(unique_ids) > MAX_REFERENCES:
        raise invalid(
            "input",
            f"it refers to {len(unique_ids)} items, and the limit is {MAX_REFERENCES}; send the items "
            "themselves, or continue a response or a conversation",
            "too_many_references",
        )
    ids_by_response: dict[str, list[str]] = {}
    for id in unique_ids:
        response_id = await store.responses.find_item(owner, id)
        if response_id is not None:
            ids_by_response.setdefault(response_id, []).append(id)
    messages_by_id: dict[str, list[ModelMessage]] = {}
    for response_id, ids_of_row in ids_by_response.items():
        row = await store.responses.get(owner, response_id, log=True)
        if row is not None:
            weight = json_weight(row.input, row.messages)
            messages_by_id |= await offload(weight, _messages_of_items, row, ids_of_row)
    return messages_by_id


def _messages_of_items(row: StoredResponse, ids: Sequence[str]) -> dict[str, list[ModelMessage]]:
    messages, items = messages_from_json(row.messages), msgspec.json.decode(row.input)
    by_id = {id: _messages_of_item(row, messages, items, id) for id in ids}
    return {id: item for id, item in by_id.items() if item is not None}


def _messages_of_item(
    row: StoredResponse, messages: Sequence[ModelMessage], items: Sequence[dict[str, Any]], id: str
) -> list[ModelMessage] | None:
    for item in items:
        if item.get("id") == id and item["type"] != "item_reference":
            if not item["type"].endswith("call_output") and item["type"] != "tool_search_output":
                return item_messages(msgspec.json.encode(item), ReferenceContext())
            # The stored message holds the name of its function, which was resolved when the item was received.
            results = [part for entry in messages for part in entry.parts if isinstance(part, ToolReturnPart)]
            matching = [part for part in results if part.tool_call_id == (item.get("call_id") or id)]
            return [ModelRequest([matching[0]])] if matching else None
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = [part for part in message.parts if part.item_id == id]
            # A part without its message must carry its origin itself.
            if parts:
                return [ModelResponse([_with_origin(part, message) for part in parts])]
    # The id of a result is only on its event.
    for event in events_of(unpack_log(row.log)) if row.log else []:
        if isinstance(event, FunctionToolResultEvent) and event.id == id:
            return [ModelRequest([event.result])]
    return None


def _with_origin(part: Any, message: ModelResponse) -> Any:
    return part if getattr(part, "origin", None) is not None else replace(part, origin=message.origin)
