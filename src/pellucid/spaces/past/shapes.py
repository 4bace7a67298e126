"""The reasoning of a space at a glance: its contexts, one line each, and the shapes that they have.

Both go from the newest context to the oldest. One answer reads at most `reading.MOST_READ` envelopes, of one context
at most `MOST_EACH`, and `reading.MOST_WEIGHED` bytes; `before` of the answer is where to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...envelopes import Envelope, context, kinds, tool_of
from ...envelopes.reasoning import Names, Status
from ...envelopes.tree import Tree, shape
from .dialogue import brief
from .grown import Bed, dig, every_tree, grow, in_order
from .reading import MOST_READ, MOST_WEIGHED, Log

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MOST_EACH = 500
"""So many envelopes of one context are looked at."""

EXAMPLES = 3
_AT_ONCE = 50


class ContextLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One outermost context. Times are the gateway's, in milliseconds since 1970."""

    path: str
    seq: int
    """Of what opened it: where it stands in the list."""
    owner: str = ""
    """Empty: the reader was shown nothing of its owner's in it."""
    status: Status
    started: int
    ended: int | None = None
    """None: it has not, or its end is not shown."""
    start: str = ""
    conclusion: str = ""
    """The words of both, or the beginnings of them."""
    confidence: float | None = None
    """Of its conclusion."""
    triggers: tuple[str, ...] = ()
    participants: tuple[str, ...] = ()
    kinds: dict[str, int] = {}
    """How much of each kind was said in it, and in the contexts inside."""
    contexts: int = 0
    """How many contexts are inside."""
    has_more: bool = False
    """Whether there is more in it than was counted."""


class _Seen(NamedTuple):
    """What is kept of a tree until all were looked at."""

    path: str
    owner: str
    status: Status


class Contexts(msgspec.Struct, frozen=True):
    contexts: tuple[ContextLine, ...]
    has_more: bool
    before: int
    """Older ones are those before this number."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A way to reason: by kind and tool, as `envelopes.tree.shape` says it."""

    shape: tuple[str, ...]
    count: int
    statuses: dict[str, int]
    participants: dict[str, int]
    """Who reasoned so, and how often."""
    examples: tuple[str, ...]
    """Paths of the newest."""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    patterns: tuple[Pattern, ...]
    """The most frequent first."""
    contexts: int
    """How many were looked at."""
    kinds: dict[str, int]
    tools: dict[str, int]
    participants: dict[str, dict[str, int]]
    """Who said how much of each kind within them."""
    has_more: bool
    before: int


async def contexts(log: Log, *, before: int | None = None, limit: int = 20) -> Contexts:
    """The newest outermost contexts of which the reader is shown something."""
    lines: list[ContextLine] = []
    looked, weighed, last, ended = 0, 0, before or 0, False
    async for opened, bed in _newest(log, before):
        looked += 1
        if bed is not None:
            looked, weighed = looked + bed.size, weighed + bed.weight
            # What was said below a path before anybody stood at it is beside it. Of one path the newest is told.
            lines += [_line(log, tree, opened, bed) for tree in {tree.path: tree for tree in grow(log, bed)}.values()]
        last = opened.envelope.seq
        if len(lines) >= limit or looked >= MOST_READ or weighed >= MOST_WEIGHED:
            break
    else:
        ended = True
    return Contexts(tuple(lines), not ended, last)


