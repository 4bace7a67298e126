"""To whom in this program it goes what a participant hears: who reads everything in their own time, who is told at
once, who waits for one envelope. What is replayed goes to those who read, and to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from ...envelopes.envelope import Envelope
from .inbox import Fetch, Inbox


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
