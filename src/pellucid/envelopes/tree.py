"""Reasoning as trees, out of a list of envelopes: for the history, for export, and to see how somebody thinks.

A tree is one context with all that was said in it, in order, and the contexts inside it where they were opened. What
becomes of each is worked out by a `Lifecycle` that refuses nothing, so a list that begins in the middle is read too: a
context whose start is not in it is an implicit one.
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
from .reasoning import ContextPlace, ReasoningContext, Status

IsVisible: TypeAlias = Callable[[Envelope, ContextPlace], bool]
"""Whether whoever asks may see it (`shown.is_shown`)."""

_ALL = LifecycleSettings(mode="off", max_implicit=1 << 62, max_ended=1 << 62, max_ids=1)


class TreeStep(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step of a tree: an envelope, or a context inside it."""

    envelope: Envelope | None = None
    tree: Tree | None = None


class Tree(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One context of reasoning."""

    path: str
    owner: str
    status: Status = "open"
    start: Envelope | None = None
    """None: it is implicit, or its start is not in the list."""
    triggers: tuple[str, ...] = ()
    """The ids of what it was started for."""
    conclusion: str | None = None
    """The id of its conclusion."""
    answer: str | None = None
    """The id of the final answer that came out of it."""
    led_to: tuple[str, ...] = ()
    """The ids of all that came out of it: answers, proposals, requests."""
    participants: tuple[str, ...] = ()
    """Who spoke in it, in order of appearance."""
    steps: list[TreeStep] = []
    """All that was said in it after its start, in order."""


def build_trees(envelopes: Iterable[Envelope], is_visible: IsVisible | None = None) -> tuple[Tree, ...]:
    """The outermost contexts, in the order in which they were opened.

    `envelopes`: in order, all of them. With `sees`, what somebody may not see still decides what became of a context,
    and does not stand in its tree; nor does a context of which nothing is left.
    """
    builder = _TreeBuilder(is_visible)
    for envelope in envelopes:
        builder.add(envelope)
    return builder.trees()


def shape(tree: Tree) -> tuple[str, ...]:
    """How it went, by kind and tool: `("start", "question", "call git_diff", "observation", "conclusion")`.

    What is the same several times over is said once; contexts inside stand between `(` and `)`.
    """
    labels = ["start"] if tree.start is not None else []
    for step in tree.steps:
        if step.tree is not None:
            labels += ("(", *shape(step.tree), ")")
        elif step.envelope is not None:
            labels.append(_step_label(step.envelope))
    return tuple(word for word, _ in groupby(labels))


class _TreeBuilder:
    """Trees that grow."""

    def __init__(self, is_visible: IsVisible | None) -> None:
        self._is_visible = is_visible
        self._lifecycle = Lifecycle(_ALL)
        self._roots: list[Tree] = []
        self._by_path: dict[str, Tree] = {}
        self._records: list[tuple[Tree, ReasoningContext]] = []

    def add(self, envelope: Envelope) -> None:
        verdict = self._lifecycle.replay(envelope)
        visible = self._is_visible is None or self._is_visible(envelope, verdict.place)
        for linked in verdict.links:
            if visible and (origin := self._by_path.get(linked)) is not None:
                origin.led_to += (envelope.id,)
        path = verdict.place.path
        if path is None:
            return
        tree = self._open_tree(path, envelope) if verdict.place.role == "opens" else self._nearest(path)
        if tree is None:
            tree = self._attach(Tree(path=path, owner=envelope.sender))
        if not visible:
            return
        if envelope.sender not in tree.participants:
            tree.participants += (envelope.sender,)
        if verdict.place.role == "opens" and envelope.kind == kinds.START:
            tree.start = envelope
            return
        tree.steps.append(TreeStep(envelope=envelope))
        if envelope.kind == kinds.CONCLUSION:
            tree.conclusion = envelope.id

    def trees(self) -> tuple[Tree, ...]:
        for tree, record in self._records:
            tree.status, tree.answer = record.status, record.answer
            if self._is_visible is not None and tree.answer not in tree.led_to:
                tree.answer = None
        return tuple(tree for tree in self._roots if self._is_visible is None or _prune(tree))

    def _open_tree(self, path: str, envelope: Envelope) -> Tree:
        record = self._lifecycle.contexts.get(path)
        tree = self._by_path.get(path)
        # A start makes an implicit context a started one; of one that ended, it opens another.
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
        at = self._by_path
        return next((at[above] for above in (path, *context.ancestors(path)) if above in at), None)


def _prune(tree: Tree) -> bool:
    """Whether anything is left of it, when what is empty in it is gone."""
    tree.steps = [step for step in tree.steps if step.tree is None or _prune(step.tree)]
    return tree.start is not None or bool(tree.steps)


def _step_label(envelope: Envelope) -> str:
    if envelope.kind == kinds.REQUEST:
        tool = tool_of(envelope) or envelope.payload.get("method")
        return f"call {tool}" if isinstance(tool, str) else "call"
    return envelope.kind.removeprefix("reasoning/")
