"""Trees of reasoning."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from hypothesis import given

from pellucid.envelopes import Envelope, context
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.envelopes.tree import Tree, build_trees, shape
from pellucid.envelopes.visibility import SpaceViewer, is_shown
from tests.envelopes.life_kit import conversations, envelope_of, life, seed_flow


def in_order(tree: Tree) -> Iterator[Envelope]:
    if tree.start is not None:
        yield tree.start
    for step in tree.steps:
        if step.tree is not None:
            yield from in_order(step.tree)
        elif step.envelope is not None:
            yield step.envelope


def all_of(several: tuple[Tree, ...]) -> Iterator[Tree]:
    for tree in several:
        yield tree
        yield from all_of(tuple(one.tree for one in tree.steps if one.tree is not None))


@given(conversations())
def test_every_envelope_of_a_context_is_in_one_tree_once(conversation: list[Envelope]) -> None:
    space = life()
    accepted = [(envelope, verdict) for envelope in conversation if (verdict := space.feed(envelope)).accepted]
    trees = build_trees([envelope for envelope, _ in accepted])

    seqs = [envelope.seq for tree in trees for envelope in in_order(tree)]
    assert sorted(seqs) == [envelope.seq for envelope, verdict in accepted if verdict.place.path is not None]
    for tree in all_of(trees):
        own = [one.envelope.seq for one in tree.steps if one.envelope is not None]
        assert own == sorted(own)
        assert all(context.is_within(one.tree.path, tree.path) for one in tree.steps if one.tree is not None)
        record = space.contexts.get(tree.path)
        if record is not None and record.start is not None:
            assert (tree.owner, tree.status, tree.answer) == (record.owner, record.status, record.answer)


@given(conversations())
def test_trees_of_any_list_can_be_serialized(conversation: list[Envelope]) -> None:
    for start in (0, len(conversation) // 2):
        trees = build_trees(conversation[start:])
        assert msgspec.json.decode(msgspec.json.encode(trees), type=tuple[Tree, ...]) == trees
        for tree in trees:
            shape(tree)


@given(conversations())
def test_the_trees_of_a_viewer_hold_what_it_may_see(conversation: list[Envelope]) -> None:
    viewer = SpaceViewer(participant="watcher", reasoning=False)

    def sees(envelope: Envelope, place: ContextPlace) -> bool:
        return is_shown(envelope, place, viewer)

    for tree in all_of(build_trees(conversation, sees)):
        assert list(in_order(tree))
        assert all(envelope.family == "mcp" for envelope in in_order(tree) if not envelope.to)
    full = build_trees(conversation)
    assert build_trees(conversation, lambda *_: True) == full
    assert build_trees(conversation, lambda *_: False) == ()


def test_the_seeds_nested_reasoning() -> None:
    (tree,) = build_trees(seed_flow("nested"))
    assert shape(tree) == ("start", "(", "start", "thought", "conclusion", ")", "thought")
    assert (tree.path, tree.triggers, tree.status) == ("msg-301", ("msg-300",), "open")
    inner = tree.steps[0].tree
    assert inner is not None
    assert (inner.path, inner.status) == ("msg-301/msg-302", "concluded")


def test_the_whole_chain_of_the_seeds_option_5() -> None:
    (tree,) = build_trees(seed_flow("option_5"))
    assert (tree.triggers, tree.start and tree.start.id, tree.answer) == (("msg-100",), "msg-101", "msg-108")
    assert tree.conclusion in [envelope.id for envelope in in_order(tree)]
    calls = ("call get_test_results", "thought", "call check_rollback_plan")
    assert shape(tree) == ("start", "thought", *calls, "thought", "conclusion")


def test_the_shape_of_the_seeds_option_4_and_what_it_led_to() -> None:
    (tree,) = build_trees(seed_flow("option_4"))
    assert shape(tree)[:5] == ("start", "question", "thought", "call git_diff", "observation")
    assert len(tree.led_to) == 2
    assert tree.answer == tree.led_to[0]


def test_hierarchical_paths_without_starts_nest_too() -> None:
    (tree,) = build_trees(seed_flow("file_write_hierarchical"))
    assert [inner.path.removeprefix("reason-789/") for inner in all_of((tree,))][1:] == [
        "permissions",
        "permissions/result",
        "risk-assessment",
    ]


def test_agents_who_share_a_context_are_all_named() -> None:
    (tree,) = build_trees(seed_flow("collaborative"))
    assert tree.participants == ("agent-a", "agent-b")


def test_a_late_start_heads_the_tree_of_earlier_envelopes() -> None:
    (tree,) = build_trees(
        [envelope_of("chat", "talk"), envelope_of("start", "talk", id="m1"), envelope_of("conclusion", "talk")]
    )
    assert shape(tree) == ("start", "chat", "conclusion")
    assert tree.status == "concluded"


def test_a_name_that_was_used_twice_has_two_trees() -> None:
    first, second = build_trees(
        [
            envelope_of("start", id="m1"),
            envelope_of("conclusion", "m1"),
            envelope_of("start", id="m1"),
            envelope_of("chat", "m1"),
        ]
    )
    assert (shape(first), first.status) == (("start", "conclusion"), "concluded")
    assert (shape(second), second.status) == (("start", "chat"), "open")
