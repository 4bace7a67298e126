"""Conversations: ordered entries under one id, to which several requests may append.

The rules:

* A position belongs to one entry and is never used again. A writer takes the positions that it needs from the row of
  the conversation, so concurrent appends of two replicas are serialized, and each is contiguous.
* The id of an entry is unique in its conversation. Entries of a response (`add_entries`) are written in the response's
  transaction; entries that exist already are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Literal

import msgspec
import sqlalchemy as sa
from msgspec.structs import asdict, replace

from . import record_write, tables
from .database import StoreOperations
from .names import check_names, return_if_unstorable
from .record_write import ITEM
from .statement import (
    ID,
    LIMIT,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    columns_of,
    for_each,
    insert_rows,
    json_list,
    json_text,
    not_expired,
    param,
    read_first,
    read_rows,
    struct_from_row,
)


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, without its entries. Times are in seconds since 1970."""

    id: str
    owner: str
    created_at: float
    metadata: dict[str, str] = {}
    expires_at: float | None = None
    """None: it does not expire."""


class ConversationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a conversation. The store sets `position`, which is the order of entries."""

    id: str
    conversation_id: str = ""
    position: int = -1
    item: bytes
    """The protocol's item (JSON)."""
    message: bytes | None = None
    """The message to the model (JSON), if the writer stores it as well."""


_C, _E = tables.conversations, tables.entries
_this_conversation = sa.and_(_C.c.owner == OWNER, _C.c.id == ID, not_expired(_C))
_in_conversation = sa.and_(_E.c.owner == OWNER, _E.c.conversation_id == ID)
_has_entry_id = _E.c.id == param("entry_id")
_conversation_exists = sa.exists().where(_this_conversation)
_entries_of = sa.select(*columns_of(ConversationEntry, _E)).where(_in_conversation)
_columns = columns_of(StoredConversation, _C)

_INSERT, _INSERT_ENTRY = Statement(sa.insert(_C)), Statement(sa.insert(_E))
_EXISTING_IDS = Statement(sa.select(_E.c.id).where(_in_conversation, _E.c.id.in_(sa.select(json_list("ids").c.value))))
_GET = Statement(sa.select(*_columns).where(_this_conversation))
_UPDATE = Statement(
    sa.update(_C).where(_this_conversation).values(metadata=param("to_metadata", sa.LargeBinary)).returning(*_columns)
)
_DELETE = Statement(sa.delete(_C).where(_this_conversation).returning(_C.c.id))
_DELETE_ENTRIES = Statement(sa.delete(_E).where(_in_conversation))
_TAKE_POSITIONS = Statement(
    sa.update(_C)
    .where(_this_conversation)
    .values(
        next_position=_C.c.next_position + param("many", sa.BigInteger),
        expires_at=sa.case(
            (_C.c.expires_at < param("least", sa.Double), param("until", sa.Double)), else_=_C.c.expires_at
        ),
    )
    .returning(_C.c.next_position)
)
_GET_POSITION = Statement(sa.select(_E.c.position).where(_in_conversation, _has_entry_id))
_from_position = param("from_position", sa.BigInteger)
_LIST = {
    "asc": Statement(_entries_of.where(_E.c.position > _from_position).order_by(_E.c.position).limit(LIMIT)),
    "desc": Statement(_entries_of.where(_E.c.position < _from_position).order_by(_E.c.position.desc()).limit(LIMIT)),
}
_START_POSITIONS = {"asc": -1, "desc": 2**62}
_GET_ENTRY = Statement(_entries_of.where(_has_entry_id, _conversation_exists))
_DELETE_ENTRY = Statement(sa.delete(_E).where(_in_conversation, _has_entry_id, _conversation_exists).returning(_E.c.id))


def _conversation_from_row(row: Row) -> StoredConversation:
    fields = dict(zip(StoredConversation.__struct_fields__, row, strict=True))
    return StoredConversation(**{**fields, "metadata": msgspec.json.decode(fields["metadata"], type=dict[str, str])})


_entry_from_row = partial(struct_from_row, ConversationEntry)

_insert = insert_rows(_INSERT)
_get = read_first(_GET, _conversation_from_row)
_update = for_each(read_first(_UPDATE, _conversation_from_row))
_get_entry = read_first(_GET_ENTRY, _entry_from_row)


def delete(params: Params) -> Operation[bool]:
    """Delete a conversation and its entries; return whether it existed."""
    if not (yield Execute(_DELETE, params)):
        return False
    yield Execute(_DELETE_ENTRIES, params)
    yield from _record_removal(params, None)
    return True


def delete_entry(params: Params) -> Operation[bool]:
    """Delete one entry; return whether it existed."""
    if not (yield Execute(_DELETE_ENTRY, params)):
        return False
    yield from _record_removal(params, params["entry_id"])
    return True


def _record_removal(params: Params, entry_id: str | None) -> Operation[None]:
    scope = record_write.conversation_scope(params["for_id"])
    removed = record_write.RemovedContent(params["for_owner"], scope, ITEM, entry_id)
    yield from record_write.record_removals_of(params, [removed])


def _assign_positions(params: Params) -> Operation[list[ConversationEntry] | None]:
    """Assign positions to new entries. Concurrent appends to this conversation wait from here on."""
    entries: list[ConversationEntry] = params["entries"]
    rows = yield Execute(_TAKE_POSITIONS, {**params, "many": len(entries)})
    if not rows:
        return None
    first = rows[0][0] - len(entries)
    return [
        replace(entry, conversation_id=params["for_id"], position=first + index) for index, entry in enumerate(entries)
    ]


