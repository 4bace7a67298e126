"""Replay: what was said is told again, read-only, flagged, at once or at the pace at which it was said.

`replayed` is true of every envelope, so that nobody takes it for something to act on; nothing is executed, stored or
judged. The pace is the gateway's time between the envelopes that the reader is given, divided by the speed. One batch
is held at a time; who stops listening (or is cancelled in a pause) stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from msgspec.structs import replace

from ...envelopes import Envelope
from ...errors import RequestError
from .reading import Log

AT_ONCE = 20
"""Milliseconds: what follows within that time is told together, and the pause is made up for afterwards."""


class Stretch(NamedTuple):
    """A part of the history, and how fast it is told."""

    after: int = 0
    before: int | None = None
    """Numbers; neither is in it."""
    since: int | None = None
    until: int | None = None
    """Times, in milliseconds since 1970; the second is not in it."""
    speed: float | None = None
    """1 is the original pace, 2 twice as fast. None: at once."""
    longest_pause: float | None = None
    """Seconds, for what was said hours apart. None: as long as it was."""


ALL = Stretch()


async def replay(
    log: Log, what: Stretch, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[list[Envelope]]:
    """What is said meanwhile is not in it. Raises `RequestError`."""
    after, before, since, until, speed, longest_pause = what
    if speed is not None and not 0 < speed < float("inf"):
        raise RequestError("speed: how many times as fast as it was said, a number above 0", param="speed")
    if since is not None:
        after = max(after, await log.spaces.since(log.owner, log.name, since) - 1)
    if until is not None:
        end = await log.spaces.since(log.owner, log.name, until)
        before = end if before is None else min(before, end)
    last: int | None = None
    async for batch in log.all(after=after, before=before):
        if speed is None:
            yield [replace(stored.envelope, replayed=True) for stored in batch]
            continue
        group: list[Envelope] = []
        for stored in batch:
            pause = 0 if last is None else max(0, stored.at - last)
            if last is None or pause / speed > AT_ONCE:
                if group:
                    yield group
                    group = []
                if last is not None:
                    seconds = pause / 1000 / speed
                    await sleep(seconds if longest_pause is None else min(seconds, longest_pause))
                last = stored.at
            group.append(replace(stored.envelope, replayed=True))
        if group:
            yield group
