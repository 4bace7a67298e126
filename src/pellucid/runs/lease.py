"""The right to drive one run, held on to for as long as it is driven.

It stands in two places: as a lease at the relay, and as a fence on the run's row in the store. Either is enough for
others to leave the run alone, so that neither of the two may forget it unnoticed; whoever finds it taken there has lost
it, and has nothing more to write. A lease that is lost is not given back: it runs out, so that somebody looks whether
the log has its end, which whoever took the run may have been kept from writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ..errors import PellucidError
from ..relay import Relay
from ..storage import Store
from ..telemetry import log, place_of

RENEWALS = 3
"""How often it is renewed in the time in which it would run out."""


class Lease:
    """`lost` is called once, when it is somebody else's."""

    def __init__(
        self, store: Store, relay: Relay, owner: str, id: str, holder: str, seconds: float, lost: Callable[[], None]
    ) -> None:
        self.name = name_of(owner, id)
        self.fence = 0
        self.lost = False
        self.over = False
        """Whether its end is kept, or is being kept: then the row is nobody's any more, and only the log is still to be
        written."""
        self._store = store
        self._relay = relay
        self._of = (owner, id)
        self._holder = holder
        self._seconds = seconds
        self._tell = lost
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def claim(self) -> bool:
        """Whether it is ours now. Raises `RelayError`."""
        fence = await self._relay.claim(self.name, self._holder, self._seconds)
        if fence is not None:
            self.fence = fence
        return fence is not None

    async def renew(self) -> None:
        """It may have run out (this process stood still), or the relay may have forgotten it: it is ours if nobody took
        it since. Raises `PellucidError` if that cannot be known."""
        ours = await self._relay.renew(self.name, self.fence, self._seconds) or await self.claim()
        if ours and (self.over or await self._store.responses.hold(*self._of, self.fence) or self.over):
            return
        if not self.lost:
            self.lost = True
            self._tell()

    def keep(self) -> None:
        """Renew it from time to time, until it is lost or `leave` is called."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds / RENEWALS, self._renew_soon)

    def leave(self) -> None:
        """Renew it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _renew_soon(self) -> None:
        self._renewing = asyncio.create_task(self._renew_and_keep())

    async def _renew_and_keep(self) -> None:
        try:
            await self.renew()
        except PellucidError:
            pass  # the next time
        except Exception as error:
            log.error("a fault while renewing the lease of a run: %s", place_of(error))
        if not self.lost:
            self.keep()

    async def release(self) -> None:
        self.leave()
        with suppress(PellucidError):
            await self._relay.release(self.name, self.fence)


PREFIX = "run:"


def name_of(owner: str, id: str) -> str:
    """Of a run's lease, its log and its mailbox. What is another owner's has another name."""
    return f"{PREFIX}{id}:{owner}"


def of_name(name: str) -> tuple[str, str]:
    """The owner and the id."""
    id, _, owner = name.removeprefix(PREFIX).partition(":")
    return owner, id
