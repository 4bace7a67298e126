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
from ..telemetry import error_location, log
from .run_log import encode_for_relay, events_of, unpack_log
from .source import Batch, RunSource, batch_factory, clock_ms
from .stored_run import ABANDONED, closing_events, not_stored_error, prepare_final_run, store_end

RETRY_PAUSE_SECONDS = 0.5, 5.0
"""Seconds between two tries while the relay does not take it: at first, and at most."""

LOG_END_TIMEOUT_SECONDS = 10.0
"""How long the end of a log waits for a relay that is away."""


class LogWriter:
    def __init__(self, relay: Relay, lease: Lease) -> None:
        self._relay = relay
        self._lease = lease
        self._memory_relay = relay if isinstance(relay, MemoryRelay) else None
        self._appender: LogAppender | None = None
        """Of a log in memory, once something was appended to it."""
        self.batches: list[Batch] = []
        """What the run delivered, but for its end."""
        self.end_batch: Batch | None = None
        """The batch with the run's end, which is stored before it is shown: `finish` logs it."""
        self._entries: list[LogEntry] = []
        self._decoded: list[Batch] = []
        """The entries, where they are encoded, as followers in this process get them."""
        self._has_last_entry = False
        """Whether the last entry is there."""
        self._sent_count = 0
        """How many of the entries are in the log."""
        self._pending_append: tuple[int, bool] | None = None
        """Up to which entry the append goes of which it is not known whether it landed, and whether it ends the log."""
        self._retry_task: asyncio.Task[None] | None = None
        """Tries again what failed, and nothing else is asked meanwhile."""
        self._is_complete = False
        """Whether the log has its end."""
        self._closed = asyncio.Event()
        """It has, or it is somebody else's."""

    def add(self, batch: Batch) -> None:
        """Log a batch of the run, now or as soon as the relay takes it. A `BatchReceiver`."""
        if type(batch.events[-1]) is RunEndEvent:
            self.end_batch = batch
            return
        self.batches.append(batch)
        appender, entries = self._appender, self._entries
        if appender is not None and self._sent_count == len(entries) and appender.append(batch):
            entries.append(batch)
            self._sent_count += 1
        else:
            self._add_entry(batch)

    def open_text(self, like: PartDeltaEvent) -> TextWriter:
        """See `TextSink`: each text is a batch of its own."""
        return TextWriter(batch_factory(like), self.add, self._add_all)

    def _add_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.add(batch)

    async def finish(self, batch: Batch) -> bool:
        """Log the last batch; whether the log has its end then. A relay that is away is not waited for for ever."""
        self._has_last_entry = True
        self._add_entry(batch)
        if not self._is_complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOG_END_TIMEOUT_SECONDS):
                    await self._closed.wait()
        return self._is_complete

    def close(self) -> None:
        """Nothing more is written."""
        self._closed.set()
        if self._retry_task is not None:
            self._retry_task.cancel()

    def _add_entry(self, batch: Batch) -> None:
        if self._memory_relay is not None:
            self._entries.append(batch)
        else:
            entry, decoded = encode_for_relay(batch)
            self._entries.append(entry)
            self._decoded.append(decoded)
        self._append()

    def _append(self) -> None:
        """Append all that is not in the log yet; unless something is being appended, then it follows."""
        lease = self._lease
        if lease.is_lost:
            self._closed.set()
        if self._pending_append is not None or self._retry_task is not None or lease.is_lost:
            return
        end, last = self._pending_append = len(self._entries), self._has_last_entry
        entries, decoded = self._entries[self._sent_count : end], self._decoded[self._sent_count : end]
        self._relay.append_soon(
            lease.name, entries, lease.fence, done=self._appended, last=last, after=self._sent_count, decoded=decoded
        )

    def _appended(self, result: int | PellucidError) -> None:
        if isinstance(result, PellucidError):
            if not self._closed.is_set():
                self._retry_task = asyncio.create_task(self._retry())
            return
        self._acknowledge(result)
        if not self._is_complete and (self._sent_count < len(self._entries) or self._has_last_entry):
            self._append()

    def _acknowledge(self, sent: int) -> None:
        """What was asked for has landed."""
        assert self._pending_append is not None
        self._sent_count, self._is_complete, self._pending_append = sent, self._pending_append[1], None
        if self._is_complete:
            self._closed.set()
        elif self._memory_relay is not None:
            self._appender = self._memory_relay.open_appender(self._lease.name, self._lease.fence)

    async def _retry(self) -> None:
        """Append what failed, until it has landed or the log is not ours to write any more."""
        pause = RETRY_PAUSE_SECONDS[0]
        while not self._lease.is_lost:
            try:
                await self._append_again()
            except LogLost:
                with suppress(PellucidError):
                    await self._start_over()
            except PellucidError:
                pass  # `FencedError`, too: a later lease of our own may fence what was asked under an earlier one
            else:
                self._retry_task = None
                if not self._is_complete:
                    self._append()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_PAUSE_SECONDS[1])
        self._closed.set()

    async def _append_again(self) -> None:
        lease = self._lease
        end, last = self._pending_append = self._pending_append or (len(self._entries), self._has_last_entry)
        entries, decoded = self._entries[self._sent_count : end], self._decoded[self._sent_count : end]
        self._acknowledge(
            await self._relay.append(
                lease.name, entries, lease.fence, last=last, after=self._sent_count, decoded=decoded
            )
        )

    async def _start_over(self) -> None:
        await self._lease.renew()
        if not self._lease.is_lost:
            await self._relay.drop(self._lease.name, 0)
            self._pending_append = None
            self._appender = None
            self._sent_count = 0


