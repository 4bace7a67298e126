"""Read a `ModelStream` by iterating: for programs that pull, where a run would push.

The upstream is paused but while the program waits.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ..events import ModelEvent, ResponseEndEvent
from .model import ModelRead, ModelStream


class StreamReader:
    """The events of one turn, read by read."""

    def __init__(self, stream: ModelStream) -> None:
        self._stream = stream
        self._started = False
        self._queue: deque[list[ModelEvent]] = deque()
        self._fault: Exception | None = None
        self._is_complete = False
        self._came = asyncio.Event()

    async def read(self) -> list[ModelEvent] | None:
        """What came next; None after the end of the turn."""
        if not self._started:
            self._started = True
            self._stream.start(self._receive)
        while not self._queue:
            if self._fault is not None:
                raise self._fault
            if self._is_complete:
                return None
            self._came.clear()
            self._stream.resume()
            if not self._queue:
                await self._came.wait()
        return self._queue.popleft()

    def cancel(self) -> None:
        """Stop now; whoever reads gets what has come, and then None. Idempotent."""
        self._stream.cancel()
        self._is_complete = True
        self._came.set()

    def _receive(self, events: ModelRead) -> None:
        if events is None:
            self._is_complete = True
        elif isinstance(events, Exception):
            self._fault = events
        else:
            self._queue.append(events)
            self._is_complete = bool(events) and type(events[-1]) is ResponseEndEvent
            self._stream.pause()
        self._came.set()
