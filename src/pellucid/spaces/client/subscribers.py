"""Delivery of received envelopes within this program.

They go to readers with an inbox, to callbacks, and to callers that wait for one envelope. Replayed envelopes go to
readers only.

An inbox buffers a bounded number of envelopes. Further ones are left out and read from the history when the reader gets
there. So a slow reader costs no more memory than that, and loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from ...envelopes.envelope import Envelope

MAX_BUFFERED = 2_000

FetchMissed = Callable[[int, int], Awaitable[tuple[list[Envelope], int]]]
"""Reads envelopes after the first number and before the second, in order. Returns them, and the number up to which they
are complete.
"""


class Inbox:
    """Received envelopes that one reader has not read yet."""

    def __init__(self, fetch: FetchMissed, max_buffered: int = MAX_BUFFERED) -> None:
        self._fetch = fetch
        self._max_buffered = max_buffered
        self._buffer: deque[Envelope] = deque()
        self._last_seq = 0
        """Number of the last envelope that was put in."""
        self._skipped: tuple[int, int] | None = None
        """Numbers after and up to which envelopes were left out. Nothing is buffered behind them."""
        self._wakeup = asyncio.Event()
        self._is_ended = False
        self._failure: Exception | None = None

    def put(self, envelope: Envelope) -> None:
        """Buffer an envelope, or note that it is left out."""
        if self._skipped is not None:
            self._skipped = (self._skipped[0], max(self._skipped[1], envelope.seq))
        elif len(self._buffer) >= self._max_buffered and envelope.seq:
            self._skipped = (self._last_seq, envelope.seq)
        else:
            self._buffer.append(envelope)
            self._last_seq = envelope.seq or self._last_seq
        self._wakeup.set()

    def end(self, failure: Exception | None = None) -> None:
        """Add nothing more. Buffered envelopes can still be read."""
        if not self._is_ended:
            self._is_ended, self._failure = True, failure
        self._wakeup.set()

    async def next(self) -> Envelope | None:
        """Return the next envelope; None at the end.

        Raises:
            Exception: What ended the connection, if it did not end normally.
        """
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
        last = self._skipped[1]  # more may have been left out in the meantime
        if reached >= last:
            self._skipped, self._last_seq = None, last
        else:
            self._skipped = (reached, last)


class Subscribers:
    """All receivers of one participant's envelopes.

    Args:
        fetch: Reads what an inbox left out.
    """

    def __init__(self, fetch: FetchMissed) -> None:
        self._fetch = fetch
        self._inboxes: list[Inbox] = []
        self._callbacks: list[Callable[[Envelope], None]] = []
        self._waiters: dict[asyncio.Future[Envelope], Callable[[Envelope], bool]] = {}
        self._end_error: Exception | None = None
        """What waiting callers get at the end."""
        self._failure: Exception | None = None
        """What readers get at the end. None: it ended normally."""

    def publish(self, envelope: Envelope) -> None:
        """Deliver an envelope to all receivers."""
        if not envelope.replayed:
            for future, matches in [*self._waiters.items()]:
                if not future.done() and matches(envelope):
                    future.set_result(envelope)
            for callback in [*self._callbacks]:
                callback(envelope)
        for inbox in self._inboxes:
            inbox.put(envelope)

    def open_inbox(self) -> Inbox:
        """Add a reader, until `close_inbox`."""
        inbox = Inbox(self._fetch)
        self._inboxes.append(inbox)
        if self._end_error is not None:
            inbox.end(self._failure)
        return inbox

    def close_inbox(self, inbox: Inbox) -> None:
        """Remove a reader."""
        self._inboxes.remove(inbox)
        inbox.end()

    @contextlib.contextmanager
    def subscribe(self, callback: Callable[[Envelope], None]) -> Iterator[None]:
        """Call `callback` with every envelope that is not replayed."""
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    @contextlib.asynccontextmanager
    async def awaiting(self, matches: Callable[[Envelope], bool]) -> AsyncIterator[asyncio.Future[Envelope]]:
        """Wait for the first envelope from here on for which `matches` is true."""
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
                future.exception()  # marks it as retrieved

    def end(self, error: Exception, failure: Exception | None) -> None:
        """Deliver nothing more.

        Args:
            error: For callers that wait.
            failure: For readers. None: it ended normally.
        """
        if self._end_error is None:
            self._end_error, self._failure = error, failure
        for future in self._waiters:
            if not future.done():
                future.set_exception(error)
        for inbox in self._inboxes:
            inbox.end(failure)
