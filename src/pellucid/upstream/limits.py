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
from .errors import timed_out

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


class Watched(Protocol):
    """What the timer looks at."""

    body_bytes: int
    """How many bytes of the body have arrived."""


class Watch:
    """A coarse timer that ends a body when one of its time limits has passed.

    Create it when the head has arrived; `stop` it when the body is over.
    """

    __slots__ = (
        "_deadline",
        "_expire",
        "_limits",
        "_loop",
        "_seen",
        "_silent_since",
        "_tick",
        "_timer",
        "_watched",
        "is_awaited",
    )

    def __init__(self, watched: Watched, limits: Limits, sent_at: float, expire: Callable[[ErrorInfo], None]) -> None:
        """
        Args:
            watched: where the bytes are counted.
            limits: its `first_byte` and `idle`.
            sent_at: when the request was sent, in the loop's time.
            expire: called once with the error when a limit has passed.
        """
        self.is_awaited = False
        """Whether somebody waits for data now: only then a limit can pass, and only then silence counts."""
        self._watched = watched
        self._limits = limits
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._deadline: tuple[float, float] | None = None
        self._silent_since = sent_at
        self._seen = 0
        """How many bytes had arrived at the last look."""
        self._tick = min(1.0, limits.idle / 4, limits.first_byte / 4)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._tick, self._look)

    def end_by(self, deadline: float, total: float) -> None:
        """All of the body must have come by `deadline` (the loop's time), `total` seconds after the request began."""
        if self._timer is not None:
            self._deadline = (deadline, total)
            self._look_in(deadline - self._loop.time())

    def stop(self) -> None:
        """Stop for good. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._expire = _ignore  # no circle is left behind

    def _look(self) -> None:
        now, arrived = self._loop.time(), self._watched.body_bytes
        if arrived != self._seen or (arrived and not self.is_awaited):
            self._seen, self._silent_since = arrived, now
        patience = self._limits.idle if arrived else self._limits.first_byte
        left = patience - (now - self._silent_since)
        if self._deadline is not None:
            left = min(left, self._deadline[0] - now)
        if not self.is_awaited:
            self._look_in(self._tick)
        elif left > _RESOLUTION_SECONDS:
            self._look_in(left)
        else:
            expire, self._timer = self._expire, None
            if self._deadline is not None and now >= self._deadline[0]:
                expire(timed_out("timeout", self._deadline[1]))
            else:
                expire(timed_out("idle_timeout" if arrived else "first_byte_timeout", patience))

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(max(0.0, seconds), self._tick), self._look)


def _ignore(error: ErrorInfo) -> None:
    pass
