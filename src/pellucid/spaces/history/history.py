"""The history of a space, for one viewer: everything that can be read from its log.

    history = History(store, owner, "review", space.viewer("security-agent"))
    page = await history.page(newest=True, limit=50)
    async for chunk in history.export("jsonl"): …

The rules:

* A viewer gets nothing that `envelopes.is_shown` does not show: not in a snippet, a count, a position, a summary or a
  reference either. Sequence numbers are not secret. Neither is the status of a context of which the viewer sees a part,
  nor where it begins and ends.
* No result holds a whole space. Pages are bounded and say where to go on; an export or a replay holds one batch at a
  time.
* Nothing here writes. What is read again must not be acted on.

Replay: envelopes are sent again, read-only and flagged, at once or at their original pace. `replayed` is true for every
envelope, so that no receiver acts on it; nothing is executed, stored or judged. The pace is the gateway's time between
the envelopes that the viewer sees, divided by the speed. One batch is held at a time. A replay ends when its reader
stops or is cancelled.

References: what an envelope refers to, and what refers to it, resolved for one viewer. A name of this space means the
latest envelope with this id before it. `space:NAME/ID` means an envelope of another space, resolved with what the
viewer may read there. An envelope that does not exist, one that may not be read, and a space of which the viewer is no
member all look the same: unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Unpack

import msgspec
from msgspec.structs import replace

from ...envelopes import DEFAULT_DIALECT, DialectName, Envelope, searched_text
from ...envelopes.envelope import is_id
from ...envelopes.reasoning import OTHER_SPACE_PREFIX, ReferenceType, reasoning_references
from ...envelopes.visibility import SpaceViewer
from ...errors import RequestError
from . import export, summaries
from .context_tree import ContextTree, read_tree
from .export import ExportFormat
from .summaries import Contexts, Patterns
from .training import ReasoningForm
from .visible_log import EnvelopeFilter, Page, VisibleLog

if TYPE_CHECKING:
    from ...storage import Store


MAX_NAMES = 256
"""How many names of one envelope are resolved."""

MAX_REFERRERS = 100


class Reference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name in an envelope, and the envelope that it means."""

    name: str
    """As it is written."""
    how: ReferenceType
    space: str | None = None
    """Name of another space. None: this one."""
    envelope: Envelope | None = None
    """None: unknown to the viewer."""


class References(msgspec.Struct, frozen=True, kw_only=True):
    """The references of one envelope, in both directions."""

    seq: int
    references: tuple[Reference, ...] = ()
    referred_by: tuple[Envelope, ...] = ()
    """Later envelopes that correlate to it."""


def _referenced_names(envelope: Envelope) -> Iterator[tuple[ReferenceType, str]]:
    for id in envelope.correlation_id:
        yield "correlation", id
    yield from (reference for reference in reasoning_references(envelope) if reference[1])


MERGE_WINDOW_MS = 20
"""Envelopes within this time are sent together, and the pause is made up for afterwards."""


class ReplayRange(NamedTuple):
    """A part of the history, and the speed of its replay."""

    after: int = 0
    before: int | None = None
    """Sequence numbers; both are exclusive."""
    since: int | None = None
    until: int | None = None
    """Times in milliseconds since 1970; the second is exclusive."""
    speed: float | None = None
    """1 is the original pace, 2 twice as fast. None: without pauses."""
    longest_pause: float | None = None
    """Maximum pause in seconds, for envelopes that are hours apart. None: no maximum."""


WHOLE_HISTORY = ReplayRange()


MAX_PAGE_SIZE = 500
"""Maximum number of envelopes, hits or contexts in one result."""


class Hit(msgspec.Struct, frozen=True):
    """An envelope that matches a search."""

    envelope: Envelope
    at: int
    """When the gateway accepted it, in milliseconds since 1970."""
    snippet: str
    """A piece of its text with the match."""


class Hits(msgspec.Struct, frozen=True):
    """The results of a search, the newest first."""

    hits: tuple[Hit, ...]
    has_more: bool
    before: int
    """The older results are those before this number."""