RENEWALS_PER_LEASE = 3
"""How often it is renewed in the time in which it would run out."""


class Lease:
    """`lost` is called once, when it is somebody else's."""

    def __init__(
        self,
        store: Store,
        relay: Relay,
        owner: str,
        id: str,
        holder: str,
        lease_seconds: float,
        on_lost: Callable[[], None],
    ) -> None:
        self.name = run_name(owner, id)
        self.fence = 0
        self.is_lost = False
        self.is_end_stored = False
        """Whether its end is kept, or is being kept: then the row is nobody's any more, and only the log is still to be
        written."""
        self._store = store
        self._relay = relay
        self._row_key = (owner, id)
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._timer: asyncio.TimerHandle | None = None
        self._renew_task: asyncio.Task[None] | None = None

    async def claim(self) -> bool:
        """Whether it is ours now. Raises `RelayError`."""
        fence = await self._relay.claim(self.name, self._holder, self._lease_seconds)
        if fence is not None:
            self.fence = fence
        return fence is not None

    async def renew(self) -> None:
        """It may have run out (this process stood still), or the relay may have forgotten it: it is ours if nobody took
        it since. Raises `PellucidError` if that cannot be known."""
        is_ours = await self._relay.renew(self.name, self.fence, self._lease_seconds) or await self.claim()
        if is_ours and (
            self.is_end_stored or await self._store.responses.touch(*self._row_key, self.fence) or self.is_end_stored
        ):
            return
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def start_renewing(self) -> None:
        """Renew it from time to time, until it is lost or `leave` is called."""
        self._timer = asyncio.get_running_loop().call_later(self._lease_seconds / RENEWALS_PER_LEASE, self._renew_soon)

    def stop_renewing(self) -> None:
        """Renew it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renew_task is not None:
            self._renew_task.cancel()

    def _renew_soon(self) -> None:
        self._renew_task = asyncio.create_task(self._renew_and_reschedule())

    async def _renew_and_reschedule(self) -> None:
        try:
            await self.renew()
        except PellucidError:
            pass  # the next time
        except Exception as error:
            log.error("a fault while renewing the lease of a run: %s", error_location(error))
        if not self.is_lost:
            self.start_renewing()

    async def release(self) -> None:
        self.stop_renewing()
        with suppress(PellucidError):
            await self._relay.release(self.name, self.fence)


NAME_PREFIX = "run:"


def run_name(owner: str, id: str) -> str:
    """Of a run's lease, its log and its mailbox. What is another owner's has another name."""
    return f"{NAME_PREFIX}{id}:{owner}"


def parse_run_name(name: str) -> tuple[str, str]:
    """The owner and the id."""
    id, _, owner = name.removeprefix(NAME_PREFIX).partition(":")
    return owner, id


STORE_TIMEOUT_SECONDS = 60.0
"""How long the end of a run waits for a store that is away."""

LOG_RETENTION_SECONDS = 300.0
"""How long a finished log can still be followed live; after that it is read from the store."""

RETRY_SECONDS = 0.5

FAULT = ErrorInfo("server_error", "the gateway failed in the middle of this run")


class Driver:
    """`lease` is to be claimed, and the row begun under it, before `drive`."""

    def __init__(
        self, store: Store, relay: Relay, holder: str, lease_seconds: float, row: StoredResponse, run: RunSource
    ) -> None:
        self.lease = Lease(store, relay, row.owner, row.id, holder, lease_seconds, self._cancel_delivery)
        self._store = store
        self._relay = relay
        self._row = row
        self._run = run
        self._log = LogWriter(relay, self.lease)
        self._delivery_task: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._listen_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._stop_error: ErrorInfo | None = FAULT
        """Why it is broken off. None: it is cancelled."""

    async def drive(self) -> None:
        try:
            self.lease.start_renewing()
            self._listen()
            with self._relay.writing(self.lease.name):
                end = await self._deliver_to_log()
                if not self.lease.is_lost:
                    await self._finish(end)
        except Exception as error:
            # Its lease lapses, and whoever finds it ends it.
            log.error("a fault while ending a run: %s", error_location(error))
        finally:
            self.lease.stop_renewing()
            self._log.close()
            self._stop_listening()

    def stop(self, error: ErrorInfo | None) -> None:
        """End it now: as failed because of `why`, or as cancelled. What it has said already is kept."""
        if not self._is_stopped:
            self._stop_error = error
        self._cancel_delivery()

    def _cancel_delivery(self) -> None:
        # Once: the second word must not interrupt what the first one began.
        if not self._is_stopped:
            self._is_stopped = True
            if self._delivery_task is not None:
                self._delivery_task.cancel()

    async def _deliver_to_log(self) -> Batch:
        """Log every batch but the last, which is returned: it is shown after it is stored."""
        run = self._run
        self._delivery_task = asyncio.current_task()
        try:
            if self._is_stopped:
                raise asyncio.CancelledError
            await run.open()
            await run.deliver(self._log.add, self._log)
        except asyncio.CancelledError:
            self._delivery_task = None
            await self._stop_source(self._stop_error)
        except PellucidError as error:
            self._delivery_task = None
            await self._stop_source(error.info)
        except Exception as error:
            self._delivery_task = None
            log.error("a fault while driving a run: %s", error_location(error))
            await self._stop_source(FAULT)
        self._delivery_task = None
        if self._log.end_batch is None:
            return Batch(clock_ms(), closing_events(fold(events_of(self._log.batches)), self._row.id, FAULT))
        return self._log.end_batch

    async def _stop_source(self, error: ErrorInfo | None) -> None:
        try:
            await self._run.stop(error)
        except Exception as fault:
            log.error("a fault while stopping a run: %s", error_location(fault))
            self._log.end_batch = None  # what it delivered last may not fit; it is closed by what the log holds
        if self._log.end_batch is None and not self._log.batches:
            # It could not be opened, and so delivered nothing.
            end = RunEndEvent("cancelled" if error is None else "failed", error=error)
            self._log.add(Batch(clock_ms(), [end]))

    async def _finish(self, end: Batch) -> None:
        """Store, log, lease."""
        is_stored, end = await self._store_end(end)
        if await self._log.finish(end) and not self.lease.is_lost:
            with suppress(PellucidError):
                # What is nowhere else is not dropped.
                if is_stored:
                    await self._relay.drop(self.lease.name, LOG_RETENTION_SECONDS)
            await self.lease.release()

    async def _store_end(self, end: Batch) -> tuple[bool, Batch]:
        """Try until the store takes it, for as long as anybody would wait; whether there is an end in it now, and what
        to tell, which is the same."""
        finished_run = await prepare_final_run(self._row, self._log.batches, end)
        # It may be kept without our hearing of it: a row that is over says nothing of the lease from here on.
        self.lease.is_end_stored = True
        deadline = time.monotonic() + STORE_TIMEOUT_SECONDS
        while True:
            try:
                is_ours = await store_end(self._store, finished_run, self.lease.fence)
                self.lease.is_end_stored = is_ours
                return True, end if is_ours else await self._end_after_takeover(end)
            except PellucidError as error:
                if time.monotonic() > deadline:
                    failed = RunEndEvent("failed", error=not_stored_error(error.info))
                    return False, Batch(end.time_ms, [*end.events[:-1], failed])
            await asyncio.sleep(RETRY_SECONDS)

    async def _end_after_takeover(self, end: Batch) -> Batch:
        """The end of a run that somebody took over meanwhile, after what was said here. It may have been deleted; then
        it ends as it did."""
        row = await self._store.responses.get(self._row.owner, self._row.id, log=True)
        if row is None:
            return end
        closed = closing_events(fold(events_of(self._log.batches)), row.id, ABANDONED)
        stored_end = unpack_log(row.log)[-1].events[-1] if row.log else closed[-1]
        return Batch(end.time_ms, [*closed[:-1], stored_end])

    # --- its mailbox -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._listener = self._relay.subscribe(self.lease.name)
        self._listener.start(self._on_mail)
        if self._listener.is_ready:
            self._on_mail()

    def _on_mail(self) -> None:
        listener = self._listener
        assert listener is not None
        try:
            messages = listener.take()
        except PellucidError:
            messages = None
        if messages is None:
            listener.close()
            self._listen_timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._listen)
        elif b"cancel" in messages:
            self.stop(None)

    def _stop_listening(self) -> None:
        if self._listen_timer is not None:
            self._listen_timer.cancel()
        if self._listener is not None:
            self._listener.close()
