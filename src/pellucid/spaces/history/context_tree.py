"""One context of reasoning out of the log, with what it came from and what came of it.

Nothing but the context itself is read: what stands within its outermost context, the envelopes that triggered it, and
those that correlate to its starts and requests (answers, responses, what it led to). At most `most` envelopes stand
in a tree, and `MAX_LINKED` beside it, or as many as are about `reading.MOST_HELD` bytes; if there are more, how the
contexts begin and end is read nevertheless, and `last` says from where on the rest can be paged.

What the reader is not shown decides what became of a context (its status), and nothing else of it is told: not who
opened it, nor for what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...envelopes import Envelope, context, kinds
from ...envelopes.envelope import is_id
from ...envelopes.tree import Tree, build_trees
from .visible_log import MAX_HELD_BYTES, PAGE_SIZE, VisibleLog

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MAX_ENVELOPES = 2_000
MAX_LINKED = 500
MAX_TRIGGERS = 16
_IDS_PER_QUERY = 100
"""So many ids are asked about at once."""

_BOUNDARY_KINDS = tuple(row.name for row in kinds.KINDS.values() if row.act not in ("step", "word"))
"""How contexts begin and end."""


class ContextTree(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader is given of a context."""

    path: str
    trees: tuple[Tree, ...]
    """The outermost contexts at or under the path, in order: nearly always one. None: there is nothing to see."""
    triggers: tuple[Envelope, ...] = ()
    """What they were started for."""
    linked: tuple[Envelope, ...] = ()
    """What correlates to a start or a request of theirs, or came out of them, and stands outside: in order."""
    has_more: bool = False
    """Whether there was more in it than can be told at once: the rest is the pages within the path, after `last`."""
    last: int = 0
    first: int = 0
    """The number of what opened the path first."""


class RawContext(msgspec.Struct):
    """What was read of one outermost context."""

    root: str
    rows: list[StoredEnvelope]
    is_truncated: bool
    """Whether there was more; then steps after `last` are missing."""
    last: int
    size_bytes: int = 0
    """How many bytes were read for it."""

    @property
    def count(self) -> int:
        return len(self.rows)

    def opening_seqs(self, path: str) -> list[int]:
        """The numbers of what opened it: a start, or what made it an implicit context."""
        return [one.envelope.seq for one in self.rows if one.place.role == "opens" and one.place.path == path]


async def load_context(log: VisibleLog, root: str, *, max_envelopes: int = MAX_ENVELOPES) -> RawContext:
    """What stands in the outermost context `root`, all of it or the first `most`."""
    rows: list[StoredEnvelope] = []
    after, has_more, size_bytes = 0, True, 0
    while has_more and len(rows) <= max_envelopes and size_bytes < MAX_HELD_BYTES:
        step = min(PAGE_SIZE, max_envelopes - len(rows) + 1)
        page = await log.spaces.page(log.owner, log.name, after=after, limit=step, within=root)
        rows += map(log.with_flags, page)
        has_more, size_bytes = page.has_more, size_bytes + page.total_bytes
        after = page[-1].envelope.seq if page else after
    is_truncated = len(rows) > max_envelopes or has_more
    rows = rows[:max_envelopes]
    last = rows[-1].envelope.seq if rows else 0
    if is_truncated:
        boundaries = await log.spaces.page(
            log.owner, log.name, after=last, limit=PAGE_SIZE, kinds=_BOUNDARY_KINDS, within=root
        )
        rows += map(log.with_flags, boundaries)
        size_bytes += boundaries.total_bytes
    return RawContext(root, rows, is_truncated, last, size_bytes)


def build_visible_trees(log: VisibleLog, raw: RawContext, linked: Iterable[StoredEnvelope] = ()) -> tuple[Tree, ...]:
    """The trees in it, as the reader sees them. `beside`: what may be linked to them."""
    by_seq = {stored.envelope.seq: stored for stored in (*raw.rows, *linked)}
    rows = [by_seq[seq] for seq in sorted(by_seq)]
    shown = {stored.envelope.seq for stored in rows if log.is_visible(stored)}
    visible = build_trees((stored.envelope for stored in rows), lambda envelope, _: envelope.seq in shown)
    visible = tuple(tree for tree in visible if context.is_within(tree.path, raw.root))
    for tree in iter_trees(visible):
        if tree.start is None:
            tree.triggers = ()
        if tree.owner not in tree.participants:
            tree.owner = ""
    return visible


async def read_tree(log: VisibleLog, path: str, *, max_envelopes: int = MAX_ENVELOPES) -> ContextTree:
    """The context of this path, with all that belongs to it."""
    raw = await load_context(log, context.root(path), max_envelopes=max_envelopes)
    visible = _subtrees_at(build_visible_trees(log, raw), path)
    if not visible:
        return ContextTree(path=path, trees=())
    triggers = await _load_triggers(log, visible)
    linked, has_more_linked = await _load_linked(log, _link_names(visible), raw)
    visible = _subtrees_at(build_visible_trees(log, raw, [*triggers, *linked]), path)
    listed_seqs = {envelope.seq for tree in iter_trees(visible) for envelope in own_envelopes(tree)}
    listed_seqs |= {stored.envelope.seq for stored in triggers}
    return ContextTree(
        path=path,
        trees=visible,
        triggers=tuple(stored.envelope for stored in triggers),
        linked=tuple(stored.envelope for stored in linked if stored.envelope.seq not in listed_seqs),
        has_more=raw.is_truncated or has_more_linked,
        last=raw.last,
        first=min(raw.opening_seqs(path), default=0),
    )


