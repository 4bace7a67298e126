"""A response: its head, and its body for one receiver.

* `start` delivers the bytes that have arrived in one call. After that, each read of the socket is one call. The
  receiver applies back-pressure with `pause_reading`.
* The end of the body is reported once, as the last call, with the error if there was one. Nothing is reported after
  `close`.
* `close` closes the connection at once if the body has not ended, so the model stops generating. `finish` waits a
  moment for the body to end, so that the connection can be reused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Protocol

from ..errors import ErrorInfo
from .connection import Connection
from .decompression import DecodingReceiver, PausableSource, is_decodable
from .errors import truncated_error
from .limits import Limits, Watchdog
from .parsing import ResponseHead

READ_ALL_SECONDS = 10.0
"""Limit for the time that `UpstreamResponse.read_all` waits."""
_FINISH_SECONDS = 1.0


class BodyReceiver(Protocol):
    """Receives the body of a response as it arrives."""

    def data_received(self, data: bytes) -> None:
        """Handle the next bytes of the body (at least one)."""
        ...

    def body_ended(self, error: ErrorInfo | None) -> None:
        """Handle the end of the body. Called exactly once, as the last call, and not after `close`.

        Args:
            error: Why the body is incomplete; None if it is complete.
        """
        ...


class UpstreamResponse:
    """One response. Its body is passed to a receiver (`start`), or read into memory (`read_all`)."""

    __slots__ = (
        "_connection",
        "_decoder",
        "_finish_timer",
        "_is_paused",
        "_receiver",
        "_release",
        "_source",
        "_watchdog",
        "headers",
        "is_over",
        "limits",
        "status",
    )

    def __init__(
        self,
        connection: Connection,
        head: ResponseHead,
        limits: Limits,
        sent_at: float,
        release: Callable[[Connection], None],
    ) -> None:
        """Create the response for a head that has arrived.

        Args:
            connection: The connection that received the head.
            head: The head of a final response.
            limits: `first_byte`, `idle` and `turn_seconds` apply while the receiver waits for the body. The receiver
                checks the others.
            sent_at: When the request was sent, in the event loop's time.
            release: Called with the connection when it can be reused.

        Raises:
            InvalidResponse: The body has a content coding that is not supported. The caller still owns the connection.
        """
        self._decoder: DecodingReceiver | None = None
        self._source: PausableSource | None = connection
        """What is paused; None when there is nothing left to pause."""
        self._connection: Connection | None = connection
        self.limits = limits
        self.status = head.status
        self.headers = head.headers
        self._release = release
        self._receiver: BodyReceiver | None = None
        self.is_over = False
        """Whether the body has ended or was given up."""
        self._is_paused = False
        self._finish_timer: asyncio.TimerHandle | None = None
        if is_decodable(head.content_encoding):
            self._source = self._decoder = DecodingReceiver(
                head.content_encoding, connection, self._deliver, self._report_end
            )
        self._watchdog = Watchdog(connection, limits, sent_at, self._report_end)

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next request (`Retry-After`, a number or a date); None if it is not stated."""
        return retry_after_of(self.headers.get("retry-after", ""))

    @property
    def body_bytes(self) -> int:
        """Bytes of the body so far, after decompression; 0 after its end."""
        source = self._decoder or self._connection
        return 0 if source is None else source.body_bytes

    def start(self, receiver: BodyReceiver) -> None:
        """Deliver the body to `receiver`. Call it once."""
        connection = self._connection
        self._receiver = receiver
        if connection is None:
            return
        self._watchdog.is_awaited = not self._is_paused
        # The receiver's own method, so a read has no function between the parser and the receiver.
        connection.receive((self._decoder or receiver).data_received, self._on_body_end)

    def redirect(self, deliver: Callable[[bytes], None]) -> bool:
        """Call `deliver` with each read, instead of the receiver.

        Returns:
            False if that is not possible, because the body is decompressed or has ended.
        """
        if self._decoder is not None or self._connection is None:
            return False
        self._connection.redirect(deliver)
        return True

    def pause_reading(self) -> None:
        """Stop reading, so the server has to wait. Its time limits do not run meanwhile. Idempotent."""
        self._is_paused = True
        self._watchdog.is_awaited = False
        if self._source is not None:
            self._source.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading. Idempotent."""
        self._is_paused = False
        if not self.is_over and self._source is not None:
            self._watchdog.is_awaited = True
            self._source.resume_reading()

    def end_by(self, deadline: float, total_seconds: float) -> None:
        """Set the time by which the whole body must have arrived.

        Args:
            deadline: The event loop's time.
            total_seconds: The limit as configured, for the error message.
        """
        self._watchdog.end_by(deadline, total_seconds)

    async def read_all(self, max_bytes: int) -> bytes:
        """Read the body into memory, then close. Call it instead of `start`. Never raises.

        Args:
            max_bytes: Limit for the result; the rest is not read, and neither is what arrives after `READ_ALL_SECONDS`.

        Returns:
            The bytes that arrived.
        """
        collector = _Collector(max_bytes)
        try:
            self.start(collector)
            async with asyncio.timeout(READ_ALL_SECONDS):
                await collector.done.wait()
        except TimeoutError:
            pass
        finally:
            self.close()
        return b"".join(collector.pieces)[:max_bytes]

    def close(self) -> None:
        """Close the connection if the body has not ended. Nothing is reported after this. Idempotent."""
        self.is_over = True
        self._receiver = None
        connection = self._detach()
        if connection is not None:
            connection.close()
        if self._decoder is not None:
            self._decoder.close()

    def finish(self) -> None:
        """Discard the rest of the body, and keep the connection open if the body ends within a second.

        Otherwise the connection is closed. Nothing is reported after this. Idempotent.
        """
        connection = self._connection
        if connection is None or self.is_over:
            return
        self.is_over = True
        self._watchdog.stop()
        if self._decoder is not None:
            self._decoder.close()
        self._receiver = None
        self._finish_timer = asyncio.get_running_loop().call_later(_FINISH_SECONDS, self.close)
        connection.receive(_ignore_data, self._on_body_end)
        connection.resume_reading()

    # Called by the connection, the decompression and the watchdog.

    def _deliver(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.data_received(data)

    def _on_body_end(self, is_complete: bool) -> None:
        connection = self._detach()
        if connection is not None and connection.is_idle:
            self._release(connection)
        error = None if is_complete else truncated_error()
        if self._decoder is not None:
            self._decoder.body_ended(error)
        else:
            self._report_end(error)

    def _report_end(self, error: ErrorInfo | None) -> None:
        receiver = self._receiver
        self.close()
        if receiver is not None:
            receiver.body_ended(error)

    def _detach(self) -> Connection | None:
        """Detach from the connection. Returns it if this response still owns it."""
        connection, self._connection = self._connection, None
        self._watchdog.stop()
        self._source = self._decoder
        if self._finish_timer is not None:
            self._finish_timer.cancel()
            self._finish_timer = None
        return connection


def retry_after_of(value: str) -> float | None:
    """Parse a `Retry-After` header (RFC 9110, section 10.2.3).

    Returns:
        Seconds, or None if the value is neither a number nor a date.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
        seconds = max(0.0, seconds)
    return seconds if isfinite(seconds) and seconds >= 0 else None


class _Collector:
    """Receives a limited number of bytes."""

    __slots__ = ("_left_bytes", "done", "pieces")

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[bytes] = []
        self.done = asyncio.Event()
        self._left_bytes = max_bytes

    def data_received(self, data: bytes) -> None:
        if self._left_bytes > 0:
            self.pieces.append(data)
            self._left_bytes -= len(data)
        if self._left_bytes <= 0:
            self.done.set()

    def body_ended(self, error: ErrorInfo | None) -> None:
        self.done.set()


def _ignore_data(data: bytes) -> None:
    pass
