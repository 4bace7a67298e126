"""One context of reasoning out of the log, with what it came from and what came of it.

Nothing but the context itself is read: what stands within its outermost context, the envelopes that triggered it, and
those that correlate to its starts and requests (answers, responses, what it led to). At most `most` envelopes stand
in a tree, and `MOST_LINKED` beside it, or as many as are about `reading.MOST_HELD` bytes; if there are more, how the
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
from ...envelopes.tree import Tree, trees
from .reading import MOST_HELD, STEP, Log

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MOST = 2_000
MOST_LINKED = 500
MOST_TRIGGERS = 16
_AT_ONCE = 100
"""So many ids are asked about at once."""

_TURNS = tuple(row.name for row in kinds.KINDS.values() if row.act not in ("step", "word"))
"""How contexts begin and end."""


class Grown(msgspec.Struct, frozen=True, kw_only=True):
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


class Bed(msgspec.Struct):
    """What was read of one outermost context."""

    root: str
    rows: list[StoredEnvelope]
    cut: bool
    """Whether there was more; then steps after `last` are missing."""
    last: int
    weight: int = 0
    """How many bytes were read for it."""

    @property
    def size(self) -> int:
        return len(self.rows)

    def openings(self, path: str) -> list[int]:
        """The numbers of what opened it: a start, or what made it an implicit context."""
        return [one.envelope.seq for one in self.rows if one.place.role == "opens" and one.place.path == path]


async def dig(log: Log, root: str, *, most: int = MOST) -> Bed:
    """What stands in the outermost context `root`, all of it or the first `most`."""
    rows: list[StoredEnvelope] = []
    after, more, weight = 0, True, 0
    while more and len(rows) <= most and weight < MOST_HELD:
        step = min(STEP, most - len(rows) + 1)
        some = await log.spaces.page(log.owner, log.name, after=after, limit=step, within=root)
        rows += map(log.marked, some)
        more, weight = some.more, weight + some.size
        after = some[-1].envelope.seq if some else after
    cut = len(rows) > most or more
    rows = rows[:most]
    last = rows[-1].envelope.seq if rows else 0
    if cut:
        turns = await log.spaces.page(log.owner, log.name, after=last, limit=STEP, kinds=_TURNS, within=root)
        rows += map(log.marked, turns)
        weight += turns.size
    return Bed(root, rows, cut, last, weight)


def grow(log: Log, bed: Bed, beside: Iterable[StoredEnvelope] = ()) -> tuple[Tree, ...]:
    """The trees in it, as the reader sees them. `beside`: what may be linked to them."""
    every = {stored.envelope.seq: stored for stored in (*bed.rows, *beside)}
    rows = [every[seq] for seq in sorted(every)]
    shown = {stored.envelope.seq for stored in rows if log.sees(stored)}
    found = trees((stored.envelope for stored in rows), lambda envelope, _: envelope.seq in shown)
    found = tuple(tree for tree in found if context.is_within(tree.path, bed.root))
    for tree in every_tree(found):
        if tree.start is None:
            tree.triggers = ()
        if tree.owner not in tree.participants:
            tree.owner = ""
    return found


async def read_tree(log: Log, path: str, *, most: int = MOST) -> Grown:
    """The context of this path, with all that belongs to it."""
    bed = await dig(log, context.root(path), most=most)
    found = _at(grow(log, bed), path)
    if not found:
        return Grown(path=path, trees=())
    triggers = await _triggers(log, found)
    beside, left = await _linked(log, _names(found), bed)
    found = _at(grow(log, bed, [*triggers, *beside]), path)
    told = {envelope.seq for tree in every_tree(found) for envelope in said_in(tree)}
    told |= {stored.envelope.seq for stored in triggers}
    return Grown(
        path=path,
        trees=found,
        triggers=tuple(stored.envelope for stored in triggers),
        linked=tuple(stored.envelope for stored in beside if stored.envelope.seq not in told),
        has_more=bed.cut or left,
        last=bed.last,
        first=min(bed.openings(path), default=0),
    )


def every_tree(several: Iterable[Tree]) -> Iterator[Tree]:
    """With those inside, each before what is in it."""
    for tree in several:
        yield tree
        yield from every_tree(said.tree for said in tree.steps if said.tree is not None)


def said_in(tree: Tree) -> Iterator[Envelope]:
    """What stands in it itself, in order."""
    if tree.start is not None:
        yield tree.start
    for said in tree.steps:
        if said.envelope is not None:
            yield said.envelope


def in_order(tree: Tree) -> Iterator[Envelope]:
    """What stands in it and in those inside."""
    if tree.start is not None:
        yield tree.start
    for said in tree.steps:
        if said.tree is not None:
            yield from in_order(said.tree)
        elif said.envelope is not None:
            yield said.envelope


def _at(found: Sequence[Tree], path: str) -> tuple[Tree, ...]:
    """The outermost of them at or under the path."""
    chosen: list[Tree] = []
    for tree in found:
        if context.is_within(tree.path, path):
            chosen.append(tree)
        else:
            chosen += _at([said.tree for said in tree.steps if said.tree is not None], path)
    return tuple(chosen)


async def _triggers(log: Log, found: Sequence[Tree]) -> list[StoredEnvelope]:
    """An id may come twice in a space: it means what was said last, before the start."""
    there: dict[int, StoredEnvelope] = {}
    for tree in found:
        if tree.start is None:
            continue
        for id in tree.triggers[:MOST_TRIGGERS]:
            stored = await log.by_id(id, before=tree.start.seq) if is_id(id) else None
            if stored is not None:
                there[stored.envelope.seq] = stored
    return [there[seq] for seq in sorted(there)]


class _Names(msgspec.Struct, frozen=True):
    """By what others are linked to some trees."""

    own: frozenset[str]
    """Of their starts, labels and requests."""
    triggers: frozenset[str]
    """Of what they were started for: by these, what their owners say is linked."""
    owners: frozenset[str]

    def link(self, envelope: Envelope) -> bool:
        mine = envelope.sender in self.owners and kinds.kind_of(envelope.kind).link is not None
        return self.call(envelope) or (mine and not self.triggers.isdisjoint(envelope.correlation_id))

    def call(self, envelope: Envelope) -> bool:
        return not self.own.isdisjoint(envelope.correlation_id)


def _names(found: Sequence[Tree]) -> _Names:
    own, triggers, owners = set[str](), set[str](), set[str]()
    for tree in every_tree(found):
        # Nobody need have started it: then its path alone means it.
        own.add(tree.path)
        owners.add(tree.owner)
        if tree.start is not None:
            own |= {tree.start.id, f"{tree.path}/{tree.start.id}"}
            triggers |= set(tree.triggers)
        own |= {envelope.id for envelope in said_in(tree) if kinds.kind_of(envelope.kind).link == "call"}
    return _Names(frozenset(own), frozenset(triggers), frozenset(owners))


async def _linked(log: Log, names: _Names, bed: Bed) -> tuple[list[StoredEnvelope], bool]:
    """Whether there may be more comes with them."""
    inside = {stored.envelope.seq for stored in bed.rows}
    first = min(inside, default=1) - 1
    there: dict[int, StoredEnvelope] = {}
    about, left = await _about(log, sorted(names.own | names.triggers), after=first)
    for stored in about:
        if stored.envelope.seq not in inside and names.link(stored.envelope):
            there[stored.envelope.seq] = stored
    # Who fulfils a proposal asks in its place: the response is to them.
    fulfil = [one.envelope.id for one in there.values() if one.envelope.kind == kinds.REQUEST]
    responses, more = await _about(log, fulfil, after=first)
    for stored in responses:
        if stored.envelope.kind == kinds.RESPONSE and stored.envelope.seq not in inside:
            there[stored.envelope.seq] = stored
    return [there[seq] for seq in sorted(there)][:MOST_LINKED], left or more or len(there) >= MOST_LINKED


async def _about(log: Log, ids: Sequence[str], *, after: int) -> tuple[list[StoredEnvelope], bool]:
    found: list[StoredEnvelope] = []
    left, held = False, 0
    for start in range(0, len(ids), _AT_ONCE):
        some = await log.about(ids[start : start + _AT_ONCE], after=after, limit=MOST_LINKED)
        found += some
        left, held = left or some.more, held + some.size
        if len(found) >= MOST_LINKED or held >= MOST_HELD:
            left = left or start + _AT_ONCE < len(ids)
            break
    return found, left
