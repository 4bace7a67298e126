"""Properties of every conversation: restored states, ends, interleavings, limits."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import GATEWAY, Envelope, context
from pellucid.envelopes.lifecycle import LifecycleSettings
from pellucid.envelopes.reasoning import LifecycleState
from tests.envelopes.envelope_kit import envelopes
from tests.envelopes.life_kit import SENDERS, CheckedLifecycle, code, conversations, envelope_of, life
from tests.examples import by_circle

settings = st.builds(
    LifecycleSettings,
    mode=st.sampled_from(["strict", "flag", "off"]),
    owner_only=st.booleans(),
    max_open=st.integers(1, 4),
    max_implicit=st.integers(1, 3),
    max_ended=st.integers(1, 4),
    max_ids=st.integers(1, 20),
)


def encoded_state(space: CheckedLifecycle) -> bytes:
    return msgspec.json.encode(space.state)


@given(conversations(), settings)
def test_replaying_accepted_envelopes_gives_the_same_state(
    conversation: list[Envelope], how: LifecycleSettings
) -> None:
    space = CheckedLifecycle(how)
    accepted = []
    for envelope in conversation:
        before = encoded_state(space)
        if space.feed(envelope).accepted:
            accepted.append(envelope)
        else:
            assert encoded_state(space) == before, "what is refused changes nothing"

    again = CheckedLifecycle(how)
    for envelope in accepted:
        again.replay(envelope, envelope.ts)
    assert again.state == space.state
    assert encoded_state(again) == encoded_state(space), "in the same order"


@given(conversations(), conversations(max_size=10), settings)
def test_a_restored_state_behaves_as_before(
    earlier: list[Envelope], later: list[Envelope], how: LifecycleSettings
) -> None:
    space = CheckedLifecycle(how)
    for envelope in earlier:
        space.feed(envelope)
    other = CheckedLifecycle(how, msgspec.json.decode(encoded_state(space), type=LifecycleState))

    assert [other.feed(envelope) for envelope in later] == [space.feed(envelope) for envelope in later]
    assert other.state == space.state
    assert [other.contexts.count_open_of(one) for one in SENDERS] == [
        space.contexts.count_open_of(one) for one in SENDERS
    ]


@given(conversations())
def test_only_one_conclusion_is_accepted_after_an_end(conversation: list[Envelope]) -> None:
    space = life()
    ended: dict[str, str] = {}
    concluded_late: set[str] = set()
    for envelope in conversation:
        verdict = space.feed(envelope)
        if not verdict.accepted:
            continue
        path = verdict.place.path
        ended_around = [one for one in ended if context.is_within(path, one)]
        thinks = envelope.sender != GATEWAY or envelope.kind in ("reasoning/start", "reasoning/conclusion")
        if ended_around and envelope.family == "reasoning" and thinks:
            assert envelope.kind == "reasoning/conclusion"
            assert path in ended
            assert path not in concluded_late
            concluded_late.add(path)
        for one in verdict.ended:
            assert one.path not in ended
            ended[one.path] = one.status
            if envelope.kind == "reasoning/conclusion" and one.path == path:
                concluded_late.add(one.path)
    assert {path: ended_context.status for path, ended_context in space.state.ended.items()} == ended


@given(conversations())
def test_contexts_inside_an_ended_one_are_ended_and_reported(conversation: list[Envelope]) -> None:
    space = life()
    opened: set[str] = set()
    for envelope in conversation:
        verdict = space.feed(envelope)
        if verdict.place.role == "opens" and envelope.kind == "reasoning/start":
            opened.add(verdict.place.path or "")
        opened -= {one.path for one in verdict.ended}
        assert opened == set(space.state.open)
        assert not any(context.is_within(inner, over) for over in space.state.ended for inner in space.state.open)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[list[Envelope]], list[Envelope]]:
    """Conversations of several agents about contexts of their own, and one interleaving of all."""
    several = []
    for agent in SENDERS:
        prefixed: list[Envelope] = draw(conversations(max_size=12, senders=[agent]))
        several.append([_rename(agent, envelope) for envelope in prefixed])
    turns = draw(st.permutations([number for number, prefixed in enumerate(several) for _ in prefixed]))
    iterators = [iter(prefixed) for prefixed in several]
    return several, [next(iterators[number]) for number in turns]


def _rename(agent: str, envelope: Envelope) -> Envelope:
    def prefixed(name: str) -> str:
        return f"{agent}-{name}"

    return replace(
        envelope,
        id=prefixed(envelope.id),
        sender=agent if envelope.sender != GATEWAY else GATEWAY,
        correlation_id=tuple(map(prefixed, envelope.correlation_id)),
        context=prefixed(envelope.context) if envelope.context else None,
        payload={"references": [prefixed(name) for name in envelope.payload["references"]]},
    )


@given(scripts())
def test_agents_with_their_own_contexts_do_not_disturb_each_other(
    script: tuple[list[list[Envelope]], list[Envelope]],
) -> None:
    several, mixed = script
    together = life()
    verdicts = [(envelope, together.feed(envelope)) for envelope in mixed]
    for agent, prefixed in zip(SENDERS, several, strict=True):
        alone = life()
        assert [(envelope, alone.feed(envelope)) for envelope in prefixed] == [
            (envelope, verdict) for envelope, verdict in verdicts if envelope.id.startswith(f"{agent}-")
        ]
        assert alone.contexts.count_open_of(agent) == together.contexts.count_open_of(agent)


@given(conversations(max_size=60), settings)
def test_limits_hold_and_nothing_grows_without_bound(conversation: list[Envelope], how: LifecycleSettings) -> None:
    space = CheckedLifecycle(how)
    for envelope in conversation:
        space.feed(envelope)
        state = space.state
        assert len(state.implicit) <= how.max_implicit
        assert len(state.ended) <= how.max_ended
        assert len(state.recent) <= how.max_ids
        tables = (state.open, state.implicit, state.ended)
        assert all(context.depth(path) <= context.MAX_DEPTH for table in tables for path in table)
        for sender in {envelope.sender, *SENDERS}:
            owned = [path for path, one in state.open.items() if one.owner == sender]
            assert space.contexts.count_open_of(sender) == len(owned) <= how.max_open


def test_ended_contexts_leave_no_more_than_the_limits_allow() -> None:
    space = life(max_ended=10, max_ids=10, max_implicit=10)
    for number in range(by_circle(1_250, 10_000)):
        space.feed(envelope_of("start", f"l{number}", id=f"s{number}", about=f"t{number}"))
        space.feed(envelope_of("chat", f"s{number}/aside"))
        space.feed(envelope_of("conclusion", f"s{number}"))
        space.feed(envelope_of("thought", f"i{number}"))
    contexts = space.contexts
    assert [len(table) for table in (contexts._names, contexts._triggers, contexts._open_of)] == [20, 10, 0]


@given(conversations(), st.integers(0, 60_000))
def test_due_contexts_are_ended_by_the_gateway(conversation: list[Envelope], now: int) -> None:
    space = life(idle_ms=5_000)
    for envelope in conversation:
        space.feed(envelope)
    due = space.due(now)
    assert all(now - one.active >= 5_000 for one in due)
    for one in due:
        assert space.feed(envelope_of("cancel", one.path, by=GATEWAY, reason="timeout", ts=now)).accepted
    assert space.due(now) == ()
    for sender in SENDERS:
        for one in space.left_open_by(sender):
            space.feed(envelope_of("cancel", one.path, by=GATEWAY, reason="disconnect", ts=now))
        assert space.contexts.count_open_of(sender) == 0


@given(st.lists(envelopes(), max_size=5), settings)
def test_any_envelope_gets_a_verdict(conversation: list[Envelope], how: LifecycleSettings) -> None:
    space = CheckedLifecycle(how)
    for envelope in conversation:
        verdict = space.feed(envelope)
        assert verdict.error is None or verdict.error.param
        space.unknown_names(envelope)


_odd: Any = st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))


@given(st.dictionaries(st.sampled_from(["references", "metadata", "template", "step", "triggered_by"]), _odd))
def test_odd_payloads_do_not_crash(payload: dict[str, Any]) -> None:
    space = life(templates={"t": ("x",)})
    space.feed(envelope_of("start", id="m1"))
    for kind in ("start", "thought", "conclusion"):
        assert code(space.feed(envelope_of(kind, "m1", **payload))) in (None, "unknown_template")
