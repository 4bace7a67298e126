"""What was heard and not yet read. It holds so many envelopes; what comes beyond is left out, and read from the
history when its turn comes: so whoever reads slowly, or not at all, costs no more than that, and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

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
