"""Driver of one detached run, from its first batch to its end in the store; with its lease and its log writer.

`Lease` is the right to drive one run. It exists in two places: as a lease at the relay, and as a fencing token on the
run's row in the store. Each of the two is enough to keep other replicas away from the run, so the relay may lose its
data without a second driver. A driver that finds the token of another driver in one of them has lost the lease, and
writes nothing more. A lost lease is not released, it expires: then a replica checks whether the log has its end, which
the new driver may have been unable to write.

`LogWriter` writes the log of one run to a relay that may be slow or unavailable, or may lose its data.

* If the relay is the memory of this process, a batch is appended as it is, and followers receive it in the same call.
* Batches that arrive during one round trip are sent with the next one. Followers in this process receive the batches
  without decoding.
* An append whose result is unknown is sent again without changes, so its entries are appended once.
* If the relay lost the log, all entries are appended again, from the first one and with the same numbers.
* A log that belongs to another driver is not changed.
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
"""Initial and maximum seconds between two tries to append."""

LOG_END_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for an unavailable relay at the end of a log."""


class LogWriter:
    """Writes the log of one run to the relay (see the module)."""

    def __init__(self, relay: Relay, lease: Lease) -> None:
        self._relay = relay
        self._lease = lease
        self._memory_relay = relay if isinstance(relay, MemoryRelay) else None
        self._appender: LogAppender | None = None
        """Appender of a log in this process's memory; None before the first append."""
        self.batches: list[Batch] = []
        """All batches that the run delivered, except the last."""
        self.end_batch: Batch | None = None
        """The batch with the run's end. It is logged by `finish`, after it was stored."""
        self._entries: list[LogEntry] = []
        self._decoded: list[Batch] = []
        """The same batches without encoding, for followers in this process. Empty if the entries are not encoded."""
        self._has_last_entry = False
        """Whether `_entries` contains the last entry of the log."""
        self._sent_count = 0
        """Number of entries that are in the log."""
        self._pending_append: tuple[int, bool] | None = None
        """The append whose result is not known: the number of entries after it, and whether it ends the log."""
        self._retry_task: asyncio.Task[None] | None = None
        """Repeats a failed append. No other append is started meanwhile."""
        self._is_complete = False
        """Whether the log contains its last entry."""
        self._closed = asyncio.Event()
        """Set when the log is complete, or belongs to another driver."""

    def add(self, batch: Batch) -> None:
        """Log a batch of the run, now or as soon as the relay accepts it. This method is a `BatchReceiver`."""
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

    def open_text(self, last_delta: PartDeltaEvent) -> TextWriter:
        """Return a writer that logs each text as one batch (see `TextSink`)."""
        return TextWriter(batch_factory(last_delta), self.add, self._add_all)

    def _add_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.add(batch)

    async def finish(self, batch: Batch) -> bool:
        """Log the last batch, and wait for it, at most `LOG_END_TIMEOUT_SECONDS`.

        Returns:
            Whether the log is complete.
        """
        self._has_last_entry = True
        self._add_entry(batch)
        if not self._is_complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOG_END_TIMEOUT_SECONDS):
                    await self._closed.wait()
        return self._is_complete

    def close(self) -> None:
        """Stop writing."""
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
        """Append all entries that are not in the log, unless an append is in progress. Its end calls this again."""
        lease = self._lease
        if lease.is_lost:
            self._closed.set()
        if self._pending_append is not None or self._retry_task is not None or lease.is_lost:
            return
        end, last = self._pending_append = len(self._entries), self._has_last_entry
        entries, decoded = self._entries[self._sent_count : end], self._decoded[self._sent_count : end]
        self._relay.append_soon(
            lease.name,
            entries,
            lease.fence,
            done=self._handle_append,
            last=last,
            after=self._sent_count,
            decoded=decoded,
        )

    def _handle_append(self, result: int | PellucidError) -> None:
        if isinstance(result, PellucidError):
            if not self._closed.is_set():
                self._retry_task = asyncio.create_task(self._retry())
            return
        self._acknowledge(result)
        if not self._is_complete and (self._sent_count < len(self._entries) or self._has_last_entry):
            self._append()

    def _acknowledge(self, sent: int) -> None:
        """Note that the pending append was done. `sent`: the number of entries in the log."""
        assert self._pending_append is not None
        self._sent_count, self._is_complete, self._pending_append = sent, self._pending_append[1], None
        if self._is_complete:
            self._closed.set()
        elif self._memory_relay is not None:
            self._appender = self._memory_relay.open_appender(self._lease.name, self._lease.fence)

    async def _retry(self) -> None:
        """Repeat the failed append until it succeeds or the lease is lost."""
        pause = RETRY_PAUSE_SECONDS[0]
        while not self._lease.is_lost:
            try:
                await self._append_again()
            except LogLost:
                with suppress(PellucidError):
                    await self._start_over()
            except PellucidError:
                pass  # `FencedError`, too: a renewed lease of this driver may fence an append with the earlier token
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
"""Number of renewals within the duration of a lease."""


