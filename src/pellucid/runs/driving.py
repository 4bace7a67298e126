"""One detached run, from its first batch to its end in the store."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from ..errors import ErrorInfo, PellucidError
from ..events import RunEndEvent
from ..fold import fold
from ..relay import Listener, Relay
from ..storage import Store, StoredResponse
from ..telemetry import log, place_of
from .lease import Lease
from .log import events_of, unpack
from .source import Batch, RunSource, clock_ms
from .stored_run import ABANDONED, closing, ending, keep_end, not_kept
from .writing import LogWriter

KEEP_SECONDS = 60.0
"""How long the end of a run waits for a store that is away."""

LOG_SECONDS = 300.0
"""How long a finished log can still be followed live; after that it is read from the store."""

RETRY_SECONDS = 0.5

FAULT = ErrorInfo("server_error", "the gateway failed in the middle of this run")


class Driver:
    """`lease` is to be claimed, and the row begun under it, before `drive`."""

    def __init__(
        self, store: Store, relay: Relay, holder: str, lease_seconds: float, row: StoredResponse, run: RunSource
    ) -> None:
        self.lease = Lease(store, relay, row.owner, row.id, holder, lease_seconds, self._break_off)
        self._store = store
        self._relay = relay
        self._row = row
        self._run = run
        self._log = LogWriter(relay, self.lease)
        self._reading: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._listening_again: asyncio.TimerHandle | None = None
        self._broken_off = False
        self._why: ErrorInfo | None = FAULT
        """Why it is broken off. None: it is cancelled."""

    async def drive(self) -> None:
        try:
            self.lease.keep()
            self._listen()
            with self._relay.writing(self.lease.name):
                end = await self._read()
                if not self.lease.lost:
                    await self._finish(end)
        except Exception as error:
            # Its lease lapses, and whoever finds it ends it.
            log.error("a fault while ending a run: %s", place_of(error))
        finally:
            self.lease.leave()
            self._log.close()
            self._stop_listening()

    def stop(self, why: ErrorInfo | None) -> None:
        """End it now: as failed because of `why`, or as cancelled. What it has said already is kept."""
        if not self._broken_off:
            self._why = why
        self._break_off()

    def _break_off(self) -> None:
        # Once: the second word must not interrupt what the first one began.
        if not self._broken_off:
            self._broken_off = True
            if self._reading is not None:
                self._reading.cancel()

    async def _read(self) -> Batch:
        """Log every batch but the last, which is returned: it is shown after it is stored."""
        run = self._run
        self._reading = asyncio.current_task()
        try:
            if self._broken_off:
                raise asyncio.CancelledError
            await run.open()
            await run.deliver(self._log.add, self._log)
        except asyncio.CancelledError:
            self._reading = None
            await self._stop(self._why)
        except PellucidError as error:
            self._reading = None
            await self._stop(error.info)
        except Exception as error:
            self._reading = None
            log.error("a fault while driving a run: %s", place_of(error))
            await self._stop(FAULT)
        self._reading = None
        if self._log.end is None:
            return Batch(clock_ms(), closing(fold(events_of(self._log.batches)), self._row.id, FAULT))
        return self._log.end

    async def _stop(self, error: ErrorInfo | None) -> None:
        try:
            await self._run.stop(error)
        except Exception as fault:
            log.error("a fault while stopping a run: %s", place_of(fault))
            self._log.end = None  # what it delivered last may not fit; it is closed by what the log holds
        if self._log.end is None and not self._log.batches:
            # It could not be opened, and so delivered nothing.
            end = RunEndEvent("cancelled" if error is None else "failed", error=error)
            self._log.add(Batch(clock_ms(), [end]))

    async def _finish(self, end: Batch) -> None:
        """Store, log, lease."""
        kept, end = await self._keep(end)
        if await self._log.finish(end) and not self.lease.lost:
            with suppress(PellucidError):
                # What is nowhere else is not dropped.
                if kept:
                    await self._relay.drop(self.lease.name, LOG_SECONDS)
            await self.lease.release()

    async def _keep(self, end: Batch) -> tuple[bool, Batch]:
        """Try until the store takes it, for as long as anybody would wait; whether there is an end in it now, and what
        to tell, which is the same."""
        done = await ending(self._row, self._log.batches, end)
        # It may be kept without our hearing of it: a row that is over says nothing of the lease from here on.
        self.lease.over = True
        until = time.monotonic() + KEEP_SECONDS
        while True:
            try:
                ours = await keep_end(self._store, done, self.lease.fence)
                self.lease.over = ours
                return True, end if ours else await self._not_ours(end)
            except PellucidError as error:
                if time.monotonic() > until:
                    failed = RunEndEvent("failed", error=not_kept(error.info))
                    return False, Batch(end.time_ms, [*end.events[:-1], failed])
            await asyncio.sleep(RETRY_SECONDS)

    async def _not_ours(self, end: Batch) -> Batch:
        """The end of a run that somebody took over meanwhile, after what was said here. It may have been deleted; then
        it ends as it did."""
        row = await self._store.responses.get(self._row.owner, self._row.id, log=True)
        if row is None:
            return end
        closed = closing(fold(events_of(self._log.batches)), row.id, ABANDONED)
        theirs = unpack(row.log)[-1].events[-1] if row.log else closed[-1]
        return Batch(end.time_ms, [*closed[:-1], theirs])

    # --- its mailbox -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._listener = self._relay.listen(self.lease.name)
        self._listener.start(self._on_mail)
        if self._listener.ready:
            self._on_mail()

    def _on_mail(self) -> None:
        listener = self._listener
        assert listener is not None
        try:
            said = listener.take()
        except PellucidError:
            said = None
        if said is None:
            listener.close()
            self._listening_again = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._listen)
        elif b"cancel" in said:
            self.stop(None)

    def _stop_listening(self) -> None:
        if self._listening_again is not None:
            self._listening_again.cancel()
        if self._listener is not None:
            self._listener.close()
