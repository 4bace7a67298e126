"""One reader's place in a log: the entries that came and were not taken yet.

A reader either waits (`wait` can be cancelled and called again without losing anything), or is called back when there
is something to take (`start`). Whoever feeds it calls `put`, `end` and `fail`; what was put before an end or a failure
is taken first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

ROOM = 1 << 18
"""Bytes that may lie here untaken before nothing more is fetched from afar: a slow reader's entries stay in the log."""


class Follower:
    __slots__ = (
        "_closed",
        "_ended",
        "_entries",
        "_error",
        "_on_ready",
        "_size",
        "_taken",
        "_waiter",
        "at",
        "doubted",
        "reading",
        "receiver",
    )

    def __init__(self, after: int, taken: Callable[[Follower], None]) -> None:
        self.at = after
        """The number of the last entry that was put here."""
        self.reading = False
        """Whether what follows `at` is being fetched."""
        self.doubted = True
        """Whether the log may not be the one any more that was read so far."""
        self._taken = taken
        self._entries: list[Any] = []
        self._size = 0
        self._ended = self._closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self.receiver: Callable[[Any], None] | None = None
        """Gets each entry when it comes, so that it need not be taken; as long as nothing is left to be taken."""

    def start(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever there may be something to take."""
        self._on_ready = on_ready

    @property
    def ready(self) -> bool:
        """Whether `take` gives or raises something."""
        return bool(self._entries) or self.over

    async def wait(self) -> None:
        """Wait until there is something to take."""
        if self._entries or self.over:
            return
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def take(self) -> list[Any] | None:
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

    async def read(self) -> list[Any] | None:
        """Both."""
        await self.wait()
        return self.take()

    def close(self) -> None:
        """Nothing more is wanted. Idempotent."""
        if not self._closed:
            self._closed = True
            self.receiver = None
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

    def put(self, entries: Sequence[Any], at: int, size: int = 0) -> None:
        """These came; the last of them has the number `at`. `size`: how many bytes they are, fetched from afar."""
        self.at = at
        if self._closed:
            return
        receiver = self.receiver
        if receiver is None or self._entries:
            self._entries += entries
            self._size += size
            self._wake()
            return
        for entry in entries:
            if self.over:
                return
            receiver(entry)
        if size and not self.over:
            self._taken(self)

    def end(self) -> None:
        self._ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = error
        self.receiver = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._on_ready is not None and not self._closed:
            self._on_ready()
