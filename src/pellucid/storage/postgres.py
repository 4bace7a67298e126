"""Database in PostgreSQL, through asyncpg: one task writes, and a connection pool reads.

Writes that arrive during a transaction become the next transaction (`commit`), so many writes cost one wait for the
server's disk. If the server becomes unavailable, waiting operations fail within seconds. Every later operation tries to
connect again, so no restart is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.engine import URL

from .database import MAX_BATCH, Database, Write, commit, set_outcomes
from .errors import AlreadyStored, StatementFailed, StoreError, StoreUnavailable
from .migrate import ADVISORY_LOCK_KEY, migration_statements
from .statement import A, Execute, Operation, Params, R, Row, Statement

MAX_READERS = 4
CONNECT_SECONDS = 5
COMMAND_SECONDS = 15
TRUSTED_SECONDS = 5
"""A connection that was used within these seconds is used again without a test."""

_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]

_TRANSACTION_STEPS = {"SNAPSHOT": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}

_DRIVER_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_UNAVAILABLE_CLASSES = ("08", "25", "28", "3D", "53", "57", "58")
"""SQLSTATE classes of an unavailable server: no connection, read-only transaction, invalid authorization, no such
database, insufficient resources, operator intervention (shutdown), system error (I/O)."""

_RETRYABLE_CLASSES = ("40", "0A", "55")
"""SQLSTATE classes of a conflict with another transaction or with a change of the tables: the statement may be
repeated."""


class PostgresDatabase(Database):
    """`Database` in PostgreSQL."""

    def __init__(self, dsn: str, pool: asyncpg.Pool) -> None:
        super().__init__()
        self._dsn = dsn
        self._pool = pool
        self._pending: list[Write] = []
        self._has_pending = asyncio.Event()
        self._writer: asyncpg.Connection | None = None
        self._writer_used_at = 0.0
        self._write_task = asyncio.create_task(self._write_loop())

    @classmethod
    async def open(cls, url: URL) -> PostgresDatabase:
        """Connect to a server, and migrate its tables if needed.

        Raises:
            StoreError: If there is no such server, or it rejects the connection.
        """
        dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            connection = await _connect(dsn)
            try:
                await _migrate(connection)
            finally:
                await connection.close(timeout=CONNECT_SECONDS)
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=MAX_READERS,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                init=_plan_by_index,
                reset=_nothing_to_reset,
            )
        except (*_DRIVER_ERRORS, ValueError) as error:
            raise StoreError(
                f"PostgreSQL at {url.host or 'the local socket'} cannot be used as a store; "
                "its address, user, password and database must be right, and the user must be allowed to make tables",
                cause=type(error).__name__,
            ) from None
        return cls(dsn, pool)

    async def _read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        try:
            return await self._read_once(op(argument))
        except StoreUnavailable:
            # Perhaps only this connection is dead: the server was unavailable while the connection was idle.
            await self._pool.expire_connections()
            return await self._read_once(op(argument))

    async def _read_once(self, op: Operation[R]) -> R:
        try:
            async with self._pool.acquire(timeout=COMMAND_SECONDS) as connection:
                return await _run_operation(connection, op)
        except _DRIVER_ERRORS as error:
            raise StoreUnavailable(cause=type(error).__name__) from None

    def _enqueue(self, write: Write) -> None:
        self._pending.append(write)
        self._has_pending.set()

    async def _is_write_doubtful(self) -> bool:
        return await self.read(_is_read_only, {})

    async def _close(self) -> None:
        self._has_pending.set()
        await self._write_task
        if self._writer:
            self._writer.terminate()
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
        except _DRIVER_ERRORS:
            self._pool.terminate()

    async def _write_loop(self) -> None:
        while True:
            while self._pending:
                batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
                await self._commit(batch)
            if self._is_closed:
                return
            self._has_pending.clear()
            await self._has_pending.wait()

    async def _commit(self, batch: list[Write]) -> None:
        self.transactions += 1
        outcomes: list[Any]
        try:
            writer = await self._open_writer()
            outcomes = await _run_operation(writer, commit(batch))
            self._writer_used_at = time.monotonic()
        except Exception as error:
            if self._writer:  # the state of the connection is unknown
                self._writer.terminate()
                self._writer = None
            failure = error if isinstance(error, StoreError) else StoreUnavailable(cause=type(error).__name__)
            outcomes = [failure.copy() for _ in batch]
        set_outcomes(zip(batch, outcomes, strict=True))

    async def _open_writer(self) -> asyncpg.Connection:
        if self._writer and time.monotonic() - self._writer_used_at > TRUSTED_SECONDS:
            try:
                await self._writer.execute("SELECT 1")
            except _DRIVER_ERRORS:
                self._writer.terminate()
                self._writer = None
        if self._writer is None or self._writer.is_closed():
            self._writer = await _connect(self._dsn)
        return self._writer


_READ_ONLY = Statement(sa.select(sa.func.current_setting("transaction_read_only")))


def _is_read_only(params: Params) -> Operation[bool]:
    """Return whether the server accepts no writes, for example a standby in recovery."""
    [[setting]] = yield Execute(_READ_ONLY, params)
    return bool(setting == "on")


async def _connect(dsn: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS)
    try:
        await _plan_by_index(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _plan_by_index(connection: asyncpg.Connection) -> None:
    """Make PostgreSQL's planner use indexes.

    Every query reads a few rows by their keys. The planner cannot know this for a recursive query: it would read the
    whole table, compile a query of one millisecond (JIT), or start parallel workers. It also has no statistics of a new
    table, and would sort a whole log for its first row.
    """
    for setting in ("jit", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort"):
        await connection.execute(f"SET {setting} = off")
    await connection.execute("SET max_parallel_workers_per_gather = 0")


async def _nothing_to_reset(connection: asyncpg.Connection) -> None:
    """Reset nothing: readers change no session state, so the round trip of a reset is saved."""


async def _run_operation(connection: asyncpg.Connection, op: Operation[R]) -> R:
    resume: Callable[[], Execute] = partial(next, op)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            resume = partial(op.send, await _execute(connection, request))
        except Exception as error:
            resume = partial(op.throw, _to_store_error(error))


async def _execute(connection: asyncpg.Connection, request: Execute) -> list[Row]:
    statement, params = request
    if isinstance(statement, str):
        await connection.execute(_TRANSACTION_STEPS.get(statement, statement))
        return []
    compiled = statement.compile_for(_DIALECT)
    if isinstance(params, list):
        await connection.executemany(compiled.text, [compiled.values(one) for one in params])
        return []
    if compiled.replan:
        await connection.execute("SET plan_cache_mode = force_custom_plan")
    try:
        return [tuple(row) for row in await connection.fetch(compiled.text, *compiled.values(params))]
    finally:
        if compiled.replan:
            await connection.execute("RESET plan_cache_mode")


def _to_store_error(error: Exception) -> StoreError:
    cause = type(error).__name__
    if isinstance(error, asyncpg.UniqueViolationError):
        return AlreadyStored(cause=cause)
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        is_server_unavailable = state.startswith(_UNAVAILABLE_CLASSES)
        return (
            StoreUnavailable(cause=cause)
            if is_server_unavailable
            else StatementFailed(cause=cause, is_retryable=state.startswith(_RETRYABLE_CLASSES))
        )
    # asyncpg raises ValueError for a value that it cannot encode: the server is not involved.
    is_connection_lost = isinstance(error, _DRIVER_ERRORS) and not isinstance(error, ValueError)
    return StoreUnavailable(cause=cause) if is_connection_lost else StatementFailed(cause=cause)


async def stored_version(connection: asyncpg.Connection) -> str | None:
    """Return the version of the tables of a database; None: it has none yet."""
    if not await connection.fetchval("SELECT to_regclass('alembic_version')"):
        return None
    version: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    return version


async def _migrate(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_KEY})")
        version = await stored_version(connection)
        for statement in await asyncio.to_thread(migration_statements, "postgresql", version):
            await connection.execute(statement)
