"""What a request goes on from, as messages: earlier responses, a conversation, single items that its input refers to.

* All of it is its owner's: what belongs to another is not there.
* What cannot be gone on from whole is not gone on from: a link that is missing is an error that names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...conversation import join_messages
from ...errors import RequestError
from ...events import FunctionToolResultEvent
from ...parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SealedPart,
    ToolReturnPart,
    messages_from_json,
)
from ...protocols.openresponses import KnownCall, ReferenceContext, item_messages
from ...runs.run_log import events_of, unpack_log
from ...sealing import Sealed, SealError, attach
from ...storage import ConversationEntry, PreviousResponseGone, Store, StoredResponse
from ...unicode import truncate
from ..services import protocol_of

MAX_ENTRIES = 10_000
"""How many items a conversation may have that a response goes on from."""


MAX_REFERENCES = 100
"""How many items an input may name instead of holding them. Each is looked for."""


class CachedResponse(msgspec.Struct):
    """A response that is known without a store."""

    id: str
    messages: list[ModelMessage]
    """The whole conversation with it."""
    is_stored: bool = False
    """Whether a store has it, too, which knows whether it was deleted since."""


class PreviousContext(NamedTuple):
    """What was said until now."""

    messages: Sequence[ModelMessage] = ()
    item_ids: frozenset[str] = frozenset()
    """The items of the conversation, which cannot be added to it again."""


async def load_response_chain(store: Store, owner: str, id: str) -> PreviousContext:
    """The response and all that it builds on. Raises `RequestError`."""
    try:
        rows = await store.responses.chain(owner, id)
    except PreviousResponseGone as error:
        raise _previous_response_not_found(
            f"the response {error.missing_id!r}, on which {id!r} builds, is not kept any more; send it all"
        ) from error
    if not rows or protocol_of(rows[-1].header) != "openresponses":
        raise _previous_response_not_found(
            f"there is no response {truncate(id)!r} here; it may have expired, been deleted or not been stored"
        )
    if not rows[-1].is_finished:
        raise RequestError(
            f"previous_response_id: the response {id!r} is still under way; wait for its end, or cancel it",
            code="previous_response_not_finished",
            param="previous_response_id",
        )
    return PreviousContext(join_messages(*(messages_from_json(row.messages) for row in rows)))


def _previous_response_not_found(reason: str) -> RequestError:
    return RequestError(
        f"previous_response_id: {reason}", code="previous_response_not_found", param="previous_response_id"
    )


async def load_conversation(store: Store, owner: str, id: str, opener: Callable[[str], Sealed]) -> PreviousContext:
    """Everything in it. Raises `RequestError`."""
    entries = await store.conversations.entries(owner, id, limit=MAX_ENTRIES + 1)
    if entries is None:
        raise RequestError(
            f"conversation: there is no conversation {truncate(id)!r} here",
            kind="not_found",
            code="conversation_not_found",
            param="conversation",
        )
    if len(entries) > MAX_ENTRIES:
        raise RequestError(
            f"conversation: {id!r} has more than {MAX_ENTRIES} items; begin a new one, or take some away",
            code="conversation_too_long",
            param="conversation",
        )

    def unseal(part: SealedPart) -> Sealed:
        try:
            return opener(part.token)
        except SealError as error:
            raise error.at(f"conversation: its item {part.item_id!r}") from None

    return PreviousContext(
        attach(messages_of_entries(entries), unseal).messages, frozenset(entry.id for entry in entries)
    )


def messages_of_entries(entries: Sequence[ConversationEntry]) -> list[ModelMessage]:
    """The messages of a conversation's entries. A result whose call was taken away goes with it."""
    calls: dict[str, KnownCall] = {}
    messages: list[ModelMessage] = []
    for entry in entries:
        entry_messages = _messages_of_entry(entry, calls)
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
    item = msgspec.json.decode(entry.item)
    if item["type"] == "function_call_output" and item["call_id"] not in calls:
        return []
    return item_messages(entry.item, ReferenceContext(calls))


def calls_of(messages: Sequence[ModelMessage]) -> dict[str, KnownCall]:
    """The functions that were called, by the ids of the calls."""
    called: dict[str, KnownCall] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            waits = Counter(call.tool_call_id for call in message.tool_calls)
            called |= {
                call.tool_call_id: KnownCall(call.tool_name, waits[call.tool_call_id]) for call in message.tool_calls
            }
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
    """What the items with these ids said, of those that there are. Raises `RequestError` for too many."""
    unique_ids = list(dict.fromkeys(ids))
    if len(unique_ids) > MAX_REFERENCES:
        raise RequestError(
            f"input: it refers to {len(unique_ids)} items, and may to {MAX_REFERENCES}; send the items themselves, or go "
            "on from a response or a conversation",
            code="too_many_references",
            param="input",
        )
    messages_by_id: dict[str, list[ModelMessage]] = {}
    rows: dict[str, StoredResponse | None] = {}
    for id in unique_ids:
        response_id = await store.responses.find_item(owner, id)
        if response_id is not None and response_id not in rows:
            rows[response_id] = await store.responses.get(owner, response_id, log=True)
        row = rows.get(response_id) if response_id is not None else None
        if row is not None and (messages := _messages_of_item(row, id)) is not None:
            messages_by_id[id] = messages
    return messages_by_id


def _messages_of_item(row: StoredResponse, id: str) -> list[ModelMessage] | None:
    messages = messages_from_json(row.messages)
    for item in msgspec.json.decode(row.input):
        if item.get("id") == id and item["type"] != "item_reference":
            if item["type"] != "function_call_output":
                return item_messages(msgspec.json.encode(item), ReferenceContext())
            # The name of its function was found when it came.
            results = [part for entry in messages for part in entry.parts if isinstance(part, ToolReturnPart)]
            matching = [part for part in results if part.tool_call_id == item["call_id"]]
            return [ModelRequest([matching[0]])] if matching else None
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = [part for part in message.parts if part.item_id == id]
            # A part that travels alone says whose it is.
            if parts:
                return [ModelResponse([_with_origin(part, message) for part in parts])]
    # A result's id stands on its event alone.
    for event in events_of(unpack_log(row.log)) if row.log else []:
        if isinstance(event, FunctionToolResultEvent) and event.id == id:
            return [ModelRequest([event.result])]
    return None


def _with_origin(part: Any, message: ModelResponse) -> Any:
    return part if getattr(part, "origin", None) is not None else replace(part, origin=message.origin)
