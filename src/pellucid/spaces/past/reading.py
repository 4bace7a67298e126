"""A space's log as one reader may see it, in bounded pieces.

Everything that is read out of a space goes through a `Log`: what the reader is not shown (`envelopes.is_shown`) does
not get past it. It looks through at most `MOST_READ` envelopes for one answer, however few of them the reader is given,
and holds no more than about `MOST_HELD` bytes of them, however long they are; it says how far it came: who wants more
goes on from there. What the store gives at once is bounded, too (`storage.Portion`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.shown import Subscriber, is_shown

if TYPE_CHECKING:
    from ...storage import Portion, Store, StoredEnvelope

STEP = 500
"""So many envelopes are read at once."""

MOST_READ = 10_000
"""So many are looked through for one answer, at most."""

MOST_HELD = 4 << 20
"""When an answer holds so many bytes it is not added to: its envelopes are that and another portion at most."""

MOST_WEIGHED = 64 << 20
"""So many bytes are looked through for one answer: as with `MOST_READ`, a portion more."""


class Which(TypedDict, total=False):
    """Which envelopes are asked for; all, where nothing is said."""

    sender: str | None
    kinds: Sequence[str]
    """Any of these; each may end in `/*`."""
    within: str | None
    """What stands in this context, or in one inside it."""


class Page(msgspec.Struct, frozen=True):
    """A piece of the history."""

    envelopes: tuple[Envelope, ...]
    """In their order."""
    at: tuple[int, ...]
    """When the gateway took each: milliseconds since 1970."""
    has_more: bool
    """Whether there may be more in the direction in which it was read."""
    first: int
    last: int
    """What was looked through: the page after it is that after `last`, the one before it that before `first`."""


class Log:
    """One space, for one reader."""

    def __init__(self, store: Store, owner: str, name: str, reader: Subscriber, *, advisory: bool = False) -> None:
        self.spaces = store.spaces
        self.owner = owner
        self.name = name
        self.reader = reader
        self._advisory = advisory

    def sees(self, stored: StoredEnvelope) -> bool:
        return is_shown(stored.envelope, stored.place, self.reader, advisory=self._advisory)

    def marked(self, stored: StoredEnvelope) -> StoredEnvelope:
        """As it is told: with what there is to be seen about it."""
        told = stored.told
        return stored if told is stored.envelope else replace(stored, envelope=told)

    async def head(self) -> int:
        """The number of the newest envelope; 0 if nothing was said, or there is no such space."""
        head = await self.spaces.head(self.owner, self.name)
        return 0 if head is None else head.head

    async def one(self, seq: int) -> StoredEnvelope | None:
        stored = await self.spaces.one(self.owner, self.name, seq)
        return self.marked(stored) if stored is not None and self.sees(stored) else None

    async def by_id(self, id: str, *, before: int | None = None) -> StoredEnvelope | None:
        """The last one with this id; `before`: that was said before this number."""
        stored = await self.spaces.by_id(self.owner, self.name, id, before=before)
        return self.marked(stored) if stored is not None and self.sees(stored) else None

    async def about(self, ids: Sequence[str], *, after: int = 0, limit: int = STEP) -> Portion:
        """What correlates to any of these ids: so many of them, or so much, at most."""
        found = await self.spaces.about(self.owner, self.name, ids, after=after, limit=limit)
        given = [
            (self.marked(stored), size) for stored, size in zip(found, found.sizes, strict=True) if self.sees(stored)
        ]
        return type(found)([one for one, _ in given], more=found.more, sizes=[size for _, size in given])

    async def page(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        newest: bool = False,
        **which: Unpack[Which],
    ) -> Page:
        """What the reader is given of after < seq < before: the first `limit`, or the last ones (`newest`)."""
        found: list[StoredEnvelope] = []
        low, high, looked, more = after, before, 0, True
        held = weighed = 0
        seen: tuple[int, int] | None = None
        while more and len(found) < limit and looked < MOST_READ and held < MOST_HELD and weighed < MOST_WEIGHED:
            step = min(STEP, max(limit - len(found) + 1, 50))
            rows = await self.spaces.page(
                self.owner,
                self.name,
                after=low,
                before=high,
                limit=step,
                newest=newest,
                **which,
            )
            more, looked, weighed = rows.more, looked + len(rows), weighed + rows.size
            if not rows:
                break
            first, last = rows[0].envelope.seq, rows[-1].envelope.seq
            given = []
            for stored, size in zip(rows, rows.sizes, strict=True):
                if self.sees(stored):
                    given.append(stored)
                    held += size
            wanted = limit - len(found)
            if len(given) > wanted:
                given, more = (given[-wanted:] if newest else given[:wanted]), True
                first = given[0].envelope.seq if newest else first
                last = last if newest else given[-1].envelope.seq
            found = given + found if newest else found + given
            low, high = (low, first) if newest else (last, high)
            seen = (first, last) if seen is None else (min(seen[0], first), max(seen[1], last))
        if seen is None:
            at = after if before is None or not newest else max(after, before - 1)
            seen = (at + 1, at)
        return Page(
            envelopes=tuple(stored.told for stored in found),
            at=tuple(stored.at for stored in found),
            has_more=more,
            first=seen[0],
            last=seen[1],
        )

    async def all(
        self, *, after: int = 0, before: int | None = None, kinds: Sequence[str] = ()
    ) -> AsyncIterator[list[StoredEnvelope]]:
        """All that the reader is given, in batches: no more than one is held. What is said while it is read is not in
        it: it ends where the log ended."""
        end = await self.head() + 1
        end = end if before is None else min(before, end)
        while after < end - 1:
            rows = await self.spaces.page(self.owner, self.name, after=after, before=end, limit=STEP, kinds=kinds)
            if given := [self.marked(stored) for stored in rows if self.sees(stored)]:
                yield given
            if not rows.more:
                return
            after = rows[-1].envelope.seq
