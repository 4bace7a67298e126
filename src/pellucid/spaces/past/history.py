"""The history of a space, for one reader: everything that can be read out of its log.

    history = History(store, owner, "review", space.reader("security-agent"), advisory=…)
    page = await history.page(newest=True, limit=50)
    async for chunk in history.export("jsonl"): …

The rules:

* Nobody is given more than `envelopes.is_shown` shows them: not in a snippet, a count, a shape or a reference either.
  Seqs are no secret, and neither is what became of a context of which somebody sees a part (its status).
* Nothing holds a whole space: a page is bounded, with where to go on; an export or replay holds one piece at a time.
* Nothing here writes, and nothing that is read again is acted on.

Replay: what was said is told again, read-only, flagged, at once or at the pace at which it was said.

`replayed` is true of every envelope, so that nobody takes it for something to act on; nothing is executed, stored or
judged. The pace is the gateway's time between the envelopes that the reader is given, divided by the speed. One batch
is held at a time; who stops listening (or is cancelled in a pause) stops it.

What an envelope refers to, and what refers to it, resolved for one reader.

A name of this space means what was said last with it, before. `space:NAME/ID` means something in another space, and is
resolved through what the asker may read there. What is not there, what may not be read, and a space in which the asker
is nobody all look alike: unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import USUAL, DialectName, Envelope, searched_text
from ...envelopes.envelope import is_id
from ...envelopes.shown import Subscriber
from ...errors import RequestError
from . import exporting, shapes
from .exporting import ExportFormat, RecordHead
from .grown import Grown, read_tree
from .reading import MOST_HELD, MOST_READ, MOST_WEIGHED, Log, Page, Which
from .shapes import Contexts, Patterns
from .training import ReasoningForm

if TYPE_CHECKING:
    from ...storage import Store


MOST = 256
"""So many names of one envelope are resolved."""

MOST_ANSWERS = 100

Elsewhere: TypeAlias = Callable[[str], Awaitable[Log | None]]
"""What the asker may read of the space of this name; None: nothing."""

How: TypeAlias = Literal["correlation", "trigger", "reference", "compresses"]

_SPACE = "space:"


class Reference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """As it is written."""
    how: How
    space: str | None = None
    """None: this one."""
    envelope: Envelope | None = None
    """None: unknown to the reader."""


class References(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    references: tuple[Reference, ...] = ()
    referred_by: tuple[Envelope, ...] = ()
    """What correlates to it, said later."""


async def references(log: Log, seq: int, elsewhere: Elsewhere | None = None) -> References | None:
    """None: there is no such envelope for the reader."""
    stored = await log.one(seq)
    if stored is None:
        return None
    envelope = stored.envelope
    spaces: dict[str, Log | None] = {}
    found: list[Reference] = []
    for how, name in list(dict.fromkeys(_named(envelope)))[:MOST]:
        if not name.startswith(_SPACE):
            there = await log.by_id(name, before=seq) if is_id(name) else None
            found.append(Reference(name=name, how=how, envelope=None if there is None else there.envelope))
            continue
        space, _, id = name.removeprefix(_SPACE).partition("/")
        if space not in spaces:
            spaces[space] = log if space == log.name else await elsewhere(space) if elsewhere is not None else None
        other = spaces[space]
        there = await other.by_id(id) if other is not None and is_id(id) else None
        found.append(Reference(name=name, how=how, space=space, envelope=None if there is None else there.envelope))
    later = await log.about([envelope.id], after=seq, limit=MOST_ANSWERS)
    return References(seq=seq, references=tuple(found), referred_by=tuple(one.envelope for one in later))


def _named(envelope: Envelope) -> Iterator[tuple[How, str]]:
    payload = envelope.payload
    for id in envelope.correlation_id:
        yield "correlation", id
    if envelope.family != "reasoning":
        return
    metadata = payload.get("metadata")
    listed: tuple[tuple[How, Any], ...] = (
        ("trigger", payload.get("triggered_by")),
        ("reference", payload.get("references")),
        ("compresses", metadata.get("compresses") if isinstance(metadata, dict) else None),
    )
    for how, value in listed:
        for name in value if isinstance(value, list | tuple) else [value]:
            if isinstance(name, str) and name:
                yield how, name


AT_ONCE = 20
"""Milliseconds: what follows within that time is told together, and the pause is made up for afterwards."""


class Stretch(NamedTuple):
    """A part of the history, and how fast it is told."""

    after: int = 0
    before: int | None = None
    """Numbers; neither is in it."""
    since: int | None = None
    until: int | None = None
    """Times, in milliseconds since 1970; the second is not in it."""
    speed: float | None = None
    """1 is the original pace, 2 twice as fast. None: at once."""
    longest_pause: float | None = None
    """Seconds, for what was said hours apart. None: as long as it was."""


ALL = Stretch()


async def replay(
    log: Log, what: Stretch, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[list[Envelope]]:
    """What is said meanwhile is not in it. Raises `RequestError`."""
    after, before, since, until, speed, longest_pause = what
    if speed is not None and not 0 < speed < float("inf"):
        raise RequestError("speed: how many times as fast as it was said, a number above 0", param="speed")
    if since is not None:
        after = max(after, await log.spaces.since(log.owner, log.name, since) - 1)
    if until is not None:
        end = await log.spaces.since(log.owner, log.name, until)
        before = end if before is None else min(before, end)
    last: int | None = None
    async for batch in log.all(after=after, before=before):
        if speed is None:
            yield [replace(stored.envelope, replayed=True) for stored in batch]
            continue
        group: list[Envelope] = []
        for stored in batch:
            pause = 0 if last is None else max(0, stored.at - last)
            if last is None or pause / speed > AT_ONCE:
                if group:
                    yield group
                    group = []
                if last is not None:
                    seconds = pause / 1000 / speed
                    await sleep(seconds if longest_pause is None else min(seconds, longest_pause))
                last = stored.at
            group.append(replace(stored.envelope, replayed=True))
        if group:
            yield group


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
        return await references(self.log, seq, self._other)

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
        """What was said, in batches, flagged `replayed`: at once, or `speed` times as fast as it was."""
        return replay(self.log, what, sleep)

    async def _head_of_record(self) -> Mapping[str, Any] | None:
        scope = f"space:{self.log.name}"
        head = await self._store.record.head(self.log.owner, scope)
        return None if head is None else {"scope": scope, "number": head.number, "hash": head.hash.hex()}

    async def _other(self, name: str) -> Log | None:
        other = await self._elsewhere(name) if self._elsewhere is not None else None
        return None if other is None else other.log


def _most(limit: int) -> int:
    return max(1, min(limit, MOST_PAGE))
