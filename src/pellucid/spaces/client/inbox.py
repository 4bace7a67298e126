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

MOST = 2_000

Fetch = Callable[[int, int], Awaitable[tuple[list[Envelope], int]]]
"""Given two numbers: envelopes after the first and before the second, in order, and up to which number that is all."""


class Inbox:
    """For one reader."""

    def __init__(self, fetch: Fetch, most: int = MOST) -> None:
        self._fetch = fetch
        self._most = most
        self._waiting: deque[Envelope] = deque()
        self._last = 0
        """The number of the last one put in."""
        self._left_out: tuple[int, int] | None = None
        """After and up to which numbers envelopes were left out; nothing is put in behind them."""
        self._woken = asyncio.Event()
        self._over = False
        self._failure: Exception | None = None

    def put(self, envelope: Envelope) -> None:
        if self._left_out is not None:
            self._left_out = (self._left_out[0], max(self._left_out[1], envelope.seq))
        elif len(self._waiting) >= self._most and envelope.seq:
            self._left_out = (self._last, envelope.seq)
        else:
            self._waiting.append(envelope)
            self._last = envelope.seq or self._last
        self._woken.set()

    def end(self, failure: Exception | None = None) -> None:
        """Nothing more comes. What is here is still read."""
        if not self._over:
            self._over, self._failure = True, failure
        self._woken.set()

    async def next(self) -> Envelope | None:
        """None: it is over. Raises what ended it, if it did not end well."""
        while not self._waiting:
            if self._left_out is not None:
                await self._refill(*self._left_out)
            elif self._over:
                if self._failure is not None:
                    raise self._failure
                return None
            else:
                self._woken.clear()
                await self._woken.wait()
        return self._waiting.popleft()

    async def _refill(self, after: int, last: int) -> None:
        found, reached = await self._fetch(after, last + 1)
        self._waiting.extend(found)
        assert self._left_out is not None
        last = self._left_out[1]  # more may have come meanwhile
        if reached >= last:
            self._left_out, self._last = None, last
        else:
            self._left_out = (reached, last)


class Hearers:
    """Of one participant. `fetch` gives the inboxes what they left out."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._inboxes: list[Inbox] = []
        self._told: list[Callable[[Envelope], None]] = []
        self._waiting: dict[asyncio.Future[Envelope], Callable[[Envelope], bool]] = {}
        self._over: Exception | None = None
        """What who waits is told: nothing more comes."""
        self._failure: Exception | None = None
        """What who reads is told at the end."""

    def hand_on(self, envelope: Envelope) -> None:
        if not envelope.replayed:
            for future, is_it in [*self._waiting.items()]:
                if not future.done() and is_it(envelope):
                    future.set_result(envelope)
            for hear in [*self._told]:
                hear(envelope)
        for inbox in self._inboxes:
            inbox.put(envelope)

    def inbox(self) -> Inbox:
        """One more who reads, until `no_more`."""
        inbox = Inbox(self._fetch)
        self._inboxes.append(inbox)
        if self._over is not None:
            inbox.end(self._failure)
        return inbox

    def no_more(self, inbox: Inbox) -> None:
        self._inboxes.remove(inbox)
        inbox.end()

    @contextlib.contextmanager
    def told(self, hear: Callable[[Envelope], None]) -> Iterator[None]:
        self._told.append(hear)
        try:
            yield
        finally:
            self._told.remove(hear)

    @contextlib.asynccontextmanager
    async def awaiting(self, is_it: Callable[[Envelope], bool]) -> AsyncIterator[asyncio.Future[Envelope]]:
        """The first envelope from here on of which that is true."""
        future: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._waiting[future] = is_it
        if self._over is not None:
            future.set_exception(self._over)
        try:
            yield future
        finally:
            self._waiting.pop(future, None)
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # it was seen

    def end(self, over: Exception, failure: Exception | None) -> None:
        """Nothing more comes. Who waits is told `over`; who reads, `failure` (None: it ended well)."""
        if self._over is None:
            self._over, self._failure = over, failure
        for future in self._waiting:
            if not future.done():
                future.set_exception(over)
        for inbox in self._inboxes:
            inbox.end(failure)
