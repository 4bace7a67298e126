"""A receiver that keeps what arrives until a test takes it.

The pace of the reader is the pace of the server: nothing is read that was not requested, but for one socket buffer.
"""

from __future__ import annotations

import asyncio

from pellucid.errors import ErrorInfo, ModelError
from pellucid.upstream import UpstreamResponse


class BodyReader:
    """Receives the body of a response and keeps what has not been taken."""

    __slots__ = ("_error", "_is_over", "_pieces", "_response", "_waiter")

    def __init__(self, response: UpstreamResponse) -> None:
        """Start the response with this reader as its receiver."""
        self._response = response
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: ErrorInfo | None = None
        self._is_over = False
        response.start(self)
        response.pause_reading()

    async def wait(self) -> None:
        """Wait until there is something to take."""
        if self._pieces or self._is_over:
            return
        self._response.resume_reading()
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None
            self._response.pause_reading()

    def take(self) -> bytes:
        """Return what has arrived, at least a byte; `b""` when it is over. Raises `ModelError` if it broke off."""
        pieces = self._pieces
        if not pieces:
            if self._error is not None:
                raise ModelError(self._error)
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return data

    async def read(self) -> bytes:
        """Wait for data, then take it."""
        await self.wait()
        return self.take()

    def close(self) -> None:
        """Close the response. A `wait` that is pending returns, and `take` gives the end."""
        self._response.close()
        self.body_ended(None)

    def finish(self) -> None:
        """Finish the response (see `UpstreamResponse.finish`). A `wait` that is pending returns."""
        self._response.finish()
        self.body_ended(None)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def body_ended(self, error: ErrorInfo | None) -> None:
        if not self._is_over:
            self._is_over, self._error = True, error
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
