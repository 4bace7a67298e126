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

from ...envelopes import DEFAULT_DIALECT, DialectName, Envelope, searched_text
from ...envelopes.envelope import is_id
from ...envelopes.visibility import SpaceViewer
from ...errors import RequestError
from . import export, summaries
from .context_tree import ContextTree, read_tree
from .export import ExportFormat, RecordHead
from .summaries import Contexts, Patterns
from .training import ReasoningForm
from .visible_log import MAX_HELD_BYTES, MAX_SCANNED, MAX_SCANNED_BYTES, EnvelopeFilter, Page, VisibleLog

if TYPE_CHECKING:
    from ...storage import Store


MAX_NAMES = 256
"""So many names of one envelope are resolved."""

MAX_REFERRERS = 100

OtherLogs: TypeAlias = Callable[[str], Awaitable[VisibleLog | None]]
"""What the asker may read of the space of this name; None: nothing."""

ReferenceType: TypeAlias = Literal["correlation", "trigger", "reference", "compresses"]

_SPACE = "space:"


class Reference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """As it is written."""
    how: ReferenceType
    space: str | None = None
    """None: this one."""
    envelope: Envelope | None = None
    """None: unknown to the reader."""


class References(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    references: tuple[Reference, ...] = ()
    referred_by: tuple[Envelope, ...] = ()
    """What correlates to it, said later."""


async def references(log: VisibleLog, seq: int, other_logs: OtherLogs | None = None) -> References | None:
    """None: there is no such envelope for the reader."""
    stored = await log.one(seq)
    if stored is None:
        return None
    envelope = stored.envelope
    spaces: dict[str, VisibleLog | None] = {}
    resolved: list[Reference] = []
    for how, name in list(dict.fromkeys(_referenced_names(envelope)))[:MAX_NAMES]:
        if not name.startswith(_SPACE):
            target = await log.by_id(name, before=seq) if is_id(name) else None
            resolved.append(Reference(name=name, how=how, envelope=None if target is None else target.envelope))
            continue
        space, _, id = name.removeprefix(_SPACE).partition("/")
        if space not in spaces:
            spaces[space] = log if space == log.name else await other_logs(space) if other_logs is not None else None
        other = spaces[space]
        target = await other.by_id(id) if other is not None and is_id(id) else None
        resolved.append(
            Reference(name=name, how=how, space=space, envelope=None if target is None else target.envelope)
        )
    later = await log.correlated([envelope.id], after=seq, limit=MAX_REFERRERS)
    return References(seq=seq, references=tuple(resolved), referred_by=tuple(one.envelope for one in later))


def _referenced_names(envelope: Envelope) -> Iterator[tuple[ReferenceType, str]]:
    payload = envelope.payload
    for id in envelope.correlation_id:
        yield "correlation", id
    if envelope.family != "reasoning":
        return
    metadata = payload.get("metadata")
    listed: tuple[tuple[ReferenceType, Any], ...] = (
        ("trigger", payload.get("triggered_by")),
        ("reference", payload.get("references")),
        ("compresses", metadata.get("compresses") if isinstance(metadata, dict) else None),
    )
    for how, value in listed:
        for name in value if isinstance(value, list | tuple) else [value]:
            if isinstance(name, str) and name:
                yield how, name


MERGE_WINDOW_MS = 20
"""Milliseconds: what follows within that time is told together, and the pause is made up for afterwards."""


class ReplayRange(NamedTuple):
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


WHOLE_HISTORY = ReplayRange()


async def replay(
    log: VisibleLog, span: ReplayRange, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[list[Envelope]]:
    """What is said meanwhile is not in it. Raises `RequestError`."""
    after, before, since, until, speed, longest_pause = span
    if speed is not None and not 0 < speed < float("inf"):
        raise RequestError("speed: how many times as fast as it was said, a number above 0", param="speed")
    if since is not None:
        after = max(after, await log.spaces.first_seq_since(log.owner, log.name, since) - 1)
    if until is not None:
        end = await log.spaces.first_seq_since(log.owner, log.name, until)
        before = end if before is None else min(before, end)
    last: int | None = None
    async for batch in log.batches(after=after, before=before):
        if speed is None:
            yield [replace(stored.envelope, replayed=True) for stored in batch]
            continue
        group: list[Envelope] = []
        for stored in batch:
            pause = 0 if last is None else max(0, stored.at - last)
            if last is None or pause / speed > MERGE_WINDOW_MS:
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


MAX_PAGE_SIZE = 500
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
        viewer: SpaceViewer,
        *,
        advisory: bool = False,
        other_history: Callable[[str], Awaitable[History | None]] | None = None,
        record: RecordHead | None = None,
    ) -> None:
        """`advisory`: whether addresses are (the space's setting). `elsewhere`: the asker's own view of the space of
        this name, None where they are nobody. `record`: the head of the space's record, for exports, if it is not the
        store's."""
        self.log = VisibleLog(store, owner, name, viewer, advisory=advisory)
        self._other_history = other_history
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
        **which: Unpack[EnvelopeFilter],
    ) -> Page:
        """Envelopes with after < seq < before, ascending: the first `limit`, or the last ones (`newest`)."""
        return await self.log.page(after=after, before=before, limit=_clamp_limit(limit), newest=newest, **which)

    async def search(
        self,
        query: str,
        *,
        before: int | None = None,
        limit: int = 50,
        **which: Unpack[EnvelopeFilter],
    ) -> Hits:
        """What holds this anywhere in its payload: any script, case does not matter (`storage.search`)."""
        from ...storage.search import snippet

        limit, log = _clamp_limit(limit), self.log
        hits: list[Hit] = []
        scanned_count, held_bytes, scanned_bytes, has_more = 0, 0, 0, bool(query)
        while (
            has_more
            and len(hits) < limit
            and scanned_count < MAX_SCANNED
            and held_bytes < MAX_HELD_BYTES
            and scanned_bytes < MAX_SCANNED_BYTES
        ):
            step = min(MAX_PAGE_SIZE, max(limit - len(hits) + 1, 50))
            rows = await log.spaces.search(log.owner, log.name, query, before=before, limit=step, **which)
            has_more, scanned_count, scanned_bytes = (
                rows.has_more,
                scanned_count + len(rows),
                scanned_bytes + rows.total_bytes,
            )
            for stored, size in zip(rows, rows.sizes_bytes, strict=True):
                if len(hits) == limit:
                    has_more = True
                    break
                before = stored.envelope.seq
                if log.is_visible(stored):
                    held_bytes += size
                    hits.append(Hit(stored.with_flags, stored.at, snippet(searched_text(stored.envelope), query)))
        return Hits(tuple(hits), has_more, before or 0)

    async def contexts(self, *, before: int | None = None, limit: int = 20) -> Contexts:
        """The outermost contexts, the newest first, one line each."""
        return await summaries.contexts(self.log, before=before, limit=_clamp_limit(limit))

    async def tree(self, path: str) -> ContextTree | None:
        """A context with what is inside it, what triggered it and what came of it. None: there is nothing to see."""
        context_tree = await read_tree(self.log, path)
        return context_tree if context_tree.trees else None

    async def patterns(self, *, before: int | None = None, limit: int = 200) -> Patterns:
        """The shapes of the newest reasoning, by kind and tool."""
        return await summaries.patterns(self.log, before=before, limit=_clamp_limit(limit))

    async def references(self, seq: int) -> References | None:
        """What it refers to, here and in other spaces, and what refers to it. None: there is no such envelope."""
        return await references(self.log, seq, self._other_log)

    def export(
        self,
        format: ExportFormat = "jsonl",
        *,
        after: int = 0,
        before: int | None = None,
        dialect: DialectName = DEFAULT_DIALECT,
        reasoning: ReasoningForm = "reasoning_content",
        metadata: bool = True,
        complete: bool = False,
    ) -> AsyncIterator[bytes]:
        """JSON lines, in chunks of whole lines (`exporting`). `dialect` is jsonl's; the last three are chat-jsonl's."""
        match format:
            case "chat-jsonl":
                return export.export_chats(
                    self.log, after=after, before=before, reasoning=reasoning, metadata=metadata, complete=complete
                )
            case "otel":
                return export.export_events(self.log, after=after, before=before)
        return export.export_envelopes(self.log, after=after, before=before, dialect=dialect, record=self._record)

    def replay(
        self, span: ReplayRange = WHOLE_HISTORY, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> AsyncIterator[list[Envelope]]:
        """What was said, in batches, flagged `replayed`: at once, or `speed` times as fast as it was."""
        return replay(self.log, span, sleep)

    async def _head_of_record(self) -> Mapping[str, Any] | None:
        scope = f"space:{self.log.name}"
        head = await self._store.record.head(self.log.owner, scope)
        return None if head is None else {"scope": scope, "number": head.number, "hash": head.hash.hex()}

    async def _other_log(self, name: str) -> VisibleLog | None:
        other = await self._other_history(name) if self._other_history is not None else None
        return None if other is None else other.log


def _clamp_limit(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE_SIZE))
