"""Whoever reads nothing of what waits for them is let go, buffers and all."""

from __future__ import annotations

import asyncio


class Unread:
    """Looks now and then whether what waits in `transport` becomes less, and aborts after `seconds` without that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float) -> None:
        self._loop = loop
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """From now on, until `stop`."""
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, waits: int | None = None, since: float = 0.0) -> None:
        self.stop()
        now, left = self._loop.time(), self._transport.get_write_buffer_size()
        if waits is None or left < waits:
            waits, since = left, now
        if now - since >= self._seconds:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(self._seconds / 4, self._look, waits, since)
