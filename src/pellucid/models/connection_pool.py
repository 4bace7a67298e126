"""The default connection pool of models: one for each running event loop, shared by all models.

`PerLoop` creates an object on first use in a loop, and closes it when the loop ends. A user's script calls
`asyncio.run` and does not close a pool. A loop that ends first closes all asynchronous generators that were started in
it, concurrently. Therefore one such generator holds the object, and no second one: `make` and `close` are functions,
because a context manager would be another generator.
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
        """Callers that come while the object is created wait for it."""


class PerLoop(Generic[T]):
    """Holds one object for each event loop.

    `get` returns it. `aclose`, or the end of the loop, closes it; the next `get` creates a new one.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._entries: dict[asyncio.AbstractEventLoop, _Entry[T]] = {}

    async def get(self) -> T:
        """Return the running loop's object. Raises what creating it raises."""
        loop = asyncio.get_running_loop()
        while True:
            entry = self._entries.get(loop)
            if entry is None:
                self._remove_closed_loops()
                entry = self._entries[loop] = _Entry()
                entry.generator = self._hold_value(loop, entry)
            async with entry.lock:
                # While this call waited, creation may have failed, or the object may have been closed.
                if self._entries.get(loop) is entry:
                    return await anext(entry.generator)

    async def aclose(self) -> None:
        """Close the running loop's object, if there is one. Idempotent."""
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
        """Remove the entries of loops that were closed without closing their generators."""
        for loop in [loop for loop in self._entries if loop.is_closed()]:
            del self._entries[loop]


async def _open_pool() -> UpstreamClient:
    return UpstreamClient()


async def _close_pool(transport: UpstreamClient) -> None:
    await transport.aclose()
    # Sockets are closed in the loop's next iteration, which may not happen otherwise.
    await asyncio.sleep(0)


_shared_pool = PerLoop(_open_pool, _close_pool)


async def shared_pool() -> UpstreamClient:
    """Return the running loop's connection pool. It is closed when the loop ends, or by `close_shared_pool`."""
    return await _shared_pool.get()


async def close_shared_pool() -> None:
    """Close the running loop's connection pool now. A later request opens a new one."""
    await _shared_pool.aclose()
