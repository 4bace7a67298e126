"""The queue of envelopes that wait to be judged: from participants and from the gateway itself.

Each request has exactly one result: what was stored, or the error. It is passed to the request's `on_result`, which is
called in the writer's task and must not block.
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
"""Builds an envelope of the gateway when it is judged, from the state and the time (ms) at that moment. None: it is not
needed any more.
"""


class WriteResult:
    """The result of a write request."""

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
        """None without an error: there was nothing to write."""
        self.error = error
        self.is_new = is_new
        """False: it was sent before, and `stored` is what was stored then."""
        self.for_sender = for_sender
        """Envelopes for its sender alone."""


OnResult: TypeAlias = Callable[[WriteResult], None]


def ignore_result(result: WriteResult) -> None:
    """Ignore the result of a request."""


class WriteRequest:
    """One envelope to be judged, or a factory of one."""

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
        """Whether its sender chose its id. Then it may be a repetition."""
        self.has_sender_ts = has_sender_ts
        """Whether its sender chose its time. Then a repetition has the same time."""
        self.size_bytes = size_bytes
        self.redacted = redacted
        self.address = address
        """Base URL under which its sender reached the gateway, `wss://host`, if known."""


class WriteQueue:
    """Requests in order, with the number of bytes that wait."""

    MAX_BATCH = 500
    MAX_BATCH_BYTES = 4 << 20
    MAX_QUEUED_BYTES = 32 << 20
    """Waiting bytes above which no more frames are read until there is space again."""

    def __init__(self) -> None:
        self._items: deque[WriteRequest] = deque()
        self._work = asyncio.Event()
        self._catch_up_requested = False
        self.size_bytes = 0

    def put(self, item: WriteRequest) -> None:
        """Add a request."""
        self._items.append(item)
        self.size_bytes += item.size_bytes
        self._work.set()

    def request_catch_up(self) -> None:
        """Ask the writer to read what other replicas may have written."""
        self._catch_up_requested = True
        self._work.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait that no more frames are read."""
        return self.size_bytes > self.MAX_QUEUED_BYTES

    async def take(self) -> tuple[list[WriteRequest], bool]:
        """Wait for requests or for a request to catch up.

        Returns:
            The waiting requests, at most one batch of them; and whether to read what other replicas wrote.
        """
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
        """Fail everything that waits."""
        while self._items:
            self._items.popleft().on_result(WriteResult(error=error))
        self.size_bytes = 0


async def submit(put: Callable[[WriteRequest], None], make_request: Callable[[OnResult], WriteRequest]) -> WriteResult:
    """Enqueue a request and wait for its result.

    Raises:
        PellucidError: Why the envelope was refused.
    """
    future: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()

    def on_result(result: WriteResult) -> None:
        if not future.done():
            future.set_result(result)

    put(make_request(on_result))
    result = await future
    if result.error is not None:
        raise result.error
    return result
