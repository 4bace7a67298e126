"""A context that is read alone equals the one in the whole history."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given

from pellucid.envelopes import Envelope, context
from pellucid.envelopes.reasoning import ContextStatus
from pellucid.envelopes.tree import Tree, build_trees, shape
from pellucid.envelopes.visibility import SpaceViewer
from pellucid.spaces.history.context_tree import MAX_ENVELOPES, all_envelopes, iter_trees
from pellucid.spaces.history.history import History
from pellucid.spaces.history.summaries import ContextLine, Contexts, Patterns
from tests.envelopes.life_kit import conversations, envelope_of, seed_flow
from tests.examples import costly
from tests.service_postgres import postgres_server
from tests.spaces.history_kit import SpaceStore, space_store

__all__ = ["postgres_server", "space_store"]


def seqs(several: Iterable[Tree]) -> list[int]:
    return sorted(envelope.seq for tree in several for envelope in all_envelopes(tree))


async def all_contexts(history: History, limit: int) -> list[ContextLine]:
    lines: list[ContextLine] = []
    page = Contexts((), True, 0)
    while page.has_more:
        page = await history.contexts(before=page.before or None, limit=limit)
        lines += page.contexts
    return lines


@costly
@given(conversations())
def test_a_tree_read_alone_equals_the_one_in_the_whole_history(
    space_store: SpaceStore, conversation: list[Envelope]
) -> None:
    space = space_store.space(conversation)
    history = space.history(SpaceViewer(participant="watcher", advisory=True))
    seen = {one.envelope.seq for one in space.log if history.log.is_visible(one)}
    whole = build_trees([one.envelope for one in space.log], lambda envelope, _: envelope.seq in seen)
    lines = space.run(all_contexts(history, 2))
    assert len({line.path for line in lines}) == len(lines)
    assert [line.seq for line in lines] == sorted((line.seq for line in lines), reverse=True)
    for tree in iter_trees(whole):
        grown = space.run(history.tree(tree.path))
        grown_seqs = set(seqs(grown.trees)) if grown is not None else set()
        assert grown_seqs >= set(seqs([tree]))
        for one in iter_trees(grown.trees) if grown is not None else ():
            if one.path == tree.path and one.start == tree.start:
                assert (one.status, one.answer, one.conclusion) == (tree.status, tree.answer, tree.conclusion)
                assert set(one.led_to) <= set(tree.led_to)
    # Every envelope of a context is in a listed context.
    listed_paths = [line.path for line in lines]
    inside = [one for one in space.log if one.place.path is not None and one.envelope.seq in seen]
    assert all(any(context.is_within(one.place.path, path) for path in listed_paths) for one in inside)


def test_an_implicit_context_is_answered_by_its_label(space_store: SpaceStore) -> None:
    space = space_store.space(
        [
            envelope_of("chat", "label", by="a"),
            envelope_of("cancel", "label", by="a"),
            envelope_of("chat", by="a", id="answer", about="label"),
        ]
    )
    grown = space.run(space.history("watcher").tree("label"))
    assert grown is not None
    assert [(tree.status, tree.answer, tree.led_to) for tree in grown.trees] == [("cancelled", "answer", ("answer",))]


@costly
@given(conversations())
def test_with_repeated_names_a_tree_holds_the_envelopes_of_its_path(
    space_store: SpaceStore, conversation: list[Envelope]
) -> None:
    space = space_store.space(conversation, mode="off")
    history = space.history(SpaceViewer(participant="watcher", advisory=True))
    for line in space.run(all_contexts(history, 3)):
        grown = space.run(history.tree(line.path))
        assert grown is not None
        seqs_of_path = seqs(grown.trees)
        assert len(seqs_of_path) == len(set(seqs_of_path))
        assert set(seqs_of_path) <= {
            one.envelope.seq for one in space.log if context.is_within(one.place.path, line.path)
        }


@costly
@given(conversations())
def test_patterns_are_the_shapes_of_the_trees(space_store: SpaceStore, conversation: list[Envelope]) -> None:
    public = [one for one in conversation if not one.to]
    space = space_store.space(public)
    answer = space.run(space.history("watcher").patterns(limit=500))
    whole = build_trees([one.envelope for one in space.log])
    counts = {pattern.shape: pattern.count for pattern in answer.patterns}
    assert sum(counts.values()) == answer.contexts == len(whole)
    assert counts == {way: sum(shape(tree) == way for tree in whole) for way in map(shape, whole)}
    assert not answer.has_more


def test_patterns_can_be_paged(space_store: SpaceStore) -> None:
    envelopes: list[Envelope] = []
    for number in range(7):
        envelopes += [
            envelope_of("start", id=f"m{number}", by=f"agent-{number % 2}"),
            envelope_of(
                "request", f"m{number}", by=f"agent-{number % 2}", method="tools/call", params={"name": "scan"}
            ),
            envelope_of("conclusion", f"m{number}", by=f"agent-{number % 2}"),
        ]
    space = space_store.space(envelopes)
    count, before, more = 0, None, True
    while more:
        answer: Patterns = space.run(space.history("watcher").patterns(before=before, limit=3))
        (pattern,) = answer.patterns
        assert pattern.shape == ("start", "call scan", "conclusion")
        assert sum(pattern.participants.values()) == pattern.count == pattern.statuses["concluded"]
        assert len(pattern.examples) <= 3
        count += pattern.count
        assert answer.tools == {"scan": pattern.count}
        before, more = answer.before, answer.has_more and answer.contexts == 3
    assert count == 7


@pytest.mark.parametrize("flow", ["option_5", "option_5_many_agents", "option_4", "nested", "collaborative"])
def test_trees_of_the_seed_have_their_triggers_and_results(space_store: SpaceStore, flow: str) -> None:
    space = space_store.space(seed_flow(flow))
    whole = build_trees([one.envelope for one in space.log])
    for tree in whole:
        grown = space.run(space.history("watcher").tree(tree.path))
        assert grown is not None
        assert grown.trees == (tree,)
        known = {one.envelope.id for one in space.log}
        assert [one.id for one in grown.triggers] == [id for id in tree.triggers if id in known]
        assert set(tree.led_to) <= {one.id for one in grown.linked}
        assert not grown.has_more


def test_a_sub_context_can_be_read_alone(space_store: SpaceStore) -> None:
    space = space_store.space(seed_flow("nested"))
    grown = space.run(space.history("watcher").tree("msg-301/msg-302"))
    assert grown is not None
    (tree,) = grown.trees
    assert (tree.path, tree.status, shape(tree)) == (
        "msg-301/msg-302",
        "concluded",
        ("start", "thought", "conclusion"),
    )
    assert space.run(space.history("watcher").tree("msg-302")) is None


def test_responses_outside_a_context_are_linked(space_store: SpaceStore) -> None:
    space = space_store.space(
        [
            envelope_of("start", id="m1", by="agent"),
            envelope_of("request", "m1", by="agent", id="call", method="tools/call", params={"name": "scan"}),
            envelope_of("response", by="tool", id="done", about="call", result={}),
            envelope_of("proposal", "m1", by="agent", id="idea", method="tools/call", params={"name": "fix"}),
            envelope_of("request", by="human", id="deed", about="idea", method="tools/call", params={"name": "fix"}),
            envelope_of("response", by="tool", id="fixed", about="deed", result={}),
            envelope_of("chat", by="human", text="something else"),
        ]
    )
    grown = space.run(space.history("watcher").tree("m1"))
    assert grown is not None
    assert [one.id for one in grown.linked] == ["done", "deed", "fixed"]


def test_a_repeated_id_refers_to_the_latest_earlier_envelope(space_store: SpaceStore) -> None:
    space = space_store.space(
        [
            envelope_of("chat", by="human", id="human-1", text="first"),
            envelope_of("start", id="m1", by="agent", about="human-1"),
            envelope_of("conclusion", "m1", by="agent"),
            envelope_of("chat", by="human", id="human-1", text="second"),
            envelope_of("start", id="m2", by="agent", about="human-1"),
        ]
    )
    history = space.history("watcher")
    for path, words in (("m1", "first"), ("m2", "second")):
        grown = space.run(history.tree(path))
        assert grown is not None
        assert [one.payload["text"] for one in grown.triggers] == [words]
    answer = space.run(history.references(2))
    assert answer is not None
    assert [one.envelope.payload["text"] for one in answer.references if one.envelope] == ["first"]
    first = space.run(history.references(1))
    assert first is not None
    assert [one.id for one in first.referred_by] == ["m1", "m2"]


def test_a_long_tree_is_truncated_and_the_rest_can_be_paged(space_store: SpaceStore) -> None:
    thoughts = [envelope_of("thought", "m1", by="agent", message=str(number)) for number in range(MAX_ENVELOPES + 50)]
    end = envelope_of("conclusion", "m1", by="agent", message="done")
    space = space_store.space([envelope_of("start", id="m1", by="agent"), *thoughts, end])
    history = space.history("watcher")
    grown = space.run(history.tree("m1"))
    assert grown is not None
    (tree,) = grown.trees
    status: ContextStatus = "concluded"
    assert (grown.has_more, grown.last, tree.status, tree.conclusion) == (True, MAX_ENVELOPES, status, end.id)
    rest = space.run(history.page(after=grown.last, within="m1", limit=500))
    assert [one.seq for one in rest.envelopes] == list(range(MAX_ENVELOPES + 1, MAX_ENVELOPES + 53))
    (line,) = space.run(history.contexts()).contexts
    assert (line.has_more, line.status, line.conclusion) == (True, status, "done")
