"""What happens in a space by itself: looking for what others wrote, contexts that fell silent, who is gone.

A wake from another replica may be lost, and the configuration is changed by others who wake nobody: so the store is
asked at intervals, too.

Who is there: seats counted at this replica, and the roll that replicas keep together at the relay. That somebody came
or went is an envelope of the log, said by whoever finds that the log does not have it yet: so it is said once. An entry
of the roll lapses when its replica does not renew it. Who is missing from it for longer than its replica takes to renew
it is gone; a relay that does not answer says nothing about anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from ...envelopes import GATEWAY, Envelope, Present, said
from ...envelopes.kinds import CANCEL
from ...errors import PellucidError
from ...relay import Relay, RelayError
from ...telemetry import log, place_of
from .ids import new_id
from .inbox import Item, Make, nobody
from .state import SpaceState
from .writer import Turns, Writer

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


# --- who is there


LONG_ENOUGH = 0.6
"""Of the time for which an entry holds. It is renewed three times in it, and the roll may have been lost."""


class Presence:
    """`me` is this replica's name; `seconds`, how long an entry holds."""

    def __init__(self, relay: Relay, space: str, me: str, seconds: float) -> None:
        self._relay = relay
        self._roll = f"space:{space}"
        self._me = me
        self._seconds = seconds
        self._here: dict[str, int] = {}
        self._missing: dict[str, float] = {}
        """Since when."""

    def is_here(self, participant: str) -> bool:
        return participant in self._here

    def count(self, participant: str) -> int:
        return self._here.get(participant, 0)

    @property
    def anybody(self) -> bool:
        return bool(self._here)

    async def come(self, participant: str) -> None:
        self._here[participant] = first = self.count(participant) + 1
        if first == 1:
            with suppress(RelayError):
                await self._relay.enter(self._roll, self._entry(participant), self._seconds)

    async def go(self, participant: str) -> bool:
        """Whether they are nowhere any more, as far as can be seen."""
        left = self.count(participant) - 1
        if left > 0:
            self._here[participant] = left
            return False
        self._here.pop(participant, None)
        try:
            await self._relay.quit(self._roll, self._entry(participant))
            there = await self._there()
        except RelayError:
            return False
        return participant not in there and not self.is_here(participant)

    async def renew(self) -> None:
        """Raises `RelayError`."""
        for participant in list(self._here):
            await self._relay.enter(self._roll, self._entry(participant), self._seconds)

    async def missing(self, present: Iterable[str]) -> set[str]:
        """Of those who are there by the log, who was on no roll for long enough. Raises `RelayError`."""
        there = await self._there()
        now = monotonic()
        self._missing = {
            one: self._missing.get(one, now) for one in present if one not in there and not self.is_here(one)
        }
        return {one for one, since in self._missing.items() if now - since >= self._seconds * LONG_ENOUGH}

    async def _there(self) -> set[str]:
        return {entry.partition(" ")[2] for entry in await self._relay.roll(self._roll)}

    def _entry(self, participant: str) -> str:
        return f"{self._me} {participant}"

    # --- what is said of it

    def joined(self, participant: str) -> Make:
        def make(state: SpaceState, at: int) -> Envelope | None:
            if participant in state.present or not state.ledger.is_member(participant):
                return None
            return said.presence(new_id(), at, "join", Present(participant, state.capabilities(participant)))

        return make

    def left(self, participant: str) -> Make:
        def make(state: SpaceState, at: int) -> Envelope | None:
            if participant not in state.present or self.is_here(participant):
                return None
            return said.presence(new_id(), at, "leave", Present(participant))

        return make
