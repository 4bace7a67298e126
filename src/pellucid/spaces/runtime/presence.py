"""Who is there: seats counted at this replica, and the roll that replicas keep together at the relay.

That somebody came or went is an envelope of the log, said by whoever finds that the log does not have it yet: so it is
said once. An entry of the roll lapses when its replica does not renew it. Who is missing from it for longer than its
replica takes to renew it is gone; a relay that does not answer says nothing about anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from ...envelopes import Envelope, Present, said
from ...relay import Relay, RelayError
from .ids import new_id
from .inbox import Make
from .state import SpaceState

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
