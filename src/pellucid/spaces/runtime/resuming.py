"""How a seat gets to where the others are: from the history, out of a gap.

A seat that is not in the audience has its own place in the log (`seat.at`), and is given what follows, page by page, as
its outlet takes it. When nothing follows that was delivered to others, it is put into the audience: in the same step,
so that nothing comes in between. What is not delivered yet is not read ahead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...envelopes import closing, said
from ...envelopes.shown import is_shown
from ...errors import PellucidError
from ...storage import Spaces, StoredEnvelope
from .delivery import Audience
from .ids import new_id
from .living import Living
from .outlet import frame_of
from .seats import Seat

if TYPE_CHECKING:
    from .space import Space

PAGE = 200
MOST_PAGES = 20
"""In which so many envelopes are looked for as were asked for: others may hide between them."""
TRIES = 5
PAUSE = 0.5


class Resuming:
    def __init__(self, space: Space, audience: Audience, spaces: Spaces, living: Living) -> None:
        self._space = space
        self._audience = audience
        self._spaces = spaces
        self._living = living

    def begin(self, seat: Seat, after: int | None, history: int) -> None:
        """Its welcome is written; nothing else is."""
        space = self._space
        seat.at = space.head if after is None else after
        if seat.at > space.head:
            # The number is of another space by this name: of this one they know nothing, and it is all past.
            seat.at, seat.past = 0, space.head
        if after is None and history > 0:
            seat.task = space.do(self._keep(seat, history))
        elif not self._from_memory(seat):
            seat.task = space.do(self._keep(seat, 0))

    def wait_for(self, seat: Seat) -> None:
        """Its outlet is full: until it is drained."""
        seat.task = self._space.do(self._drain(seat))

    async def _drain(self, seat: Seat) -> None:
        await seat.outlet.drained()
        space = self._space
        if seat.gone:
            return
        if seat.missed:
            told = said.gap(
                new_id(),
                space.now_ms(),
                seat.participant,
                after=seat.at,
                before=space.head + 1,
                missed=seat.missed,
            )
            seat.write(told)
            seat.missed = 0
        seat.task = None
        self._audience.discard(seat)
        self._audience.add(seat)

    def _from_memory(self, seat: Seat) -> bool:
        """Whether all that it missed is at hand, and written: then it is up to date."""
        space = self._space
        if seat.at < space.head:
            told = self._living.recent.after(seat.at, PAGE + 1)
            if told is None or len(told) > PAGE:
                return False
            self._give(seat, told)
        self._audience.add(seat)
        return True

    async def _keep(self, seat: Seat, history: int) -> None:
        tries = 0
        while not seat.gone:
            try:
                if history:
                    await self._replay(seat, history)
                    history = 0
                await self._catch_up(seat)
                return
            except PellucidError:
                tries += 1
                if tries == TRIES:
                    seat.close(closing.LATER, "the history does not answer; come back in a moment")
                    return
                await asyncio.sleep(PAUSE * tries)
        self._audience.discard(seat)

    async def _catch_up(self, seat: Seat) -> None:
        space = self._space
        while seat.at < space.head and not seat.gone:
            told = self._living.recent.after(seat.at, PAGE)
            if told is None:
                told = await self._spaces.page(
                    space.owner, space.name, after=seat.at, before=space.head + 1, limit=PAGE
                )
            if not told:
                break
            self._give(seat, told)
            if seat.outlet.waiting:
                await seat.outlet.drained()
            else:
                await asyncio.sleep(0)
        if not seat.gone:
            seat.task = None
            self._audience.add(seat)

    def _give(self, seat: Seat, told: list[StoredEnvelope]) -> None:
        frames = [
            frame_of(replace(one.told, replayed=True) if one.envelope.seq <= seat.past else one.told, seat.speaks)
            for one in told
            if self._shows(one, seat)
        ]
        seat.at = told[-1].envelope.seq
        if frames:
            seat.outlet.write(frames)

    async def _replay(self, seat: Seat, many: int) -> None:
        """The last that it may see, flagged. Where they begin is looked for first: what was looked through is not held,
        unless it was one portion."""
        space, end = self._space, seat.at + 1
        step = max(PAGE, min(many, 1000))
        first = before = end
        found = looked = 0
        once: list[StoredEnvelope] | None = None
        while found < many and before > 1 and looked < MOST_PAGES * step:
            told = await self._spaces.page(space.owner, space.name, before=before, limit=step, newest=True)
            if not told:
                break
            once = told if looked == 0 else None
            seqs = [one.envelope.seq for one in told if self._shows(one, seat)][found - many :]
            first = seqs[0] if seqs else first
            found, looked, before = found + len(seqs), looked + len(told), told[0].envelope.seq
        if once is not None:
            await self._flagged(seat, [one for one in once if one.envelope.seq >= first])
            return
        after = first - 1
        while after < end - 1 and not seat.gone:
            told = await self._spaces.page(space.owner, space.name, after=after, before=end, limit=PAGE)
            if not told:
                break
            after = told[-1].envelope.seq
            await self._flagged(seat, told)

    async def _flagged(self, seat: Seat, told: list[StoredEnvelope]) -> None:
        shown = [one for one in told if self._shows(one, seat)]
        for start in range(0, len(shown), PAGE):
            if seat.gone:
                return
            some = shown[start : start + PAGE]
            seat.outlet.write([frame_of(replace(one.told, replayed=True), seat.speaks) for one in some])
            await seat.outlet.drained()

    def _shows(self, one: StoredEnvelope, seat: Seat) -> bool:
        return is_shown(one.envelope, one.place, seat.reader, advisory=self._space.advisory)
