"""Waiting for a condition, in tests that watch another thread, task or process: never a fixed sleep.

The limits are generous, for busy machines: a test that passes does not wait for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_SECONDS = 30.0
HOUR_SECONDS = 3600.0
"""For timers that must not cause the condition that a test waits for: none of them ends within `LIMIT_SECONDS`."""
_PAUSE_SECONDS = 0.005


def wait_until(condition: Callable[[], object], what: str = "", within: float = LIMIT_SECONDS) -> None:
    """Block until the condition is true.

    Args:
        condition: called every few milliseconds, in this thread.
        what: a description of the condition, for the message.
        within: the limit, in seconds.

    Raises:
        AssertionError: the limit has passed.
    """
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        time.sleep(_PAUSE_SECONDS)


async def eventually(condition: Callable[[], object], what: str = "", within: float = LIMIT_SECONDS) -> None:
    """Wait until the condition is true, while the event loop runs; otherwise like `wait_until`."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        await asyncio.sleep(_PAUSE_SECONDS)


async def loop_turns(count: int = 5) -> None:
    """Let every ready task run this many times; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)
