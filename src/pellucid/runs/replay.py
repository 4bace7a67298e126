"""Runs that are read from a log: one that goes on elsewhere, from its live log; one that is over, from the store.

Both are a `RunSource`. To stop reading does not stop the run; what is open then is closed for this reader alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from ..errors import ErrorInfo, PellucidError
from ..events import Event, RunEndEvent
from ..fold import Fold
from ..relay import Follower
from .log import WAITED, batch_of
from .source import Batch, BatchReceiver

MAX_BATCHES = 64
"""So many batches of a backlog are delivered at a time, so that a long one does not keep others waiting."""
MAX_EVENTS = 1000
"""So many events at a time, about: a model may have made thousands of calls in one batch."""

LOST = ErrorInfo("unavailable", "the live log of this response was lost; ask for the response again", code="log_lost")


class _LogSource:
    queued = False
    """Whether the stream begins with that. What is followed live began before anybody read it."""

    def __init__(self) -> None:
        self.ended: RunEndEvent | None = None
        self.broken_off = False
        """Whether what closed the run was made up here, because the reading broke off."""
        self._fold = Fold()
        self._backlog = deque[Batch]()
        """Read, and not delivered yet."""
        self._receive: BatchReceiver | None = None
        self._time_ms = 0
        self._paused = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def open(self) -> None:
        pass

    async def deliver(self, receive: BatchReceiver) -> None:
        self._receive = receive
        self._start()
        while self.ended is None:
            if self._failure is not None:
                break
            if self._backlog and not self._paused:
                self._deliver(self._next())
                await asyncio.sleep(0)
            elif not self._paused and self._read():
                continue
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._notify()

    async def stop(self, error: ErrorInfo | None = None) -> None:
        if self.ended is None:
            self._break_off(error)

    def _start(self) -> None:
        """Begin to read."""

    def _read(self) -> bool:
        """Add what there is to the backlog; whether there is more to do."""
        raise NotImplementedError

    def _release(self) -> None:
        """Give back what is read from."""

    def _add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            events = batch.events
            if len(events) <= MAX_EVENTS:
                self._backlog.append(batch)
            else:
                self._backlog += (
                    Batch(batch.time_ms, events[at : at + MAX_EVENTS]) for at in range(0, len(events), MAX_EVENTS)
                )

    def _next(self) -> list[Batch]:
        backlog, batches, events = self._backlog, list[Batch](), 0
        while backlog and len(batches) < MAX_BATCHES and events < MAX_EVENTS:
            batches.append(backlog.popleft())
            events += len(batches[-1].events)
        return batches

    def _deliver(self, batches: Iterable[Batch]) -> None:
        fold, receive = self._fold, self._receive
        for batch in batches:
            for event in batch.events:
                fold.feed(event)
            self._time_ms = batch.time_ms
            if fold.ended is not None:
                self.ended = fold.ended
                self._release()
            if receive is not None:
                receive(batch)

    def _break_off(self, error: ErrorInfo | None) -> None:
        self._release()
        self._notify()
        self.broken_off = True
        self.ended = RunEndEvent("cancelled" if error is None else "failed", self._fold.usage, error)
        events: list[Event] = [*self._fold.closing(error), self.ended]
        if self._receive is not None:
            self._receive(Batch(self._time_ms, events))

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LiveLog(_LogSource):
    """Follows a run on whichever replica it is driven."""

    is_live = True

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower = follower

    def _start(self) -> None:
        self._follower.start(self._on_entries)

    def _on_entries(self) -> None:
        """There is something to take."""
        if self.ended is None and self._failure is None and not self._paused and not self._backlog:
            try:
                if self._read() and len(self._backlog) <= MAX_BATCHES:
                    self._deliver(self._next())
            except Exception as error:
                self._failure = error
        if self.ended is not None or self._failure is not None or self._backlog:
            self._notify()

    def _read(self) -> bool:
        if not self._follower.ready:
            return False
        try:
            entries = self._follower.take()
        except PellucidError as error:
            self._break_off(error.info)
            return True
        if entries is None:
            self._break_off(LOST)
        else:
            self._add(map(batch_of, entries))
        return True

    def _release(self) -> None:
        self._follower.close()


class FinishedLog(_LogSource):
    """A log that is complete."""

    is_live = False

    def __init__(self, batches: Sequence[Batch]) -> None:
        super().__init__()
        self._add(batches)
        self.queued = bool(batches) and batches[0].events == [WAITED]

    def _read(self) -> bool:
        self._break_off(LOST)
        return True
