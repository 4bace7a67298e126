"""The interface of the drivers (`sqlite`, `postgres`), and what they share.

Group commit (`commit`): all waiting writes become one transaction, which costs one wait for the disk. Its rules:

* Adjacent writes with the same operation are executed together, in most cases with one statement for all.
* A write that fails does not affect the others. Since failures are rare, they are isolated afterwards: the transaction
  is rolled back, and repeated with a savepoint around each write.
* A transaction that conflicts with another one (for example a deadlock with another replica) is repeated unchanged.
* The order of writes is preserved.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from ..record import Recording
from . import tables
from .errors import OutageLog, StatementFailed, StoreError, StoreUnavailable
from .statement import ID, A, BulkOperation, Execute, Operation, Params, R, Statement, for_each

MAX_TRIES = 5
MAX_BATCH = 256
"""Maximum number of writes in one transaction."""

BEGIN, COMMIT, ROLLBACK = Execute("BEGIN", {}), Execute("COMMIT", {}), Execute("ROLLBACK", {})
SNAPSHOT = Execute("SNAPSHOT", {})
"""Begins a read transaction: all queries until `COMMIT` see the state of one moment."""
SAVEPOINT, ROLLBACK_TO_SAVEPOINT, RELEASE_SAVEPOINT = (
    Execute(f"{step} one", {}) for step in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)


class Write(NamedTuple):
    """One write: an operation, its argument, and the future of its result."""

    op: BulkOperation[Any, Any]
    argument: Any
    future: asyncio.Future[Any]


Outcome: TypeAlias = Any
"""The result of a write, or its exception."""


def commit(writes: list[Write]) -> Operation[list[Outcome]]:
    """Execute all writes in one transaction, or each in its own savepoint if one fails.

    Returns:
        The result or the exception of each write, in order.

    Raises:
        StoreUnavailable: If the database does not answer, so that the results are unknown.
    """
    for _ in range(MAX_TRIES):
        try:
            yield BEGIN
            results = yield from _run_together(writes)
            yield COMMIT
        except StoreUnavailable:
            raise
        except Exception as error:
            yield ROLLBACK
            if isinstance(error, StatementFailed) and error.is_retryable:
                continue
            if len(writes) == 1:
                return [error]
            break
        else:
            return results
    return (yield from _run_with_savepoints(writes))


def _run_together(writes: list[Write]) -> Operation[list[Outcome]]:
    results: list[Outcome] = []
    for op, same in groupby(writes, lambda write: write.op):
        results += yield from op([write.argument for write in same])
    return results


def _run_with_savepoints(writes: list[Write]) -> Operation[list[Outcome]]:
    yield BEGIN
    outcomes: list[Outcome] = []
    for write in writes:
        yield SAVEPOINT
        try:
            outcomes += yield from write.op([write.argument])
        except StoreUnavailable:
            raise
        except Exception as error:
            yield ROLLBACK_TO_SAVEPOINT
            outcomes.append(error)
        yield RELEASE_SAVEPOINT
    yield COMMIT
    return outcomes


def set_outcomes(outcomes: Iterable[tuple[Write, Outcome]]) -> None:
    """Pass results and exceptions to the callers that still wait for them."""
    for write, outcome in outcomes:
        if write.future.done():  # the caller left
            continue
        if isinstance(outcome, BaseException):
            write.future.set_exception(outcome)
        else:
            write.future.set_result(outcome)


CHECK_SECONDS = 1.0
"""Minimum seconds between two checks whether the database can be written."""
CHECK_LIMIT_SECONDS = 5.0
"""Maximum seconds of such a check."""
PROBE_BYTES = 64 * 1024
"""What is written for such a check: enough to need new pages."""

_INSERT_PROBE = Statement(sa.insert(tables.bodies))
_DELETE_PROBE = Statement(sa.delete(tables.bodies).where(tables.bodies.c.response_id == ID), erases=False)


@for_each
def _write_probe(params: Params) -> Operation[None]:
    """Insert a row and delete it, in one transaction, so that it is never visible."""
    id = params["for_id"]
    row: Params = {"owner": "", "response_id": id, "header": b"", "input": b"", "messages": b"", "error": None}
    yield Execute(_INSERT_PROBE, {**row, "item_ids": None, "log": secrets.token_bytes(PROBE_BYTES)})
    yield Execute(_DELETE_PROBE, params)


class Database(ABC):
    """A database driver."""

    def __init__(self) -> None:
        self.transactions = 0
        """Number of write transactions that this process has begun."""
        self._read_outages, self._write_outages = OutageLog("read"), OutageLog("written")
        self._checked_at = -CHECK_SECONDS
        self._is_closed = False

    async def read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        """Run an operation that writes nothing. After a connection error, it may be started a second time."""
        self._require_open()
        with self._read_outages:
            return await self._read(op, argument)

    async def write(self, op: BulkOperation[A, R], argument: A) -> R:
        """Run a write, in one transaction with other waiting writes. When this returns, the data is on the disk.

        If the caller is cancelled, the write is not undone.
        """
        self._require_open()
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._enqueue(Write(op, argument, future))
        with self._write_outages:
            return await future

    def write_later(self, op: BulkOperation[A, R], argument: A) -> None:
        """Run a write as `write` does, after those that wait now. Its result is ignored, also if it fails."""
        if not self._is_closed:
            future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            future.cancel()  # `set_outcomes` skips callers that left
            self._enqueue(Write(op, argument, future))

    async def require_writable(self) -> None:
        """Check that the database can be written, as far as is known.

        It is known from the last write. Once a second it is checked whether there is a reason to doubt, and only then
        something is written.

        Raises:
            StoreUnavailable: It cannot be written.
        """
        outages, now = self._write_outages, time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now  # callers in the meantime continue with what was known before
            try:
                async with asyncio.timeout(CHECK_LIMIT_SECONDS):
                    if outages.has_failed or await self._is_write_doubtful():
                        await self.write(_write_probe, {"for_id": f"probe_{secrets.token_hex(8)}"})
            except (StoreUnavailable, TimeoutError):
                outages.has_failed = True
        if outages.has_failed:
            raise StoreUnavailable("the store cannot be written; try again in a moment")

    async def aclose(self) -> None:
        """Finish waiting writes, and close all connections."""
        if not self._is_closed:
            self._is_closed = True
            await self._close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError("the store is closed: this server is shutting down")

    @abstractmethod
    async def _read(self, op: Callable[[A], Operation[R]], argument: A) -> R: ...

    @abstractmethod
    def _enqueue(self, write: Write) -> None: ...

    @abstractmethod
    async def _is_write_doubtful(self) -> bool:
        """Return whether a write might fail, as far as can be seen without a write."""

    @abstractmethod
    async def _close(self) -> None: ...


class StoreOperations:
    """Base class of the operations on one kind of stored data (`store.responses` …).

    Args:
        database: The driver.
        clock: Returns the current time, in seconds since 1970.
        recording: Whether contents are recorded, and the keys for seals.
    """

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self.recording = recording

    def _params(self, owner: str, id: str) -> Params:
        """Return the parameters of an operation on one object of an owner."""
        return {"for_owner": owner, "for_id": id, "now": self._clock(), "recording": self.recording}
