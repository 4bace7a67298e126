"""The limits of a request, and the timer that enforces those of time while a body is read.

* Three limits apply to waiting: to connect, until the first byte of the body, and then between two reads (`idle`).
  Time counts only while the receiver waits for data, so a slow receiver does not exceed the upstream's limit.
* A request may have a limit for the whole exchange, including retries (`total_seconds`), and every body has one
  (`turn_seconds`).
* The other limits of a turn (`turn_bytes` …) are enforced by its receiver (`models/model.py`).
* The timer checks a byte counter periodically, so a read costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from ..errors import ErrorInfo
from .errors import timeout_error, turn_too_long_error

Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]


_Amount = Annotated[int, Meta(ge=1, le=2**53)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits for a model server, in seconds, the number of retries, and the most that one turn may contain.

    A turn that reaches one of its limits ends there, as incomplete. The largest turns that models make have 128,000
    tokens: about 600,000 characters, and, with 500 bytes for the event of each token, 64 MB.
    """

    connect: Seconds = 10.0
    """Seconds until a connection is open."""
    first_byte: Seconds = 600.0
    """Seconds from the request to the first byte of the body. A large model may reason for minutes before it."""
    idle: Seconds = 300.0
    """Seconds for each read after the first byte."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    """How often a request is sent again, before the first byte of an answer."""
    retry_wait: Annotated[float, Meta(ge=0, le=1_000_000)] = 10.0
    """The longest wait before a retry. A response whose `Retry-After` is longer is returned without a retry."""
    turn_seconds: Seconds = 14_400.0
    """Seconds from the request to the end of the body: 128,000 tokens at 10 tokens a second, and some more."""
    turn_bytes: _Amount = 256 * 1024 * 1024
    """Bytes of the body, after decompression."""
    turn_characters: _Amount = 1_500_000
    """Characters of all text: reasoning, answer, arguments."""
    tool_argument_characters: _Amount = 1_000_000
    """Characters of the arguments of one call."""
    turn_items: _Amount = 4_000
    """Items (thoughts, messages, calls) and their parts."""


_RESOLUTION_SECONDS = 0.001


class ByteCounter(Protocol):
    """An object that counts the bytes of a body. The timer reads the counter."""

    body_bytes: int
    """Bytes of the body that have arrived."""


class Watchdog:
    """A coarse timer that ends a body when one of its time limits is exceeded.

    Create it when the head has arrived, and call `stop` when the body has ended.
    """

    __slots__ = (
        "_counter",
        "_deadline",
        "_limits",
        "_loop",
        "_on_expired",
        "_seen_bytes",
        "_sent_at",
        "_silent_since",
        "_tick_seconds",
        "_timer",
        "is_awaited",
    )

    def __init__(
        self, counter: ByteCounter, limits: Limits, sent_at: float, on_expired: Callable[[ErrorInfo], None]
    ) -> None:
        """Start the timer.

        Args:
            counter: Counts the bytes of the body.
            limits: `first_byte` and `idle` are used.
            sent_at: When the request was sent, in the event loop's time.
            on_expired: Called once, with the error, when a limit is exceeded.
        """
        self.is_awaited = False
        """Whether the receiver waits for data now. Limits apply only while this is True."""
        self._counter = counter
        self._limits = limits
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._deadline: tuple[float, float] | None = None
        self._sent_at = self._silent_since = sent_at
        self._seen_bytes = 0
        """The byte counter at the last check."""
        self._tick_seconds = min(1.0, limits.idle / 4, limits.first_byte / 4, limits.turn_seconds / 4)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._tick_seconds, self._check)

    def end_by(self, deadline: float, total_seconds: float) -> None:
        """Set the time by which the whole body must have arrived.

        Args:
            deadline: The event loop's time.
            total_seconds: The limit as configured, for the error message.
        """
        if self._timer is not None:
            self._deadline = (deadline, total_seconds)
            self._schedule_check(deadline - self._loop.time())

    def stop(self) -> None:
        """Stop the timer permanently. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_expired = _ignore_error  # breaks the reference cycle

    def _check(self) -> None:
        now, received_bytes = self._loop.time(), self._counter.body_bytes
        if received_bytes != self._seen_bytes or (received_bytes and not self.is_awaited):
            self._seen_bytes, self._silent_since = received_bytes, now
        limit_seconds = self._limits.idle if received_bytes else self._limits.first_byte
        turn_seconds_left = self._limits.turn_seconds - (now - self._sent_at)
        seconds_left = min(limit_seconds - (now - self._silent_since), turn_seconds_left)
        if self._deadline is not None:
            seconds_left = min(seconds_left, self._deadline[0] - now)
        if not self.is_awaited:
            self._schedule_check(self._tick_seconds)
        elif seconds_left > _RESOLUTION_SECONDS:
            self._schedule_check(seconds_left)
        else:
            on_expired, self._timer = self._on_expired, None
            if self._deadline is not None and now >= self._deadline[0]:
                on_expired(timeout_error("timeout", self._deadline[1]))
            elif turn_seconds_left <= _RESOLUTION_SECONDS:
                on_expired(turn_too_long_error(self._limits.turn_seconds))
            else:
                on_expired(timeout_error("idle_timeout" if received_bytes else "first_byte_timeout", limit_seconds))

    def _schedule_check(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(max(0.0, seconds), self._tick_seconds), self._check)


def _ignore_error(error: ErrorInfo) -> None:
    pass
