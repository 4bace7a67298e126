"""Conversations: ordered entries under one id, that several requests may add to.

The rules:

* A position belongs to one entry and is never given again. Whoever appends takes as many as it needs from the
  conversation's own row, so that two replicas that append at once come one after the other, each whole.
* An entry's id is its own within its conversation. What a response adds (`add`) goes with the response, in its
  transaction; of that, what is there already is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from ..record import Recording
from . import contents, record, tables
from .contents import ITEM
from .names import check_names, finds
from .statement import Ask, Database, Op, Params, Row, Statement, each, given, written


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    created_at: float
    metadata: dict[str, str] = {}
    expires_at: float | None = None
    """None: when it is deleted."""


class ConversationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a conversation. `position` is given by the store; entries are in its order."""

    id: str
    conversation_id: str = ""
    position: int = -1
    item: bytes
    """The protocol's item (JSON)."""
    message: bytes | None = None
    """What it says to a model, where its writer wants to keep that too (JSON)."""


_C, _E = tables.conversations, tables.entries
_COLUMNS = [_C.c.id, _C.c.owner, _C.c.created_at, _C.c.metadata, _C.c.expires_at]
_ENTRY = [_E.c.id, _E.c.conversation_id, _E.c.position, _E.c.item, _E.c.message]

_owner, _id, _entry, _now = given("for_owner"), given("for_id"), given("entry_id"), given("now", sa.Double)
_there = sa.and_(_C.c.owner == _owner, _C.c.id == _id, sa.or_(_C.c.expires_at.is_(None), _C.c.expires_at > _now))
_in_it = sa.and_(_E.c.owner == _owner, _E.c.conversation_id == _id)
_exists = sa.exists().where(_there)

_INSERT, _INSERT_ENTRY = Statement(sa.insert(_C)), Statement(sa.insert(_E))
_in_this = "SELECT id FROM conversation_entries WHERE owner = :for_owner AND conversation_id = :for_id AND id IN "
_of_these = {"for_owner": sa.Text, "for_id": sa.Text, "ids": sa.Text}
_KNOWN = Statement(
    written(_in_this + "(SELECT json_array_elements_text(CAST(:ids AS json)))", **_of_these),
    sqlite=written(_in_this + "(SELECT value FROM json_each(:ids))", **_of_these),
)
_GET = Statement(sa.select(*_COLUMNS).where(_there))
_UPDATE = Statement(
    sa.update(_C).where(_there).values(metadata=given("to_metadata", sa.LargeBinary)).returning(*_COLUMNS)
)
_DELETE = Statement(sa.delete(_C).where(_there).returning(_C.c.id))
_DELETE_ENTRIES = Statement(sa.delete(_E).where(_in_it))
_TAKE = Statement(
    sa.update(_C)
    .where(_there)
    .values(
        next_position=_C.c.next_position + given("many", sa.BigInteger),
        expires_at=sa.case(
            (_C.c.expires_at < given("least", sa.Double), given("until", sa.Double)), else_=_C.c.expires_at
        ),
    )
    .returning(_C.c.next_position)
)
_PLACE = Statement(sa.select(_E.c.position).where(_in_it, _E.c.id == _entry))
_most = given("most", sa.BigInteger)
_from = given("from_position", sa.BigInteger)
_LIST = {
    "asc": Statement(sa.select(*_ENTRY).where(_in_it, _E.c.position > _from).order_by(_E.c.position).limit(_most)),
    "desc": Statement(
        sa.select(*_ENTRY).where(_in_it, _E.c.position < _from).order_by(_E.c.position.desc()).limit(_most)
    ),
}
_ENDS = {"asc": -1, "desc": 2**62}
_ENTRY_OF = Statement(sa.select(*_ENTRY).where(_in_it, _E.c.id == _entry, _exists))
_DELETE_ENTRY = Statement(sa.delete(_E).where(_in_it, _E.c.id == _entry, _exists).returning(_E.c.id))


def _insert(rows: list[Params]) -> Op[list[None]]:
    yield Ask(_INSERT, rows)
    return [None] * len(rows)


def _get(params: Params) -> Op[StoredConversation | None]:
    rows = yield Ask(_GET, params)
    return _conversation(rows[0]) if rows else None


def _update(params: Params) -> Op[StoredConversation | None]:
    rows = yield Ask(_UPDATE, params)
    return _conversation(rows[0]) if rows else None


def delete(params: Params) -> Op[bool]:
    if not (yield Ask(_DELETE, params)):
        return False
    yield Ask(_DELETE_ENTRIES, params)
    yield from record.end_of(params, [_gone(params, None)])
    return True


def _gone(params: Params, entry: str | None) -> record.Gone:
    return record.Gone(params["for_owner"], contents.of_conversation(params["for_id"]), ITEM, entry)


def _take(params: Params) -> Op[list[ConversationEntry] | None]:
    """The entries, with the places that are theirs now. Whoever else adds to this conversation waits from here on."""
    entries: list[ConversationEntry] = params["entries"]
    taken = yield Ask(_TAKE, {**params, "many": len(entries)})
    if not taken:
        return None
    first = taken[0][0] - len(entries)
    return [
        ConversationEntry(
            id=entry.id,
            conversation_id=params["for_id"],
            position=first + place,
            item=entry.item,
            message=entry.message,
        )
        for place, entry in enumerate(entries)
    ]


def _append(params: Params) -> Op[list[ConversationEntry] | None]:
    placed = yield from _take(params)
    if placed:
        yield Ask(_INSERT_ENTRY, _rows(params, placed))
        yield from record.append(params["recording"], record.milliseconds(params["now"]), _noted(params, placed))
    return placed


