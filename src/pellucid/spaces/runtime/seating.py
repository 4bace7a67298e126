"""Who sits in a space at this replica, and what they are given of what is stored.

Whose rights are others now is told so by a welcome, and reads by them from that commit on; whoever is put out is given
what put them out, and let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...envelopes import Present, closing, said
from ...storage import Spaces, StoredEnvelope
from .consequences import Consequences
from .delivery import Audience
from .ids import new_id
from .living import Living
from .resuming import Resuming
from .seats import Seat

if TYPE_CHECKING:
    from .space import Space


class Seating:
    """A space's seats."""

    def __init__(self, space: Space, spaces: Spaces, living: Living) -> None:
        self._space = space
        self._living = living
        self._of: dict[str, dict[Seat, None]] = {}
        """By participant."""
        self.delivered = living.head
        """The number of the newest envelope that they were given."""
        self.audience = Audience(advisory=space.advisory, limit=space.settings.limits.outlet_bytes)
        self._resuming = Resuming(space, self.audience, spaces, living)

    @property
    def all(self) -> list[Seat]:
        return [seat for mine in self._of.values() for seat in mine]

    def add(self, seat: Seat, after_seq: int | None, history: int) -> None:
        """It is welcome, and is brought up to where the others are."""
        self._of.setdefault(seat.participant, {})[seat] = None
        self._welcome(seat, after_seq)
        self._resuming.begin(seat, after_seq, history)

    def remove(self, seat: Seat) -> None:
        """Nothing more is written to it."""
        self.audience.discard(seat)
        seat.stop()
        mine = self._of.get(seat.participant)
        if mine is not None:
            mine.pop(seat, None)
            if not mine:
                del self._of[seat.participant]

    def close(self, code: int, reason: str) -> None:
        """All of them."""
        for seat in self.all:
            seat.close(code, reason)

    def deliver(self, stored: Sequence[StoredEnvelope], what: Consequences) -> None:
        affected = what.rights
        if what.configured:
            self.audience.advisory = self._space.advisory
            self.audience.limit = self._space.settings.limits.outlet_bytes
            affected = affected.union(self._of)
        self._take_rights(affected)
        before = self.delivered
        full = self.audience.deliver(stored, what.out)
        self.delivered = stored[-1].envelope.seq
        for seat in full:
            seat.at = before
            self._resuming.wait_for(seat)
        for participant in {*what.out, *(one for one in affected if not self._space.is_member(one))}:
            for seat in list(self._of.get(participant, ())):
                seat.close(closing.NOT_LET_IN, "you are not in this space any more")

    def _take_rights(self, participants: Iterable[str]) -> None:
        """Some of what they may is another now: they are told, and read by it."""
        space = self._space
        for participant in participants:
            for seat in list(self._of.get(participant, ())):
                reader = space.reader(participant, seat.reader.view)
                if reader != seat.reader:
                    seat.reader = reader
                    self.audience.regroup(seat)
                if space.is_member(participant) and seat.capabilities != space.capabilities(participant):
                    self._welcome(seat)

    def _welcome(self, seat: Seat, after_seq: int | None = None) -> None:
        state = self._living.state
        foreign = {} if after_seq is None or after_seq <= self.delivered else {"unknown_after_seq": after_seq}
        seat.capabilities = state.capabilities(seat.participant)
        others = [Present(one, state.capabilities(one)) for one in state.present if one != seat.participant]
        seat.write(
            said.welcome(
                new_id(),
                self._space.now_ms(),
                Present(seat.participant, seat.capabilities),
                others,
                space=self._space.name,
                head=self.delivered,
                view=seat.reader.view,
                **foreign,
            )
        )
