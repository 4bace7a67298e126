"""One reader's place in a log: the entries that came and were not taken yet.

A reader either waits (`wait` can be cancelled and called again without losing anything), or is called back when there
is something to take (`start`). Whoever feeds it calls `put`, `end` and `fail`; what was put before an end or a failure
is taken first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

MAX_UNTAKEN_BYTES = 1 << 18
"""Bytes that may lie here untaken before nothing more is fetched from afar: a slow reader's entries stay in the log."""


class Follower:
    __slots__ = (
        "_entries",
        "_error",
        "_has_ended",
        "_is_closed",
        "_on_ready",
        "_on_taken",
        "_size_bytes",
        "_waiter",
        "is_reading",
        "is_unverified",
        "position",
        "receiver",
    )

    def __init__(self, after: int, on_taken: Callable[[Follower], None]) -> None:
        self.position = after
        """The number of the last entry that was put here."""
        self.is_reading = False
        """Whether what follows `at` is being fetched."""
        self.is_unverified = True
        """Whether the log may not be the one any more that was read so far."""
        self._on_taken = on_taken
        self._entries: list[Any] = []
        self._size_bytes = 0
        self._has_ended = self._is_closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self.receiver: Callable[[Any], None] | None = None
        """Gets each entry when it comes, so that it need not be taken; as long as nothing is left to be taken."""

    def start(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever there may be something to take."""
        self._on_ready = on_ready

    @property
    def is_ready(self) -> bool:
        """Whether `take` gives or raises something."""
        return bool(self._entries) or self.is_over

    async def wait(self) -> None:
        """Wait until there is something to take."""
        if self._entries or self.is_over:
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
            self._entries, self._size_bytes = [], 0
            if not self.is_over:
                self._on_taken(self)
            return entries
        if self._is_closed:
            return None
        if self._error is not None:
            raise self._error
        return None if self._has_ended else entries

    async def read(self) -> list[Any] | None:
        """Both."""
        await self.wait()
        return self.take()

    def close(self) -> None:
        """Nothing more is wanted. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.receiver = None
            self._entries, self._size_bytes = [], 0
            self._on_taken(self)
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be put here."""
        return self._has_ended or self._is_closed or self._error is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= MAX_UNTAKEN_BYTES

    def put(self, entries: Sequence[Any], position: int, size_bytes: int = 0) -> None:
        """These came; the last of them has the number `at`. `size`: how many bytes they are, fetched from afar."""
        self.position = position
        if self._is_closed:
            return
        receiver = self.receiver
        if receiver is None or self._entries:
            self._entries += entries
            self._size_bytes += size_bytes
            self._wake()
            return
        for entry in entries:
            if self.is_over:
                return
            receiver(entry)
        if size_bytes and not self.is_over:
            self._on_taken(self)

    def end(self) -> None:
        self._has_ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = error
        self.receiver = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._on_ready is not None and not self._is_closed:
            self._on_ready()