async def patterns(log: Log, *, before: int | None = None, limit: int = 200) -> Patterns:
    """The shapes of the newest outermost contexts, of at most `limit` of them."""
    found: dict[tuple[str, ...], list[_Seen]] = {}
    by_kind, by_tool = Counter[str](), Counter[str]()
    by_sender: dict[str, Counter[str]] = {}
    looked, read, weighed, last, ended = 0, 0, 0, before or 0, False
    async for opened, bed in _newest(log, before):
        for tree in grow(log, bed) if bed is not None else ():
            looked += 1
            found.setdefault(shape(tree), []).append(_Seen(tree.path, tree.owner, tree.status))
            for envelope in in_order(tree):
                by_kind[envelope.kind] += 1
                by_sender.setdefault(envelope.sender, Counter())[envelope.kind] += 1
                if envelope.kind == kinds.REQUEST and (tool := tool_of(envelope)) is not None:
                    by_tool[tool] += 1
        read += 1 if bed is None else bed.size
        weighed += 0 if bed is None else bed.weight
        last = opened.envelope.seq
        if looked >= limit or read >= MOST_READ or weighed >= MOST_WEIGHED:
            break
    else:
        ended = True
    return Patterns(
        patterns=tuple(sorted(map(_pattern, found.items()), key=lambda one: (-one.count, one.shape))),
        contexts=looked,
        kinds=dict(by_kind.most_common()),
        tools=dict(by_tool.most_common()),
        participants={sender: dict(said.most_common()) for sender, said in sorted(by_sender.items())},
        has_more=not ended,
        before=last,
    )


async def _newest(log: Log, before: int | None) -> AsyncIterator[tuple[StoredEnvelope, Bed | None]]:
    """What opened contexts, the newest first, with each outermost context once, at its newest opening. None: it is
    inside another, or comes again."""
    more = True
    while more:
        rows = await log.spaces.opened(log.owner, log.name, before=before, limit=_AT_ONCE)
        more = rows.more
        if not rows:
            return
        before = rows[-1].envelope.seq
        inner = await nested(log, rows)
        for stored in rows:
            path = stored.place.path
            bed = None if path is None or path in inner else await dig(log, path, most=MOST_EACH)
            once = bed is not None and path is not None and max(bed.openings(path), default=0) == stored.envelope.seq
            yield stored, bed if once else None


async def nested(log: Log, rows: list[StoredEnvelope]) -> frozenset[str]:
    """Which of the paths that these opened are inside a context that was opened, too."""
    above = {path: context.ancestors(path) for stored in rows if (path := stored.place.path) is not None}
    asked = frozenset(one for several in above.values() for one in several)
    if not asked:
        return frozenset()
    there = (await log.spaces.known(log.owner, log.name, Names(paths=asked))).paths
    return frozenset(path for path, several in above.items() if any(one in there for one in several))


def _line(log: Log, tree: Tree, opened: StoredEnvelope, bed: Bed) -> ContextLine:
    own = {stored.envelope.seq: stored for stored in bed.rows if log.sees(stored)}
    said = list(in_order(tree))
    ends = [
        stored.at
        for envelope in said
        if (stored := own[envelope.seq]).place.role == "ends" and stored.place.path == tree.path
    ]
    conclusion = next((one for one in reversed(said) if one.id == tree.conclusion), None)
    return ContextLine(
        path=tree.path,
        seq=opened.envelope.seq,
        owner=tree.owner,
        status=tree.status,
        started=own[said[0].seq].at,
        ended=ends[-1] if ends else None,
        start=brief(tree.start) if tree.start is not None else "",
        conclusion=brief(conclusion) if conclusion is not None else "",
        confidence=_confidence(conclusion),
        triggers=tree.triggers,
        participants=tuple(dict.fromkeys(envelope.sender for envelope in said)),
        kinds=dict(Counter(envelope.kind for envelope in said).most_common()),
        contexts=sum(1 for _ in every_tree([tree])) - 1,
        has_more=bed.cut,
    )


def _confidence(envelope: Envelope | None) -> float | None:
    said = None if envelope is None else envelope.payload.get("confidence")
    return float(said) if isinstance(said, int | float) and not isinstance(said, bool) else None


def _pattern(found: tuple[tuple[str, ...], list[_Seen]]) -> Pattern:
    way, several = found
    return Pattern(
        shape=way,
        count=len(several),
        statuses=dict(Counter[str](tree.status for tree in several).most_common()),
        participants=dict(Counter(tree.owner for tree in several if tree.owner).most_common()),
        examples=tuple(dict.fromkeys(tree.path for tree in several))[:EXAMPLES],
    )
