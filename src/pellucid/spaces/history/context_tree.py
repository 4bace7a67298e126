"""One context of reasoning from the log, with its triggers and its results.

Only what belongs to the context is read: everything within its outermost context, the envelopes that triggered it, and
those that correlate to its starts and requests (answers, responses, what it led to). A tree has at most `max_envelopes`
visible envelopes and `MAX_LINKED` linked ones, or about `visible_log.MAX_HELD_BYTES` bytes of them. If there are more,
the envelopes that begin and end contexts are read nevertheless, and `last` says from where the rest can be paged.

Invisible envelopes decide where a context begins and ends, and its status. Nothing else about them is shown: not who
opened it, nor what for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...envelopes import Envelope, context, kinds
from ...envelopes.envelope import is_id
from ...envelopes.tree import Tree, build_trees
from .visible_log import MAX_HELD_BYTES, MAX_RANGE, PAGE_SIZE, VisibleLog

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MAX_ENVELOPES = 2_000
MAX_LINKED = 500
MAX_TRIGGERS = 16
_IDS_PER_QUERY = 100
"""Number of ids in one query."""

_BOUNDARY_KINDS = tuple(row.name for row in kinds.KINDS.values() if row.act not in ("step", "message"))
"""Kinds that begin or end contexts."""


class ContextTree(msgspec.Struct, frozen=True, kw_only=True):
    """What one viewer sees of a context."""

    path: str
    trees: tuple[Tree, ...]
    """The outermost contexts at or under the path, in order; nearly always one. Empty: nothing is visible."""
    triggers: tuple[Envelope, ...] = ()
    """The envelopes for which they were started."""
    linked: tuple[Envelope, ...] = ()
    """Envelopes outside that correlate to a start or a request of theirs, or came out of them, in order."""
    has_more: bool = False
    """Whether the context has more envelopes. The rest are the pages within the path, after `last`."""
    last: int = 0
    first: int = 0
    """Number of the envelope that first opened the path."""


class RawContext(msgspec.Struct):
    """What was read of one outermost context."""

    root: str
    rows: list[StoredEnvelope]
    """What is visible, and what begins and ends contexts."""
    is_truncated: bool
    """Whether there may be more. Then steps after `last` are missing."""
    last: int
    visible_count: int
    visible_bytes: int

    def opening_seqs(self, path: str) -> list[int]:
        """Return the numbers of the envelopes that opened the path.

        They are starts, or the first envelope of an implicit context.
        """
        return [one.envelope.seq for one in self.rows if one.place.role == "opens" and one.place.path == path]


async def load_context(log: VisibleLog, root: str, *, max_envelopes: int = MAX_ENVELOPES) -> RawContext:
    """Read the outermost context `root`, completely or the first `max_envelopes` envelopes."""
    raw = RawContext(root, [], False, 0, 0, 0)
    if await _read_rows(log, raw, max_envelopes):
        raw.is_truncated = True
        rows = await log.spaces.page(
            log.owner, log.name, after=raw.last, limit=PAGE_SIZE, kinds=_BOUNDARY_KINDS, within=root
        )
        raw.rows += map(log.with_flags, rows)
        raw.visible_bytes += sum(
            size for stored, size in zip(rows, rows.sizes_bytes, strict=True) if log.is_visible(stored)
        )
    return raw


async def _read_rows(log: VisibleLog, raw: RawContext, max_envelopes: int) -> bool:
    """Read the rows of a context from its beginning, and return whether there may be more visible ones.

    It ends at a visible envelope or, like every result, `MAX_RANGE` numbers after the first.
    """
    end: int | None = None
    after, is_ended, has_more = 0, False, True
    while has_more:
        step = min(PAGE_SIZE, max(max_envelopes - raw.visible_count + 1, 50))
        rows = await log.spaces.page(log.owner, log.name, after=after, before=end, limit=step, within=raw.root)
        has_more = rows.has_more
        for stored, size in zip(rows, rows.sizes_bytes, strict=True):
            after, place = stored.envelope.seq, stored.place
            end = end or after + MAX_RANGE
            is_ended = is_ended or (place.role == "ends" and place.path == raw.root)
            if log.is_visible(stored):
                if raw.visible_count == max_envelopes or raw.visible_bytes >= MAX_HELD_BYTES:
                    return True
                raw.visible_count += 1
                raw.visible_bytes += size
                raw.last = after
            elif place.role not in ("opens", "ends"):
                continue
            raw.rows.append(log.with_flags(stored))
    if end is None or is_ended or end > await log.head():
        return False
    raw.last = end - 1
    return True


def build_visible_trees(log: VisibleLog, raw: RawContext, linked: Iterable[StoredEnvelope] = ()) -> tuple[Tree, ...]:
    """Build the trees of a context, as the viewer sees them.

    Args:
        log: The log.
        raw: What was read of the context.
        linked: Envelopes that may be linked to it.
    """
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
    """Read the context of a path with everything that belongs to it.

    Args:
        log: The log.
        path: The path.
        max_envelopes: Maximum number of envelopes in its outermost context.
    """
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
    """Yield the trees and all inner trees, each before its inner ones."""
    for tree in trees:
        yield tree
        yield from iter_trees(step.tree for step in tree.steps if step.tree is not None)


def own_envelopes(tree: Tree) -> Iterator[Envelope]:
    """Yield the envelopes of a tree, without those of inner trees, in order."""
    if tree.start is not None:
        yield tree.start
    for step in tree.steps:
        if step.envelope is not None:
            yield step.envelope


def all_envelopes(tree: Tree) -> Iterator[Envelope]:
    """Yield the envelopes of a tree and of its inner trees, in order."""
    if tree.start is not None:
        yield tree.start
    for step in tree.steps:
        if step.tree is not None:
            yield from all_envelopes(step.tree)
        elif step.envelope is not None:
            yield step.envelope


def _subtrees_at(candidates: Sequence[Tree], path: str) -> tuple[Tree, ...]:
    """Return the outermost trees at or under the path."""
    chosen: list[Tree] = []
    for tree in candidates:
        if context.is_within(tree.path, path):
            chosen.append(tree)
        else:
            chosen += _subtrees_at([step.tree for step in tree.steps if step.tree is not None], path)
    return tuple(chosen)


async def _load_triggers(log: VisibleLog, forest: Sequence[Tree]) -> list[StoredEnvelope]:
    """Read the triggers of trees.

    An id may be used twice in a space. It means the latest envelope before the start.
    """
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
    """The names by which envelopes are linked to trees."""

    own: frozenset[str]
    """Ids of their starts and requests, and their labels."""
    triggers: frozenset[str]
    """Ids of their triggers. What their owners correlate to these is linked."""
    owners: frozenset[str]

    def is_link(self, envelope: Envelope) -> bool:
        """Check whether an envelope is linked to the trees."""
        mine = envelope.sender in self.owners and kinds.kind_of(envelope.kind).link is not None
        return self.is_call(envelope) or (mine and not self.triggers.isdisjoint(envelope.correlation_id))

    def is_call(self, envelope: Envelope) -> bool:
        """Check whether an envelope correlates to a start, label or request."""
        return not self.own.isdisjoint(envelope.correlation_id)


def _link_names(forest: Sequence[Tree]) -> _LinkNames:
    own, triggers, owners = set[str](), set[str](), set[str]()
    for tree in iter_trees(forest):
        # An implicit context has no start: only its path names it.
        own.add(tree.path)
        owners.add(tree.owner)
        if tree.start is not None:
            own |= {tree.start.id, f"{tree.path}/{tree.start.id}"}
            triggers |= set(tree.triggers)
        own |= {envelope.id for envelope in own_envelopes(tree) if kinds.kind_of(envelope.kind).link == "call"}
    return _LinkNames(frozenset(own), frozenset(triggers), frozenset(owners))


async def _load_linked(log: VisibleLog, names: _LinkNames, raw: RawContext) -> tuple[list[StoredEnvelope], bool]:
    """Read the envelopes that are linked to a context.

    Returns:
        The envelopes, and whether there may be more.
    """
    inside = {stored.envelope.seq for stored in raw.rows}
    first = min(inside, default=1) - 1
    by_seq: dict[int, StoredEnvelope] = {}
    correlated, has_more = await _load_correlated(log, sorted(names.own | names.triggers), after=first)
    for stored in correlated:
        if stored.envelope.seq not in inside and names.is_link(stored.envelope):
            by_seq[stored.envelope.seq] = stored
    # A request may fulfil a proposal of the context. Its response correlates to that request.
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
        page = await log.find_correlated(ids[start : start + _IDS_PER_QUERY], after=after, limit=MAX_LINKED)
        rows += page.rows
        has_more, held_bytes = has_more or page.has_more, held_bytes + page.total_bytes
        if len(rows) >= MAX_LINKED or held_bytes >= MAX_HELD_BYTES:
            has_more = has_more or start + _IDS_PER_QUERY < len(ids)
            break
    return rows, has_more
