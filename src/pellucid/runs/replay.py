"""Runs that are read again: one that goes on elsewhere, from its live log; one that is over, from the store.

Both are `Running`. To stop reading does not stop what is read; what is open then is closed for this reader alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence

from ..errors import ErrorInfo, PellucidError
from ..events import Event, RunEndEvent
from ..fold import Fold
from ..relay import Follower
from .log import WAITED, Entry, decode_entry

PIECE = 64
"""How many entries of a log are given at a time, so that a long one does not keep others waiting."""
MOST = 1000
"""How many events at a time, about: a model may have made thousands of calls in one entry."""

LOST = ErrorInfo("unavailable", "the live log of this response was lost; ask for the response again", code="log_lost")


class _Reading:
    waiting = False
    """Whether the stream begins with that. What is followed live began before anybody read it."""

    def __init__(self) -> None:
        self._fold = Fold()
        self.ended: RunEndEvent | None = None
        self.now = 0
        self.heard: Sequence[Entry] = ()
        """What was taken last, batch by batch, for readers who tell each by its own time; empty where the reading broke
        off."""
        self._left = deque[Entry]()
        """What was read and not given yet."""

    async def open(self) -> None:
        pass

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        self._let_go()
        return [] if self.ended is not None else self._broken(error)

    def _read(self, entries: Iterable[Entry]) -> None:
        """To be given piece by piece. (Readers who read again are told the same however it is batched.)"""
        for entry in entries:
            now, events = entry.now, entry.events
            self._left += [Entry(now, events[at : at + MOST]) for at in range(0, len(events), MOST)] or [entry]

    def _piece(self) -> list[Entry]:
        left, piece, events = self._left, list[Entry](), 0
        while left and len(piece) < PIECE and events < MOST:
            piece.append(left.popleft())
            events += len(piece[-1].events)
        return piece

    def _heard(self, entries: Sequence[Entry]) -> list[Event]:
        events = [event for entry in entries for event in entry.events]
        for event in events:
            self._fold.feed(event)
        if entries:
            self.now = entries[-1].now
        self.heard = entries
        if self._fold.ended is not None:
            self.ended = self._fold.ended
            self._let_go()
        return events

    def _broken(self, error: ErrorInfo | None) -> list[Event]:
        self._let_go()
        self.heard = ()
        self.ended = RunEndEvent("cancelled" if error is None else "failed", self._fold.usage, error)
        return [*self._fold.closing(error), self.ended]

    def _let_go(self) -> None:
        """Give back what is read from."""


class LiveLog(_Reading):
    """Follows a run on whichever replica it is driven."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower = follower

    def wait(self) -> Awaitable[None]:
        return asyncio.sleep(0) if self._left else self._follower.wait()

    def take(self) -> list[Event] | None:
        if self.ended is not None:
            return None
        if not self._left:
            try:
                pieces = self._follower.take()
            except PellucidError as error:
                return self._broken(error.info)
            if pieces is None:
                return self._broken(LOST)
            self._read(decode_entry(piece) for piece in pieces)
        return self._heard(self._piece())

    def _let_go(self) -> None:
        self._follower.close()


class FinishedLog(_Reading):
    """A log that is whole."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self._read(entries)
        self.waiting = bool(entries) and entries[0].events == [WAITED]

    def wait(self) -> Awaitable[None]:
        return asyncio.sleep(0)

    def take(self) -> list[Event] | None:
        if self.ended is not None:
            return None
        piece = self._piece()
        return self._heard(piece) if piece else self._broken(LOST)


__all__ = ["LOST", "PIECE", "FinishedLog", "LiveLog"]
