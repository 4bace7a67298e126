"""Runs that no request drives: each is a task here, writes a log that any replica can follow, and ends in the store.

* A run belongs to the holder of its lease (`lease`). The lease's token fences the log and the store: what somebody
  writes who lost it lands nowhere.
* The end is written in this order: store, log, lease. Who reads the end finds it kept.
* When a lease lapses (its holder died), exactly one survivor closes the log and keeps what came, as failed. So it does
  for a run of which the relay knows nothing any more, once nobody has touched its row for `SILENT` leases.
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
from ..relay import Fenced, LogEntry, LogLost, Relay
from ..storage import Store, StoredResponse
from ..telemetry import log, place_of
from .driving import LOG_SECONDS, PREFIX, Driver, name_of, of_name
from .log import encode_batch, events_of, readable, unpack
from .replay import LiveLog
from .source import Batch, RunSource, clock_ms
from .stored_run import ABANDONED, closing, ending, keep_end

LEASE_SECONDS = 15.0
"""How long a dead replica's runs wait for a survivor."""

SILENT = 2.0
"""So many leases a row may go untouched, when the relay does not know who drives it."""

AT_ONCE = 16
"""How many runs of the dead are ended at a time."""

END_SECONDS = 10.0
"""How long the ends of runs that were broken off have, to be kept."""

Begin: TypeAlias = Callable[[StoredResponse, int], Awaitable[None]]
"""Keep a row that is still to run, under a fence, as `Responses.begin` does."""


def _taken() -> RequestError:
    return RequestError(
        "there is, or was, a run with this id already; each needs an id of its own", code="already_exists"
    )


