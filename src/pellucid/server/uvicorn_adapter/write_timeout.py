"""Timeout of writes: a client that does not read its pending data is disconnected, and its buffers are dropped."""

from __future__ import annotations

import asyncio


class WriteTimeout:
    """Checks periodically that the transport's write buffer shrinks, and aborts after `seconds` without progress."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float) -> None:
        self._loop = loop
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check from now on, until `stop`."""
        self._check()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, buffered_bytes: int | None = None, progress_at: float = 0.0) -> None:
        self.stop()
        now, remaining_bytes = self._loop.time(), self._transport.get_write_buffer_size()
        if buffered_bytes is None or remaining_bytes < buffered_bytes:
            buffered_bytes, progress_at = remaining_bytes, now
        if now - progress_at >= self._seconds:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(self._seconds / 4, self._check, buffered_bytes, progress_at)
