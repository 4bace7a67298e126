"""Database in SQLite: one thread writes, a few threads read.

SQLite allows one writer at a time, and the cost of a write is the wait for the disk. So all writes go through one
thread, and writes that arrive during a transaction become the next transaction (`commit`). Readers have their own
connections, and never wait for the writer (WAL mode). With `synchronous=FULL`, an acknowledged write survives a loss of
power, not only a crash of the process. Deleted data is overwritten, also in the write-ahead log (`WalTruncation`).
Several processes may share a file.

A store in memory has one connection, protected by a lock.
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
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from .database import MAX_BATCH, Database, Write, commit, set_outcomes
from .errors import AlreadyStored, StatementFailed, StoreError, StoreUnavailable
from .migrate import migration_statements
from .statement import A, Execute, Operation, R, Row

MAX_READERS = 3
CACHE_KIB = 8_192
"""Maximum page cache of the writer: it holds the ends of all indexes, and the pages that the search index changes."""
WAL_CHECKPOINT_PAGES = 4_000
"""Size of the write-ahead log at which it is checkpointed into the file (16 MB). A checkpoint writes a page once, even
if it was changed often."""
BUSY_TIMEOUT_SECONDS = 10
"""Seconds that a process waits for the transaction of another one."""
TRUNCATE_INTERVAL_SECONDS = 1.0
"""Minimum seconds between two truncations of the write-ahead log because data was erased."""
OVERDUE_SECONDS = 5.0
"""Seconds after which a due truncation is done even if writes are waiting."""
TRUNCATE_BUSY_TIMEOUT_MS = 100
"""Milliseconds that a truncation waits for readers, while writes wait for it."""

MIN_FREE_BYTES = 1 << 20
"""Free bytes of the disk below which it is not believed that the file can be written, until a write succeeds."""

_DIALECT = sqlite_dialect()

# A writing transaction takes the write lock at its begin: the upgrade of a read transaction may fail.
_TRANSACTION_STEPS = {"BEGIN": "BEGIN IMMEDIATE", "SNAPSHOT": "BEGIN DEFERRED"}


class _Connection(sqlite3.Connection):
    has_erased = False
    """Whether data was deleted that must also vanish from the disk."""


class SqliteDatabase(Database):
    """`Database` in SQLite. `path` is None for a database in memory."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._path = path
        self._pending: SimpleQueue[Write | None] = SimpleQueue()
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
        """Open or create the database, and migrate its tables if needed.

        Raises:
            StoreError: If the file cannot be opened, or is not a SQLite database.
        """
        try:
            return await asyncio.to_thread(cls, path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{path} cannot be opened as a SQLite database; it must be a file in a directory that one can write to",
                cause=type(error).__name__,
            ) from None

    async def _read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._reader_pool, self._read_in_thread, op, argument)

    def _enqueue(self, write: Write) -> None:
        self._pending.put(write)

    async def _is_write_doubtful(self) -> bool:
        return self._path is not None and await asyncio.to_thread(_is_nearly_full, self._path)

    async def _close(self) -> None:
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
            # Only this user may read the file. An existing file is not opened here: closing it would release all locks
            # that this process holds on it by other connections (POSIX), and then another process that exits could
            # delete the write-ahead log while it is in use.
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
            isolation_level=None,  # transactions begin and end only by explicit statements
            check_same_thread=False,
            factory=_Connection,
        )

    def _read_in_thread(self, op: Callable[[A], Operation[R]], argument: A) -> R:
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
            if batch := [write for write in pending if write is not None]:
                self._commit(batch)
            # Release the rows before the wait for the next write.
            batch.clear()
            pending.clear()
            if is_last or self._wal_truncation.is_overdue:
                self._wal_truncation.truncate(self._writer, BUSY_TIMEOUT_SECONDS)

    def _commit(self, batch: list[Write]) -> None:
        self.transactions += 1
        outcomes: list[Any]
        with self._connection_lock:
            try:
                outcomes = _run_operation(self._writer, commit(batch))
            except Exception as error:  # the thread must continue after any error
                failure = error if isinstance(error, StoreError) else StatementFailed(cause=type(error).__name__)
                outcomes = [failure.copy() for _ in batch]
            if self._writer.in_transaction:
                with suppress(sqlite3.Error):  # if the disk is gone, the next transaction fails
                    self._writer.execute("ROLLBACK")
        if self._writer.has_erased:
            self._writer.has_erased = False
            self._wal_truncation.schedule()
        for loop in {write.future.get_loop() for write in batch}:
            of_loop = [pair for pair in zip(batch, outcomes, strict=True) if pair[0].future.get_loop() is loop]
            with suppress(RuntimeError):  # the loop is closed, so there are no waiters
                loop.call_soon_threadsafe(set_outcomes, of_loop)


