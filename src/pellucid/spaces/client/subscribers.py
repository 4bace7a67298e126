"""What was heard and not yet read. It holds so many envelopes; what comes beyond is left out, and read from the
history when its turn comes: so whoever reads slowly, or not at all, costs no more than that, and loses nothing.

To whom in this program it goes what a participant hears: who reads everything in their own time, who is told at
once, who waits for one envelope. What is replayed goes to those who read, and to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from ...envelopes.envelope import Envelope

MAX_BUFFERED = 2_000

FetchMissed = Callable[[int, int], Awaitable[tuple[list[Envelope], int]]]
"""Given two numbers: envelopes after the first and before the second, in order, and up to which number that is all."""


class Inbox:
    """For one reader."""

    def __init__(self, fetch: FetchMissed, max_buffered: int = MAX_BUFFERED) -> None:
        self._fetch = fetch
        self._max_buffered = max_buffered
        self._buffer: deque[Envelope] = deque()
        self._last_seq = 0
        """The number of the last one put in."""
        self._skipped: tuple[int, int] | None = None
        """After and up to which numbers envelopes were left out; nothing is put in behind them."""
        self._wakeup = asyncio.Event()
        self._is_ended = False
        self._failure: Exception | None = None

    def put(self, envelope: Envelope) -> None:
        if self._skipped is not None:
            self._skipped = (self._skipped[0], max(self._skipped[1], envelope.seq))
        elif len(self._buffer) >= self._max_buffered and envelope.seq:
            self._skipped = (self._last_seq, envelope.seq)
        else:
            self._buffer.append(envelope)
            self._last_seq = envelope.seq or self._last_seq
        self._wakeup.set()

    def end(self, failure: Exception | None = None) -> None:
        """Nothing more comes. What is here is still read."""
        if not self._is_ended:
            self._is_ended, self._failure = True, failure
        self._wakeup.set()

    async def next(self) -> Envelope | None:
        """None: it is over. Raises what ended it, if it did not end well."""
        while not self._buffer:
            if self._skipped is not None:
                await self._refill(*self._skipped)
            elif self._is_ended:
                if self._failure is not None:
                    raise self._failure
                return None
            else:
                self._wakeup.clear()
                await self._wakeup.wait()
        return self._buffer.popleft()

    async def _refill(self, after: int, last: int) -> None:
        envelopes, reached = await self._fetch(after, last + 1)
        self._buffer.extend(envelopes)
        assert self._skipped is not None
        last = self._skipped[1]  # more may have come meanwhile
        if reached >= last:
            self._skipped, self._last_seq = None, last
        else:
            self._skipped = (reached, last)


class Subscribers:
    """Of one participant. `fetch` gives the inboxes what they left out."""

    def __init__(self, fetch: FetchMissed) -> None:
        self._fetch = fetch
        self._inboxes: list[Inbox] = []
        self._callbacks: list[Callable[[Envelope], None]] = []
        self._waiters: dict[asyncio.Future[Envelope], Callable[[Envelope], bool]] = {}
        self._end_error: Exception | None = None
        """What who waits is told: nothing more comes."""
        self._failure: Exception | None = None
        """What who reads is told at the end."""

    def publish(self, envelope: Envelope) -> None:
        if not envelope.replayed:
            for future, matches in [*self._waiters.items()]:
                if not future.done() and matches(envelope):
                    future.set_result(envelope)
            for callback in [*self._callbacks]:
                callback(envelope)
        for inbox in self._inboxes:
            inbox.put(envelope)

    def open_inbox(self) -> Inbox:
        """One more who reads, until `no_more`."""
        inbox = Inbox(self._fetch)
        self._inboxes.append(inbox)
        if self._end_error is not None:
            inbox.end(self._failure)
        return inbox

    def close_inbox(self, inbox: Inbox) -> None:
        self._inboxes.remove(inbox)
        inbox.end()

    @contextlib.contextmanager
    def subscribe(self, callback: Callable[[Envelope], None]) -> Iterator[None]:
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    @contextlib.asynccontextmanager
    async def awaiting(self, matches: Callable[[Envelope], bool]) -> AsyncIterator[asyncio.Future[Envelope]]:
        """The first envelope from here on of which that is true."""
        future: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._waiters[future] = matches
        if self._end_error is not None:
            future.set_exception(self._end_error)
        try:
            yield future
        finally:
            self._waiters.pop(future, None)
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # it was seen

    def end(self, error: Exception, failure: Exception | None) -> None:
        """Nothing more comes. Who waits is told `over`; who reads, `failure` (None: it ended well)."""
        if self._end_error is None:
            self._end_error, self._failure = error, failure
        for future in self._waiters:
            if not future.done():
                future.set_exception(error)
        for inbox in self._inboxes:
            inbox.end(failure)
