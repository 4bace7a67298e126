"""One detached run, from its first batch to its end in the store.

The right to drive one run, held on to for as long as it is driven.

It stands in two places: as a lease at the relay, and as a fence on the run's row in the store. Either is enough for
others to leave the run alone, so that neither of the two may forget it unnoticed; whoever finds it taken there has lost
it, and has nothing more to write. A lease that is lost is not given back: it runs out, so that somebody looks whether
the log has its end, which whoever took the run may have been kept from writing.

Writes the log of one run at a relay that may be slow, away, or forgetful.

* In the memory of one process, a batch is appended as it is, and followers get it within the same call.
* All that comes during one round trip goes with the next; followers in this process get the batches as they are.
* What may have landed is asked again exactly as it was, so that it lands once.
* A relay that forgot the log is told it again, from the beginning and under the same numbers.
* A log that is somebody else's is left as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import ErrorInfo, PellucidError
from ..events import PartDeltaEvent, RunEndEvent
from ..fold import fold
from ..models import TextWriter
from ..relay import Listener, LogAppender, LogEntry, LogLost, MemoryRelay, Relay
from ..storage import Store, StoredResponse
from ..telemetry import log, place_of
from .log import carried, events_of, unpack
from .source import Batch, RunSource, batches_like, clock_ms
from .stored_run import ABANDONED, closing, ending, keep_end, not_kept

PAUSE = 0.5, 5.0
"""Seconds between two tries while the relay does not take it: at first, and at most."""

END_SECONDS = 10.0
"""How long the end of a log waits for a relay that is away."""


class LogWriter:
    def __init__(self, relay: Relay, lease: Lease) -> None:
        self._relay = relay
        self._lease = lease
        self._memory = relay if isinstance(relay, MemoryRelay) else None
        self._appender: LogAppender | None = None
        """Of a log in memory, once something was appended to it."""
        self.batches: list[Batch] = []
        """What the run delivered, but for its end."""
        self.end: Batch | None = None
        """The batch with the run's end, which is stored before it is shown: `finish` logs it."""
        self._entries: list[LogEntry] = []
        self._decoded: list[Batch] = []
        """The entries, where they are encoded, as followers in this process get them."""
        self._whole = False
        """Whether the last entry is there."""
        self._sent = 0
        """How many of the entries are in the log."""
        self._asked: tuple[int, bool] | None = None
        """Up to which entry the append goes of which it is not known whether it landed, and whether it ends the log."""
        self._retrying: asyncio.Task[None] | None = None
        """Tries again what failed, and nothing else is asked meanwhile."""
        self._done = False
        """Whether the log has its end."""
        self._over = asyncio.Event()
        """It has, or it is somebody else's."""

    def add(self, batch: Batch) -> None:
        """Log a batch of the run, now or as soon as the relay takes it. A `BatchReceiver`."""
        if type(batch.events[-1]) is RunEndEvent:
            self.end = batch
            return
        self.batches.append(batch)
        appender, entries = self._appender, self._entries
        if appender is not None and self._sent == len(entries) and appender.append(batch):
            entries.append(batch)
            self._sent += 1
        else:
            self._add(batch)

    def open_text(self, like: PartDeltaEvent) -> TextWriter:
        """See `TextSink`: each text is a batch of its own."""
        return TextWriter(batches_like(like), self.add, self._add_all)

    def _add_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.add(batch)

    async def finish(self, batch: Batch) -> bool:
        """Log the last batch; whether the log has its end then. A relay that is away is not waited for for ever."""
        self._whole = True
        self._add(batch)
        if not self._done:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._over.wait()
        return self._done

    def close(self) -> None:
        """Nothing more is written."""
        self._over.set()
        if self._retrying is not None:
            self._retrying.cancel()

    def _add(self, batch: Batch) -> None:
        if self._memory is not None:
            self._entries.append(batch)
        else:
            entry, decoded = carried(batch)
            self._entries.append(entry)
            self._decoded.append(decoded)
        self._append()

    def _append(self) -> None:
        """Append all that is not in the log yet; unless something is being appended, then it follows."""
        lease = self._lease
        if lease.lost:
            self._over.set()
        if self._asked is not None or self._retrying is not None or lease.lost:
            return
        upto, last = self._asked = len(self._entries), self._whole
        entries, decoded = self._entries[self._sent : upto], self._decoded[self._sent : upto]
        self._relay.append_soon(
            lease.name, entries, lease.fence, done=self._appended, last=last, after=self._sent, decoded=decoded
        )

    def _appended(self, result: int | PellucidError) -> None:
        if isinstance(result, PellucidError):
            if not self._over.is_set():
                self._retrying = asyncio.create_task(self._retry())
            return
        self._note(result)
        if not self._done and (self._sent < len(self._entries) or self._whole):
            self._append()

    def _note(self, sent: int) -> None:
        """What was asked for has landed."""
        assert self._asked is not None
        self._sent, self._done, self._asked = sent, self._asked[1], None
        if self._done:
            self._over.set()
        elif self._memory is not None:
            self._appender = self._memory.appender(self._lease.name, self._lease.fence)

    async def _retry(self) -> None:
        """Append what failed, until it has landed or the log is not ours to write any more."""
        pause = PAUSE[0]
        while not self._lease.lost:
            try:
                await self._append_again()
            except LogLost:
                with suppress(PellucidError):
                    await self._forgotten()
            except PellucidError:
                pass  # `Fenced`, too: a later lease of our own may fence what was asked under an earlier one
            else:
                self._retrying = None
                if not self._done:
                    self._append()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE[1])
        self._over.set()

    async def _append_again(self) -> None:
        lease = self._lease
        upto, last = self._asked = self._asked or (len(self._entries), self._whole)
        entries, decoded = self._entries[self._sent : upto], self._decoded[self._sent : upto]
        self._note(
            await self._relay.append(lease.name, entries, lease.fence, last=last, after=self._sent, decoded=decoded)
        )

    async def _forgotten(self) -> None:
        await self._lease.renew()
        if not self._lease.lost:
            await self._relay.drop(self._lease.name, 0)
            self._asked = None
            self._appender = None
            self._sent = 0


