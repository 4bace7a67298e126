"""Token buckets for the relay in memory. (`scripts` has the same algorithm for Redis.)

A counter is stored as a level and the time of that level. It refills by `limit / window` a second, up to `limit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TypeAlias

from .relay import LimitResult

Bucket: TypeAlias = dict[str, tuple[float, float]]
"""Maps the name of a counter to its level and the time of that level."""

ROUNDING_TOLERANCE = 1e-9
"""Tolerance for floating-point rounding, as a fraction of the limit."""


def take(
    bucket: Bucket,
    amounts: Mapping[str, float],
    limits: Mapping[str, float],
    window_seconds: float,
    now: float,
    *,
    is_forced: bool,
) -> tuple[LimitResult, float]:
    """Take amounts from the counters of a bucket, if every counter allows it.

    Args:
        bucket: The counters. They are updated.
        amounts: Amount by counter; 0 for a counter that is not in it.
        limits: Limit by counter.
        window_seconds: The time in which an empty counter refills completely.
        now: The current time, in seconds.
        is_forced: Take the amounts even if a counter does not allow it. Its level is then below zero.

    Returns:
        The result, and the time at which every counter will be full again, so that the bucket can be deleted.
    """
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
