"""Build trees of reasoning from a list of envelopes, for the history, for export and for display.

A tree is one context with its envelopes in order, and with the inner contexts at the places where they were opened. A
`Lifecycle` that refuses nothing works out the status of each context. A list that begins in the middle can be read,
too: a context whose start is not in the list is an implicit one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TypeAlias

import msgspec

from . import context, kinds
from .envelope import Envelope
from .lifecycle import Lifecycle, LifecycleSettings
from .mcp import tool_of
from .reasoning import ContextPlace, ContextStatus, ReasoningContext

IsVisible: TypeAlias = Callable[[Envelope, ContextPlace], bool]
"""Whether the viewer may see an envelope at its place (see `visibility.is_shown`)."""

_ALL = LifecycleSettings(mode="off", max_implicit=1 << 62, max_ended=1 << 62, max_ids=1)


class TreeStep(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step of a tree: an envelope, or an inner context."""

    envelope: Envelope | None = None
    tree: Tree | None = None


class Tree(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One context with its envelopes: its start, then everything else in order."""

    path: str
    owner: str
    status: ContextStatus = "open"
    start: Envelope | None = None
    """None: the context is implicit, or its start is not in the list."""
    triggers: tuple[str, ...] = ()
    """Ids of the envelopes for which it was started."""
    conclusion: str | None = None
    """Id of its conclusion."""
    answer: str | None = None
    """Id of its final answer."""
    led_to: tuple[str, ...] = ()
    """Ids of everything that came out of it: answers, proposals, requests."""
    participants: tuple[str, ...] = ()
    """Ids of the participants who wrote in it, in order of appearance."""
    steps: list[TreeStep] = []
    """Everything in it after its start, in order."""


def build_trees(envelopes: Iterable[Envelope], is_visible: IsVisible | None = None) -> tuple[Tree, ...]:
    """Build the outermost contexts, in the order in which they were opened.

    Args:
        envelopes: All envelopes of the log, in order.
        is_visible: Whether the viewer may see an envelope. Invisible envelopes still change the status of a context,
            but do not stand in its tree. A context without any visible envelope is left out. None: all are visible.

    Returns:
        The outermost trees.
    """
    builder = _TreeBuilder(is_visible)
    for envelope in envelopes:
        builder.add(envelope)
    return builder.trees()


def shape(tree: Tree) -> tuple[str, ...]:
    """Summarise a tree by kind and tool: `("start", "question", "call git_diff", "observation", "conclusion")`.

    Equal neighbours are merged. Inner contexts stand between `(` and `)`.
    """
    labels = ["start"] if tree.start is not None else []
    for step in tree.steps:
        if step.tree is not None:
            labels += ("(", *shape(step.tree), ")")
        elif step.envelope is not None:
            labels.append(_step_label(step.envelope))
    return tuple(word for word, _ in groupby(labels))


class _TreeBuilder:
    """Builds trees envelope by envelope."""

    def __init__(self, is_visible: IsVisible | None) -> None:
        self._is_visible = is_visible
        self._lifecycle = Lifecycle(_ALL)
        self._roots: list[Tree] = []
        self._by_path: dict[str, Tree] = {}
        self._records: list[tuple[Tree, ReasoningContext]] = []

    def add(self, envelope: Envelope) -> None:
        """Add the next envelope."""
        effect = self._lifecycle.replay(envelope, envelope.ts)
        visible = self._is_visible is None or self._is_visible(envelope, effect.place)
        for linked in effect.links:
            if visible and (origin := self._by_path.get(linked)) is not None:
                origin.led_to += (envelope.id,)
        path = effect.place.path
        if path is None:
            return
        tree = self._open_tree(path, envelope) if effect.place.role == "opens" else self._nearest(path)
        if tree is None:
            tree = self._attach(Tree(path=path, owner=envelope.sender))
        if not visible:
            return
        if envelope.sender not in tree.participants:
            tree.participants += (envelope.sender,)
        if effect.place.role == "opens" and envelope.kind == kinds.START:
            tree.start = envelope
            return
        tree.steps.append(TreeStep(envelope=envelope))
        if envelope.kind == kinds.CONCLUSION:
            tree.conclusion = envelope.id

    def trees(self) -> tuple[Tree, ...]:
        """Return the outermost trees, with their final status."""
        for tree, record in self._records:
            tree.status, tree.answer = record.status, record.answer
            if self._is_visible is not None and tree.answer not in tree.led_to:
                tree.answer = None
        return tuple(tree for tree in self._roots if self._is_visible is None or _prune(tree))

    def _open_tree(self, path: str, envelope: Envelope) -> Tree:
        record = self._lifecycle.contexts.get(path)
        tree = self._by_path.get(path)
        # A start turns an implicit context into a started one. At the path of an ended context it opens another one.
        if tree is None or tree.start is not None or envelope.kind != kinds.START:
            tree = self._attach(Tree(path=path, owner=envelope.sender))
        if record is not None:
            tree.owner, tree.triggers = record.owner, record.triggers
            self._records.append((tree, record))
        return tree

    def _attach(self, tree: Tree) -> Tree:
        parent = context.parent(tree.path)
        above = None if parent is None else self._nearest(parent)
        if above is None:
            self._roots.append(tree)
        else:
            above.steps.append(TreeStep(tree=tree))
        self._by_path[tree.path] = tree
        return tree

    def _nearest(self, path: str) -> Tree | None:
        trees = self._by_path
        return next((trees[one] for one in (path, *context.ancestors(path)) if one in trees), None)


def _prune(tree: Tree) -> bool:
    """Remove the empty inner trees.

    Returns:
        Whether anything is left of the tree itself.
    """
    tree.steps = [step for step in tree.steps if step.tree is None or _prune(step.tree)]
    return tree.start is not None or bool(tree.steps)


def _step_label(envelope: Envelope) -> str:
    if envelope.kind == kinds.REQUEST:
        tool = tool_of(envelope) or envelope.payload.get("method")
        return f"call {tool}" if isinstance(tool, str) else "call"
    return envelope.kind.removeprefix("reasoning/")
