"""The line in front of the engine: first come, first served, and everyone can see where they stand.

llama.cpp queues too, but a request that waits there hears nothing. Here a wait is visible, bounded if wished, and
costs nothing to give up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from .errors import QueueFull


class Queue:
    """``slots`` may run at once; ``limit`` is how many may wait (``None``: any number)."""

    def __init__(self, slots: int = 1, limit: int | None = None) -> None:
        self.slots = slots
        self.limit = limit
        self.running = 0
        self._line: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._line)

    @asynccontextmanager
    async def place(self, on_position: Callable[[int], None] | None = None) -> AsyncIterator[None]:
        """Hold a slot, waiting for it if need be.

        ``on_position`` is called with one's place in the line, 1 being the next, whenever it changes, and with 0
        when the wait is over; not at all if there was none. Leaving early (cancellation) closes the gap.
        Raises ``QueueFull``.
        """
        await self.enter(on_position)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, on_position: Callable[[int], None] | None = None) -> None:
        """Take a slot, as ``place`` does; whoever took one gives it back with ``leave``."""
        if self.running < self.slots and not self._line:
            self.running += 1
            return
        if self.limit is not None and len(self._line) >= self.limit:
            raise QueueFull(f"the embedded model is busy and {len(self._line)} requests wait already; try again later")
        waiter = _Waiter(on_position)
        self._line.append(waiter)
        self._tell()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if not waiter.turn.cancelled():  # its turn had come in the same moment: hand it on
                self.leave()
            elif waiter in self._line:  # who left in the same moment has passed over it already
                self._line.remove(waiter)
                self._tell()
            raise
        if on_position:
            on_position(0)

    def leave(self) -> None:
        """Give a slot back."""
        # The slot goes straight to the next in line, so that a newcomer cannot slip in between.
        while self._line:
            waiter = self._line.pop(0)
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                self._tell()
                return
        self.running -= 1

    def _tell(self) -> None:
        for place, waiter in enumerate(self._line, 1):
            waiter.tell(place)


class _Waiter:
    def __init__(self, on_position: Callable[[int], None] | None) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_position = on_position
        self.told = 0

    def tell(self, place: int) -> None:
        if place != self.told:
            self.told = place
            if self.on_position:
                self.on_position(place)
