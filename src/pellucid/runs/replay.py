"""Run sources that read a log: the live log of a run that is driven elsewhere, or the stored log of a finished run.

When a reader stops, the run continues. Parts that are open then are closed for this reader only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from ..errors import ErrorInfo, PellucidError
from ..events import Event, RunEndEvent
from ..fold import Fold
from ..relay import Follower, LogEntry
from .run_log import QUEUED, batch_of
from .source import Batch, BatchReceiver, TextSink

MAX_BATCHES = 64
"""Maximum number of batches that are delivered at a time, so that a long backlog does not block the event loop."""
MAX_EVENTS = 1000
"""Approximate maximum number of events that are delivered at a time: one batch may contain thousands of calls."""

LOG_LOST = ErrorInfo(
    "unavailable", "the live log of this response was lost; ask for the response again", code="log_lost"
)


class _LogSource:
    queued = False
    """Whether the run began with a wait for a model (see `RunSource`). False for a live log, which began earlier."""

    def __init__(self) -> None:
        self.ended: RunEndEvent | None = None
        self.is_interrupted = False
        """Whether the end was made here, because the delivery was interrupted."""
        self._fold = Fold()
        """The delivered events that are not in `_delivered`."""
        self._delivered: list[Batch] = []
        """The delivered batches that other objects hold as well, so that keeping them costs no memory."""
        self._backlog = deque[Batch]()
        """Batches that were read and are not delivered yet."""
        self._receive: BatchReceiver | None = None
        self._time_ms = 0
        self._is_paused = False
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def open(self) -> None:
        pass

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        self._receive = receive
        self._start_reading()
        while self.ended is None:
            if self._failure is not None:
                break
            if self._backlog and not self._is_paused:
                self._deliver(self._next_batches())
                await asyncio.sleep(0)
            elif not self._is_paused and self._fill_backlog():
                continue
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                self._listen_for_entries()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._notify()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        if self.ended is None:
            self._interrupt(error)

    def _start_reading(self) -> None:
        """Start to read the log."""

    def _fill_backlog(self) -> bool:
        """Add available batches to the backlog; return whether the loop of `deliver` shall continue without a wait."""
        raise NotImplementedError

    def _listen_for_entries(self) -> None:
        """Deliver new entries directly from now on, unless the delivery is paused. Called when the backlog is empty."""

    def _release(self) -> None:
        """Release the log."""

    def _add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            events = batch.events
            if len(events) <= MAX_EVENTS:
                self._backlog.append(batch)
            else:
                self._backlog += (
                    Batch(batch.time_ms, events[start : start + MAX_EVENTS])
                    for start in range(0, len(events), MAX_EVENTS)
                )

    def _next_batches(self) -> list[Batch]:
        backlog, batches, events = self._backlog, list[Batch](), 0
        while backlog and len(batches) < MAX_BATCHES and events < MAX_EVENTS:
            batches.append(backlog.popleft())
            events += len(batches[-1].events)
        return batches

    def _deliver(self, batches: Iterable[Batch]) -> None:
        receive = self._receive
        assert receive is not None
        for batch in batches:
            self._track(batch)
            receive(batch)

    def _track(self, batch: Batch) -> None:
        """Note a batch that is delivered next, and whether it is the last."""
        self._delivered.append(batch)
        if batch.events and type(batch.events[-1]) is RunEndEvent:
            self.ended = batch.events[-1]
            self._release()
            self._notify()

    def _interrupt(self, error: ErrorInfo | None) -> None:
        self._release()
        self._notify()
        self.is_interrupted = True
        fold = self._fold
        for batch in self._delivered:
            for event in batch.events:
                fold.feed(event)
        self.ended = RunEndEvent("cancelled" if error is None else "failed", fold.usage, error)
        events: list[Event] = [*fold.closing_events(error), self.ended]
        time_ms = self._delivered[-1].time_ms if self._delivered else self._time_ms
        if self._receive is not None:
            self._receive(Batch(time_ms, events))

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LiveLog(_LogSource):
    """Source that follows the live log of a run, on whichever replica the run is driven."""

    is_live = True

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower = follower
        self._is_shared = True
        """Whether other objects hold the batches that are delivered now."""

    def _start_reading(self) -> None:
        self._follower.start(self._notify)

    def _listen_for_entries(self) -> None:
        if not self._is_paused:
            self._follower.receiver = self._on_entry

    def pause(self) -> None:
        super().pause()
        self._follower.receiver = None

    def _on_entry(self, entry: LogEntry) -> None:
        """Deliver a new entry of the log. The receiver of a `Follower`."""
        if self._failure is not None:
            return
        try:
            batch = entry if type(entry) is Batch else batch_of(entry)
            events = batch.events
            if self._is_paused or self._backlog or len(events) > MAX_EVENTS:
                self._add([batch])
                self._notify()
                return
            self._is_shared = batch is entry
            if self._is_shared and events and type(events[-1]) is not RunEndEvent:
                self._delivered.append(batch)
            else:
                self._track(batch)
            assert self._receive is not None
            self._receive(batch)
        except BaseException as error:  # also SystemExit: this reader raises it, not the driver of the run
            self._failure = error
            self._release()
            self._notify()

    def _track(self, batch: Batch) -> None:
        super()._track(batch)
        if not self._is_shared:
            # The batch was decoded for this reader alone: only its effect on the fold is kept.
            for delivered in self._delivered:
                for event in delivered.events:
                    self._fold.feed(event)
            self._delivered.clear()
            self._time_ms = batch.time_ms

    def _fill_backlog(self) -> bool:
        if not self._follower.is_ready:
            return False
        try:
            entries = self._follower.take()
        except PellucidError as error:
            self._interrupt(error.info)
            return True
        if entries is None:
            self._interrupt(LOG_LOST)
        else:
            self._is_shared = all(type(entry) is Batch for entry in entries)
            self._add(map(batch_of, entries))
        return True

    def _release(self) -> None:
        self._follower.close()


class FinishedLog(_LogSource):
    """Source that reads a complete log."""

    is_live = False

    def __init__(self, batches: Sequence[Batch]) -> None:
        super().__init__()
        self._add(batches)
        self.queued = bool(batches) and batches[0].events == [QUEUED]

    def _fill_backlog(self) -> bool:
        self._interrupt(LOG_LOST)
        return True
