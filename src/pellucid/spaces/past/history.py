"""The history of a space, for one reader: everything that can be read out of its log.

    history = History(store, owner, "review", space.reader("security-agent"), advisory=…)
    page = await history.page(newest=True, limit=50)
    async for chunk in history.export("jsonl"): …

The rules:

* Nobody is given more than `envelopes.is_shown` shows them: not in a snippet, a count, a shape or a reference either.
  Seqs are no secret, and neither is what became of a context of which somebody sees a part (its status).
* Nothing holds a whole space: a page is bounded, with where to go on; an export or replay holds one piece at a time.
* Nothing here writes, and nothing that is read again is acted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from ...envelopes import USUAL, DialectName, Envelope, searched_text
from ...envelopes.shown import Subscriber
from . import exporting, references, replaying, shapes
from .exporting import ExportFormat, RecordHead
from .grown import Grown, read_tree
from .reading import MOST_HELD, MOST_READ, MOST_WEIGHED, Log, Page, Which
from .references import References
from .replaying import ALL, Stretch
from .shapes import Contexts, Patterns
from .training import ReasoningForm

if TYPE_CHECKING:
    from ...storage import Store

MOST_PAGE = 500
"""So many envelopes, hits or contexts are given at once."""


class Hit(msgspec.Struct, frozen=True):
    envelope: Envelope
    at: int
    snippet: str
    """A piece of what it says, with what was looked for."""


class Hits(msgspec.Struct, frozen=True):
    """What was found, the newest first."""

    hits: tuple[Hit, ...]
    has_more: bool
    before: int
    """Older ones are those before this number."""


class History:
    """What one reader may read of one space."""

    def __init__(
        self,
        store: Store,
        owner: str,
        name: str,
        reader: Subscriber,
        *,
        advisory: bool = False,
        elsewhere: Callable[[str], Awaitable[History | None]] | None = None,
        record: RecordHead | None = None,
    ) -> None:
        """`advisory`: whether addresses are (the space's setting). `elsewhere`: the asker's own view of the space of
        this name, None where they are nobody. `record`: the head of the space's record, for exports, if it is not the
        store's."""
        self.log = Log(store, owner, name, reader, advisory=advisory)
        self._elsewhere = elsewhere
        self._record = record or self._head_of_record
        self._store = store

    async def head(self) -> int:
        return await self.log.head()

    async def one(self, seq: int) -> Envelope | None:
        stored = await self.log.one(seq)
        return None if stored is None else stored.envelope

    async def by_id(self, id: str) -> Envelope | None:
        """The last one with this id."""
        stored = await self.log.by_id(id)
        return None if stored is None else stored.envelope

    async def page(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        newest: bool = False,
        **which: Unpack[Which],
    ) -> Page:
        """Envelopes with after < seq < before, ascending: the first `limit`, or the last ones (`newest`)."""
        return await self.log.page(after=after, before=before, limit=_most(limit), newest=newest, **which)

    async def search(
        self,
        query: str,
        *,
        before: int | None = None,
        limit: int = 50,
        **which: Unpack[Which],
    ) -> Hits:
        """What holds this anywhere in its payload: any script, case does not matter (`storage.search`)."""
        from ...storage.search import snippet

        limit, log = _most(limit), self.log
        hits: list[Hit] = []
        looked, held, weighed, more = 0, 0, 0, bool(query)
        while more and len(hits) < limit and looked < MOST_READ and held < MOST_HELD and weighed < MOST_WEIGHED:
            step = min(MOST_PAGE, max(limit - len(hits) + 1, 50))
            rows = await log.spaces.search(log.owner, log.name, query, before=before, limit=step, **which)
            more, looked, weighed = rows.more, looked + len(rows), weighed + rows.size
            for stored, size in zip(rows, rows.sizes, strict=True):
                if len(hits) == limit:
                    more = True
                    break
                before = stored.envelope.seq
                if log.sees(stored):
                    held += size
                    hits.append(Hit(stored.told, stored.at, snippet(searched_text(stored.envelope), query)))
        return Hits(tuple(hits), more, before or 0)

    async def contexts(self, *, before: int | None = None, limit: int = 20) -> Contexts:
        """The outermost contexts, the newest first, one line each."""
        return await shapes.contexts(self.log, before=before, limit=_most(limit))

    async def tree(self, path: str) -> Grown | None:
        """A context with what is inside it, what triggered it and what came of it. None: there is nothing to see."""
        grown = await read_tree(self.log, path)
        return grown if grown.trees else None

    async def patterns(self, *, before: int | None = None, limit: int = 200) -> Patterns:
        """The shapes of the newest reasoning, by kind and tool."""
        return await shapes.patterns(self.log, before=before, limit=_most(limit))

    async def references(self, seq: int) -> References | None:
        """What it refers to, here and in other spaces, and what refers to it. None: there is no such envelope."""
        return await references.references(self.log, seq, self._other)

    def export(
        self,
        format: ExportFormat = "jsonl",
        *,
        after: int = 0,
        before: int | None = None,
        dialect: DialectName = USUAL,
        reasoning: ReasoningForm = "reasoning_content",
        metadata: bool = True,
        complete: bool = False,
    ) -> AsyncIterator[bytes]:
        """JSON lines, in chunks of whole lines (`exporting`). `dialect` is jsonl's; the last three are chat-jsonl's."""
        match format:
            case "chat-jsonl":
                return exporting.chats(
                    self.log, after=after, before=before, reasoning=reasoning, metadata=metadata, complete=complete
                )
            case "otel":
                return exporting.events(self.log, after=after, before=before)
        return exporting.envelopes(self.log, after=after, before=before, dialect=dialect, record=self._record)

    def replay(
        self, what: Stretch = ALL, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> AsyncIterator[list[Envelope]]:
        """What was said, in batches, flagged `replayed`: at once, or `speed` times as fast as it was (`replaying`)."""
        return replaying.replay(self.log, what, sleep)

    async def _head_of_record(self) -> Mapping[str, Any] | None:
        scope = f"space:{self.log.name}"
        head = await self._store.record.head(self.log.owner, scope)
        return None if head is None else {"scope": scope, "number": head.number, "hash": head.hash.hex()}

    async def _other(self, name: str) -> Log | None:
        other = await self._elsewhere(name) if self._elsewhere is not None else None
        return None if other is None else other.log


def _most(limit: int) -> int:
    return max(1, min(limit, MOST_PAGE))
