"""A reader's position in a log, and the entries that it has not taken yet.

A reader either waits (`wait` can be cancelled and called again without losing entries), or is called back when there is
something to take (`start`). The relay calls `put`, `end` and `fail`. Entries that were put before the end or a failure
are taken first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

MAX_UNTAKEN_BYTES = 1 << 18
"""When this many bytes have not been taken, no more are fetched from Redis. A slow reader's entries stay in the log."""


class Follower:
    """Reads one log (or the signals to one name) from a position.

    Args:
        after: The number of the last entry that is not wanted.
        on_taken: Called when entries were taken, and when the follower was closed.
    """

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
        """The number of the last entry that was put."""
        self.is_reading = False
        """Whether the entries after `position` are being fetched."""
        self.is_unverified = True
        """Whether the next read must check that the log is still the same one, and that no entry was missed."""
        self._on_taken = on_taken
        self._entries: list[Any] = []
        self._size_bytes = 0
        self._has_ended = self._is_closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self.receiver: Callable[[Any], None] | None = None
        """Called with each new entry, which then need not be taken. Not used while entries wait to be taken."""

    def start(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` each time when there may be something to take."""
        self._on_ready = on_ready

    @property
    def is_ready(self) -> bool:
        """Whether `take` would return entries or the end, or raise."""
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
        """Take the new entries, without waiting.

        Returns:
            The entries since the last call; an empty list if there are none; None after the last entry of the log.

        Raises:
            RelayError: The log cannot be read.
        """
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
        """Wait for entries, then take them."""
        await self.wait()
        return self.take()

    def close(self) -> None:
        """Stop following the log. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.receiver = None
            self._entries, self._size_bytes = [], 0
            self._on_taken(self)
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether no more entries will be put."""
        return self._has_ended or self._is_closed or self._error is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_full(self) -> bool:
        """Whether no more entries should be fetched until some are taken."""
        return self._size_bytes >= MAX_UNTAKEN_BYTES

    def put(self, entries: Sequence[Any], position: int, size_bytes: int = 0) -> None:
        """Add new entries. Called by the relay.

        Args:
            entries: The entries.
            position: The number of the last of them.
            size_bytes: Their size if they were fetched from Redis, else 0.
        """
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
        """End the log after the entries that were put. Called by the relay."""
        self._has_ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Fail after the entries that were put. Called by the relay."""
        self._error = error
        self.receiver = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._on_ready is not None and not self._is_closed:
            self._on_ready()