RENEWALS = 3
"""How often it is renewed in the time in which it would run out."""


class Lease:
    """`lost` is called once, when it is somebody else's."""

    def __init__(
        self, store: Store, relay: Relay, owner: str, id: str, holder: str, seconds: float, lost: Callable[[], None]
    ) -> None:
        self.name = name_of(owner, id)
        self.fence = 0
        self.lost = False
        self.over = False
        """Whether its end is kept, or is being kept: then the row is nobody's any more, and only the log is still to be
        written."""
        self._store = store
        self._relay = relay
        self._of = (owner, id)
        self._holder = holder
        self._seconds = seconds
        self._tell = lost
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def claim(self) -> bool:
        """Whether it is ours now. Raises `RelayError`."""
        fence = await self._relay.claim(self.name, self._holder, self._seconds)
        if fence is not None:
            self.fence = fence
        return fence is not None

    async def renew(self) -> None:
        """It may have run out (this process stood still), or the relay may have forgotten it: it is ours if nobody took
        it since. Raises `PellucidError` if that cannot be known."""
        ours = await self._relay.renew(self.name, self.fence, self._seconds) or await self.claim()
        if ours and (self.over or await self._store.responses.hold(*self._of, self.fence) or self.over):
            return
        if not self.lost:
            self.lost = True
            self._tell()

    def keep(self) -> None:
        """Renew it from time to time, until it is lost or `leave` is called."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds / RENEWALS, self._renew_soon)

    def leave(self) -> None:
        """Renew it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _renew_soon(self) -> None:
        self._renewing = asyncio.create_task(self._renew_and_keep())

    async def _renew_and_keep(self) -> None:
        try:
            await self.renew()
        except PellucidError:
            pass  # the next time
        except Exception as error:
            log.error("a fault while renewing the lease of a run: %s", place_of(error))
        if not self.lost:
            self.keep()

    async def release(self) -> None:
        self.leave()
        with suppress(PellucidError):
            await self._relay.release(self.name, self.fence)


PREFIX = "run:"


def name_of(owner: str, id: str) -> str:
    """Of a run's lease, its log and its mailbox. What is another owner's has another name."""
    return f"{PREFIX}{id}:{owner}"


def of_name(name: str) -> tuple[str, str]:
    """The owner and the id."""
    id, _, owner = name.removeprefix(PREFIX).partition(":")
    return owner, id


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
