"""Time in a space, which does not go back: where the machine's clock is put back, it goes on from what it was.

Silence and absence are measured by it, also beyond a restart: the log says how late it was.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Steady:
    """Seconds since 1970 by `clock`, and never before `since`, nor before what was said last."""

    def __init__(self, clock: Callable[[], float], since: float = 0.0) -> None:
        self._clock = clock
        self._last = since
        self._ticks = monotonic()

    def __call__(self) -> float:
        now, ticks = self._clock(), monotonic()
        self._last = now if now >= self._last else self._last + (ticks - self._ticks)
        self._ticks = ticks
        return self._last
