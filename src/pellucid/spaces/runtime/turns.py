"""Replicas that are busy in the same space take turns, for a while, so that none is overtaken for ever.

A lease at the relay, claimed only after one of them was overtaken. That one tells the others (`keeper`), for who is
never overtaken would not know, and one that claims nothing overtakes all who do. It is a courtesy: whoever does not get
the lease in time, or finds no relay, goes on without, and the store decides as ever.
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
PAUSES = 0.002, 0.005
"""Seconds between two tries: soon enough to come upon the pause of who just had it, which is the first."""
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

    def begin(self) -> None:
        """This replica was overtaken, or another one."""
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