class Lease:
    """The right to drive one run (see the module).

    Args:
        on_lost: Called once, when another driver has the lease.
        lease_seconds: Time after which the lease lapses that is not renewed.
    """

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
        """Whether the run's end is stored, or may be. Then no driver holds the row any more, and only the log remains
        to be written."""
        self._store = store
        self._relay = relay
        self._row_key = (owner, id)
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._timer: asyncio.TimerHandle | None = None
        self._renew_task: asyncio.Task[None] | None = None

    async def claim(self) -> bool:
        """Acquire the lease; return whether this driver holds it now.

        Raises:
            RelayError: If the relay does not answer.
        """
        fence = await self._relay.claim(self.name, self._holder, self._lease_seconds)
        if fence is not None:
            self.fence = fence
        return fence is not None

    async def renew(self) -> None:
        """Renew the lease at the relay and in the store.

        The lease may have lapsed (this process was suspended), or the relay may have lost it. Then it is acquired
        again, if no other driver has acquired it since.

        Raises:
            PellucidError: If the relay or the store does not answer.
        """
        is_ours = await self._relay.renew(self.name, self.fence, self._lease_seconds) or await self.claim()
        if is_ours and (
            self.is_end_stored or await self._store.responses.touch(*self._row_key, self.fence) or self.is_end_stored
        ):
            return
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def start_renewing(self) -> None:
        """Renew the lease periodically, until it is lost or `stop_renewing` is called."""
        self._timer = asyncio.get_running_loop().call_later(self._lease_seconds / RENEWALS_PER_LEASE, self._renew_soon)

    def stop_renewing(self) -> None:
        """Stop the periodic renewal."""
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
            pass  # tried again at the next renewal
        except Exception as error:
            log.error("a fault while renewing the lease of a run: %s", error_location(error))
        if not self.is_lost:
            self.start_renewing()

    async def release(self) -> None:
        """Stop the renewal, and release the lease at the relay."""
        self.stop_renewing()
        with suppress(PellucidError):
            await self._relay.release(self.name, self.fence)


NAME_PREFIX = "run:"


def run_name(owner: str, id: str) -> str:
    """Return the name of a run's lease, log and mailbox. It contains the owner, so owners cannot collide."""
    return f"{NAME_PREFIX}{id}:{owner}"


def parse_run_name(name: str) -> tuple[str, str]:
    """Return the owner and the id in a name that `run_name` made."""
    id, _, owner = name.removeprefix(NAME_PREFIX).partition(":")
    return owner, id


STORE_TIMEOUT_SECONDS = 60.0
"""Seconds to wait for an unavailable store at the end of a run."""

LOG_RETENTION_SECONDS = 300.0
"""Seconds that a finished log can be followed live; after that it is read from the store."""

RETRY_SECONDS = 0.5

FAULT = ErrorInfo("server_error", "the gateway failed in the middle of this run")


class Driver:
    """Drives one detached run.

    Before `drive`, the caller claims `lease` and stores the row with its fencing token.
    """

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
        self._is_stopped = False
        self._stop_error: ErrorInfo | None = FAULT
        """The error with which the run is stopped. None: it is cancelled."""

    async def drive(self) -> None:
        """Drive the run to its end, and store and log that end. Errors are logged."""
        try:
            self.lease.start_renewing()
            self._listen()
            with self._relay.writing(self.lease.name):
                end = await self._deliver_to_log()
                if not self.lease.is_lost:
                    await self._finish(end)
        except Exception as error:
            # Its lease lapses, and another replica ends the run.
            log.error("a fault while ending a run: %s", error_location(error))
        finally:
            self.lease.stop_renewing()
            self._log.close()
            self._stop_listening()

    def stop(self, error: ErrorInfo | None) -> None:
        """End the run now, as failed with `error` or as cancelled. The batches so far are stored."""
        if not self._is_stopped:
            self._stop_error = error
        self._cancel_delivery()

    def _cancel_delivery(self) -> None:
        # Only once: a second call must not interrupt the work that the first one started.
        if not self._is_stopped:
            self._is_stopped = True
            if self._delivery_task is not None:
                self._delivery_task.cancel()

    async def _deliver_to_log(self) -> Batch:
        """Log every batch except the last one, which is returned: it must be stored before it is shown."""
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
            self._log.end_batch = None  # it may not fit the log; the run is closed after the logged batches
        if self._log.end_batch is None and not self._log.batches:
            # The run could not be opened, and delivered nothing.
            end = RunEndEvent("cancelled" if error is None else "failed", error=error)
            self._log.add(Batch(clock_ms(), [end]))

    async def _finish(self, end: Batch) -> None:
        """Write the end to the store, then to the log, then release the lease."""
        is_stored, end = await self._store_end(end)
        if await self._log.finish(end) and not self.lease.is_lost:
            with suppress(PellucidError):
                # A log that is not stored is the only copy, and is not dropped.
                if is_stored:
                    await self._relay.drop(self.lease.name, LOG_RETENTION_SECONDS)
            await self.lease.release()

    async def _store_end(self, end: Batch) -> tuple[bool, Batch]:
        """Store the end of the run, with retries for `STORE_TIMEOUT_SECONDS`.

        Returns:
            Whether the store contains an end of the run, and the last batch to log, which agrees with the store.
        """
        finished_run = await prepare_final_run(self._row, self._log.batches, end)
        # The end may be stored although its confirmation is lost. From here on, the row is no evidence for the lease.
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
        """Return the last batch for a run that another driver took over: its stored end, after the batches logged here.

        If the row was deleted, the run's own end is returned.
        """
        row = await self._store.responses.get(self._row.owner, self._row.id, log=True)
        if row is None:
            return end
        closed = closing_events(fold(events_of(self._log.batches)), row.id, ABANDONED)
        stored_end = unpack_log(row.log)[-1].events[-1] if row.log else closed[-1]
        return Batch(end.time_ms, [*closed[:-1], stored_end])

    # --- mailbox -----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._listener = self._relay.subscribe(self.lease.name)
        self._listener.start(self._on_mail)
        if self._listener.is_ready:
            self._on_mail()

    def _on_mail(self) -> None:
        listener = self._listener
        assert listener is not None
        if b"cancel" in (listener.take() or ()):
            self.stop(None)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
