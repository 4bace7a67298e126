"""What waits to be judged: what participants said, and what the gateway has to say itself.

An item is answered once: by what was stored, or by why not. Whoever put it there is told by its `answer`, which is
called in the writer's task and must not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ...envelopes import Envelope
from ...errors import PellucidError
from ...storage import StoredEnvelope
from .state import SpaceState

Make: TypeAlias = Callable[[SpaceState, int], Envelope | None]
"""What the gateway says, worked out when it is judged: at this state and time (ms). None: nothing any more."""


class Answer:
    """What became of an item."""

    __slots__ = ("error", "extra", "fresh", "stored")

    def __init__(
        self,
        stored: StoredEnvelope | None = None,
        error: PellucidError | None = None,
        *,
        fresh: bool = True,
        extra: tuple[Envelope, ...] = (),
    ) -> None:
        self.stored = stored
        """None and no error: there was nothing to say."""
        self.error = error
        self.fresh = fresh
        """False: it was sent again, and is what it was."""
        self.extra = extra
        """What is for its sender alone."""


Tell: TypeAlias = Callable[[Answer], None]


def nobody(answer: Answer) -> None:
    """Is told of what nobody waits for."""


class Item:
    __slots__ = ("address", "dated", "envelope", "make", "named", "redacted", "size", "tell")

    def __init__(
        self,
        tell: Tell,
        *,
        envelope: Envelope | None = None,
        make: Make | None = None,
        named: bool = False,
        dated: bool = False,
        size: int = 0,
        redacted: tuple[str, ...] = (),
        address: str = "",
    ) -> None:
        self.tell = tell
        self.envelope = envelope
        self.make = make
        self.named = named
        """Whether its sender gave it its id: then it may be one that was sent again."""
        self.dated = dated
        """Whether its sender gave it its time: then one that was sent again has the same."""
        self.size = size
        self.redacted = redacted
        self.address = address
        """Under which the gateway was reached: `wss://host`, if that is known."""


class Inbox:
    MOST_AT_ONCE = 500
    BYTES_AT_ONCE = 4 << 20
    FULL = 32 << 20
    """Bytes that wait, above which nobody more is heard until there is room."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._work = asyncio.Event()
        self._stirred = False
        self.size = 0

    def put(self, item: Item) -> None:
        self._items.append(item)
        self.size += item.size
        self._work.set()

    def stir(self) -> None:
        """Somebody else may have written: look."""
        self._stirred = True
        self._work.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        return self.size > self.FULL

    async def take(self) -> tuple[list[Item], bool]:
        """What waits, and whether to look at what others wrote. Waits until there is one of the two."""
        await self._work.wait()
        taken: list[Item] = []
        size = 0
        while self._items and len(taken) < self.MOST_AT_ONCE and size < self.BYTES_AT_ONCE:
            item = self._items.popleft()
            size += item.size
            taken.append(item)
        self.size -= size
        stirred, self._stirred = self._stirred, False
        if not self._items:
            self._work.clear()
        return taken, stirred

    def close(self, error: PellucidError) -> None:
        """Nothing of it is judged any more."""
        while self._items:
            self._items.popleft().tell(Answer(error=error))
        self.size = 0


async def ask(put: Callable[[Item], None], item: Callable[[Tell], Item]) -> Answer:
    """Put it there, and wait for what becomes of it. Raises what it is refused with."""
    asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def tell(answer: Answer) -> None:
        if not asked.done():
            asked.set_result(answer)

    put(item(tell))
    answer = await asked
    if answer.error is not None:
        raise answer.error
    return answer
