"""Detached runs: each is driven by a task, writes a log that any replica can follow, and ends in the store.

* A run belongs to the holder of its lease (`driver.Lease`). The fencing token of the lease protects the log and the
  store: a write of a holder that lost the lease is rejected.
* The end is written in this order: store, log, lease. A reader that sees the end finds it in the store.
* When a lease lapses because its holder died, exactly one other replica closes the log and stores the received part of
  the run as failed. The same happens to a run that the relay does not know any more, when its row was not updated for
  `UNTOUCHED_LEASES` leases.
* A run continues while the relay is unavailable, and its end is stored. Its followers receive an error.

Any `RunSource` can be driven. This module does not know how the row of the run was made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias
from weakref import WeakSet

from ..errors import ErrorInfo, PellucidError, RequestError
from ..events import RunEndEvent
from ..fold import fold
from ..relay import FencedError, LogEntry, LogLost, Relay
from ..storage import Store, StoredResponse
from ..telemetry import error_location, log
from .driver import LOG_RETENTION_SECONDS, NAME_PREFIX, Driver, parse_run_name, run_name
from .replay import LiveLog
from .run_log import decode_readable, encode_batch, events_of, unpack_log
from .source import Batch, RunSource, clock_ms
from .stored_run import ABANDONED, closing_events, prepare_final_run, store_end

LEASE_SECONDS = 15.0
"""Seconds until the lease of a dead replica lapses, and another replica ends its runs."""

UNTOUCHED_LEASES = 2.0
"""A row that was not updated for this number of leases is abandoned, if the relay knows no driver for it."""

MAX_CONCURRENT_ENDS = 16
"""Maximum number of abandoned runs that are ended concurrently."""

END_TIMEOUT_SECONDS = 10.0
"""Seconds that interrupted runs have to store their ends at shutdown."""

BeginRow: TypeAlias = Callable[[StoredResponse, int], Awaitable[None]]
"""Stores the row of a run that is about to start, with a fencing token, as `Responses.begin` does."""


def _id_taken_error() -> RequestError:
    return RequestError("a run with this id exists, or existed before; use another id", code="already_exists")


class DetachedRuns:
    """Drives the detached runs of this process, and ends abandoned runs of other replicas.

    Args:
        store: Where runs end.
        relay: Holds the leases, logs and mailboxes of runs.
        holder: Name of this process as a lease holder.
        lease_seconds: Time after which a lease lapses that is not renewed.
        is_only_driver: Whether no other process can drive runs of this store. Then the unfinished runs of the process
            before this one are ended at once.
        on_end: Called with the row of a run that ended here, after its end was stored.
    """

    def __init__(
        self,
        store: Store,
        relay: Relay,
        *,
        holder: str,
        lease_seconds: float = LEASE_SECONDS,
        is_only_driver: bool = False,
        on_end: Callable[[StoredResponse], None] = lambda row: None,
    ) -> None:
        self.store = store
        self.relay = relay
        self.holder = holder
        self.lease_seconds = lease_seconds
        self._only_driver_since = time.time() if is_only_driver else 0.0
        self._on_end = on_end
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._own_names: set[str] = set()
        """Names of the runs in `_drivers`, and of runs that are about to start."""
        self.sources: WeakSet[RunSource] = WeakSet()
        """The runs that were started here. Some may be over."""
        self._watch_task: asyncio.Task[None] | None = None
        self._stop_reason: ErrorInfo | None = None

    async def start(
        self, row: StoredResponse, run: RunSource, *, is_client_id: bool = False, begin: BeginRow | None = None
    ) -> None:
        """Start to drive `run`. Its log can be followed as soon as this returns.

        Args:
            row: The response as it is stored while the run is in progress.
            run: The source to drive.
            is_client_id: Whether the client chose the id. Then an earlier run may have the same id, which is an error.
            begin: Stores the row; by default `Responses.begin`. Its errors are raised.

        Raises:
            PellucidError: If the run was not started.
        """
        if self._stop_reason is not None:
            raise PellucidError(self._stop_reason)
        driver = Driver(self.store, self.relay, self.holder, self.lease_seconds, row, run)
        lease = driver.lease
        if lease.name in self._own_names:
            raise _id_taken_error()
        self._own_names.add(lease.name)
        try:
            if not await lease.claim():
                raise _id_taken_error()
            try:
                if is_client_id:
                    await self._check_unused(lease.name, lease.fence)
                await (begin or self.store.responses.begin)(row, lease.fence)
            except BaseException:
                await lease.release()
                raise
        except BaseException:
            self._own_names.discard(lease.name)
            raise
        self.sources.add(run)
        task = asyncio.create_task(driver.drive())
        self._drivers[lease.name] = driver, task
        task.add_done_callback(lambda _: self._on_driver_done(lease.name, row))
        if (reason := self.stop_reason) is not None:  # the process began to stop meanwhile
            driver.stop(reason)

    async def _check_unused(self, name: str, fence: int) -> None:
        """Raise `RequestError` if the relay still knows a run of this name, even if its log is gone."""
        try:
            await self.relay.append(name, [], fence)
        except (FencedError, LogLost):
            raise _id_taken_error() from None

    def follow(self, row: StoredResponse) -> LiveLog:
        """Return the live log of a run, from its first batch, on whichever replica the run is driven."""
        return LiveLog(self.relay.follow(run_name(row.owner, row.id)))

    async def read_batches(self, row: StoredResponse) -> list[Batch]:
        """Return all batches that are in the log of a run now, on whichever replica it is driven.

        Raises:
            RelayError: If the log cannot be read.
        """
        return decode_readable(await self._read_log(run_name(row.owner, row.id)))

    async def cancel(self, row: StoredResponse) -> None:
        """Ask the driver of a run to stop it. The log ends when the run has stopped."""
        await self.relay.publish(run_name(row.owner, row.id), b"cancel")

    async def drop_log(self, row: StoredResponse) -> None:
        """Drop the live log of a deleted response. A log remains for a while after its run has ended."""
        with suppress(PellucidError):  # the relay drops it later by itself
            await self.relay.drop(run_name(row.owner, row.id), 0)

    # --- life cycle of the process -----------------------------------------------------------------------------

    def start_watching(self) -> None:
        """Start the task that ends abandoned runs of other replicas."""
        self._watch_task = asyncio.create_task(self._watch_others())

    @property
    def count(self) -> int:
        """How many runs this process drives."""
        return len(self._drivers)

    @property
    def stop_reason(self) -> ErrorInfo | None:
        """The error with which new runs are rejected, once the process is stopping; None before that."""
        return self._stop_reason

    def stop_all(self, reason: ErrorInfo) -> None:
        """End every run now as failed, with `reason` as its error. New runs are rejected with the same error."""
        self._stop_reason = self._stop_reason or reason
        for driver, _ in list(self._drivers.values()):
            driver.stop(reason)

    async def aclose(self, timeout_seconds: float, reason: ErrorInfo) -> None:
        """Wait `timeout_seconds` for runs to finish, then end the others as failed, with `reason` as their error."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=timeout_seconds)
        self.stop_all(reason)
        if tasks := self._tasks():
            _, late = await asyncio.wait(tasks, timeout=END_TIMEOUT_SECONDS)
            # Their leases lapse, and another replica ends the runs.
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _on_driver_done(self, name: str, row: StoredResponse) -> None:
        self._own_names.discard(name)
        del self._drivers[name]
        self._on_end(row)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._drivers.values()]

    # --- abandoned runs ----------------------------------------------------------------------------------------

    async def _watch_others(self) -> None:
        while True:
            try:
                await self._end_abandoned(await self.relay.lapsed_leases(NAME_PREFIX), lapsed=True)
                # Runs whose lease was lost together with the data of the relay.
                before = max(time.time() - UNTOUCHED_LEASES * self.lease_seconds, self._only_driver_since)
                untouched = await self.store.responses.unfinished(before)
                await self._end_abandoned((run_name(owner, id) for id, owner, _ in untouched), lapsed=False)
            except PellucidError as error:
                log.warning("cannot check for abandoned runs: %s", error.info.message)
            except Exception as error:
                log.error("a fault while checking for abandoned runs: %s", error_location(error))
            await asyncio.sleep(self.lease_seconds / 3)

    async def _end_abandoned(self, names: Iterable[str], *, lapsed: bool) -> None:
        """End abandoned runs concurrently. A run that cannot be ended does not affect the others."""
        slots = asyncio.Semaphore(MAX_CONCURRENT_ENDS)

        async def end_one(name: str) -> None:
            async with slots:
                try:
                    await self._end_abandoned_run(name, lapsed=lapsed)
                except PellucidError as error:
                    log.warning("cannot end an abandoned run: %s", error.info.message)
                except Exception as error:
                    log.error("a fault while ending an abandoned run: %s", error_location(error))

        # A run that this process drives is not abandoned, even if the process was suspended for long.
        await asyncio.gather(*(end_one(name) for name in names if name not in self._own_names))

    async def _end_abandoned_run(self, name: str, *, lapsed: bool) -> None:
        """Write the end of an abandoned run, unless another replica does."""
        relay, (owner, id) = self.relay, parse_run_name(name)
        fence = await relay.claim(name, self.holder, self.lease_seconds, lapsed=lapsed)
        if fence is None:
            return
        row = await self.store.responses.take_over(owner, id, fence)
        batches = decode_readable(await self._read_log(name))
        # Logs that an older version wrote contain batches without events.
        events = events_of(batches)
        has_ended = bool(events) and isinstance(events[-1], RunEndEvent)
        if row is not None:
            last = batches.pop() if has_ended else Batch(clock_ms(), closing_events(fold(events), id, ABANDONED))
            if await store_end(self.store, await prepare_final_run(row, batches, last), fence):
                log.warning("a run was abandoned by its replica, and ended here")
            tail = [last]
        else:
            tail = await self._tail(owner, id, batches)
        if not has_ended:
            with suppress(FencedError, LogLost):
                await relay.append(name, [encode_batch(batch) for batch in tail], fence, last=True)
                await relay.drop(name, LOG_RETENTION_SECONDS)
        await relay.release(name, fence)
        if row is not None:
            self._on_end(row)

    async def _tail(self, owner: str, id: str, batches: list[Batch]) -> list[Batch]:
        """Return the missing last batches of a log, for a run whose end is stored already or whose row was deleted."""
        row = await self.store.responses.get(owner, id, log=True)
        tail = unpack_log(row.log)[len(batches) :] if row is not None and row.log else []
        return tail or [Batch(clock_ms(), closing_events(fold(events_of(batches)), id, ABANDONED))]

    async def _read_log(self, name: str) -> list[LogEntry]:
        """Return all entries that are in a log now; none if the log is lost."""
        count = await self.relay.length(name)
        read: list[LogEntry] = []
        follower = self.relay.follow(name) if count else None
        try:
            while follower is not None and len(read) < count:
                more = await follower.read()
                if more is None:
                    break
                read += more
        except LogLost:
            return []
        finally:
            if follower is not None:
                follower.close()
        return read