class History:
    """What one viewer may read of one space."""

    def __init__(
        self,
        store: Store,
        owner: str,
        name: str,
        viewer: SpaceViewer,
        *,
        other_history: Callable[[str], Awaitable[History | None]] | None = None,
    ) -> None:
        """Create a history.

        Args:
            store: The store.
            owner: The owner of the space.
            name: The name of the space.
            viewer: Who reads.
            other_history: Returns the viewer's own history of another space, None if it is no member.
        """
        self.log = VisibleLog(store, owner, name, viewer)
        self._other_history = other_history

    async def one(self, seq: int) -> Envelope | None:
        """Return the envelope with this number; None if there is none or it is not visible."""
        stored = await self.log.one(seq)
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
        """Return envelopes with after < seq < before, ascending: the first `limit`, or the last ones (`newest`)."""
        return await self.log.page(after=after, before=before, limit=_clamp_limit(limit), newest=newest, **which)

    async def search(
        self,
        query: str,
        *,
        before: int | None = None,
        limit: int = 50,
        **which: Unpack[EnvelopeFilter],
    ) -> Hits:
        """Search all strings of the payloads (`storage.search`), in any script and ignoring case."""
        from ...storage.search import snippet

        if not query:
            return Hits((), False, 1)
        portion = await self.log.search(query, before=before, limit=_clamp_limit(limit), **which)
        hits = (Hit(one.with_flags, one.at, snippet(searched_text(one.envelope), query)) for one in portion.rows)
        return Hits(tuple(hits), portion.has_more, portion.low + 1)

    async def contexts(self, *, before: int | None = None, limit: int = 20) -> Contexts:
        """Return the outermost contexts, the newest first, with one summary each."""
        return await summaries.contexts(self.log, before=before, limit=_clamp_limit(limit))

    async def tree(self, path: str) -> ContextTree | None:
        """Return a context with its inner contexts, triggers and results; None if nothing is visible."""
        context_tree = await read_tree(self.log, path)
        return context_tree if context_tree.trees else None

    async def patterns(self, *, before: int | None = None, limit: int = 200) -> Patterns:
        """Return the shapes of the newest reasoning, by kind and tool."""
        return await summaries.patterns(self.log, before=before, limit=_clamp_limit(limit))

    async def references(self, seq: int) -> References | None:
        """Return what an envelope refers to, here and in other spaces, and what refers to it.

        Returns:
            None if the envelope is not visible.
        """
        stored = await self.log.one(seq)
        if stored is None:
            return None
        spaces: dict[str, VisibleLog | None] = {}
        resolved: list[Reference] = []
        for how, name in list(dict.fromkeys(_referenced_names(stored.envelope)))[:MAX_NAMES]:
            log: VisibleLog | None = self.log
            before: int | None = seq
            space, id = None, name
            if name.startswith(OTHER_SPACE_PREFIX):
                space, _, id = name.removeprefix(OTHER_SPACE_PREFIX).partition("/")
                if space not in spaces:
                    spaces[space] = self.log if space == self.log.name else await self._other_log(space)
                log, before = spaces[space], None
            target = await log.by_id(id, before=before) if log is not None and is_id(id) else None
            resolved.append(
                Reference(name=name, how=how, space=space, envelope=None if target is None else target.envelope)
            )
        later = await self.log.find_correlated([stored.envelope.id], after=seq, limit=MAX_REFERRERS)
        return References(seq=seq, references=tuple(resolved), referred_by=tuple(one.envelope for one in later.rows))

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
        """Yield JSON lines, in chunks of whole lines (see `export`).

        Args:
            format: The format.
            after: Only envelopes after this number.
            before: Only envelopes before this number.
            dialect: The dialect of jsonl.
            reasoning: Where reasoning stands, in chat-jsonl.
            metadata: Whether lines have metadata, in chat-jsonl.
            complete: Only dialogues with a question and an answer, in chat-jsonl.
        """
        match format:
            case "chat-jsonl":
                return export.export_chats(
                    self.log, after=after, before=before, reasoning=reasoning, metadata=metadata, complete=complete
                )
            case "otel":
                return export.export_events(self.log, after=after, before=before)
        return export.export_envelopes(self.log, after=after, before=before, dialect=dialect)

    async def replay(
        self, part: ReplayRange = WHOLE_HISTORY, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> AsyncIterator[list[Envelope]]:
        """Yield the envelopes of a range in batches, flagged as replayed.

        What is written during the replay is not in it.

        Args:
            part: The range and the speed.
            sleep: Waits for some seconds.

        Raises:
            RequestError: If the speed is not a number above 0.
        """
        after, before, since, until, speed, longest_pause = part
        if speed is not None and not 0 < speed < float("inf"):
            raise RequestError("speed: must be a number above 0: how many times the original speed", param="speed")
        if since is not None:
            after = max(after, await self.log.first_seq_since(since) - 1)
        if until is not None:
            end = await self.log.first_seq_since(until)
            before = end if before is None else min(before, end)
        last: int | None = None
        async for batch in self.log.batches(after=after, before=before):
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

    async def _other_log(self, name: str) -> VisibleLog | None:
        other = await self._other_history(name) if self._other_history is not None else None
        return None if other is None else other.log


def _clamp_limit(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE_SIZE))
