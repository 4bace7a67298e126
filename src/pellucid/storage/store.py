"""A store, from its URL; and what is not to be kept in it any longer: what is due, and what was one tenant's.

Each goes with all that belongs to it. A chat's turns do not belong to it here: they are due by themselves, and the last
of them takes the chat along, if that has not gone before. Both go in small steps, so that no transaction keeps the
others waiting for long. The record says what went, and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ..errors import ConfigError
from ..record import Recording
from . import record_content, record_write, search, tables
from .chats import Chats
from .conversations import Conversations
from .keys import Keys
from .names import return_if_unstorable
from .record_content import ITEM, RESPONSE
from .record_store import RecordStore
from .responses import DELETE_DEPENDENTS, DELETE_EMPTY_CHAT, Responses
from .spaces import Spaces
from .sqlite import SqliteDatabase
from .statement import Database, Execute, Operation, Params, Row, Statement, for_each, param

ROWS_PER_STEP = 500
"""So many rows go in one transaction."""

_R, _C, _E, _H, _K = tables.responses, tables.conversations, tables.entries, tables.chats, tables.keys
_PING = Statement(sa.select(sa.literal_column("1")))
_owner, _id = param("for_owner"), param("for_id")
_now, _limit = param("now", sa.Double), param("most", sa.BigInteger)


def _delete_first(table: sa.Table, condition: sa.ColumnElement[bool], *order: sa.ColumnElement[object]) -> Statement:
    first_rows = sa.select(table.c.owner, table.c.id).where(condition).order_by(*order).limit(_limit)
    row = sa.tuple_(table.c.owner, table.c.id)
    chat = _R.c.conversation_id if table is _R else sa.null()
    return Statement(sa.delete(table).where(row.in_(first_rows)).returning(table.c.owner, table.c.id, chat))


_DELETE_DUE = [(table, _delete_first(table, table.c.expires_at <= _now, table.c.expires_at)) for table in (_H, _R, _C)]
_DELETE_OWNED = [(table, _delete_first(table, table.c.owner == _owner, table.c.id)) for table in (_H, _R, _C, _K)]
_DEPENDENTS = {
    _R: list(DELETE_DEPENDENTS),
    _C: [Statement(sa.delete(_E).where(_E.c.owner == _owner, _E.c.conversation_id == _id))],
    _H: [search.delete_statement(search.CHATS)],  # its title
    _K: [],
}


def _delete(deletions: list[tuple[sa.Table, Statement]], params: Params) -> Operation[int]:
    deleted_count = 0
    for table, statement_of_table in deletions:
        rows = yield Execute(statement_of_table, {**params, "most": params["most"] - deleted_count})
        if rows:
            for statement in _DEPENDENTS[table]:
                yield Execute(statement, [{"for_owner": owner, "for_id": id} for owner, id, _ in rows])
        if chats := {(owner, chat) for owner, _, chat in rows if chat is not None}:
            for statement in DELETE_EMPTY_CHAT:
                yield Execute(statement, [{"for_owner": owner, "for_id": chat} for owner, chat in sorted(chats)])
        yield from record_write.record_removals_of(params, _removed_contents(table, rows))
        deleted_count += len(rows)
    return deleted_count


def _removed_contents(table: sa.Table, rows: list[Row]) -> Iterator[record_write.RemovedContent]:
    for owner, id, chat in rows:
        if table is _R:
            yield record_write.RemovedContent(owner, record_content.response_scope(id, chat), RESPONSE, id)
        elif table is _C:
            yield record_write.RemovedContent(owner, record_content.conversation_scope(id), ITEM, None)


def _expire(params: Params) -> Operation[int]:
    return (yield from _delete(_DELETE_DUE, {**params, "why": "expired"}))


def _erase(params: Params) -> Operation[int]:
    return (yield from _delete(_DELETE_OWNED, {**params, "why": "erased"}))


_EXPIRE_EACH, _ERASE_EACH, _MERGE_EACH = for_each(_expire), for_each(_erase), for_each(search.merge_index)


def _ping(params: Params) -> Operation[None]:
    yield Execute(_PING, params)


class Store:
    """What is kept, and what can be done with it. `clock` is the time of day, for what has expired."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, recording: Recording | None = None
    ) -> None:
        recording = recording or Recording()
        self._database = database
        self._clock = clock
        self._recording = recording
        self.responses = Responses(database, clock, recording)
        self.conversations = Conversations(database, clock, recording)
        self.chats = Chats(database, clock, recording)
        self.record = RecordStore(database, clock, recording)
        self.keys = Keys(database)
        self.spaces = Spaces(database, clock, recording)

    @property
    def transactions(self) -> int:
        """How many transactions this process has written so far; each may hold many writes."""
        return self._database.transactions

    async def check(self) -> None:
        """Raises `StoreError` if the store does not answer."""
        await self._database.read(_ping, {})

    async def expire(self, now: float, limit: int = 10_000) -> int:
        """Delete what is due, with all that belongs to it; at most `limit` responses, conversations and chats. How
        many. Spaces are never due; what a removal of one left that was broken off is taken away."""
        await self.spaces.sweep()
        return await self._in_steps(_EXPIRE_EACH, {"now": now, "recording": self._recording}, limit)

    @return_if_unstorable(0)
    async def erase(self, owner: str) -> int:
        """Delete everything of one tenant: responses, conversations, chats, spaces, keys. How many of these there were.

        What it does at the same time is not prevented; let nobody in before."""
        params = {"for_owner": owner, "now": self._clock(), "recording": self._recording}
        deleted_count = await self._in_steps(_ERASE_EACH, params, None)
        for space in await self.spaces.list(owner):
            deleted_count += await self.spaces.remove(owner, space.name)
        await self.spaces.sweep()
        has_more, is_first = deleted_count > 0, True
        while has_more:
            has_more, is_first = await self._database.write(_MERGE_EACH, is_first), False
        return deleted_count

    async def aclose(self) -> None:
        """Finish what waits, and let go of everything. What is asked afterwards is a `StoreError`."""
        await self._database.aclose()

    async def _in_steps(
        self, op: Callable[[list[Params]], Operation[list[int]]], params: Params, limit: int | None
    ) -> int:
        deleted_count = 0
        while limit is None or deleted_count < limit:
            step = ROWS_PER_STEP if limit is None else min(ROWS_PER_STEP, limit - deleted_count)
            step_count = await self._database.write(op, {**params, "most": step})
            deleted_count += step_count
            if step_count < step:
                break
        return deleted_count


