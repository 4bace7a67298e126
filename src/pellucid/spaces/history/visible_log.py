"""A space's log as one reader may see it, in bounded pieces.

Everything that is read out of a space goes through a `VisibleLog`: what the reader is not shown (`envelopes.is_shown`) does
not get past it. It looks through at most `MAX_SCANNED` envelopes for one answer, however few of them the reader is given,
and holds no more than about `MAX_HELD_BYTES` bytes of them, however long they are; it says how far it came: who wants more
goes on from there. What the store gives at once is bounded, too (`storage.Portion`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.visibility import SpaceViewer, is_shown

if TYPE_CHECKING:
    from ...storage import EnvelopePage, Store, StoredEnvelope

PAGE_SIZE = 500
"""So many envelopes are read at once."""

MAX_SCANNED = 10_000
"""So many are looked through for one answer, at most."""

MAX_HELD_BYTES = 4 << 20
"""When an answer holds so many bytes it is not added to: its envelopes are that and another portion at most."""

MAX_SCANNED_BYTES = 64 << 20
"""So many bytes are looked through for one answer: as with `MAX_SCANNED`, a portion more."""


class EnvelopeFilter(TypedDict, total=False):
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


class VisibleLog:
    """One space, for one reader."""

    def __init__(self, store: Store, owner: str, name: str, viewer: SpaceViewer, *, advisory: bool = False) -> None:
        self.spaces = store.spaces
        self.owner = owner
        self.name = name
        self.viewer = viewer
        self._advisory = advisory

    def is_visible(self, stored: StoredEnvelope) -> bool:
        return is_shown(stored.envelope, stored.place, self.viewer, advisory=self._advisory)

    def with_flags(self, stored: StoredEnvelope) -> StoredEnvelope:
        """As it is told: with what there is to be seen about it."""
        flagged = stored.with_flags
        return stored if flagged is stored.envelope else replace(stored, envelope=flagged)

    async def head(self) -> int:
        """The number of the newest envelope; 0 if nothing was said, or there is no such space."""
        head = await self.spaces.head(self.owner, self.name)
        return 0 if head is None else head.head

    async def one(self, seq: int) -> StoredEnvelope | None:
        stored = await self.spaces.get_envelope(self.owner, self.name, seq)
        return self.with_flags(stored) if stored is not None and self.is_visible(stored) else None

    async def by_id(self, id: str, *, before: int | None = None) -> StoredEnvelope | None:
        """The last one with this id; `before`: that was said before this number."""
        stored = await self.spaces.get_envelope_by_id(self.owner, self.name, id, before=before)
        return self.with_flags(stored) if stored is not None and self.is_visible(stored) else None

    async def correlated(self, ids: Sequence[str], *, after: int = 0, limit: int = PAGE_SIZE) -> EnvelopePage:
        """What correlates to any of these ids: so many of them, or so much, at most."""
        portion = await self.spaces.find_correlated(self.owner, self.name, ids, after=after, limit=limit)
        visible = [
            (self.with_flags(stored), size)
            for stored, size in zip(portion, portion.sizes_bytes, strict=True)
            if self.is_visible(stored)
        ]
        return type(portion)(
            [one for one, _ in visible], has_more=portion.has_more, sizes_bytes=[size for _, size in visible]
        )

    async def page(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        newest: bool = False,
        **which: Unpack[EnvelopeFilter],
    ) -> Page:
        """What the reader is given of after < seq < before: the first `limit`, or the last ones (`newest`)."""
        collected: list[StoredEnvelope] = []
        low, high, scanned_count, has_more = after, before, 0, True
        held_bytes = scanned_bytes = 0
        scanned: tuple[int, int] | None = None
        while (
            has_more
            and len(collected) < limit
            and scanned_count < MAX_SCANNED
            and held_bytes < MAX_HELD_BYTES
            and scanned_bytes < MAX_SCANNED_BYTES
        ):
            step = min(PAGE_SIZE, max(limit - len(collected) + 1, 50))
            rows = await self.spaces.page(
                self.owner,
                self.name,
                after=low,
                before=high,
                limit=step,
                newest=newest,
                **which,
            )
            has_more, scanned_count, scanned_bytes = (
                rows.has_more,
                scanned_count + len(rows),
                scanned_bytes + rows.total_bytes,
            )
            if not rows:
                break
            first, last = rows[0].envelope.seq, rows[-1].envelope.seq
            visible = []
            for stored, size in zip(rows, rows.sizes_bytes, strict=True):
                if self.is_visible(stored):
                    visible.append(stored)
                    held_bytes += size
            missing_count = limit - len(collected)
            if len(visible) > missing_count:
                visible, has_more = (visible[-missing_count:] if newest else visible[:missing_count]), True
                first = visible[0].envelope.seq if newest else first
                last = last if newest else visible[-1].envelope.seq
            collected = visible + collected if newest else collected + visible
            low, high = (low, first) if newest else (last, high)
            scanned = (first, last) if scanned is None else (min(scanned[0], first), max(scanned[1], last))
        if scanned is None:
            at = after if before is None or not newest else max(after, before - 1)
            scanned = (at + 1, at)
        return Page(
            envelopes=tuple(stored.with_flags for stored in collected),
            at=tuple(stored.at for stored in collected),
            has_more=has_more,
            first=scanned[0],
            last=scanned[1],
        )

    async def batches(
        self, *, after: int = 0, before: int | None = None, kinds: Sequence[str] = ()
    ) -> AsyncIterator[list[StoredEnvelope]]:
        """All that the reader is given, in batches: no more than one is held. What is said while it is read is not in
        it: it ends where the log ended."""
        end = await self.head() + 1
        end = end if before is None else min(before, end)
        while after < end - 1:
            rows = await self.spaces.page(self.owner, self.name, after=after, before=end, limit=PAGE_SIZE, kinds=kinds)
            if visible := [self.with_flags(stored) for stored in rows if self.is_visible(stored)]:
                yield visible
            if not rows.has_more:
                return
            after = rows[-1].envelope.seq
