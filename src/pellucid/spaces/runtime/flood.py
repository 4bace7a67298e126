"""How much one participant may say: for each family of kinds, in messages and in bytes.

    guard = Guard(limits)
    guard.take("reasoning", size, now)        # raises RequestError (too_many_requests) with `retry_after`
    guard.out_of_patience(now)                # whether they go on all the same, and for how long

Each is a bucket that holds `burst` and fills up by `per_second`. What is refused takes nothing. The limits are one
replica's: they keep it, and whoever reads, from being drowned. `now` is in seconds, and never goes back.
"""

from __future__ import annotations

from math import ceil

from ...errors import ErrorInfo, PellucidError
from .settings import FloodLimits, Rate

FAMILIES = ("reasoning", "chat", "mcp")
OTHER = "other"

QUIET = 2.0
"""Seconds without a refusal after which somebody is no longer over the limit."""


class Bucket:
    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._level = rate.burst
        self._at: float | None = None

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0: now. More than it ever holds is let by when it is full."""
        rate, level = self._rate, self._level
        if self._at is not None:
            level = min(rate.burst, level + max(0.0, now - self._at) * rate.per_second)
        self._level, self._at = level, now
        return max(0.0, (min(amount, rate.burst) - level) / rate.per_second)

    def take(self, amount: float) -> None:
        self._level -= amount


class Guard:
    """One participant's."""

    __slots__ = ("_limits", "_messages", "_since", "_until", "_volume", "last")

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._messages = {family: Bucket(getattr(limits, family)) for family in (*FAMILIES, OTHER)}
        self._volume = {family: Bucket(limits.bytes) for family in (*FAMILIES, OTHER)}
        self._since = self._until = -QUIET
        """When they began to be over the limit, and when they were last."""
        self.last = 0.0
        """When they last said something."""

    def take(self, family: str, size: int, now: float) -> None:
        """Raises `PellucidError`."""
        if family not in FAMILIES:
            family = OTHER
        self.last = now
        messages, volume = self._messages[family], self._volume[family]
        wait = max(messages.wait(1, now), volume.wait(size, now))
        if wait > 0:
            if now - self._until >= QUIET:
                self._since = now
            self._until = now
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"this participant says more ({family}) than the space takes; wait {wait:.1f} s, and go on slower",
                    code="rate_limited",
                    retry_after=ceil(wait * 1000) / 1000,
                )
            )
        messages.take(1)
        volume.take(size)

    def out_of_patience(self, now: float) -> bool:
        return now - self._until < QUIET and self._until - self._since > self._limits.patience


class Guards:
    """Those of a space. Who said nothing for a while is forgotten: their buckets are full again."""

    MOST = 1_000

    def __init__(self, limits: FloodLimits) -> None:
        self._of: dict[str, Guard] = {}
        self._limits: FloodLimits | None = None
        self.take_limits(limits)

    def take_limits(self, limits: FloodLimits) -> None:
        """From now on these hold."""
        if limits == self._limits:
            return
        self._limits = limits
        self._of.clear()
        rates = [getattr(limits, family) for family in (*FAMILIES, OTHER, "bytes")]
        self._full_after = max(QUIET, *(rate.burst / rate.per_second for rate in rates))

    def of(self, participant: str, now: float) -> Guard:
        guard = self._of.get(participant)
        if guard is None:
            if len(self._of) >= self.MOST:
                self._of = {name: one for name, one in self._of.items() if now - one.last < self._full_after}
            assert self._limits is not None
            guard = self._of[participant] = Guard(self._limits)
        return guard
