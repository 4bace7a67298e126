"""The store: opening it by a URL, deleting expired rows, and erasing all rows of an owner.

A row is deleted with all its dependents. The turns of a chat are not its dependents here: they expire on their own, and
the chat is deleted with the last of them, if it has not expired before. Rows are deleted in small steps, so that no
transaction blocks others for long. The record contains what was deleted, and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ..errors import ConfigError
from ..record import Recording
from . import record_write, search, tables
from .chats import Chats
from .conversations import Conversations
from .database import Database
from .feedback import Feedback
from .keys import KeyStore, RevokedTokens
from .names import return_if_unstorable
from .record_store import RecordStore
from .record_write import ITEM, RESPONSE
from .responses import DELETE_DEPENDENTS, DELETE_EMPTY_CHAT, DELETE_SHARES, Responses
from .shares import Shares
from .spaces import Spaces
from .sqlite import SqliteDatabase
from .statement import (
    ID,
    LIMIT,
    NOW,
    ONE,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    for_each,
    has_rows,
)
from .usage import DELETE_USAGE, UsageStore

MAX_EXPIRED_ROWS = 10_000
"""Maximum number of rows that one call of `Store.expire` deletes."""

ROWS_PER_STEP = 500
"""Maximum number of rows that are deleted in one transaction."""

_R, _C, _E, _H, _K = tables.responses, tables.conversations, tables.entries, tables.chats, tables.keys
_PING = Statement(sa.select(ONE))


def _delete_first(table: sa.Table, condition: sa.ColumnElement[bool], *order: sa.ColumnElement[object]) -> Statement:
    first_rows = sa.select(table.c.owner, table.c.id).where(condition).order_by(*order).limit(LIMIT)
    row = sa.tuple_(table.c.owner, table.c.id)
    chat = _R.c.conversation_id if table is _R else sa.null()
    return Statement(sa.delete(table).where(row.in_(first_rows)).returning(table.c.owner, table.c.id, chat))


_DELETE_DUE = [(table, _delete_first(table, table.c.expires_at <= NOW, table.c.expires_at)) for table in (_H, _R, _C)]
_DELETE_OWNED = [(table, _delete_first(table, table.c.owner == OWNER, table.c.id)) for table in (_H, _R, _C, _K)]
_DEPENDENTS = {
    _R: list(DELETE_DEPENDENTS),
    _C: [Statement(sa.delete(_E).where(_E.c.owner == OWNER, _E.c.conversation_id == ID))],
    _H: [search.delete_statement(search.CHATS), DELETE_SHARES],  # the title, and links to it
    _K: [],
}


@for_each
def _delete(params: Params) -> Operation[int]:
    """Delete the first rows of `deletions`, which are tables and statements; return their number."""
    deleted_count = 0
    for table, statement_of_table in params["deletions"]:
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
            yield record_write.RemovedContent(owner, record_write.response_scope(id, chat), RESPONSE, id)
        elif table is _C:
            yield record_write.RemovedContent(owner, record_write.conversation_scope(id), ITEM, None)


_merge_index, _ping = for_each(search.merge_index), has_rows(_PING)
_delete_usage = for_each(has_rows(DELETE_USAGE))


class Store:
    """Everything that Pellucid stores, by kind.

    Attributes:
        responses: responses and their logs.
        conversations: conversations and their entries.
        chats: chats of responses.
        record: the tamper-evident record.
        shares: links that share chats.
        feedback: what people think of answers.
        keys: API keys.
        revoked_tokens: ids of sealed tokens that are not valid any more.
        spaces: spaces, their participants and logs.
        usage: what was used and what it cost.

    Args:
        database: The driver.
        clock: Returns the current time, in seconds since 1970.
        recording: Whether contents are recorded, and the keys for seals.
    """

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self.responses = Responses(database, clock, recording)
        self.conversations = Conversations(database, clock, recording)
        self.chats = Chats(database, clock, recording)
        self.shares = Shares(database, clock, recording)
        self.feedback = Feedback(database, clock, recording)
        self.record = RecordStore(database, clock, recording)
        self.keys = KeyStore(database, clock, recording)
        self.revoked_tokens = RevokedTokens(database, clock, recording)
        self.spaces = Spaces(database, clock, recording)
        self.usage = UsageStore(database, clock, recording)

    @property
    def transactions(self) -> int:
        """Number of write transactions that this process has begun. Each may contain many writes."""
        return self._database.transactions

    async def check(self) -> None:
        """Check that the database can be read and written (see `require_writable`).

        Raises:
            StoreError: If it cannot.
        """
        await self._database.read(_ping, {})
        await self.require_writable()

    async def require_writable(self) -> None:
        """Check that the database can be written, before work that ends with a write.

        It costs nothing while there is no reason to doubt, but for one look a second. Otherwise one small write a
        second tries.

        Raises:
            StoreError: It cannot.
        """
        await self._database.require_writable()

    async def expire(self, now: float) -> int:
        """Delete at most `MAX_EXPIRED_ROWS` expired responses, conversations and chats, with their dependents,
        all ids of tokens and all links that have expired.

        Spaces do not expire. Interrupted removals of spaces are completed.

        Args:
            now: Current time, in seconds since 1970.

        Returns:
            The number of deleted responses, conversations and chats.
        """
        await self.spaces.sweep()
        await self.revoked_tokens.delete_expired(now)
        await self.shares.delete_expired(now)
        return await self._delete_in_steps({"deletions": _DELETE_DUE, "now": now, "why": "expired"}, MAX_EXPIRED_ROWS)

    @return_if_unstorable(0)
    async def erase(self, owner: str) -> int:
        """Delete all data of one owner: responses, conversations, chats, spaces and keys, and what it used.

        Concurrent writes of the owner are not prevented: the caller must block its access before.

        Returns:
            The number of deleted responses, conversations, chats, spaces and keys.
        """
        params = {"deletions": _DELETE_OWNED, "for_owner": owner, "now": self._clock(), "why": "erased"}
        deleted_count = await self._delete_in_steps(params, None)
        for space in await self.spaces.list(owner):
            deleted_count += await self.spaces.remove(owner, space.name)
        await self.spaces.sweep()
        await self._database.write(_delete_usage, {"for_owner": owner})
        has_more, is_first = deleted_count > 0, True
        while has_more:
            has_more, is_first = await self._database.write(_merge_index, is_first), False
        return deleted_count

    async def aclose(self) -> None:
        """Finish waiting writes, and close the store. Later calls raise `StoreError`."""
        await self._database.aclose()

    async def _delete_in_steps(self, params: Params, limit: int | None) -> int:
        deleted_count = 0
        while limit is None or deleted_count < limit:
            step = ROWS_PER_STEP if limit is None else min(ROWS_PER_STEP, limit - deleted_count)
            step_params = {**params, "recording": self.record.recording, "most": step}
            step_count = await self._database.write(_delete, step_params)
            deleted_count += step_count
            if step_count < step:
                break
        return deleted_count


async def open_store(url: str, *, clock: Callable[[], float] = time.time, recording: Recording | None = None) -> Store:
    """Open a store, and create or migrate its tables if needed.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, `sqlite://` (in memory, lost with the process) or
            `postgresql://user:password@host/database`.
        clock: Returns the current time, in seconds since 1970.
        recording: Whether contents are recorded (default: yes), and the keys for seals.

    Raises:
        ConfigError: If the URL has another form.
        StoreError: If the database does not answer, or was written by a newer version.
    """
    parsed = check_store_url(url)
    database: Database
    if parsed.drivername == "sqlite":
        database = await SqliteDatabase.open(sqlite_path(url))
    else:
        from .postgres import PostgresDatabase

        database = await PostgresDatabase.open(parsed)
    return Store(database, clock, recording or Recording())


def sqlite_path(url: str) -> str | None:
    """Return the path of the SQLite file of a store; None if the store is in memory or in PostgreSQL.

    Raises:
        ConfigError: If `open_store` does not accept the URL.
    """
    parsed = check_store_url(url)
    is_file = parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:")
    return parsed.database if is_file else None


def check_store_url(url: str) -> URL:
    """Parse the URL of a store, without opening it.

    Raises:
        ConfigError: If `open_store` does not accept the URL.
    """
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