@for_each
def _append(params: Params) -> Operation[list[ConversationEntry] | None]:
    placed = yield from _assign_positions(params)
    if placed:
        record_entries = yield from _insert_entries(params, placed)
        yield from record_write.append_entries(
            params["recording"], record_write.to_milliseconds(params["now"]), record_entries
        )
    return placed


def add_entries(params: Params) -> Operation[list[record_write.NewEntry]]:
    """Append the entries whose ids are not in the conversation yet; return their record entries.

    Nothing is done if the conversation does not exist. `params`: see `append_params`.
    """
    placed = yield from _assign_positions(params)
    if not placed:
        return []
    ids = json_text([entry.id for entry in placed])
    existing_ids = {id for (id,) in (yield Execute(_EXISTING_IDS, {**params, "ids": ids}))}
    first_with_id = {entry.id: entry for entry in reversed(placed)}
    added = [entry for entry in placed if entry.id not in existing_ids and first_with_id[entry.id] is entry]
    return (yield from _insert_entries(params, added)) if added else []


def _insert_entries(params: Params, placed: list[ConversationEntry]) -> Operation[list[record_write.NewEntry]]:
    """Insert entries; return their record entries."""
    owner, scope = params["for_owner"], record_write.conversation_scope(params["for_id"])
    rows: list[Params] = [{"owner": owner, **asdict(entry)} for entry in placed]
    yield Execute(_INSERT_ENTRY, rows)
    return [record_write.NewEntry(owner, scope, ITEM, row["id"], record_write.build_content(ITEM, row)) for row in rows]


def append_params(
    owner: str, id: str, entries: list[ConversationEntry], expires_at: float | None, now: float
) -> Params:
    """Return the parameters of an append to a conversation, which must not expire before `expires_at`."""
    min_expires_at = math.inf if expires_at is None else expires_at
    return {
        "for_owner": owner,
        "for_id": id,
        "entries": entries,
        "least": min_expires_at,
        "until": expires_at,
        "now": now,
    }


def _entries(params: Params) -> Operation[list[ConversationEntry] | None]:
    if not (yield Execute(_GET, params)):
        return None
    position = _START_POSITIONS[params["order"]]
    if params["entry_id"] is not None:
        rows = yield Execute(_GET_POSITION, params)
        if not rows:
            return None
        position = rows[0][0]
    return (yield from read_rows(_LIST[params["order"]], _entry_from_row)({**params, "from_position": position}))


_delete, _delete_entry = for_each(delete), for_each(delete_entry)


class Conversations(StoreOperations):
    """Operations on conversations: `store.conversations`."""

    async def create(self, conversation: StoredConversation) -> None:
        """Store a new conversation.

        Raises:
            AlreadyStored: If there is a conversation with this id.
        """
        check_names(id=conversation.id, owner=conversation.owner)
        row = {
            **asdict(conversation),
            "metadata": msgspec.json.encode(conversation.metadata),
            "next_position": 0,
        }
        await self._database.write(_insert, row)

    @return_if_unstorable(None)
    async def get(self, owner: str, id: str) -> StoredConversation | None:
        """Return a conversation; None if it does not exist."""
        return await self._database.read(_get, self._params(owner, id))

    @return_if_unstorable(None)
    async def update(self, owner: str, id: str, metadata: dict[str, str]) -> StoredConversation | None:
        """Replace the metadata; return the conversation, or None if it does not exist."""
        params = {**self._params(owner, id), "to_metadata": msgspec.json.encode(metadata)}
        return await self._database.write(_update, params)

    @return_if_unstorable(False)
    async def delete(self, owner: str, id: str) -> bool:
        """Delete a conversation with all its entries; return whether it existed."""
        return await self._database.write(_delete, self._params(owner, id))

    @return_if_unstorable(None)
    async def append(
        self, owner: str, id: str, entries: Iterable[ConversationEntry], *, keep_until: float | None = 0.0
    ) -> list[ConversationEntry] | None:
        """Append entries, all or none.

        Args:
            owner: Owner of the conversation.
            id: Id of the conversation.
            entries: The new entries.
            keep_until: The conversation will not expire before this time, in seconds since 1970. None: never.

        Returns:
            The entries with their positions; None if the conversation does not exist.

        Raises:
            AlreadyStored: If one of the ids is in the conversation already.
        """
        new_entries = list(entries)
        check_names(**{f"entries[{index}].id": entry.id for index, entry in enumerate(new_entries)})
        params = {**append_params(owner, id, new_entries, keep_until, self._clock()), "recording": self.recording}
        return await self._database.write(_append, params)

    @return_if_unstorable(None)
    async def entries(
        self,
        owner: str,
        id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "asc",
    ) -> list[ConversationEntry] | None:
        """Return a page of entries.

        Args:
            owner: Owner of the conversation.
            id: Id of the conversation.
            after: Id of the entry before the page, in this order; None: from the beginning.
            limit: Maximum number of entries.
            order: Ascending or descending positions.

        Returns:
            The entries; None if the conversation does not exist, or does not contain `after`.
        """
        params = {**self._params(owner, id), "entry_id": after, "most": limit, "order": order}
        return await self._database.read(_entries, params)

    @return_if_unstorable(None)
    async def entry(self, owner: str, id: str, entry_id: str) -> ConversationEntry | None:
        """Return one entry; None if it does not exist."""
        return await self._database.read(_get_entry, {**self._params(owner, id), "entry_id": entry_id})

    @return_if_unstorable(False)
    async def delete_entry(self, owner: str, id: str, entry_id: str) -> bool:
        """Delete one entry; return whether it existed."""
        params = {**self._params(owner, id), "entry_id": entry_id}
        return await self._database.write(_delete_entry, params)
