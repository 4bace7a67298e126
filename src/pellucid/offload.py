"""Computations over large input, in a thread, so that the event loop stays responsive.

What reads, converts and writes requests is synchronous and pure. For an ordinary request it takes about a millisecond;
for the largest that are accepted, seconds. Such a computation runs in a thread, two at a time in the whole process, so
that many of them do not take the processor from the streams.

Python's threads take turns every 5 ms, so the loop waits for that long at most, but for one exception: a call into C
(to decode JSON, for example) does not give up its turn. What such a call gets must be bounded by its caller.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE_WEIGHT = 500
"""From this weight on, a computation runs in the thread. One unit is a part of a message, or 256 bytes of JSON: up to
40 µs, over all steps of a request."""

_BYTES_PER_UNIT = 256

P = ParamSpec("P")
T = TypeVar("T")

_executor = ThreadPoolExecutor(2, "large")


def json_weight(*documents: Sized) -> int:
    """Return the weight of JSON documents (see `offload`)."""
    return text_weight(sum(map(len, documents)))


def text_weight(length: int) -> int:
    """Return the weight of texts of this length, in bytes or characters."""
    return length // _BYTES_PER_UNIT


async def offload(weight: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function, in the thread if its input is large.

    Args:
        weight: The size of the input, in parts of messages, or 256 bytes of JSON.
        function: The function. It must not touch what the event loop uses meanwhile.
        args: Its arguments.
        kwargs: Its arguments by name.

    Returns:
        Its result.
    """
    if weight < LARGE_WEIGHT:
        return function(*args, **kwargs)
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_executor, lambda: context.run(function, *args, **kwargs))