def iter_trees(trees: Iterable[Tree]) -> Iterator[Tree]:
    """With those inside, each before what is in it."""
    for tree in trees:
        yield tree
        yield from iter_trees(step.tree for step in tree.steps if step.tree is not None)


def own_envelopes(tree: Tree) -> Iterator[Envelope]:
    """What stands in it itself, in order."""
    if tree.start is not None:
        yield tree.start
    for step in tree.steps:
        if step.envelope is not None:
            yield step.envelope


def all_envelopes(tree: Tree) -> Iterator[Envelope]:
    """What stands in it and in those inside."""
    if tree.start is not None:
        yield tree.start
    for step in tree.steps:
        if step.tree is not None:
            yield from all_envelopes(step.tree)
        elif step.envelope is not None:
            yield step.envelope


def _subtrees_at(candidates: Sequence[Tree], path: str) -> tuple[Tree, ...]:
    """The outermost of them at or under the path."""
    chosen: list[Tree] = []
    for tree in candidates:
        if context.is_within(tree.path, path):
            chosen.append(tree)
        else:
            chosen += _subtrees_at([step.tree for step in tree.steps if step.tree is not None], path)
    return tuple(chosen)


async def _load_triggers(log: VisibleLog, forest: Sequence[Tree]) -> list[StoredEnvelope]:
    """An id may come twice in a space: it means what was said last, before the start."""
    by_seq: dict[int, StoredEnvelope] = {}
    for tree in forest:
        if tree.start is None:
            continue
        for id in tree.triggers[:MAX_TRIGGERS]:
            stored = await log.by_id(id, before=tree.start.seq) if is_id(id) else None
            if stored is not None:
                by_seq[stored.envelope.seq] = stored
    return [by_seq[seq] for seq in sorted(by_seq)]


class _LinkNames(msgspec.Struct, frozen=True):
    """By what others are linked to some trees."""

    own: frozenset[str]
    """Of their starts, labels and requests."""
    triggers: frozenset[str]
    """Of what they were started for: by these, what their owners say is linked."""
    owners: frozenset[str]

    def is_link(self, envelope: Envelope) -> bool:
        mine = envelope.sender in self.owners and kinds.kind_of(envelope.kind).link is not None
        return self.is_call(envelope) or (mine and not self.triggers.isdisjoint(envelope.correlation_id))

    def is_call(self, envelope: Envelope) -> bool:
        return not self.own.isdisjoint(envelope.correlation_id)


def _link_names(forest: Sequence[Tree]) -> _LinkNames:
    own, triggers, owners = set[str](), set[str](), set[str]()
    for tree in iter_trees(forest):
        # Nobody need have started it: then its path alone means it.
        own.add(tree.path)
        owners.add(tree.owner)
        if tree.start is not None:
            own |= {tree.start.id, f"{tree.path}/{tree.start.id}"}
            triggers |= set(tree.triggers)
        own |= {envelope.id for envelope in own_envelopes(tree) if kinds.kind_of(envelope.kind).link == "call"}
    return _LinkNames(frozenset(own), frozenset(triggers), frozenset(owners))


async def _load_linked(log: VisibleLog, names: _LinkNames, raw: RawContext) -> tuple[list[StoredEnvelope], bool]:
    """Whether there may be more comes with them."""
    inside = {stored.envelope.seq for stored in raw.rows}
    first = min(inside, default=1) - 1
    by_seq: dict[int, StoredEnvelope] = {}
    correlated, has_more = await _load_correlated(log, sorted(names.own | names.triggers), after=first)
    for stored in correlated:
        if stored.envelope.seq not in inside and names.is_link(stored.envelope):
            by_seq[stored.envelope.seq] = stored
    # Who fulfils a proposal asks in its place: the response is to them.
    request_ids = [one.envelope.id for one in by_seq.values() if one.envelope.kind == kinds.REQUEST]
    responses, has_more_responses = await _load_correlated(log, request_ids, after=first)
    for stored in responses:
        if stored.envelope.kind == kinds.RESPONSE and stored.envelope.seq not in inside:
            by_seq[stored.envelope.seq] = stored
    return [by_seq[seq] for seq in sorted(by_seq)][:MAX_LINKED], has_more or has_more_responses or len(
        by_seq
    ) >= MAX_LINKED


async def _load_correlated(log: VisibleLog, ids: Sequence[str], *, after: int) -> tuple[list[StoredEnvelope], bool]:
    rows: list[StoredEnvelope] = []
    has_more, held_bytes = False, 0
    for start in range(0, len(ids), _IDS_PER_QUERY):
        page = await log.correlated(ids[start : start + _IDS_PER_QUERY], after=after, limit=MAX_LINKED)
        rows += page
        has_more, held_bytes = has_more or page.has_more, held_bytes + page.total_bytes
        if len(rows) >= MAX_LINKED or held_bytes >= MAX_HELD_BYTES:
            has_more = has_more or start + _IDS_PER_QUERY < len(ids)
            break
    return rows, has_more
