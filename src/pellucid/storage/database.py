"""What a driver is to those who ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .statement import A, Bulk, Op, R


class Database(Protocol):
    transactions: int
    """Of writes, begun so far by this process."""

    async def read(self, op: Callable[[A], Op[R]], argument: A) -> R:
        """Carry out an op that writes nothing. It may be begun twice."""

    async def write(self, op: Bulk[A, R], argument: A) -> R:
        """Carry it out together with others that wait. When this returns, it is on the disk.

        A caller that is cancelled meanwhile does not take it back."""

    async def aclose(self) -> None:
        """Finish what waits, and let go of everything."""
