"""The arithmetic of limits, for one process. (`scripts` has the same for Redis.)

A counter is a level and the time at which it was so. It fills by `limit / window` a second up to `limit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TypeAlias

from .relay import Verdict

Bucket: TypeAlias = dict[str, tuple[float, float]]
"""Counter to level and time."""

DUST = 1e-9
"""What floating point may lose of a counter, as a share of its limit."""


def take(
    bucket: Bucket,
    amounts: Mapping[str, float],
    limits: Mapping[str, float],
    window: float,
    now: float,
    *,
    always: bool,
) -> tuple[Verdict, float]:
    """What is allowed; and when every counter that was looked at will be full again, so that it can be forgotten."""
    left: dict[str, float] = {}
    longest, which = 0.0, None
    for name, limit in limits.items():
        level, at = bucket.get(name, (float(limit), now))
        level = min(float(limit), level + max(0.0, now - at) * limit / window)
        amount = amounts.get(name, 0.0)
        if level + limit * DUST < amount:
            wait = inf if amount > limit or limit <= 0 else (amount - level) * window / limit
            if wait > longest:
                longest, which = wait, name
        left[name] = level
    allowed = always or which is None
    full = now
    for name, limit in limits.items():
        if allowed:
            left[name] -= amounts.get(name, 0.0)
        bucket[name] = (left[name], now)
        full = max(full, now + ((limit - left[name]) * window / limit if limit > 0 else 0.0))
    return Verdict(allowed, 0.0 if allowed else longest, None if allowed else which, left), full