def add(params: Params) -> Op[list[record.Noted]]:
    """Those that are not in it yet, at its end (see `appending`). Nothing, if there is no such conversation. What the
    record is to say of that."""
    placed = yield from _take(params)
    if not placed:
        return []
    ids = msgspec.json.encode([entry.id for entry in placed]).decode()
    known = {id for (id,) in (yield Ask(_KNOWN, {**params, "ids": ids}))}
    new = {entry.id: entry for entry in reversed(placed) if entry.id not in known}
    added = [entry for entry in placed if new.get(entry.id) is entry]
    if added:
        yield Ask(_INSERT_ENTRY, _rows(params, added))
    return _noted(params, added)


def _noted(params: Params, placed: list[ConversationEntry]) -> list[record.Noted]:
    owner, scope = params["for_owner"], contents.of_conversation(params["for_id"])
    return [
        record.Noted(owner, scope, ITEM, entry.id, contents.content(ITEM, msgspec.structs.asdict(entry)))
        for entry in placed
    ]


def appending(owner: str, id: str, entries: list[ConversationEntry], until: float | None, now: float) -> Params:
    """Them, to this conversation, which is to expire no sooner than `until`."""
    least = math.inf if until is None else until
    return {"for_owner": owner, "for_id": id, "entries": entries, "least": least, "until": until, "now": now}


def _rows(params: Params, placed: list[ConversationEntry]) -> list[Params]:
    return [{"owner": params["for_owner"], **msgspec.structs.asdict(entry)} for entry in placed]


def _entries(params: Params) -> Op[list[ConversationEntry] | None]:
    if not (yield Ask(_GET, params)):
        return None
    position = _ENDS[params["order"]]
    if params["entry_id"] is not None:
        place = yield Ask(_PLACE, params)
        if not place:
            return None
        position = place[0][0]
    return [_read_entry(row) for row in (yield Ask(_LIST[params["order"]], {**params, "from_position": position}))]


def _entry_of(params: Params) -> Op[ConversationEntry | None]:
    rows = yield Ask(_ENTRY_OF, params)
    return _read_entry(rows[0]) if rows else None


def delete_entry(params: Params) -> Op[bool]:
    if not (yield Ask(_DELETE_ENTRY, params)):
        return False
    yield from record.end_of(params, [_gone(params, params["entry_id"])])
    return True


_UPDATE_EACH, _DELETE_EACH, _APPEND_EACH = each(_update), each(delete), each(_append)
_DELETE_ENTRY_EACH = each(delete_entry)


class Conversations:
    """`store.conversations`."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def create(self, conversation: StoredConversation) -> None:
        """Raises `AlreadyStored`."""
        check_names(id=conversation.id, owner=conversation.owner)
        row = {
            **msgspec.structs.asdict(conversation),
            "metadata": msgspec.json.encode(conversation.metadata),
            "next_position": 0,
        }
        await self._database.write(_insert, row)

    @finds(None)
    async def get(self, owner: str, id: str) -> StoredConversation | None:
        return await self._database.read(_get, self._asked(owner, id))

    @finds(None)
    async def update(self, owner: str, id: str, metadata: dict[str, str]) -> StoredConversation | None:
        """Put this in the place of its metadata. None if there is no such conversation."""
        params = {**self._asked(owner, id), "to_metadata": msgspec.json.encode(metadata)}
        return await self._database.write(_UPDATE_EACH, params)

    @finds(False)
    async def delete(self, owner: str, id: str) -> bool:
        """With all its entries. Whether there was one."""
        return await self._database.write(_DELETE_EACH, {**self._asked(owner, id), "recording": self._recording})

    @finds(None)
    async def append(
        self, owner: str, id: str, entries: Iterable[ConversationEntry], *, keep_until: float | None = 0.0
    ) -> list[ConversationEntry] | None:
        """Add them at its end, all or none, and give them back with their positions. None if there is no such
        conversation. It will expire no sooner than `keep_until` (None: not at all).

        Raises `AlreadyStored` if one of the ids is in it already."""
        new = list(entries)
        check_names(**{f"entries[{place}].id": entry.id for place, entry in enumerate(new)})
        params = {**appending(owner, id, new, keep_until, self._clock()), "recording": self._recording}
        return await self._database.write(_APPEND_EACH, params)

    @finds(None)
    async def entries(
        self,
        owner: str,
        id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "asc",
    ) -> list[ConversationEntry] | None:
        """A page of them: those that come after the entry `after` in this order. None if there is no such
        conversation, or no such entry in it."""
        params = {**self._asked(owner, id), "entry_id": after, "most": limit, "order": order}
        return await self._database.read(_entries, params)

    @finds(None)
    async def entry(self, owner: str, id: str, entry_id: str) -> ConversationEntry | None:
        return await self._database.read(_entry_of, {**self._asked(owner, id), "entry_id": entry_id})

    @finds(False)
    async def delete_entry(self, owner: str, id: str, entry_id: str) -> bool:
        """Whether there was one."""
        params = {**self._asked(owner, id), "entry_id": entry_id, "recording": self._recording}
        return await self._database.write(_DELETE_ENTRY_EACH, params)

    def _asked(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def _conversation(row: Row) -> StoredConversation:
    id, owner, created_at, metadata, expires_at = row
    return StoredConversation(
        id=id,
        owner=owner,
        created_at=created_at,
        metadata=msgspec.json.decode(metadata, type=dict[str, str]),
        expires_at=expires_at,
    )


def _read_entry(row: Row) -> ConversationEntry:
    id, conversation_id, position, item, message = row
    return ConversationEntry(id=id, conversation_id=conversation_id, position=position, item=item, message=message)
