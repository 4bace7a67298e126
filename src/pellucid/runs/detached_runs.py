"""Runs that no request drives: each is a task here, writes a log that any replica can follow, and ends in the store.

* A run belongs to the holder of its lease (`lease`). The lease's token fences the log and the store: what somebody
  writes who lost it lands nowhere.
* The end is written in this order: store, log, lease. Who reads the end finds it kept.
* When a lease lapses (its holder died), exactly one survivor closes the log and keeps what came, as failed. So it does
  for a run of which the relay knows nothing any more, once nobody has touched its row for `UNTOUCHED_LEASES` leases.
* A relay that is away does not stop a run: it goes on, and its end is kept. Its followers are told that they lost it.

What is driven is any `RunSource`; how its row came to be is not known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

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
"""How long a dead replica's runs wait for a survivor."""

UNTOUCHED_LEASES = 2.0
"""So many leases a row may go untouched, when the relay does not know who drives it."""

MAX_CONCURRENT_ENDS = 16
"""How many runs of the dead are ended at a time."""

END_TIMEOUT_SECONDS = 10.0
"""How long the ends of runs that were broken off have, to be kept."""

BeginRow: TypeAlias = Callable[[StoredResponse, int], Awaitable[None]]
"""Keep a row that is still to run, under a fence, as `Responses.begin` does."""


def _id_taken_error() -> RequestError:
    return RequestError(
        "there is, or was, a run with this id already; each needs an id of its own", code="already_exists"
    )


class DetachedRuns:
    """The detached runs of one process, and its eye on those of others."""

    def __init__(self, store: Store, relay: Relay, *, holder: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.relay = relay
        self.holder = holder
        self.lease_seconds = lease_seconds
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._own_names: set[str] = set()
        """The names of these, and of those that are about to start."""
        self._watch_task: asyncio.Task[None] | None = None
        self._stop_reason: ErrorInfo | None = None

    async def start(
        self, row: StoredResponse, run: RunSource, *, is_client_id: bool = False, begin: BeginRow | None = None
    ) -> None:
        """Drive `run` from now on; its log can be followed at once. Raises `PellucidError` if nothing was begun.

        `chosen`: the id was not made here, so there may be, or have been, a run with it. That is refused.
        `begin`: how its row is kept, if not by itself; what this raises is raised.
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
        task = asyncio.create_task(driver.drive())
        self._drivers[lease.name] = driver, task
        task.add_done_callback(lambda _: self._on_driver_done(lease.name))
        if (reason := self.stop_reason) is not None:  # meanwhile
            driver.stop(reason)

    async def _check_unused(self, name: str, fence: int) -> None:
        """Raises `RequestError` if the relay still knows a run of that name, though its log be gone."""
        try:
            await self.relay.append(name, [], fence)
        except (FencedError, LogLost):
            raise _id_taken_error() from None

    def follow(self, row: StoredResponse) -> LiveLog:
        """The run, from its beginning, wherever it is driven."""
        return LiveLog(self.relay.follow(run_name(row.owner, row.id)))

    async def read_batches(self, row: StoredResponse) -> list[Batch]:
        """All that the run has said until now, wherever it is driven. Raises `RelayError`."""
        return decode_readable(await self._read_log(run_name(row.owner, row.id)))

    async def cancel(self, row: StoredResponse) -> None:
        """Ask whoever drives it to stop. Its log ends when it has."""
        await self.relay.publish(run_name(row.owner, row.id), b"cancel")

    async def drop_log(self, row: StoredResponse) -> None:
        """Let go of its live log, which outlives a run for a while: it was deleted."""
        with suppress(PellucidError):  # it goes by itself later
            await self.relay.drop(run_name(row.owner, row.id), 0)

    # --- the process's life ------------------------------------------------------------------------------------

    def start_watching(self) -> None:
        """Look after the runs of replicas that are gone, from now on."""
        self._watch_task = asyncio.create_task(self._watch_others())

    @property
    def stop_reason(self) -> ErrorInfo | None:
        """Why no run is begun any more, if none is."""
        return self._stop_reason

    def stop_all(self, reason: ErrorInfo) -> None:
        """End every run now, as failed because of `why`. None is begun any more."""
        self._stop_reason = self._stop_reason or reason
        for driver, _ in list(self._drivers.values()):
            driver.stop(reason)

    async def aclose(self, timeout_seconds: float, reason: ErrorInfo) -> None:
        """Let runs finish for `patience` seconds, then end them as failed because of `why`."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=timeout_seconds)
        self.stop_all(reason)
        if tasks := self._tasks():
            _, late = await asyncio.wait(tasks, timeout=END_TIMEOUT_SECONDS)
            # Their leases lapse, and whoever finds them ends them.
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _on_driver_done(self, name: str) -> None:
        self._own_names.discard(name)
        del self._drivers[name]

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._drivers.values()]

    # --- the runs of the dead ----------------------------------------------------------------------------------

    async def _watch_others(self) -> None:
        while True:
            try:
                await self._end_abandoned(await self.relay.lapsed_leases(NAME_PREFIX), lapsed=True)
                # Runs whose lease was lost with the relay that held it.
                untouched = await self.store.responses.unfinished(time.time() - UNTOUCHED_LEASES * self.lease_seconds)
                await self._end_abandoned((run_name(owner, id) for id, owner, _ in untouched), lapsed=False)
            except PellucidError as error:
                log.warning("cannot look after the runs of others: %s", error.info.message)
            except Exception as error:
                log.error("a fault while looking after the runs of others: %s", error_location(error))
            await asyncio.sleep(self.lease_seconds / 3)

    async def _end_abandoned(self, names: Iterable[str], *, lapsed: bool) -> None:
        """One that cannot be ended does not keep the others from it."""
        slots = asyncio.Semaphore(MAX_CONCURRENT_ENDS)

        async def end_one(name: str) -> None:
            async with slots:
                try:
                    await self._end_abandoned_run(name, lapsed=lapsed)
                except PellucidError as error:
                    log.warning("cannot end the run of a replica that is gone: %s", error.info.message)
                except Exception as error:
                    log.error("a fault while ending the run of a replica that is gone: %s", error_location(error))

        # What this process drives itself is not dead, however long the process may have stood still.
        await asyncio.gather(*(end_one(name) for name in names if name not in self._own_names))

    async def _end_abandoned_run(self, name: str, *, lapsed: bool) -> None:
        """Write the end of a run whose driver is gone, unless somebody else does."""
        relay, (owner, id) = self.relay, parse_run_name(name)
        fence = await relay.claim(name, self.holder, self.lease_seconds, lapsed=lapsed)
        if fence is None:
            return
        row = await self.store.responses.take_over(owner, id, fence)
        batches = decode_readable(await self._read_log(name))
        # Logs of older versions hold batches without events.
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

    async def _tail(self, owner: str, id: str, batches: list[Batch]) -> list[Batch]:
        """What the log of a run lacks whose driver went after its end was kept, or that was deleted."""
        row = await self.store.responses.get(owner, id, log=True)
        tail = unpack_log(row.log)[len(batches) :] if row is not None and row.log else []
        return tail or [Batch(clock_ms(), closing_events(fold(events_of(batches)), id, ABANDONED))]

    async def _read_log(self, name: str) -> list[LogEntry]:
        """All that is in a log now."""
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
