"""The log of a space as one viewer may see it, in bounded pieces.

Everything that is read from a space goes through a `VisibleLog`, which drops what the viewer may not see
(`envelopes.is_shown`). For one result it scans at most `MAX_SCANNED` envelopes, however few of them are visible, and
holds about `MAX_HELD_BYTES` bytes at most. The result says how far it came, so that a reader can go on from there. The
store's own results are bounded, too (`storage.EnvelopePage`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.visibility import SpaceViewer, is_shown

if TYPE_CHECKING:
    from ...storage import EnvelopePage, Store, StoredEnvelope

PAGE_SIZE = 500
"""Number of envelopes in one query."""

MAX_SCANNED = 10_000
"""Maximum number of envelopes that are scanned for one result."""

MAX_HELD_BYTES = 4 << 20
"""Size of a result at which nothing more is added. It may exceed this by one page of the store."""

MAX_SCANNED_BYTES = 64 << 20
"""Maximum number of bytes that are scanned for one result, plus one page of the store."""


class ScanBudget:
    """How much was scanned and is held for one result, against the limits above."""

    def __init__(self) -> None:
        self.scanned_count = self.scanned_bytes = self.held_bytes = 0

    def add(self, count: int, size_bytes: int) -> None:
        """Count envelopes that were scanned."""
        self.scanned_count += count
        self.scanned_bytes += size_bytes

    @property
    def is_spent(self) -> bool:
        """Whether the result has to end here."""
        return (
            self.scanned_count >= MAX_SCANNED
            or self.held_bytes >= MAX_HELD_BYTES
            or self.scanned_bytes >= MAX_SCANNED_BYTES
        )


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
    """The first and last number that were scanned. The next page is the one after `last`, the previous one that before
    `first`.
    """


class VisibleLog:
    """One space, for one viewer."""

    def __init__(self, store: Store, owner: str, name: str, viewer: SpaceViewer, *, advisory: bool = False) -> None:
        self.spaces = store.spaces
        self._record = store.record
        self.owner = owner
        self.name = name
        self.viewer = viewer
        self._advisory = advisory

    def is_visible(self, stored: StoredEnvelope) -> bool:
        """Check whether the viewer may see an envelope."""
        return is_shown(stored.envelope, stored.place, self.viewer, advisory=self._advisory)

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
        """Return the latest envelope with this id, and a number below `before`."""
        stored = await self.spaces.get_envelope_by_id(self.owner, self.name, id, before=before)
        return self.with_flags(stored) if stored is not None and self.is_visible(stored) else None

    async def find_correlated(self, ids: Sequence[str], *, after: int = 0, limit: int = PAGE_SIZE) -> EnvelopePage:
        """Return the visible envelopes that correlate to any of these ids, within the bounds of one query."""
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
        """Return visible envelopes with after < seq < before: the first `limit`, or the last ones (`newest`)."""
        collected: list[StoredEnvelope] = []
        low, high, has_more, budget = after, before, True, ScanBudget()
        scanned: tuple[int, int] | None = None
        while has_more and len(collected) < limit and not budget.is_spent:
            step = min(PAGE_SIZE, max(limit - len(collected) + 1, 50))
            rows = await self.spaces.page(
                self.owner, self.name, after=low, before=high, limit=step, newest=newest, **which
            )
            has_more = rows.has_more
            budget.add(len(rows), rows.total_bytes)
            if not rows:
                break
            first, last = rows[0].envelope.seq, rows[-1].envelope.seq
            visible = []
            for stored, size in zip(rows, rows.sizes_bytes, strict=True):
                if self.is_visible(stored):
                    visible.append(stored)
                    budget.held_bytes += size
            missing_count = limit - len(collected)
            if len(visible) > missing_count:
                visible, has_more = (visible[-missing_count:] if newest else visible[:missing_count]), True
                first = visible[0].envelope.seq if newest else first
                last = last if newest else visible[-1].envelope.seq
            collected = visible + collected if newest else collected + visible
            low, high = (low, first) if newest else (last, high)
            scanned = (first, last) if scanned is None else (min(scanned[0], first), max(scanned[1], last))
        if scanned is None:
            last = after if before is None or not newest else max(after, before - 1)
            scanned = (last + 1, last)
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
