"""Who is busy in the same space on several replicas takes turns, for a while, so that none is overtaken for ever.

A lease at the relay, asked for only after somebody was overtaken. It is a courtesy: whoever does not get it in time, or
finds no relay, goes on without, and the store decides as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

from ...relay import Relay, RelayError

WHILE = 3.0
"""Seconds after a collision in which turns are taken."""
HELD = 2.0
PATIENCE = 1.0
PAUSES = 0.002, 0.02
ALONE = 10.0


class Turns:
    def __init__(self, relay: Relay, name: str, me: str) -> None:
        self._relay = relay
        self._name = f"space-turn:{name}"
        self._me = me
        self._until = 0.0
        self._alone_until = 0.0
        """The relay did not answer: nobody waits for it, for a while."""

    @property
    def busy(self) -> bool:
        return self._alone_until <= monotonic() < self._until

    def overtaken(self) -> None:
        self._until = monotonic() + WHILE

    @asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        token = await self._claim() if self.busy else None
        try:
            yield
        finally:
            if token is not None:
                with suppress(RelayError):
                    await self._relay.release(self._name, token)
                # Whoever waits gets it, and not at once whoever had it.
                await asyncio.sleep(PAUSES[0])

    async def _claim(self) -> int | None:
        until, pause = monotonic() + PATIENCE, PAUSES[0]
        while monotonic() < until:
            try:
                token = await self._relay.claim(self._name, self._me, HELD)
            except RelayError:
                self._alone_until = monotonic() + ALONE
                return None
            if token is not None:
                return token
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, PAUSES[1])
        return None


__all__ = ["Turns"]
