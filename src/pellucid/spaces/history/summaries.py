"""Summaries of the reasoning in a space: its contexts with one line each, and the shapes that they have.

Both go from the newest context to the oldest. One result covers at most `visible_log.MAX_RANGE` sequence numbers, and
at most `MAX_VISIBLE` visible envelopes or `MAX_VISIBLE_BYTES` bytes of them, of one context at most `MAX_PER_CONTEXT`.
`before` in the result is where to go on. It never is the position of a context that the viewer does not see.
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
from .visible_log import MAX_RANGE, VisibleLog

if TYPE_CHECKING:
    from ...storage import StoredEnvelope

MAX_PER_CONTEXT = 500
"""Maximum number of visible envelopes of one context."""

MAX_VISIBLE = 10_000
MAX_VISIBLE_BYTES = 64 << 20

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
    scan = _ContextScan(log, before)
    async for opening, raw, trees in scan:
        # Envelopes below a path, written before the path itself was opened, are a tree of their own. Of each path
        # the newest tree is shown.
        lines += [_context_line(log, tree, opening, raw) for tree in {tree.path: tree for tree in trees}.values()]
        if len(lines) >= limit:
            break
    return Contexts(tuple(lines), scan.has_more, scan.reached)


async def patterns(log: VisibleLog, *, before: int | None = None, limit: int = 200) -> Patterns:
    """Return the shapes of the newest outermost contexts, of at most `limit` of them."""
    by_shape: dict[tuple[str, ...], list[_TreeStatus]] = {}
    by_kind, by_tool = Counter[str](), Counter[str]()
    by_sender: dict[str, Counter[str]] = {}
    context_count, scan = 0, _ContextScan(log, before)
    async for _, _, trees in scan:
        for tree in trees:
            context_count += 1
            by_shape.setdefault(shape(tree), []).append(_TreeStatus(tree.path, tree.owner, tree.status))
            for envelope in all_envelopes(tree):
                by_kind[envelope.kind] += 1
                by_sender.setdefault(envelope.sender, Counter())[envelope.kind] += 1
                if envelope.kind == kinds.REQUEST and (tool := tool_of(envelope)) is not None:
                    by_tool[tool] += 1
        if context_count >= limit:
            break
    return Patterns(
        patterns=tuple(sorted(map(_pattern, by_shape.items()), key=lambda one: (-one.count, one.shape))),
        contexts=context_count,
        kinds=dict(by_kind.most_common()),
        tools=dict(by_tool.most_common()),
        participants={sender: dict(counts.most_common()) for sender, counts in sorted(by_sender.items())},
        has_more=scan.has_more,
        before=scan.reached,
    )


class _ContextScan:
    """Reads the outermost contexts of which the viewer sees something, the newest first."""

    def __init__(self, log: VisibleLog, before: int | None) -> None:
        self._log = log
        self._before = before
        self.has_more = True
        self.reached = 1
        """The older ones are those before this number."""

    async def __aiter__(self) -> AsyncIterator[tuple[StoredEnvelope, RawContext, tuple[Tree, ...]]]:
        """Yield what opened a context, the context and its visible trees, once, at its newest opening."""
        log, visible_count, visible_bytes = self._log, 0, 0
        end = await log.head() + 1
        before = end = end if self._before is None else min(self._before, end)
        low, has_rows = max(0, end - 1 - MAX_RANGE), True
        while has_rows:
            rows = await log.spaces.find_openers(log.owner, log.name, after=low, before=before, limit=OPENERS_PER_QUERY)
            has_rows = rows.has_more
            inner = await nested_paths(log, rows)
            for stored in rows:
                before, path = stored.envelope.seq, stored.place.path
                if path is None or path in inner:
                    continue
                raw = await load_context(log, path, max_envelopes=MAX_PER_CONTEXT)
                if max(raw.opening_seqs(path), default=0) != before or not (trees := build_visible_trees(log, raw)):
                    continue
                self.reached = before
                yield stored, raw, trees
                visible_count, visible_bytes = visible_count + raw.visible_count, visible_bytes + raw.visible_bytes
                if visible_count >= MAX_VISIBLE or visible_bytes >= MAX_VISIBLE_BYTES:
                    return
        self.has_more, self.reached = low > 0, low + 1


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
