"""Two replicas of a gateway that share one relay, and a loop to drive them in."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from pellucid.relay import Follower, Relay, open_relay

T = TypeVar("T")

_numbers = itertools.count()


def new_name() -> str:
    """Return a name that no other test uses."""
    return f"name {next(_numbers)} ü"


class Clock:
    """A clock that advances only when a test adds seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Replicas(NamedTuple):
    """Two replicas, the loop that they run in, and the clock of the relay (None: it is Redis's own)."""

    one: Relay
    two: Relay
    runner: asyncio.Runner
    clock: Clock | None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(60):
                return await coroutine

        return self.runner.run(bounded())

    async def let_pass(self, seconds: float) -> None:
        """Let time pass for the relay: in memory by its clock, in Redis by waiting."""
        if self.clock is not None:
            self.clock.now += seconds
        else:
            await asyncio.sleep(seconds)


@asynccontextmanager
async def replicas_of(url: str | None, **options: Any) -> AsyncIterator[tuple[Relay, Relay]]:
    one = await open_relay(url, **options)
    two = one if url is None else await open_relay(url, **options)
    try:
        yield one, two
    finally:
        await one.aclose()
        await two.aclose()


async def read_all(follower: Follower) -> list[bytes]:
    """Read all entries up to the end."""
    out: list[bytes] = []
    while (batch := await follower.read()) is not None:
        out += batch
    return out


async def read_some(follower: Follower, at_least: int) -> list[bytes]:
    """Read at least this number of entries."""
    out: list[bytes] = []
    while len(out) < at_least:
        batch = await follower.read()
        assert batch is not None
        out += batch
    return out