class WalTruncation:
    """Truncates the write-ahead log after data was erased. `path` is None for a store in memory, which has no log.

    The old content of an overwritten page remains in the log (`-wal`) until the log is reset. So after an erasure, the
    writer checkpoints the log into the file and truncates it, when no write is waiting, and at most once a second. A
    reader with an open transaction, in this process or another one, may prevent it: then it is tried again. A log that
    an earlier process left may contain erased data, and is truncated too.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._due_at: float | None = None
        self._last_try_at = -TRUNCATE_INTERVAL_SECONDS
        if path is not None:
            with suppress(OSError):
                if os.path.getsize(f"{path}-wal"):
                    self.schedule()

    def schedule(self) -> None:
        """Schedule a truncation, because data was erased."""
        if self._path is not None and self._due_at is None:
            self._due_at = max(time.monotonic(), self._last_try_at + TRUNCATE_INTERVAL_SECONDS)

    def wait_seconds(self) -> float | None:
        """Return how many seconds the writer may wait for the next write; None: without a limit."""
        return None if self._due_at is None else max(0.0, self._due_at - time.monotonic())

    @property
    def is_overdue(self) -> bool:
        """Whether the truncation is due for so long that writes must wait for it."""
        return self._due_at is not None and time.monotonic() > self._due_at + OVERDUE_SECONDS

    def truncate(self, connection: sqlite3.Connection, busy_timeout_seconds: float) -> None:
        """Truncate the log, if it is scheduled. `busy_timeout_seconds`: the busy timeout to restore afterwards."""
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


def _run_operation(connection: _Connection, op: Operation[R]) -> R:
    resume: Callable[[], Execute] = partial(next, op)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            resume = partial(op.send, _execute(connection, request))
        except Exception as error:  # also errors of the driver for a value that it cannot bind
            resume = partial(op.throw, _to_store_error(error))


def _execute(connection: _Connection, request: Execute) -> list[Row]:
    statement, params = request
    if isinstance(statement, str):
        # An export of the record must also read columns that contain bytes which are not UTF-8, after tampering.
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
    # SQLITE_ERROR is an error in the statement, for example a missing table. A repetition would fail again.
    is_unavailable = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return StoreUnavailable(cause=cause) if is_unavailable and cause != "SQLITE_ERROR" else StatementFailed(cause=cause)


def _is_nearly_full(path: str) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:  # the file is gone
        return True
    return disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES


def _enable_wal(connection: _Connection) -> None:
    """Switch to WAL mode, with retries: SQLite's busy timeout does not cover a concurrent switch by another process."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def stored_version(connection: sqlite3.Connection) -> str | None:
    """Return the version of the tables of a database; None: it has none yet."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return None
    row: tuple[str] | None = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row and row[0]


def _migrate(connection: _Connection) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for statement in migration_statements("sqlite", stored_version(connection)):
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _enable_index_secure_delete(connection: _Connection) -> None:
    """Enable secure deletion in the search index, as `secure_delete` does in tables.

    FTS5 has this option since SQLite 3.42. It is used from 3.45 on.
    """
    if sqlite3.sqlite_version_info < (3, 45):
        return
    if not connection.execute("SELECT 1 FROM texts_grams_config WHERE k = 'secure-delete' AND v = 1").fetchone():
        connection.execute("INSERT INTO texts_grams(texts_grams, rank) VALUES ('secure-delete', 1)")
