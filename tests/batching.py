"""Events in batches of any size: for tests of encoders, whose bytes must not depend on the size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

batch_sizes: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 4), max_size=8).map(lambda sizes: [*sizes, 1])
"""Sizes of batches, empty ones among them; at least one is not empty."""


def in_batches(items: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Split a sequence into batches of these sizes, from the first size again after the last."""
    batches: list[list[T]] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(items):
            return batches
        batches.append(list(items[start : start + size]))
        start += size
    return batches
