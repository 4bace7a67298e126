"""A response: its head, and its body for one receiver.

* Push: `start` hands over what has arrived in one call; from then on each read of the socket is one call. The receiver
  slows the server down with `pause_reading`.
* The end is reported once and last, with what went wrong if anything did. Nothing is reported after `close`.
* `close` gives the connection up at once if the body is not over: the model stops its work. `finish` gives
  the body a moment to end, so that the connection can be used again.
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
from .parsing import Headers, ResponseHead

_FINISH_SECONDS = 1.0


class BodyReceiver(Protocol):
    """Gets the body of a response as it arrives."""

    def data_received(self, data: bytes) -> None:
        """The next bytes, at least one."""
        ...

    def body_ended(self, error: ErrorInfo | None) -> None:
        """The body is over: whole, or broken off by `error`. Called exactly once, last, and not after `close`."""
        ...


class UpstreamResponse:
    """One response. Its body is read by `start`, or whole by `read_all`."""

    __slots__ = (
        "_connection",
        "_decoder",
        "_finish_timer",
        "_head",
        "_is_over",
        "_is_paused",
        "_receiver",
        "_release",
        "_source",
        "_watchdog",
    )

    def __init__(
        self,
        connection: Connection,
        head: ResponseHead,
        limits: Limits,
        sent_at: float,
        release: Callable[[Connection], None],
    ) -> None:
        """
        Args:
            connection: that the head came from.
            head: of a final response.
            limits: for the silence of the server while somebody waits for the body.
            sent_at: when the request was sent, in the loop's time.
            release: takes the connection when it can be used again.

        Raises:
            InvalidResponse: the body has a coding that cannot be decoded. The connection is still the caller's.
        """
        self._decoder: DecodingReceiver | None = None
        self._source: PausableSource = connection
        self._connection: Connection | None = connection
        self._head = head
        self._release = release
        self._receiver: BodyReceiver | None = None
        self._is_over = False
        self._is_paused = False
        self._finish_timer: asyncio.TimerHandle | None = None
        if is_decodable(head.content_encoding):
            self._source = self._decoder = DecodingReceiver(
                head.content_encoding, connection, self._deliver, self._on_decoded_end
            )
        self._watchdog = Watchdog(connection, limits, sent_at, self._report_end)

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> Headers:
        return self._head.headers

    @property
    def content_type(self) -> str:
        return self._head.headers.get("content-type", "")

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next request, where the server says so, as a number or as a date."""
        return retry_after_of(self._head.headers.get("retry-after", ""))

    @property
    def is_over(self) -> bool:
        """Whether the body has ended, one way or the other."""
        return self._is_over

    def start(self, receiver: BodyReceiver) -> None:
        """Give the body to `receiver`. To be called once."""
        connection = self._connection
        self._receiver = receiver
        if connection is None:
            return
        self._watchdog.is_awaited = not self._is_paused
        if self._decoder is not None:
            connection.receive(self._decoder.data_received, self._on_encoded_end)
        else:
            # The receiver's own method: a read passes through nothing else.
            connection.receive(receiver.data_received, self._on_body_end)

    def redirect(self, deliver: Callable[[bytes], None]) -> bool:
        """Call `deliver` with each read, in the receiver's place. False for a body that is decompressed."""
        if self._decoder is not None or self._connection is None:
            return False
        self._connection.redirect(deliver)
        return True

    def pause_reading(self) -> None:
        """Read nothing more: the server has to wait. Its silence does not count meanwhile. Idempotent."""
        self._is_paused = True
        self._watchdog.is_awaited = False
        self._source.pause_reading()

    def resume_reading(self) -> None:
        """Read again. Idempotent."""
        self._is_paused = False
        if not self._is_over:
            self._watchdog.is_awaited = True
            self._source.resume_reading()

    def end_by(self, deadline: float, total_seconds: float) -> None:
        """All of the body must have come by `deadline` (the loop's time), `total` seconds after the request began."""
        self._watchdog.end_by(deadline, total_seconds)

    async def read_all(self, max_bytes: int, timeout_seconds: float = 10.0) -> bytes:
        """Return what comes within `seconds`, at most `limit` bytes of it, and close. Never raises.

        In place of `start`.
        """
        collector = _Collector(max_bytes)
        try:
            self.start(collector)
            async with asyncio.timeout(timeout_seconds):
                await collector.done.wait()
        except TimeoutError:
            pass
        finally:
            self.close()
        return b"".join(collector.pieces)[:max_bytes]

    def close(self) -> None:
        """Give up the connection, at once if the body is not over. Nothing is reported after that. Idempotent."""
        self._is_over = True
        connection = self._detach()
        if connection is not None:
            connection.close()

    def finish(self) -> None:
        """Nothing more is wanted: the connection stays open if the body ends within a second, and is closed if not.

        Nothing is reported after that. Idempotent.
        """
        connection = self._connection
        if connection is None or self._is_over:
            return
        self._is_over = True
        self._watchdog.stop()
        if self._decoder is not None:
            self._decoder.close()
        self._receiver = None
        self._finish_timer = asyncio.get_running_loop().call_later(_FINISH_SECONDS, self.close)
        connection.receive(_ignore_data, self._on_discarded_end)
        connection.resume_reading()

    # What the connection, the decoding and the watch call.

    def _deliver(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.data_received(data)

    def _on_body_end(self, is_complete: bool) -> None:
        self._release_connection()
        self._report_end(None if is_complete else truncated_error())

    def _on_encoded_end(self, is_complete: bool) -> None:
        self._release_connection()
        if self._decoder is not None:
            self._decoder.body_ended(None if is_complete else truncated_error())

    def _on_decoded_end(self, error: ErrorInfo | None) -> None:
        self._report_end(error)

    def _on_discarded_end(self, is_complete: bool) -> None:
        self._release_connection()

    def _report_end(self, error: ErrorInfo | None) -> None:
        receiver, connection = self._receiver, self._detach()
        self._is_over = True
        if connection is not None:
            connection.close()
        if receiver is not None:
            receiver.body_ended(error)

    def _release_connection(self) -> None:
        """The connection has done its part."""
        connection, self._connection = self._connection, None
        self._watchdog.stop()
        self._source = _NULL_SOURCE if self._decoder is None else self._decoder
        if self._finish_timer is not None:
            self._finish_timer.cancel()
            self._finish_timer = None
        if connection is not None and connection.is_idle:
            self._release(connection)

    def _detach(self) -> Connection | None:
        """Let go of everything, and return the connection if it is still this response's."""
        connection, self._connection = self._connection, None
        self._watchdog.stop()
        self._source = _NULL_SOURCE
        self._receiver = None
        if self._finish_timer is not None:
            self._finish_timer.cancel()
            self._finish_timer = None
        if self._decoder is not None:
            self._decoder.close()
        return connection


def retry_after_of(value: str) -> float | None:
    """The seconds that a `Retry-After` header names (RFC 9110, section 10.2.3); None where it names none."""
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
    """Receives up to so many bytes."""

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


class _NullSource:
    """The flow of a response that is over."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


_NULL_SOURCE = _NullSource()


def _ignore_data(data: bytes) -> None:
    pass
