"""The audience of a context: who receives what is in it, who contributes, and how it is widened."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from pellucid.envelopes import GATEWAY, Envelope, context
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.envelopes.visibility import SpaceViewer, is_shown
from pellucid.errors import ErrorInfo
from tests.envelopes.life_kit import SENDERS, CheckedLifecycle, code, conversations, envelope_of, feed_all, flags, life


def deliver(space: CheckedLifecycle, envelope: Envelope) -> tuple[Envelope, ContextPlace] | None:
    """Feed an envelope; return it as the gateway stores it, or None if it is refused."""
    verdict = space.feed(envelope)
    audience = () if envelope.to else verdict.audience
    return (replace(envelope, audience=audience), verdict.place) if verdict.accepted else None


def readers(stored: tuple[Envelope, ContextPlace] | None, *, advisory: bool = False) -> str:
    """Who of the senders and `w` sees it, in one word."""
    assert stored is not None
    viewers = (SpaceViewer(participant=one, advisory=advisory) for one in (*SENDERS, "w"))
    return "".join(one.participant for one in viewers if is_shown(*stored, one))


def private_context() -> CheckedLifecycle:
    """A space with the context `m1`, of a, for a and b."""
    space = life()
    assert readers(deliver(space, envelope_of("start", id="m1", by="a", to=["b"]))) == "ab"
    return space


def test_everything_in_a_context_is_for_its_audience() -> None:
    space = private_context()
    assert readers(deliver(space, envelope_of("thought", "m1", by="a"))) == "ab"
    assert readers(deliver(space, envelope_of("chat", "m1", by="b"))) == "ab"
    assert readers(deliver(space, envelope_of("request", "m1", by="a", to=["b"]))) == "ab"
    assert readers(deliver(space, envelope_of("start", "m1", id="m2", by="b"))) == "ab"
    assert readers(deliver(space, envelope_of("thought", "m1/m2", by="b"))) == "ab"
    assert readers(deliver(space, envelope_of("thought", "m2", by="a", to=["b"]))) == "ab"
    assert readers(deliver(space, envelope_of("cancel", "m1", by="b", reason="no"))) == "ab"
    assert readers(deliver(space, envelope_of("conclusion", "m1", by="a"))) == "ab"
    assert readers(deliver(space, envelope_of("chat", "m1", by="a"))) == "ab", "also after its end"
    assert readers(deliver(space, envelope_of("thought", by=GATEWAY, context="m1"))) == "ab"
    assert readers(deliver(space, envelope_of("chat", by="a", about="m1"))) == "abcw", "outside of it"


def test_the_gateway_abandons_it_before_its_audience_alone() -> None:
    assert readers(deliver(private_context(), envelope_of("cancel", "m1", by=GATEWAY))) == "ab"


def test_a_context_without_recipients_is_for_everyone() -> None:
    space = life()
    assert readers(deliver(space, envelope_of("start", id="m1", by="a"))) == "abcw"
    assert readers(deliver(space, envelope_of("thought", "m1", by="b", to=["c"]))) == "bc"
    assert code(space.feed(envelope_of("share", "m1", by="a", participants=["c"]))) == "no_audience"


@pytest.mark.parametrize("kind", ["thought", "conclusion", "cancel", "chat", "request", "start", "share"])
def test_only_the_audience_contributes(kind: str) -> None:
    """For all others it does not exist, unless they may read it by a right of theirs."""
    space, envelope = private_context(), envelope_of(kind, "m1", by="c", participants=["c"])
    refused = space.feed(envelope).error
    assert refused is not None
    assert (refused.code, refused.kind) == ("context_unknown", "not_found")
    unknown = life().feed(envelope_of("cancel", "m1", by="c")).error
    assert unknown is not None
    assert refused.message == unknown.message.replace("reasoning/cancel", envelope.kind)
    seen = space.check(envelope, sees=lambda readers: True)
    assert isinstance(seen, ErrorInfo)
    assert seen.code == "not_in_audience"


@pytest.mark.parametrize("kind", ["thought", "chat", "request", "start"])
def test_no_other_recipient_can_be_named(kind: str) -> None:
    verdict = private_context().feed(envelope_of(kind, "m1", by="a", to=["b", "c"]))
    assert code(verdict) == "not_in_audience"
    assert verdict.error is not None
    assert "'c' is not in the audience" in verdict.error.message


def test_a_nested_context_may_be_for_fewer() -> None:
    space = life()
    feed_all(
        space,
        envelope_of("start", id="m1", by="a", to=["b", "c"]),
        envelope_of("start", "m1", id="m2", by="b", to=["c"]),
    )
    assert readers(deliver(space, envelope_of("thought", "m2", by="c"))) == "bc"
    assert code(space.feed(envelope_of("thought", "m2", by="a"))) == "context_unknown"
    assert readers(deliver(space, envelope_of("thought", "m1", by="b"))) == "abc"
    assert code(space.feed(envelope_of("share", "m2", by="b", participants=["w"]))) == "not_in_audience"
    assert readers(deliver(space, envelope_of("share", "m2", by="b", participants=["a"]))) == "abc"
    assert readers(deliver(space, envelope_of("thought", "m2", by="c"))) == "abc"


def test_its_starter_widens_the_audience_before_all_concerned() -> None:
    space = private_context()
    early = deliver(space, envelope_of("thought", "m1", by="b"))
    assert code(space.feed(envelope_of("share", "m1", by="b", participants=["c"]))) == "not_owner"
    assert code(space.feed(envelope_of("share", "m1", by="a", to=["c"], participants=["c"]))) == "invalid_value"
    assert readers(deliver(space, envelope_of("share", "m1", by="a", participants=["c"]))) == "abc"
    assert readers(deliver(space, envelope_of("thought", "m1", by="c"))) == "abc"
    assert readers(early) == "ab", "what came before was for those who were there"
    space.feed(envelope_of("conclusion", "m1", by="a"))
    assert code(space.feed(envelope_of("share", "m1", by="a", participants=["w"]))) == "context_ended"


def test_an_audience_has_a_maximum_size() -> None:
    many = [f"p{number}" for number in range(999)]
    assert code(private_context().feed(envelope_of("share", "m1", by="a", participants=many))) == (
        "too_many_participants"
    )


def test_addresses_that_are_advisory_make_no_audience() -> None:
    space = life(has_audiences=False)
    space.feed(envelope_of("start", id="m1", by="a", to=["b"]))
    assert readers(deliver(space, envelope_of("thought", "m1", by="c", to=["w"])), advisory=True) == "abcw"


def test_ended_contexts_with_an_audience_are_remembered_longest() -> None:
    space = life(max_ended=3)
    feed_all(space, envelope_of("start", id="m1", by="a", to=["b"]), envelope_of("cancel", "m1", by="a"))
    for number in range(9):
        feed_all(space, envelope_of("start", id=f"x{number}"), envelope_of("cancel", f"x{number}"))
    assert len(space.state.ended) == 3
    assert readers(deliver(space, envelope_of("chat", "m1", by="b"))) == "ab"


def test_who_may_not_read_a_context_does_not_learn_whose_it_is() -> None:
    space = life(owner_only=True)
    space.feed(envelope_of("start", id="m1", by="a", to=["b"]))
    assert code(space.feed(envelope_of("thought", "m1", by="b"))) == "owner_only"
    refused = space.feed(envelope_of("thought", "m1", by="c")).error
    assert refused is not None
    assert refused.code == "context_unknown"
    assert "'a'" not in refused.message


@pytest.mark.parametrize(("to", "expected"), [((), {"left_open"}), (("b",), set())])
def test_flags_of_a_conclusion_count_no_contexts_for_fewer(to: tuple[str, ...], expected: set[str]) -> None:
    space = life()
    feed_all(space, envelope_of("start", id="m1", by="a"), envelope_of("start", "m1", id="m2", by="a", to=to))
    assert flags(space.feed(envelope_of("conclusion", "m1", by="a"))) == expected


@given(conversations())
def test_only_the_audience_receives_anything(conversation: list[Envelope]) -> None:
    space, starts = life(), dict[str, set[str]]()
    for envelope in conversation:
        added = ["c"] if envelope.kind == "reasoning/share" else []
        stored = deliver(space, replace(envelope, payload={**envelope.payload, "participants": added or ["b"]}))
        if stored is None:
            continue
        envelope, place = stored
        if place.role == "opens" and place.path is not None and envelope.kind == "reasoning/start":
            starts.pop(place.path, None)
            if envelope.to:
                starts[place.path] = {envelope.sender, *envelope.to}
        around = [path for path in starts if place.path is not None and context.is_within(place.path, path)]
        if envelope.kind == "reasoning/share":
            starts[max(around, key=len)].add("c")
        for path in around:
            assert set(readers(stored)) <= {*starts[path], envelope.sender}
            assert envelope.sender in {*starts[path], GATEWAY}
