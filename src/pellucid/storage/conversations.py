"""Conversations: ordered entries under one id, to which several requests may append.

The rules:

* A position belongs to one entry and is never used again. A writer takes the positions that it needs from the row of
  the conversation, so concurrent appends of two replicas are serialized, and each is contiguous.
* The id of an entry is unique in its conversation. Entries of a response (`add_entries`) are written in the response's
  transaction; entries that exist already are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from ..record import Recording
from . import record_content, record_write, tables
from .names import check_names, return_if_unstorable
from .record_content import ITEM
from .statement import Database, Execute, Operation, Params, Row, Statement, for_each, param, raw_sql


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
_COLUMNS = [_C.c.id, _C.c.owner, _C.c.created_at, _C.c.metadata, _C.c.expires_at]
_ENTRY_COLUMNS = [_E.c.id, _E.c.conversation_id, _E.c.position, _E.c.item, _E.c.message]

_owner, _id, _entry_id, _now = param("for_owner"), param("for_id"), param("entry_id"), param("now", sa.Double)
_this_conversation = sa.and_(
    _C.c.owner == _owner, _C.c.id == _id, sa.or_(_C.c.expires_at.is_(None), _C.c.expires_at > _now)
)
_in_conversation = sa.and_(_E.c.owner == _owner, _E.c.conversation_id == _id)
_conversation_exists = sa.exists().where(_this_conversation)

_INSERT, _INSERT_ENTRY = Statement(sa.insert(_C)), Statement(sa.insert(_E))
_existing_ids_sql = (
    "SELECT id FROM conversation_entries WHERE owner = :for_owner AND conversation_id = :for_id AND id IN "
)
_existing_ids_params = {"for_owner": sa.Text, "for_id": sa.Text, "ids": sa.Text}
_EXISTING_IDS = Statement(
    raw_sql(_existing_ids_sql + "(SELECT json_array_elements_text(CAST(:ids AS json)))", **_existing_ids_params),
    sqlite=raw_sql(_existing_ids_sql + "(SELECT value FROM json_each(:ids))", **_existing_ids_params),
)
_GET = Statement(sa.select(*_COLUMNS).where(_this_conversation))
_UPDATE = Statement(
    sa.update(_C).where(_this_conversation).values(metadata=param("to_metadata", sa.LargeBinary)).returning(*_COLUMNS)
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
_GET_POSITION = Statement(sa.select(_E.c.position).where(_in_conversation, _E.c.id == _entry_id))
_limit = param("most", sa.BigInteger)
_from_position = param("from_position", sa.BigInteger)
_LIST = {
    "asc": Statement(
        sa.select(*_ENTRY_COLUMNS)
        .where(_in_conversation, _E.c.position > _from_position)
        .order_by(_E.c.position)
        .limit(_limit)
    ),
    "desc": Statement(
        sa.select(*_ENTRY_COLUMNS)
        .where(_in_conversation, _E.c.position < _from_position)
        .order_by(_E.c.position.desc())
        .limit(_limit)
    ),
}
_START_POSITIONS = {"asc": -1, "desc": 2**62}
_GET_ENTRY = Statement(sa.select(*_ENTRY_COLUMNS).where(_in_conversation, _E.c.id == _entry_id, _conversation_exists))
_DELETE_ENTRY = Statement(
    sa.delete(_E).where(_in_conversation, _E.c.id == _entry_id, _conversation_exists).returning(_E.c.id)
)


def _insert(rows: list[Params]) -> Operation[list[None]]:
    yield Execute(_INSERT, rows)
    return [None] * len(rows)


def _get(params: Params) -> Operation[StoredConversation | None]:
    rows = yield Execute(_GET, params)
    return _conversation_from_row(rows[0]) if rows else None


def _update(params: Params) -> Operation[StoredConversation | None]:
    rows = yield Execute(_UPDATE, params)
    return _conversation_from_row(rows[0]) if rows else None


def delete(params: Params) -> Operation[bool]:
    """Delete a conversation and its entries; return whether it existed."""
    if not (yield Execute(_DELETE, params)):
        return False
    yield Execute(_DELETE_ENTRIES, params)
    yield from record_write.record_removals_of(params, [_removed_content(params, None)])
    return True


def _removed_content(params: Params, entry: str | None) -> record_write.RemovedContent:
    return record_write.RemovedContent(
        params["for_owner"], record_content.conversation_scope(params["for_id"]), ITEM, entry
    )


def _assign_positions(params: Params) -> Operation[list[ConversationEntry] | None]:
    """Assign positions to new entries. Concurrent appends to this conversation wait from here on."""
    entries: list[ConversationEntry] = params["entries"]
    rows = yield Execute(_TAKE_POSITIONS, {**params, "many": len(entries)})
    if not rows:
        return None
    first = rows[0][0] - len(entries)
    return [
        ConversationEntry(
            id=entry.id,
            conversation_id=params["for_id"],
            position=first + index,
            item=entry.item,
            message=entry.message,
        )
        for index, entry in enumerate(entries)
    ]


def _append(params: Params) -> Operation[list[ConversationEntry] | None]:
    placed = yield from _assign_positions(params)
    if placed:
        yield Execute(_INSERT_ENTRY, _entry_rows(params, placed))
        yield from record_write.append_entries(
            params["recording"], record_write.to_milliseconds(params["now"]), _record_entries(params, placed)
        )
    return placed


def add_entries(params: Params) -> Operation[list[record_write.NewEntry]]:
    """Append the entries whose ids are not in the conversation yet; return their record entries.

    Nothing is done if the conversation does not exist. `params`: see `append_params`.
    """
    placed = yield from _assign_positions(params)
    if not placed:
        return []
    ids = msgspec.json.encode([entry.id for entry in placed]).decode()
    existing_ids = {id for (id,) in (yield Execute(_EXISTING_IDS, {**params, "ids": ids}))}
    new = {entry.id: entry for entry in reversed(placed) if entry.id not in existing_ids}
    added = [entry for entry in placed if new.get(entry.id) is entry]
    if added:
        yield Execute(_INSERT_ENTRY, _entry_rows(params, added))
    return _record_entries(params, added)


def _record_entries(params: Params, placed: list[ConversationEntry]) -> list[record_write.NewEntry]:
    owner, scope = params["for_owner"], record_content.conversation_scope(params["for_id"])
    return [
        record_write.NewEntry(
            owner, scope, ITEM, entry.id, record_content.build_content(ITEM, msgspec.structs.asdict(entry))
        )
        for entry in placed
    ]


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


def _entry_rows(params: Params, placed: list[ConversationEntry]) -> list[Params]:
    return [{"owner": params["for_owner"], **msgspec.structs.asdict(entry)} for entry in placed]


def _entries(params: Params) -> Operation[list[ConversationEntry] | None]:
    if not (yield Execute(_GET, params)):
        return None
    position = _START_POSITIONS[params["order"]]
    if params["entry_id"] is not None:
        rows = yield Execute(_GET_POSITION, params)
        if not rows:
            return None
        position = rows[0][0]
    return [
        _entry_from_row(row) for row in (yield Execute(_LIST[params["order"]], {**params, "from_position": position}))
    ]


def _get_entry(params: Params) -> Operation[ConversationEntry | None]:
    rows = yield Execute(_GET_ENTRY, params)
    return _entry_from_row(rows[0]) if rows else None


def delete_entry(params: Params) -> Operation[bool]:
    """Delete one entry; return whether it existed."""
    if not (yield Execute(_DELETE_ENTRY, params)):
        return False
    yield from record_write.record_removals_of(params, [_removed_content(params, params["entry_id"])])
    return True


_UPDATE_EACH, _DELETE_EACH, _APPEND_EACH = for_each(_update), for_each(delete), for_each(_append)
_DELETE_ENTRY_EACH = for_each(delete_entry)


class Conversations:
    """Operations on conversations: `store.conversations`."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def create(self, conversation: StoredConversation) -> None:
        """Store a new conversation.

        Raises:
            AlreadyStored: if there is a conversation with this id.
        """
        check_names(id=conversation.id, owner=conversation.owner)
        row = {
            **msgspec.structs.asdict(conversation),
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
        return await self._database.write(_UPDATE_EACH, params)

    @return_if_unstorable(False)
    async def delete(self, owner: str, id: str) -> bool:
        """Delete a conversation with all its entries; return whether it existed."""
        return await self._database.write(_DELETE_EACH, {**self._params(owner, id), "recording": self._recording})

    @return_if_unstorable(None)
    async def append(
        self, owner: str, id: str, entries: Iterable[ConversationEntry], *, keep_until: float | None = 0.0
    ) -> list[ConversationEntry] | None:
        """Append entries, all or none.

        Args:
            owner: owner of the conversation.
            id: id of the conversation.
            entries: the new entries.
            keep_until: the conversation will not expire before this time, in seconds since 1970. None: never.

        Returns:
            The entries with their positions; None if the conversation does not exist.

        Raises:
            AlreadyStored: if one of the ids is in the conversation already.
        """
        new_entries = list(entries)
        check_names(**{f"entries[{place}].id": entry.id for place, entry in enumerate(new_entries)})
        params = {**append_params(owner, id, new_entries, keep_until, self._clock()), "recording": self._recording}
        return await self._database.write(_APPEND_EACH, params)

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
            owner: owner of the conversation.
            id: id of the conversation.
            after: id of the entry before the page, in this order; None: from the beginning.
            limit: maximum number of entries.
            order: ascending or descending positions.

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
        params = {**self._params(owner, id), "entry_id": entry_id, "recording": self._recording}
        return await self._database.write(_DELETE_ENTRY_EACH, params)

    def _params(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def _conversation_from_row(row: Row) -> StoredConversation:
    id, owner, created_at, metadata, expires_at = row
    return StoredConversation(
        id=id,
        owner=owner,
        created_at=created_at,
        metadata=msgspec.json.decode(metadata, type=dict[str, str]),
        expires_at=expires_at,
    )


def _entry_from_row(row: Row) -> ConversationEntry:
    id, conversation_id, position, item, message = row
    return ConversationEntry(id=id, conversation_id=conversation_id, position=position, item=item, message=message)
