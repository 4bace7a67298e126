"""The log of a space as one viewer may see it, in bounded pieces.

Everything that is read from a space goes through a `VisibleLog`, which drops what the viewer may not see
(`envelopes.is_shown`). What it drops changes nothing in a result: two logs that differ only in that give the same
answers. So a result ends where a visible envelope ends it (the limit, or `MAX_HELD_BYTES`), or where its range of
numbers ends, which has at most `MAX_RANGE` of them; and it never has the position of a match that is not visible. The
time for it may differ.

The result says how far it came, so that a reader can go on from there. The store's own results are bounded, too
(`storage.EnvelopePage`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.visibility import SpaceViewer, is_shown

if TYPE_CHECKING:
    from ...storage import EnvelopePage, Store, StoredEnvelope

PAGE_SIZE = 500
"""Number of envelopes in one query."""

MAX_RANGE = 100_000
"""How many sequence numbers one result covers at most, whatever is behind them."""

MAX_HELD_BYTES = 4 << 20
"""Size of a result at which nothing more is added. It may exceed this by one envelope."""

_MAX_SAME_ID = 100
"""How many envelopes of one id are looked at."""


class EnvelopeFilter(TypedDict, total=False):
    """Which envelopes are wanted. Without a filter: all."""

    sender: str | None
    kinds: Sequence[str]
    """Any of these; each may end in `/*`."""
    within: str | None
    """Only what stands in this context or in one inside it."""


class Page(msgspec.Struct, frozen=True):
    """A part of the history."""

    envelopes: tuple[Envelope, ...]
    """In their order."""
    at: tuple[int, ...]
    """When the gateway accepted each, in milliseconds since 1970."""
    has_more: bool
    """Whether there may be more in the direction of reading."""
    first: int
    last: int
    """The first and last number of the range that it covers. The next page is the one after `last`, the previous one
    that before `first`.
    """


class Portion(NamedTuple):
    """Visible envelopes of a range of the log, in the direction of reading."""

    rows: list[StoredEnvelope]
    has_more: bool
    total_bytes: int
    low: int
    high: int
    """It covers the numbers low < seq < high."""


class VisibleLog:
    """One space, for one viewer."""

    def __init__(self, store: Store, owner: str, name: str, viewer: SpaceViewer) -> None:
        self.spaces = store.spaces
        self._record = store.record
        self.owner = owner
        self.name = name
        self.viewer = viewer

    def is_visible(self, stored: StoredEnvelope) -> bool:
        """Check whether the viewer may see an envelope."""
        return is_shown(stored.envelope, stored.place, self.viewer)

    def with_flags(self, stored: StoredEnvelope) -> StoredEnvelope:
        """Return the envelope with its flags, as readers get it."""
        flagged = stored.with_flags
        return stored if flagged is stored.envelope else replace(stored, envelope=flagged)

    async def head(self) -> int:
        """Return the number of the newest envelope; 0 if there is none, or no such space."""
        head = await self.spaces.head(self.owner, self.name)
        return 0 if head is None else head.head

    async def record_head(self) -> dict[str, Any] | None:
        """Return scope, number and hash of the newest entry of the space's record; None if it has none."""
        scope = f"space:{self.name}"
        head = await self._record.head(self.owner, scope)
        return None if head is None else {"scope": scope, "number": head.number, "hash": head.hash.hex()}

    async def first_seq_since(self, time_ms: int) -> int:
        """Return the number of the first envelope at or after this time."""
        return await self.spaces.first_seq_since(self.owner, self.name, time_ms)

    async def one(self, seq: int) -> StoredEnvelope | None:
        """Return the envelope with this number; None if there is none or it is not visible."""
        stored = await self.spaces.get_envelope(self.owner, self.name, seq)
        return self.with_flags(stored) if stored is not None and self.is_visible(stored) else None

    async def by_id(self, id: str, *, before: int | None = None) -> StoredEnvelope | None:
        """Return the latest visible envelope with this id, and a number below `before`."""
        for _ in range(_MAX_SAME_ID):
            stored = await self.spaces.get_envelope_by_id(self.owner, self.name, id, before=before)
            if stored is None:
                return None
            if self.is_visible(stored):
                return self.with_flags(stored)
            before = stored.envelope.seq
        return None

    async def find_correlated(self, ids: Sequence[str], *, after: int = 0, limit: int = PAGE_SIZE) -> Portion:
        """Return the first visible envelopes that correlate to any of these ids."""

        async def read(low: int, high: int, step: int) -> EnvelopePage:
            return await self.spaces.find_correlated(self.owner, self.name, ids, after=low, limit=step)

        portion = await self._collect(read, after, None, limit)
        return portion._replace(rows=[self.with_flags(stored) for stored in portion.rows])

    async def page(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        newest: bool = False,
        **which: Unpack[EnvelopeFilter],
    ) -> Page:
        """Return visible envelopes with after < seq < before: the first `limit`, or the last ones (`newest`)."""

        async def read(low: int, high: int, step: int) -> EnvelopePage:
            return await self.spaces.page(
                self.owner, self.name, after=low, before=high, limit=step, newest=newest, **which
            )

        portion = await self._collect(read, after, before, limit, newest=newest)
        rows = portion.rows[::-1] if newest else portion.rows
        return Page(
            envelopes=tuple(stored.with_flags for stored in rows),
            at=tuple(stored.at for stored in rows),
            has_more=portion.has_more,
            first=portion.low + 1,
            last=portion.high - 1,
        )

    async def search(
        self, query: str, *, before: int | None = None, limit: int = 50, **which: Unpack[EnvelopeFilter]
    ) -> Portion:
        """Return the newest visible envelopes that match."""

        async def read(low: int, high: int, step: int) -> EnvelopePage:
            return await self.spaces.search(self.owner, self.name, query, before=high, limit=step, **which)

        return await self._collect(read, 0, before, limit, newest=True)

    async def _collect(
        self,
        read: Callable[[int, int, int], Awaitable[EnvelopePage]],
        after: int,
        before: int | None,
        limit: int,
        *,
        newest: bool = False,
    ) -> Portion:
        """Collect visible envelopes with after < seq < before, and look whether there is one more.

        Args:
            read: Reads a part of the log: after a number, before a number, at most so many.
            after: Lower bound.
            before: Upper bound.
            limit: Maximum number of envelopes.
            newest: Whether it is read from the end.
        """
        end = await self.head() + 1
        end = max(end if before is None else min(before, end), after + 1)
        low, high = (max(after, end - 1 - MAX_RANGE), end) if newest else (after, min(end, after + 1 + MAX_RANGE))
        rows: list[StoredEnvelope] = []
        next_low, next_high, held_bytes, has_more = low, high, 0, True
        while has_more and next_low + 1 < next_high:
            page = await read(next_low, next_high, min(PAGE_SIZE, max(limit - len(rows) + 1, 50)))
            has_more = page.has_more
            sized = sorted(
                zip(page, page.sizes_bytes, strict=True), key=lambda one: one[0].envelope.seq, reverse=newest
            )
            for stored, size in sized:
                seq = stored.envelope.seq
                next_low, next_high = (next_low, seq) if newest else (seq, next_high)
                if not low < seq < high or not self.is_visible(stored):
                    continue
                if len(rows) == limit or held_bytes >= MAX_HELD_BYTES:
                    reached = rows[-1].envelope.seq
                    low, high = (reached - 1, high) if newest else (low, reached + 1)
                    return Portion(rows, True, held_bytes, low, high)
                rows.append(stored)
                held_bytes += size
        return Portion(rows, low > after or high < end, held_bytes, low, high)

    async def batches(
        self, *, after: int = 0, before: int | None = None, kinds: Sequence[str] = ()
    ) -> AsyncIterator[list[StoredEnvelope]]:
        """Yield all visible envelopes in batches; no more than one is held.

        It ends where the log ended at its start. What is written while it is read is not in it.
        """
        end = await self.head() + 1
        end = end if before is None else min(before, end)
        while after < end - 1:
            rows = await self.spaces.page(self.owner, self.name, after=after, before=end, limit=PAGE_SIZE, kinds=kinds)
            if visible := [self.with_flags(stored) for stored in rows if self.is_visible(stored)]:
                yield visible
            if not rows.has_more:
                return
            after = rows[-1].envelope.seq
