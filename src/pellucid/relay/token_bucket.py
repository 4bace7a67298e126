"""The arithmetic of limits, for one process. (`scripts` has the same for Redis.)

A counter is a level and the time at which it was so. It fills by `limit / window` a second up to `limit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TypeAlias

from .relay import LimitResult

Bucket: TypeAlias = dict[str, tuple[float, float]]
"""Counter to level and time."""

ROUNDING_TOLERANCE = 1e-9
"""What floating point may lose of a counter, as a share of its limit."""


def take(
    bucket: Bucket,
    amounts: Mapping[str, float],
    limits: Mapping[str, float],
    window_seconds: float,
    now: float,
    *,
    is_forced: bool,
) -> tuple[LimitResult, float]:
    """What is allowed; and when every counter that was looked at will be full again, so that it can be forgotten."""
    levels: dict[str, float] = {}
    longest_wait, limiting_counter = 0.0, None
    for name, limit in limits.items():
        level, updated_at = bucket.get(name, (float(limit), now))
        level = min(float(limit), level + max(0.0, now - updated_at) * limit / window_seconds)
        amount = amounts.get(name, 0.0)
        if level + limit * ROUNDING_TOLERANCE < amount:
            wait = inf if amount > limit or limit <= 0 else (amount - level) * window_seconds / limit
            if wait > longest_wait:
                longest_wait, limiting_counter = wait, name
        levels[name] = level
    allowed = is_forced or limiting_counter is None
    full_at = now
    for name, limit in limits.items():
        if allowed:
            levels[name] -= amounts.get(name, 0.0)
        bucket[name] = (levels[name], now)
        full_at = max(full_at, now + ((limit - levels[name]) * window_seconds / limit if limit > 0 else 0.0))
    return LimitResult(
        allowed, 0.0 if allowed else longest_wait, None if allowed else limiting_counter, levels
    ), full_at