async def open_store(url: str, *, clock: Callable[[], float] = time.time, recording: Recording | None = None) -> Store:
    """Open the store, making or migrating its tables if need be.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `sqlite://` (in memory, gone with the process) or
    `postgresql://user:password@host/database`. `recording`: whether what is stored is recorded (it is), and whose seals
    are on the record. Raises `ConfigError` for a URL that is none of these, `StoreError` if
    the database does not answer or was written by a newer version."""
    parsed = check_store_url(url)
    if parsed.drivername == "sqlite":
        path = parsed.database
        return Store(await SqliteDatabase.open(None if path in (None, "", ":memory:") else path), clock, recording)
    from .postgres import PostgresDatabase

    return Store(await PostgresDatabase.open(parsed), clock, recording)


def check_store_url(url: str) -> URL:
    """What a URL says. Raises `ConfigError` for one that `open_store` would not take. Nothing is opened."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.drivername not in ("sqlite", "postgresql", "postgres", "postgresql+asyncpg"):
        # The URL itself is not repeated: it may hold a password.
        raise ConfigError(["a store is sqlite:///PATH, sqlite:// (in memory) or postgresql://USER:PASSWORD@HOST/NAME"])
    if parsed.drivername != "sqlite":
        try:
            from . import postgres  # noqa: F401
        except ModuleNotFoundError:
            raise ConfigError(["a store in PostgreSQL needs asyncpg: pip install 'pellucid[postgres]'"]) from None
    return parsed
