"""What happens in a space by itself: looking for what others wrote, contexts that fell silent, who is gone.

A wake from another replica may be lost, and the configuration is changed by others who wake nobody: so the store is
asked at intervals, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from ...envelopes import GATEWAY, Envelope
from ...envelopes.kinds import CANCEL
from ...errors import PellucidError
from ...relay import Relay, RelayError
from ...telemetry import log, place_of
from .ids import new_id
from .inbox import Item, Make, nobody
from .presence import Presence
from .state import SpaceState
from .turns import Turns
from .writer import Writer

RENEWALS = 3
CROWDED = 10_000
"""So many wait to be judged that what can be said at the next look is said then."""


_TURNS = b" turns"
"""Said after its name by a replica that was overtaken."""


class Pace(NamedTuple):
    """Seconds."""

    poll: float = 1.0
    """Between two looks at the store."""
    roll: float = 15.0
    """Without a word, after which a replica and all who are connected to it are gone."""
    unused: float = 60.0
    """After which a space that nobody uses is closed."""


class Keeper:
    """`clock` gives seconds since 1970."""

    def __init__(
        self,
        name: str,
        me: str,
        relay: Relay,
        writer: Writer,
        turns: Turns,
        presence: Presence,
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self._box = f"space:{name}"
        self._me = me.encode()
        self._relay = relay
        self._writer = writer
        self._turns = turns
        self._presence = presence
        self._pace = pace
        self._clock = clock
        self._news = asyncio.Event()
        self._was_overtaken = False
        self._rolled = 0.0

    def tell(self) -> None:
        """Others are to look."""
        self._news.set()

    def ask_for_turns(self) -> None:
        """Others are to take turns with this replica."""
        self._was_overtaken = True
        self._news.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            group.create_task(self._listen())
            group.create_task(self._tell())

    async def _tick(self) -> None:
        while True:
            try:
                self._abandon()
                if monotonic() - self._rolled >= self._pace.roll / RENEWALS:
                    self._rolled = monotonic()
                    await self._call_roll()
            except PellucidError:
                # The relay does not answer: nothing is known about anybody.
                pass
            except Exception as error:
                log.error("a space could not be looked after: %s", place_of(error))
            await asyncio.sleep(self._pace.poll)
            self._writer.inbox.stir()

    async def _listen(self) -> None:
        while True:
            listener = self._relay.listen(self._box)
            try:
                while (told := await listener.read()) is not None:
                    others = [one for one in told if one.removesuffix(_TURNS) != self._me]
                    if others:
                        self._writer.inbox.stir()
                    if any(one.endswith(_TURNS) for one in others):
                        self._turns.begin()
            except RelayError:
                pass
            finally:
                listener.close()
            await asyncio.sleep(self._pace.poll)

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            told, self._was_overtaken = self._me + _TURNS if self._was_overtaken else self._me, False
            with suppress(RelayError):
                await self._relay.tell(self._box, told)

    async def _call_roll(self) -> None:
        await self._presence.renew()
        for participant in await self._presence.missing(list(self._writer.living.state.present)):
            self._say(self._presence.left(participant))

    def _abandon(self) -> None:
        now = round(self._clock() * 1000)
        for path, reason in self._writer.living.state.due(now):
            self._say(_cancel(path, reason))

    def _say(self, make: Make) -> None:
        if len(self._writer.inbox) < CROWDED:
            # What is not said now is said at the next look.
            self._writer.inbox.put(Item(nobody, make=make))


def _cancel(path: str, reason: str) -> Make:
    def make(state: SpaceState, at: int) -> Envelope | None:
        if not any(due == path for due, _ in state.due(at)):
            return None
        return Envelope(id=new_id(), ts=at, sender=GATEWAY, kind=CANCEL, context=path, payload={"reason": reason})

    return make
