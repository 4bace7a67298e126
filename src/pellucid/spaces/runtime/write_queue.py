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

EnvelopeFactory: TypeAlias = Callable[[SpaceState, int], Envelope | None]
"""What the gateway says, worked out when it is judged: at this state and time (ms). None: nothing any more."""


class WriteResult:
    """What became of an item."""

    __slots__ = ("error", "for_sender", "is_new", "stored")

    def __init__(
        self,
        stored: StoredEnvelope | None = None,
        error: PellucidError | None = None,
        *,
        is_new: bool = True,
        for_sender: tuple[Envelope, ...] = (),
    ) -> None:
        self.stored = stored
        """None and no error: there was nothing to say."""
        self.error = error
        self.is_new = is_new
        """False: it was sent again, and is what it was."""
        self.for_sender = for_sender
        """What is for its sender alone."""


OnResult: TypeAlias = Callable[[WriteResult], None]


def ignore_result(result: WriteResult) -> None:
    """Is told of what nobody waits for."""


class WriteRequest:
    __slots__ = ("address", "envelope", "has_sender_id", "has_sender_ts", "make", "on_result", "redacted", "size_bytes")

    def __init__(
        self,
        on_result: OnResult,
        *,
        envelope: Envelope | None = None,
        make: EnvelopeFactory | None = None,
        has_sender_id: bool = False,
        has_sender_ts: bool = False,
        size_bytes: int = 0,
        redacted: tuple[str, ...] = (),
        address: str = "",
    ) -> None:
        self.on_result = on_result
        self.envelope = envelope
        self.make = make
        self.has_sender_id = has_sender_id
        """Whether its sender gave it its id: then it may be one that was sent again."""
        self.has_sender_ts = has_sender_ts
        """Whether its sender gave it its time: then one that was sent again has the same."""
        self.size_bytes = size_bytes
        self.redacted = redacted
        self.address = address
        """Under which the gateway was reached: `wss://host`, if that is known."""


class WriteQueue:
    MAX_BATCH = 500
    MAX_BATCH_BYTES = 4 << 20
    MAX_QUEUED_BYTES = 32 << 20
    """Bytes that wait, above which nobody more is heard until there is room."""

    def __init__(self) -> None:
        self._items: deque[WriteRequest] = deque()
        self._work = asyncio.Event()
        self._catch_up_requested = False
        self.size_bytes = 0

    def put(self, item: WriteRequest) -> None:
        self._items.append(item)
        self.size_bytes += item.size_bytes
        self._work.set()

    def request_catch_up(self) -> None:
        """Somebody else may have written: look."""
        self._catch_up_requested = True
        self._work.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return self.size_bytes > self.MAX_QUEUED_BYTES

    async def take(self) -> tuple[list[WriteRequest], bool]:
        """What waits, and whether to look at what others wrote. Waits until there is one of the two."""
        await self._work.wait()
        taken: list[WriteRequest] = []
        size_bytes = 0
        while self._items and len(taken) < self.MAX_BATCH and size_bytes < self.MAX_BATCH_BYTES:
            item = self._items.popleft()
            size_bytes += item.size_bytes
            taken.append(item)
        self.size_bytes -= size_bytes
        catch_up_requested, self._catch_up_requested = self._catch_up_requested, False
        if not self._items:
            self._work.clear()
        return taken, catch_up_requested

    def close(self, error: PellucidError) -> None:
        """Nothing of it is judged any more."""
        while self._items:
            self._items.popleft().on_result(WriteResult(error=error))
        self.size_bytes = 0


async def submit(put: Callable[[WriteRequest], None], make_request: Callable[[OnResult], WriteRequest]) -> WriteResult:
    """Put it there, and wait for what becomes of it. Raises what it is refused with."""
    future: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()

    def on_result(result: WriteResult) -> None:
        if not future.done():
            future.set_result(result)

    put(make_request(on_result))
    result = await future
    if result.error is not None:
        raise result.error
    return result