class Detached:
    """The detached runs of one process, and its eye on those of others."""

    def __init__(self, store: Store, relay: Relay, *, holder: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.relay = relay
        self.holder = holder
        self.lease_seconds = lease_seconds
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._mine: set[str] = set()
        """The names of these, and of those that are about to start."""
        self._watch: asyncio.Task[None] | None = None
        self._stopping: ErrorInfo | None = None

    async def start(
        self, row: StoredResponse, run: RunSource, *, chosen: bool = False, begin: Begin | None = None
    ) -> None:
        """Drive `run` from now on; its log can be followed at once. Raises `PellucidError` if nothing was begun.

        `chosen`: the id was not made here, so there may be, or have been, a run with it. That is refused.
        `begin`: how its row is kept, if not by itself; what this raises is raised.
        """
        if self._stopping is not None:
            raise PellucidError(self._stopping)
        driver = Driver(self.store, self.relay, self.holder, self.lease_seconds, row, run)
        lease = driver.lease
        if lease.name in self._mine:
            raise _taken()
        self._mine.add(lease.name)
        try:
            if not await lease.claim():
                raise _taken()
            try:
                if chosen:
                    await self._unused(lease.name, lease.fence)
                await (begin or self.store.responses.begin)(row, lease.fence)
            except BaseException:
                await lease.release()
                raise
        except BaseException:
            self._mine.discard(lease.name)
            raise
        task = asyncio.create_task(driver.drive())
        self._drivers[lease.name] = driver, task
        task.add_done_callback(lambda _: self._gone(lease.name))
        if (why := self.stopping) is not None:  # meanwhile
            driver.stop(why)

    async def _unused(self, name: str, fence: int) -> None:
        """Raises `RequestError` if the relay still knows a run of that name, though its log be gone."""
        try:
            await self.relay.append(name, [], fence)
        except (Fenced, LogLost):
            raise _taken() from None

    def follow(self, row: StoredResponse) -> LiveLog:
        """The run, from its beginning, wherever it is driven."""
        return LiveLog(self.relay.follow(name_of(row.owner, row.id)))

    async def said(self, row: StoredResponse) -> list[Batch]:
        """All that the run has said until now, wherever it is driven. Raises `RelayError`."""
        return readable(await self._read(name_of(row.owner, row.id)))

    async def cancel(self, row: StoredResponse) -> None:
        """Ask whoever drives it to stop. Its log ends when it has."""
        await self.relay.tell(name_of(row.owner, row.id), b"cancel")

    async def forget(self, row: StoredResponse) -> None:
        """Let go of its live log, which outlives a run for a while: it was deleted."""
        with suppress(PellucidError):  # it goes by itself later
            await self.relay.drop(name_of(row.owner, row.id), 0)

    # --- the process's life ------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look after the runs of replicas that are gone, from now on."""
        self._watch = asyncio.create_task(self._look())

    @property
    def stopping(self) -> ErrorInfo | None:
        """Why no run is begun any more, if none is."""
        return self._stopping

    def hurry(self, why: ErrorInfo) -> None:
        """End every run now, as failed because of `why`. None is begun any more."""
        self._stopping = self._stopping or why
        for driver, _ in list(self._drivers.values()):
            driver.stop(why)

    async def aclose(self, patience: float, why: ErrorInfo) -> None:
        """Let runs finish for `patience` seconds, then end them as failed because of `why`."""
        if self._watch is not None:
            self._watch.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=patience)
        self.hurry(why)
        if tasks := self._tasks():
            _, late = await asyncio.wait(tasks, timeout=END_SECONDS)
            # Their leases lapse, and whoever finds them ends them.
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _gone(self, name: str) -> None:
        self._mine.discard(name)
        del self._drivers[name]

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._drivers.values()]

    # --- the runs of the dead ----------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            try:
                await self._bury_all(await self.relay.lapsed(PREFIX), lapsed=True)
                # Runs whose lease was lost with the relay that held it.
                silent = await self.store.responses.unfinished(time.time() - SILENT * self.lease_seconds)
                await self._bury_all((name_of(owner, id) for id, owner, _ in silent), lapsed=False)
            except PellucidError as error:
                log.warning("cannot look after the runs of others: %s", error.info.message)
            except Exception as error:
                log.error("a fault while looking after the runs of others: %s", place_of(error))
            await asyncio.sleep(self.lease_seconds / 3)

    async def _bury_all(self, names: Iterable[str], *, lapsed: bool) -> None:
        """One that cannot be ended does not keep the others from it."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def bury(name: str) -> None:
            async with turns:
                try:
                    await self._bury(name, lapsed=lapsed)
                except PellucidError as error:
                    log.warning("cannot end the run of a replica that is gone: %s", error.info.message)
                except Exception as error:
                    log.error("a fault while ending the run of a replica that is gone: %s", place_of(error))

        # What this process drives itself is not dead, however long the process may have stood still.
        await asyncio.gather(*(bury(name) for name in names if name not in self._mine))

    async def _bury(self, name: str, *, lapsed: bool) -> None:
        """Write the end of a run whose driver is gone, unless somebody else does."""
        relay, (owner, id) = self.relay, of_name(name)
        fence = await relay.claim(name, self.holder, self.lease_seconds, lapsed=lapsed)
        if fence is None:
            return
        row = await self.store.responses.take_over(owner, id, fence)
        said = readable(await self._read(name))
        # Logs of older versions hold batches without events.
        events = events_of(said)
        ended = bool(events) and isinstance(events[-1], RunEndEvent)
        if row is not None:
            last = said.pop() if ended else Batch(clock_ms(), closing(fold(events), id, ABANDONED))
            if await keep_end(self.store, await ending(row, said, last), fence):
                log.warning("a run was abandoned by its replica, and ended here")
            tail = [last]
        else:
            tail = await self._tail(owner, id, said)
        if not ended:
            with suppress(Fenced, LogLost):
                await relay.append(name, [encode_batch(batch) for batch in tail], fence, last=True)
                await relay.drop(name, LOG_SECONDS)
        await relay.release(name, fence)

    async def _tail(self, owner: str, id: str, said: list[Batch]) -> list[Batch]:
        """What the log of a run lacks whose driver went after its end was kept, or that was deleted."""
        row = await self.store.responses.get(owner, id, log=True)
        tail = unpack(row.log)[len(said) :] if row is not None and row.log else []
        return tail or [Batch(clock_ms(), closing(fold(events_of(said)), id, ABANDONED))]

    async def _read(self, name: str) -> list[LogEntry]:
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
