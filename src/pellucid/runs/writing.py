"""Writes the log of one run at a relay that may be slow, away, or forgetful.

* All that comes during one round trip goes with the next.
* What may have landed is asked again exactly as it was, so that it lands once.
* A relay that forgot the log is told it again, from the beginning and under the same numbers.
* A log that is somebody else's is left as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..errors import PellucidError
from ..relay import LogLost, Relay
from .lease import Lease

PAUSE = 0.5, 5.0
"""Seconds between two tries while the relay does not take it: at first, and at most."""


class LogWriter:
    def __init__(self, relay: Relay, lease: Lease) -> None:
        self._relay = relay
        self._lease = lease
        self._entries: list[bytes] = []
        self._whole = False
        """Whether the last entry is there."""
        self._sent = 0
        """How many of the entries are in the log."""
        self._asked: tuple[int, bool] | None = None
        """Up to which entry the append goes of which it is not known whether it landed, and whether it ends the log."""
        self._more = asyncio.Event()

    def add(self, entry: bytes, *, last: bool = False) -> None:
        self._entries.append(entry)
        self._whole = last
        self._more.set()

    async def run(self) -> None:
        """Write until all is written, or it is not ours to write."""
        pause = PAUSE[0]
        while not self._lease.lost:
            await self._more.wait()
            self._more.clear()
            try:
                if await self._append():
                    return
                pause = PAUSE[0]
                continue
            except LogLost:
                with suppress(PellucidError):
                    await self._forgotten()
            except PellucidError:
                pass  # `Fenced`, too: a later lease of our own may fence what was asked under an earlier one
            self._more.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE[1])

    async def _append(self) -> bool:
        """Whether the log has its end."""
        upto, last = self._asked = self._asked or (len(self._entries), self._whole)
        lease = self._lease
        entries = self._entries[self._sent : upto]
        self._sent = await self._relay.append(lease.name, entries, lease.fence, last=last, after=self._sent)
        self._asked = None
        if self._sent < len(self._entries) or (self._whole and not last):
            self._more.set()
        return last

    async def _forgotten(self) -> None:
        await self._lease.renew()
        if not self._lease.lost:
            await self._relay.drop(self._lease.name, 0)
            self._asked = None
            self._sent = 0


__all__ = ["LogWriter"]
