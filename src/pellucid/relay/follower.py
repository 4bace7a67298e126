"""One reader's place in a log: the entries that came and were not taken yet.

`wait` and `take`, as everything that is read here: `wait` can be cancelled and called again without losing anything.
Whoever feeds it calls `put`, `end` and `fail`; what was put before an end or a failure is taken first. One task reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

ROOM = 1 << 18
"""Bytes that may lie here untaken before nothing more is fetched from afar: a slow reader's entries stay in the log."""


class Follower:
    __slots__ = ("_closed", "_ended", "_entries", "_error", "_size", "_taken", "_waiter", "at", "doubted", "reading")

    def __init__(self, after: int, taken: Callable[[Follower], None]) -> None:
        self.at = after
        """The number of the last entry that was put here."""
        self.reading = False
        """Whether what follows `at` is being fetched."""
        self.doubted = True
        """Whether the log may not be the one any more that was read so far."""
        self._taken = taken
        self._entries: list[bytes] = []
        self._size = 0
        self._ended = self._closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until there is something to take."""
        if self._entries or self.over:
            return
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def take(self) -> list[bytes] | None:
        """Everything new since the last take; None once the last entry was taken. Raises `RelayError`."""
        entries = self._entries
        if entries:
            self._entries, self._size = [], 0
            if not self.over:
                self._taken(self)
            return entries
        if self._closed:
            return None
        if self._error is not None:
            raise self._error
        return None if self._ended else entries

    async def read(self) -> list[bytes] | None:
        """Both."""
        await self.wait()
        return self.take()

    def close(self) -> None:
        """Nothing more is wanted. Idempotent."""
        if not self._closed:
            self._closed = True
            self._entries, self._size = [], 0
            self._taken(self)
            self._wake()

    @property
    def over(self) -> bool:
        """Whether nothing more will be put here."""
        return self._ended or self._closed or self._error is not None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def full(self) -> bool:
        return self._size >= ROOM

    def put(self, entries: Sequence[bytes], at: int) -> None:
        """These came; the last of them has the number `at`."""
        self.at = at
        if not self._closed:
            self._entries += entries
            self._size += sum(map(len, entries))
            self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


__all__ = ["ROOM", "Follower"]
