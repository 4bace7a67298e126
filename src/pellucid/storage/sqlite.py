"""SQLite: one thread that writes, a few that read.

SQLite has one writer at a time anyway, and what a write costs is the wait for the disk. So all writes go through one
thread, and what gathers while it waits becomes the next transaction (`commit`). Readers have connections of their own
and wait for nobody (WAL). `synchronous=FULL`: what was acknowledged outlives a loss of power, not just of the process.
What is deleted is overwritten, also in the log of changes (`WalTruncation`). Several processes may share a file.

A store without a file has one connection, which all take turns at.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from .errors import AlreadyStored, OutageLog, StatementFailed, StoreError, StoreUnavailable
from .migrate import migration_statements
from .statement import MAX_BATCH, A, BulkOperation, Execute, Operation, R, Row, Write, commit

MAX_READERS = 3
CACHE_KIB = 8_192
"""So much of the file the writer keeps in memory, at most: the ends of all indexes, and what search changes."""
WAL_CHECKPOINT_PAGES = 4_000
"""From so many pages on, the log of changes is carried over into the file, where a page that was changed often is
written once: 16 MB."""
BUSY_TIMEOUT_SECONDS = 10
"""So long one process waits for another's transaction."""
TRUNCATE_INTERVAL_SECONDS = 1.0
"""Seconds between two times that the log of changes is emptied because something was erased."""
OVERDUE_SECONDS = 5.0
"""After so many more it is done although others wait to write."""
TRUNCATE_BUSY_TIMEOUT_MS = 100
"""So long it waits for readers, and writers wait for it."""

_DIALECT = sqlite_dialect()

# A transaction that will write says so at once: one that begins by reading could not be sure of its turn.
_TRANSACTION_STEPS = {"BEGIN": "BEGIN IMMEDIATE", "SNAPSHOT": "BEGIN DEFERRED"}


class _PendingWrite(NamedTuple):
    write: Write
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class _Connection(sqlite3.Connection):
    has_erased = False
    """Whether something was taken away that is to be gone from the disk."""


