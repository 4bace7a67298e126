"""A run as whoever serves it sees it: batches of events, in two steps, and ways to leave.

A live run, one that is kept, a log that is read again and an agent look the same from here, so that no protocol and no
endpoint knows which of them it serves.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Protocol

from ..errors import ErrorInfo
from ..events import Event, RunEndEvent


class Running(Protocol):
    """To wait and to take are two steps so that however many hands a batch goes through, one coroutine wakes for it."""

    @property
    def waiting(self) -> bool:
        """Whether the model has yet to become free for this run."""
        ...

    @property
    def ended(self) -> RunEndEvent | None:
        """The run's end, once it was taken."""
        ...

    @property
    def now(self) -> int:
        """When what was taken last was said, in milliseconds since 1970."""
        ...

    async def open(self) -> None:
        """Begin. Raises `ModelError` or `RequestError`; there is nothing to clean up then."""
        ...

    def wait(self) -> Awaitable[None]:
        """Wait until there is something to take."""
        ...

    def take(self) -> list[Event] | None:
        """What has come, once `wait` is over (it may be nothing yet); None after RunEnd."""
        ...

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        """Whoever reads this stops here, at a word from outside: what is still to be told, RunEnd last.

        What the run holds is given back, and what must be kept of it is kept. As cancelled, or as failed with `error`.
        Idempotent; after RunEnd there is nothing to tell.
        """
        ...


def clock() -> int:
    """The time of day, as runs tell it: in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


__all__ = ["Running", "clock"]
