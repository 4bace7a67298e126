"""PostgreSQL, through asyncpg: one task that writes, a pool that reads.

What waits while the writing task's transaction is under way becomes the next one (`commit`), so that many writes cost
one wait for the server's disk. A server that goes away fails what waits for it, within seconds; every later call tries
anew, so nothing has to be restarted when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.engine import URL

from .errors import AlreadyStored, OutageLog, Refused, StoreError, Unanswered
from .migrate import LOCK, migration
from .statement import BATCH, A, Ask, Bulk, Op, R, Row, Write, commit

READERS = 4
CONNECT_SECONDS = 5
COMMAND_SECONDS = 15
TRUSTED_SECONDS = 5
"""A connection that was used so lately is used again without asking whether it still stands."""

_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]

_STEPS = {"SNAPSHOT": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}

_FAULTS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_AWAY = ("08", "25", "28", "3D", "53", "57", "58")
"""Classes of SQLSTATE that say the server cannot work now: no connection, read-only, not let in, no such database,
out of something, shutting down, its own I/O."""

_AGAIN = ("40", "0A", "55")
"""… that another's transaction, or a change of the tables, was in the way."""


class _Waiting(NamedTuple):
    write: Write
    done: asyncio.Future[Any]


class Postgres:
    """A `Database`."""

    def __init__(self, dsn: str, pool: asyncpg.Pool) -> None:
        self.transactions = 0
        self._reading, self._writing = OutageLog("read"), OutageLog("written")
        self._dsn = dsn
        self._pool = pool
        self._closed = False
        self._waiting: list[_Waiting] = []
        self._some = asyncio.Event()
        self._writer: asyncpg.Connection | None = None
        self._used = 0.0
        self._task = asyncio.create_task(self._write())

    @classmethod
    async def open(cls, url: URL) -> Postgres:
        """Raises `StoreError` if there is no such server, or it does not let us in."""
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
                max_size=READERS,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                init=_plan_by_index,
                reset=_nothing_to_reset,
            )
        except (*_FAULTS, ValueError) as error:
            raise StoreError(
                f"PostgreSQL at {url.host or 'the local socket'} cannot be used as a store; "
                "its address, user, password and database must be right, and the user must be allowed to make tables",
                cause=type(error).__name__,
            ) from None
        return cls(dsn, pool)

    async def read(self, op: Callable[[A], Op[R]], argument: A) -> R:
        if self._closed:
            raise _closed()
        with self._reading:
            try:
                return await self._read(op(argument))
            except Unanswered:
                # Perhaps just this connection is dead, since the server was away while nobody asked it anything.
                await self._pool.expire_connections()
                return await self._read(op(argument))

    async def write(self, op: Bulk[A, R], argument: A) -> R:
        if self._closed:
            raise _closed()
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(Write(op, argument), done))
        self._some.set()
        with self._writing:
            return await done

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._some.set()
        await self._task
        if self._writer:
            self._writer.terminate()
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
        except _FAULTS:
            self._pool.terminate()

    async def _read(self, op: Op[R]) -> R:
        try:
            async with self._pool.acquire(timeout=COMMAND_SECONDS) as connection:
                return await _carry_out(connection, op)
        except _FAULTS as error:
            raise Unanswered(cause=type(error).__name__) from None

    async def _write(self) -> None:
        while True:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._commit(batch)
            if self._closed:
                return
            self._some.clear()
            await self._some.wait()

    async def _commit(self, batch: list[_Waiting]) -> None:
        self.transactions += 1
        outcomes: list[Any]
        try:
            writer = await self._ready()
            outcomes = await _carry_out(writer, commit([one.write for one in batch]))
            self._used = time.monotonic()
        except Exception as error:
            if self._writer:  # in what state it is nobody knows
                self._writer.terminate()
                self._writer = None
            told = error if isinstance(error, StoreError) else Unanswered(cause=type(error).__name__)
            outcomes = [told.copy() for _ in batch]
        for one, outcome in zip(batch, outcomes, strict=True):
            if one.done.done():  # the caller left
                continue
            if isinstance(outcome, BaseException):
                one.done.set_exception(outcome)
            else:
                one.done.set_result(outcome)

    async def _ready(self) -> asyncpg.Connection:
        if self._writer and time.monotonic() - self._used > TRUSTED_SECONDS:
            try:
                await self._writer.execute("SELECT 1")
            except _FAULTS:
                self._writer.terminate()
                self._writer = None
        if self._writer is None or self._writer.is_closed():
            self._writer = await _connect(self._dsn)
        return self._writer


async def _connect(dsn: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS)
    try:
        await _plan_by_index(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _plan_by_index(connection: asyncpg.Connection) -> None:
    """Whatever is asked here is a few rows by their keys. The planner cannot know that of a recursive question, and
    would rather read the whole table, or compile what takes a millisecond, or start processes for it. Nor does it know
    how much there is in a table that is new, and would sort all of a log for the first of it, along whatever index."""
    for setting in ("jit", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort"):
        await connection.execute(f"SET {setting} = off")
    await connection.execute("SET max_parallel_workers_per_gather = 0")


async def _nothing_to_reset(connection: asyncpg.Connection) -> None:
    """Readers leave nothing behind, so the round trip that would clean up is saved."""


async def _carry_out(connection: asyncpg.Connection, op: Op[R]) -> R:
    rows: list[Row] | None = None
    wrong: StoreError | None = None
    while True:
        try:
            ask = op.throw(wrong) if wrong else op.send(rows)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            rows, wrong = await _ask(connection, ask), None
        except Exception as error:
            wrong = _said(error)


async def _ask(connection: asyncpg.Connection, ask: Ask) -> list[Row]:
    statement, params = ask
    if isinstance(statement, str):
        await connection.execute(_STEPS.get(statement, statement))
        return []
    prepared = statement.on(_DIALECT)
    if isinstance(params, list):
        await connection.executemany(prepared.text, [prepared.values(one) for one in params])
        return []
    if prepared.replan:
        await connection.execute("SET plan_cache_mode = force_custom_plan")
        try:
            return [tuple(row) for row in await connection.fetch(prepared.text, *prepared.values(params))]
        finally:
            await connection.execute("RESET plan_cache_mode")
    return [tuple(row) for row in await connection.fetch(prepared.text, *prepared.values(params))]


def _said(error: Exception) -> StoreError:
    cause = type(error).__name__
    if isinstance(error, asyncpg.UniqueViolationError):
        return AlreadyStored(cause=cause)
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        away = state.startswith(_AWAY)
        return Unanswered(cause=cause) if away else Refused(cause=cause, again=state.startswith(_AGAIN))
    # A ValueError is what asyncpg finds wrong with a value by itself: that is no fault of the server's.
    gone = isinstance(error, _FAULTS) and not isinstance(error, ValueError)
    return Unanswered(cause=cause) if gone else Refused(cause=cause)


async def _migrate(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        version = None
        if await connection.fetchval("SELECT to_regclass('alembic_version')"):
            version = await connection.fetchval("SELECT version_num FROM alembic_version")
        for statement in await asyncio.to_thread(migration, "postgresql", version):
            await connection.execute(statement)


def _closed() -> StoreError:
    return StoreError("the store is closed: this server is shutting down")
