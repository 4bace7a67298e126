"""Summaries of the reasoning in a space: its contexts with one line each, and the shapes that they have.

Both go from the newest context to the oldest. One result scans at most `visible_log.MAX_SCANNED` envelopes, of one
context at most `MAX_PER_CONTEXT`, and `visible_log.MAX_SCANNED_BYTES` bytes. `before` in the result is where to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...envelopes import Envelope, context, kinds, tool_of
from ...envelopes.reasoning import ContextStatus, NameSet
from ...envelopes.tree import Tree, shape
from .context_tree import RawContext, all_envelopes, build_visible_trees, iter_trees, load_context
from .dialogue import excerpt
from .visible_log import ScanBudget, VisibleLog

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MAX_PER_CONTEXT = 500
"""Maximum number of envelopes of one context that are scanned."""

MAX_EXAMPLES = 3
OPENERS_PER_QUERY = 50
"""Number of envelopes that open contexts in one query."""


class ContextLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of one outermost context. Times are the gateway's, in milliseconds since 1970."""

    path: str
    seq: int
    """Number of the envelope that opened it, which is its position in the list."""
    owner: str = ""
    """Empty: the viewer sees nothing by its owner in it."""
    status: ContextStatus
    started: int
    ended: int | None = None
    """None: it has not ended, or its end is not visible."""
    start: str = ""
    conclusion: str = ""
    """Excerpts of the start and of the conclusion."""
    confidence: float | None = None
    """Confidence of its conclusion."""
    triggers: tuple[str, ...] = ()
    participants: tuple[str, ...] = ()
    kinds: dict[str, int] = {}
    """Number of envelopes of each kind, with those of inner contexts."""
    contexts: int = 0
    """Number of inner contexts."""
    has_more: bool = False
    """Whether it has more envelopes than were counted."""


class _TreeStatus(NamedTuple):
    """What is remembered of a tree until all are scanned."""

    path: str
    owner: str
    status: ContextStatus


