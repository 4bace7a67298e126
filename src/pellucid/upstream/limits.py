"""The time limits of a request, and the timer that watches them while a body is read.

* Three limits on silence: to connect, to the first byte of the body, and from then on between two reads (`idle`). Only
  time in which somebody waits for data counts: a slow reader is not the upstream's silence.
* One limit on the whole, tries included, where a request has one (`total`).
* The timer looks at a counter of bytes now and then. A read costs it nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from ..errors import ErrorInfo
from .errors import timeout_error

Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for a model, in seconds, and how often to try."""

    connect: Seconds = 10.0
    first_byte: Seconds = 600.0
    """From the request to the first byte of the answer's body: a large model may think for minutes before it."""
    idle: Seconds = 300.0
    """For each read after that."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    retry_wait: Annotated[float, Meta(ge=0, le=1_000_000)] = 10.0
    """The longest to wait before trying again, whatever the server asks for."""


_RESOLUTION_SECONDS = 0.001


class ByteCounter(Protocol):
    """What the timer looks at."""

    body_bytes: int
    """How many bytes of the body have arrived."""


class Watchdog:
    """A coarse timer that ends a body when one of its time limits has passed.

    Create it when the head has arrived; `stop` it when the body is over.
    """

    __slots__ = (
        "_counter",
        "_deadline",
        "_limits",
        "_loop",
        "_on_expired",
        "_seen_bytes",
        "_silent_since",
        "_tick_seconds",
        "_timer",
        "is_awaited",
    )

    def __init__(
        self, counter: ByteCounter, limits: Limits, sent_at: float, on_expired: Callable[[ErrorInfo], None]
    ) -> None:
        """
        Args:
            watched: where the bytes are counted.
            limits: its `first_byte` and `idle`.
            sent_at: when the request was sent, in the loop's time.
            expire: called once with the error when a limit has passed.
        """
        self.is_awaited = False
        """Whether somebody waits for data now: only then a limit can pass, and only then silence counts."""
        self._counter = counter
        self._limits = limits
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._deadline: tuple[float, float] | None = None
        self._silent_since = sent_at
        self._seen_bytes = 0
        """How many bytes had arrived at the last look."""
        self._tick_seconds = min(1.0, limits.idle / 4, limits.first_byte / 4)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._tick_seconds, self._check)

    def end_by(self, deadline: float, total_seconds: float) -> None:
        """All of the body must have come by `deadline` (the loop's time), `total` seconds after the request began."""
        if self._timer is not None:
            self._deadline = (deadline, total_seconds)
            self._schedule_check(deadline - self._loop.time())

    def stop(self) -> None:
        """Stop for good. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_expired = _ignore_error  # no circle is left behind

    def _check(self) -> None:
        now, received_bytes = self._loop.time(), self._counter.body_bytes
        if received_bytes != self._seen_bytes or (received_bytes and not self.is_awaited):
            self._seen_bytes, self._silent_since = received_bytes, now
        limit_seconds = self._limits.idle if received_bytes else self._limits.first_byte
        seconds_left = limit_seconds - (now - self._silent_since)
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
            else:
                on_expired(timeout_error("idle_timeout" if received_bytes else "first_byte_timeout", limit_seconds))

    def _schedule_check(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(max(0.0, seconds), self._tick_seconds), self._check)


def _ignore_error(error: ErrorInfo) -> None:
    pass