class SqliteDatabase:
    """A `Database`. `path` is None for one in memory."""

    def __init__(self, path: str | None) -> None:
        self.transactions = 0
        self._read_outages, self._write_outages = OutageLog("read"), OutageLog("written")
        self._path = path
        self._is_closed = False
        self._pending: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        self._connection_lock: AbstractContextManager[Any] = nullcontext() if path else threading.Lock()
        self._readers: list[_Connection] = []
        self._thread_local = threading.local()
        self._reader_pool = ThreadPoolExecutor(MAX_READERS, thread_name_prefix="store-reader")
        self._writer = self._open_writer()
        self._wal_truncation = WalTruncation(path)
        self._writer_thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._writer_thread.start()

    @classmethod
    async def open(cls, path: str | None) -> SqliteDatabase:
        """Raises `StoreError` if there is no such place, or something else in it."""
        try:
            return await asyncio.to_thread(cls, path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{path} cannot be opened as a SQLite database; it must be a file in a directory that one can write to",
                cause=type(error).__name__,
            ) from None

    async def read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        if self._is_closed:
            raise _closed_error()
        with self._read_outages:
            return await asyncio.get_running_loop().run_in_executor(self._reader_pool, self._read, op, argument)

    async def write(self, op: BulkOperation[A, R], argument: A) -> R:
        if self._is_closed:
            raise _closed_error()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._pending.put(_PendingWrite(Write(op, argument), future, loop))
        with self._write_outages:
            return await future

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._pending.put(None)
        await asyncio.to_thread(self._close_connections)

    def _close_connections(self) -> None:
        self._writer_thread.join()
        self._reader_pool.shutdown()
        for connection in (*self._readers, self._writer):
            connection.close()

    def _open_writer(self) -> _Connection:
        if self._path:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            # What is kept is for its owners alone, so the file is for this user alone. One that is there is not opened
            # here: to close it would drop every lock that this process has on it by another connection (POSIX), and
            # the next process that leaves would take the log of changes (WAL) away from under us.
            with suppress(FileExistsError):
                os.close(os.open(os.path.realpath(self._path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = self._connect()
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
            _enable_wal(connection)
            _migrate(connection)
            _enable_index_secure_delete(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> _Connection:
        return sqlite3.connect(
            self._path or ":memory:",
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,  # transactions begin and end where we say
            check_same_thread=False,
            factory=_Connection,
        )

    def _read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        with self._connection_lock:
            return _run_operation(self._reader(), op(argument))

    def _reader(self) -> _Connection:
        if not self._path:
            return self._writer
        connection: _Connection | None = getattr(self._thread_local, "connection", None)
        if connection is None:
            try:
                connection = self._thread_local.connection = self._connect()
                connection.execute("PRAGMA query_only = ON")
            except sqlite3.Error as error:
                raise StoreUnavailable(cause=type(error).__name__) from None
            self._readers.append(connection)
        return connection

    def _write_loop(self) -> None:
        is_last = False
        while not is_last:
            try:
                pending = [self._pending.get(timeout=self._wal_truncation.wait_seconds())]
            except Empty:
                self._wal_truncation.truncate(self._writer, BUSY_TIMEOUT_SECONDS)
                continue
            while len(pending) < MAX_BATCH:
                try:
                    pending.append(self._pending.get_nowait())
                except Empty:
                    break
            is_last = pending[-1] is None
            if batch := [one for one in pending if one is not None]:
                self._commit(batch)
            # Rows are not kept in memory while the next write is waited for.
            batch.clear()
            pending.clear()
            if is_last or self._wal_truncation.is_overdue:
                self._wal_truncation.truncate(self._writer, BUSY_TIMEOUT_SECONDS)

    def _commit(self, batch: list[_PendingWrite]) -> None:
        self.transactions += 1
        outcomes: list[Any]
        with self._connection_lock:
            try:
                outcomes = _run_operation(self._writer, commit([one.write for one in batch]))
            except Exception as error:  # whatever it is: this thread goes on
                failure = error if isinstance(error, StoreError) else StatementFailed(cause=type(error).__name__)
                outcomes = [failure.copy() for _ in batch]
            if self._writer.in_transaction:
                with suppress(sqlite3.Error):  # if the disk is gone, the next transaction says so
                    self._writer.execute("ROLLBACK")
        if self._writer.has_erased:
            self._writer.has_erased = False
            self._wal_truncation.schedule()
        for loop in {one.loop for one in batch}:
            results = [(one.future, outcome) for one, outcome in zip(batch, outcomes, strict=True) if one.loop is loop]
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set_results, results)


class WalTruncation:
    """What was erased goes from the log of changes too. `path` is None for a store in memory, which has none.

    A page that was overwritten still stands in the log (`-wal`) as it was, until the log is begun anew. So after
    something was erased, the log is carried over into the file and emptied: by the writer, when nobody waits for it,
    and at most once a second. A reader who is in the middle of something, of this process or another, may be in the
    way: then it is tried again. What an earlier process left in the log may hold what it erased, and is treated so."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._due_at: float | None = None
        self._last_try_at = -TRUNCATE_INTERVAL_SECONDS
        if path is not None:
            with suppress(OSError):
                if os.path.getsize(f"{path}-wal"):
                    self.schedule()

    def schedule(self) -> None:
        """Something was erased."""
        if self._path is not None and self._due_at is None:
            self._due_at = max(time.monotonic(), self._last_try_at + TRUNCATE_INTERVAL_SECONDS)

    def wait_seconds(self) -> float | None:
        """How many seconds the writer may wait for something to write. None: for ever."""
        return None if self._due_at is None else max(0.0, self._due_at - time.monotonic())

    @property
    def is_overdue(self) -> bool:
        return self._due_at is not None and time.monotonic() > self._due_at + OVERDUE_SECONDS

    def truncate(self, connection: sqlite3.Connection, busy_timeout_seconds: float) -> None:
        """Empty the log, if there is need. `usual_seconds`: how long the connection waits for others otherwise."""
        if self._due_at is None:
            return
        is_truncated = False
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {TRUNCATE_BUSY_TIMEOUT_MS}")
            try:
                is_truncated = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            finally:
                connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout_seconds * 1000)}")
        self._last_try_at = time.monotonic()
        self._due_at = None if is_truncated else self._last_try_at + TRUNCATE_INTERVAL_SECONDS


def _set_results(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():  # the caller left
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _run_operation(connection: _Connection, op: Operation[R]) -> R:
    rows: list[Row] | None = None
    failure: StoreError | None = None
    while True:
        try:
            request = op.throw(failure) if failure else op.send(rows)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            rows, failure = _execute(connection, request), None
        except Exception as error:  # also what the driver says of a value before SQLite sees it
            failure = _to_store_error(error)


def _execute(connection: _Connection, request: Execute) -> list[Row]:
    statement, params = request
    if isinstance(statement, str):
        # Who reads all as of one moment wants to see it as it is, also where somebody put there what is no text.
        connection.text_factory = _decode_any_text if statement == "SNAPSHOT" else str
        connection.execute(_TRANSACTION_STEPS.get(statement, statement))
        return []
    compiled = statement.compile_for(_DIALECT)
    before = connection.total_changes
    rows: list[Row] = []
    if isinstance(params, list):
        connection.executemany(compiled.text, [compiled.values(one) for one in params])
    else:
        rows = connection.execute(compiled.text, compiled.values(params)).fetchall()
    if compiled.erases and connection.total_changes > before:
        connection.has_erased = True
    return rows


def _decode_any_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _to_store_error(error: Exception) -> StoreError:
    cause = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if cause in ("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"):
        return AlreadyStored(cause=cause)
    # What SQLite calls just an error is our own: a table that is not there, say. To try again helps nobody.
    is_unavailable = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return StoreUnavailable(cause=cause) if is_unavailable and cause != "SQLITE_ERROR" else StatementFailed(cause=cause)


def _enable_wal(connection: _Connection) -> None:
    """Another process that does the same at this moment is not waited for by SQLite itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _migrate(connection: _Connection) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = None
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            version = row and row[0]
        for statement in migration_statements("sqlite", version):
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _enable_index_secure_delete(connection: _Connection) -> None:
    """What `secure_delete` is for tables, for the index of search. (It came with 3.42, and is trusted from 3.45 on.)"""
    if sqlite3.sqlite_version_info < (3, 45):
        return
    if not connection.execute("SELECT 1 FROM texts_grams_config WHERE k = 'secure-delete' AND v = 1").fetchone():
        connection.execute("INSERT INTO texts_grams(texts_grams, rank) VALUES ('secure-delete', 1)")


def _closed_error() -> StoreError:
    return StoreError("the store is closed: this server is shutting down")