class Contexts(msgspec.Struct, frozen=True):
    """A page of summaries."""

    contexts: tuple[ContextLine, ...]
    has_more: bool
    before: int
    """The older ones are those before this number."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A way of reasoning, by kind and tool (see `envelopes.tree.shape`)."""

    shape: tuple[str, ...]
    count: int
    statuses: dict[str, int]
    participants: dict[str, int]
    """Who reasoned in this way, and how often."""
    examples: tuple[str, ...]
    """Paths of the newest examples."""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes of the scanned contexts, with counts."""

    patterns: tuple[Pattern, ...]
    """The most frequent first."""
    contexts: int
    """Number of scanned contexts."""
    kinds: dict[str, int]
    tools: dict[str, int]
    participants: dict[str, dict[str, int]]
    """Number of envelopes of each kind, by participant."""
    has_more: bool
    before: int


async def contexts(log: VisibleLog, *, before: int | None = None, limit: int = 20) -> Contexts:
    """Return the newest outermost contexts of which the viewer sees something."""
    lines: list[ContextLine] = []
    budget, last, is_exhausted = ScanBudget(), before or 0, False
    async for opening, raw in _newest_contexts(log, before):
        budget.add(1, 0)
        if raw is not None:
            budget.add(raw.count, raw.size_bytes)
            # Envelopes below a path, written before the path itself was opened, are a tree of their own. Of each path
            # the newest tree is shown.
            lines += [
                _context_line(log, tree, opening, raw)
                for tree in {tree.path: tree for tree in build_visible_trees(log, raw)}.values()
            ]
        last = opening.envelope.seq
        if len(lines) >= limit or budget.is_spent:
            break
    else:
        is_exhausted = True
    return Contexts(tuple(lines), not is_exhausted, last)


async def patterns(log: VisibleLog, *, before: int | None = None, limit: int = 200) -> Patterns:
    """Return the shapes of the newest outermost contexts, of at most `limit` of them."""
    by_shape: dict[tuple[str, ...], list[_TreeStatus]] = {}
    by_kind, by_tool = Counter[str](), Counter[str]()
    by_sender: dict[str, Counter[str]] = {}
    context_count, budget, last, is_exhausted = 0, ScanBudget(), before or 0, False
    async for opening, raw in _newest_contexts(log, before):
        for tree in build_visible_trees(log, raw) if raw is not None else ():
            context_count += 1
            by_shape.setdefault(shape(tree), []).append(_TreeStatus(tree.path, tree.owner, tree.status))
            for envelope in all_envelopes(tree):
                by_kind[envelope.kind] += 1
                by_sender.setdefault(envelope.sender, Counter())[envelope.kind] += 1
                if envelope.kind == kinds.REQUEST and (tool := tool_of(envelope)) is not None:
                    by_tool[tool] += 1
        budget.add(*((1, 0) if raw is None else (raw.count, raw.size_bytes)))
        last = opening.envelope.seq
        if context_count >= limit or budget.is_spent:
            break
    else:
        is_exhausted = True
    return Patterns(
        patterns=tuple(sorted(map(_pattern, by_shape.items()), key=lambda one: (-one.count, one.shape))),
        contexts=context_count,
        kinds=dict(by_kind.most_common()),
        tools=dict(by_tool.most_common()),
        participants={sender: dict(counts.most_common()) for sender, counts in sorted(by_sender.items())},
        has_more=not is_exhausted,
        before=last,
    )


async def _newest_contexts(
    log: VisibleLog, before: int | None
) -> AsyncIterator[tuple[StoredEnvelope, RawContext | None]]:
    """Yield the envelopes that opened contexts, the newest first.

    With each comes its outermost context, once, at its newest opening. It is None if the context is an inner one, or
    was opened again later.
    """
    has_more = True
    while has_more:
        rows = await log.spaces.find_openers(log.owner, log.name, before=before, limit=OPENERS_PER_QUERY)
        has_more = rows.has_more
        if not rows:
            return
        before = rows[-1].envelope.seq
        inner = await nested_paths(log, rows)
        for stored in rows:
            path = stored.place.path
            raw = (
                None if path is None or path in inner else await load_context(log, path, max_envelopes=MAX_PER_CONTEXT)
            )
            is_newest_opening = (
                raw is not None and path is not None and max(raw.opening_seqs(path), default=0) == stored.envelope.seq
            )
            yield stored, raw if is_newest_opening else None


async def nested_paths(log: VisibleLog, rows: list[StoredEnvelope]) -> frozenset[str]:
    """Return those of the opened paths whose enclosing context was opened, too."""
    above = {path: context.ancestors(path) for stored in rows if (path := stored.place.path) is not None}
    ancestors = frozenset(one for several in above.values() for one in several)
    if not ancestors:
        return frozenset()
    known_paths = (await log.spaces.existing_names(log.owner, log.name, NameSet(paths=ancestors))).paths
    return frozenset(path for path, several in above.items() if any(one in known_paths for one in several))


def _context_line(log: VisibleLog, tree: Tree, opening: StoredEnvelope, raw: RawContext) -> ContextLine:
    visible_by_seq = {stored.envelope.seq: stored for stored in raw.rows if log.is_visible(stored)}
    envelopes = list(all_envelopes(tree))
    ends = [
        stored.at
        for envelope in envelopes
        if (stored := visible_by_seq[envelope.seq]).place.role == "ends" and stored.place.path == tree.path
    ]
    conclusion = next((one for one in reversed(envelopes) if one.id == tree.conclusion), None)
    return ContextLine(
        path=tree.path,
        seq=opening.envelope.seq,
        owner=tree.owner,
        status=tree.status,
        started=visible_by_seq[envelopes[0].seq].at,
        ended=ends[-1] if ends else None,
        start=excerpt(tree.start) if tree.start is not None else "",
        conclusion=excerpt(conclusion) if conclusion is not None else "",
        confidence=_confidence(conclusion),
        triggers=tree.triggers,
        participants=tuple(dict.fromkeys(envelope.sender for envelope in envelopes)),
        kinds=dict(Counter(envelope.kind for envelope in envelopes).most_common()),
        contexts=sum(1 for _ in iter_trees([tree])) - 1,
        has_more=raw.is_truncated,
    )


def _confidence(envelope: Envelope | None) -> float | None:
    value = None if envelope is None else envelope.payload.get("confidence")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _pattern(shape_and_trees: tuple[tuple[str, ...], list[_TreeStatus]]) -> Pattern:
    tree_shape, trees = shape_and_trees
    return Pattern(
        shape=tree_shape,
        count=len(trees),
        statuses=dict(Counter[str](tree.status for tree in trees).most_common()),
        participants=dict(Counter(tree.owner for tree in trees if tree.owner).most_common()),
        examples=tuple(dict.fromkeys(tree.path for tree in trees))[:MAX_EXAMPLES],
    )
