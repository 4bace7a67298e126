"""The pool of connections that a model uses when it is given none: one for each running loop, shared by all models.

One of something for each running loop: made on first use there, closed when the loop ends.

A user's script calls `asyncio.run` and knows of no pool that must be closed. A loop that ends closes the asynchronous
generators that it saw begin, before it is gone, all at once; so what is held is held by such a generator, and by one
alone: `make` and `close` are no context manager, which would be another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from ..upstream import UpstreamClient

T = TypeVar("T")


class _Entry(Generic[T]):
    def __init__(self) -> None:
        self.generator: AsyncGenerator[T, None]
        self.lock = asyncio.Lock()
        """So that whoever comes while it is being made waits for it."""


class PerLoop(Generic[T]):
    """`get` it; `aclose` it, or let the loop do so. After that, the next `get` makes a new one."""

    def __init__(self, make: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._entries: dict[asyncio.AbstractEventLoop, _Entry[T]] = {}

    async def get(self) -> T:
        """This loop's own. Raises whatever making it raises."""
        loop = asyncio.get_running_loop()
        while True:
            entry = self._entries.get(loop)
            if entry is None:
                self._remove_closed_loops()
                entry = self._entries[loop] = _Entry()
                entry.generator = self._hold_value(loop, entry)
            async with entry.lock:
                # Whoever waited may find that it could not be made, or was closed.
                if self._entries.get(loop) is entry:
                    return await anext(entry.generator)

    async def aclose(self) -> None:
        """Close this loop's own, if there is one. Idempotent."""
        entry = self._entries.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            async with entry.lock:
                await entry.generator.aclose()

    async def _hold_value(self, loop: asyncio.AbstractEventLoop, entry: _Entry[T]) -> AsyncGenerator[T, None]:
        try:
            value = await self._make()
            try:
                while True:
                    yield value
            finally:
                await self._close(value)
        finally:
            if self._entries.get(loop) is entry:
                del self._entries[loop]

    def _remove_closed_loops(self) -> None:
        """Loops that were closed without a word to their generators."""
        for loop in [loop for loop in self._entries if loop.is_closed()]:
            del self._entries[loop]


async def _open_pool() -> UpstreamClient:
    return UpstreamClient()


async def _close_pool(transport: UpstreamClient) -> None:
    await transport.aclose()
    # Sockets are closed by the loop's next step, for which there may be no other reason.
    await asyncio.sleep(0)


_shared_pool = PerLoop(_open_pool, _close_pool)


async def shared_pool() -> UpstreamClient:
    """The running loop's pool. It is closed when the loop ends, or by `close_shared_pool`."""
    return await _shared_pool.get()


async def close_shared_pool() -> None:
    """Close the running loop's pool now. Whoever needs one after that gets a new one."""
    await _shared_pool.aclose()
