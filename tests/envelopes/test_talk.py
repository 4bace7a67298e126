"""Limits of agents' talk: what counts, what is refused at a limit, what renews it."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import Envelope, kinds
from pellucid.envelopes.envelope import GATEWAY
from pellucid.envelopes.talk import MAX_DISCOVERY_ANSWERS, OPEN, Talk, TalkLimits, TalkState

FREE = TalkLimits()
PEOPLE = ("ada",)
ENDS: dict[tuple[str, ...], str] = {("open",): OPEN, ("list",): "tools/list", ("prompts",): "prompts/list"}
"""What an envelope ends, by its `correlation_id`."""


def envelope(kind: str, sender: str = "bot", context: str | None = None, **payload: Any) -> Envelope:
    return Envelope(id="e", ts=0, sender=sender, kind=kind, context=context, payload=payload)


def chat(text: str = "hello", sender: str = "bot", context: str | None = None) -> Envelope:
    return envelope(kinds.CHAT, sender, context, text=text)


def send(
    talk: Talk,
    one: Envelope,
    space: TalkLimits = FREE,
    context: TalkLimits = FREE,
    people: tuple[str, ...] = PEOPLE,
    at: int = 0,
) -> bool:
    """Send an envelope; return whether it is accepted. What it ends is in `ENDS`."""
    ends = ENDS.get(one.correlation_id)
    if talk.refusal(one, one.context, (space, context), people, at, ends=ends):
        return False
    talk.apply(one, one.context, people, at, ends=ends)
    return True


def test_agents_have_so_many_turns_until_a_person_writes() -> None:
    talk, limits = Talk(), TalkLimits(turns=2)
    assert [send(talk, chat(sender=one), limits) for one in ("bot", "bee", "bot")] == [True, True, False]
    error = talk.refusal(chat(), None, (limits, FREE), PEOPLE, 0)
    assert error is not None
    assert (error.code, error.kind) == ("talk_limit", "too_many_requests")
    assert "2 turns" in error.message
    assert "space/renew" in error.message
    assert send(talk, chat(sender="ada"), limits)
    assert send(talk, chat(), limits)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (kinds.WITHDRAW, {}),
        (kinds.REJECT, {}),
        (kinds.REQUEST, {"method": "tools/list"}),
        (kinds.REQUEST, {"method": "notifications/tools/list_changed", "jsonrpc": "2.0", "id": "r-1"}),
        (kinds.REQUEST, {"method": "notifications/cancelled", "params": {"requestId": 7}}),
        (kinds.CHAT_ACK, {}),
        ("participant/status", {"tokens": 17, "max_tokens": 100}),
    ],
)
def test_what_settles_or_says_nothing_is_neither_counted_nor_refused(kind: str, payload: dict[str, Any]) -> None:
    talk, limits = Talk(), TalkLimits(turns=1, tokens=1)
    assert send(talk, envelope(kind, context="r", **payload), limits, limits)
    assert talk.state.space.turns == talk.state.space.tokens == 0
    assert send(talk, chat(), limits)
    assert not send(talk, chat(), limits)
    assert send(talk, envelope(kind, context="r", **payload), limits, limits)


_numbers = itertools.count()


def listed(*names: str, sender: str = "bot", about: str = "list") -> Envelope:
    result = {"tools": [{"name": name} for name in names]}
    one = envelope(kinds.RESPONSE, sender, jsonrpc="2.0", id=next(_numbers), result=result)
    return replace(one, correlation_id=(about,))


def test_a_list_is_free_and_a_changed_one_is_a_turn() -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    assert send(talk, listed("scan", "fix"), limits)
    assert send(talk, listed("fix", "scan"), limits), "in another order"
    assert send(talk, listed("scan", about="prompts"), limits), "of another method"
    assert talk.state.space.turns == 0
    assert send(talk, listed("scan and fix"), limits)
    assert (talk.state.space.turns, talk.state.space.tokens) == (1, 3)
    assert send(talk, listed("scan", "fix"), limits), "an earlier one"
    assert not send(talk, listed(), limits)
    assert not send(talk, replace(listed(), payload={"result": {"and_you": 1}}), limits), "words in names of fields"
    assert send(talk, listed("fix", sender="bee"), limits), "the first one of another agent"
    assert send(talk, listed("and me?", sender="ada"), limits), "a person's"


_listed = st.builds(listed, st.sampled_from("abcdefghijkl"), sender=st.sampled_from(["bot", "bee"]))


@given(st.lists(_listed, max_size=60), st.integers(1, 12))
def test_by_lists_agents_send_no_more_than_the_limit_allows(sent: list[Envelope], turns: int) -> None:
    """Each agent has one list besides, which is free."""
    talk, limits = Talk(), TalkLimits(turns=turns)
    accepted = {(one.sender, str(one.payload["result"])) for one in sent if send(talk, one, limits)}
    assert len(accepted) <= 2 + turns
    answers = [digests for by_method in talk.state.discovery_answers.values() for digests in by_method.values()]
    assert all(len(digests) <= MAX_DISCOVERY_ANSWERS for digests in answers)


@pytest.mark.parametrize("kind", [kinds.RESPONSE, kinds.CONCLUSION, kinds.CANCEL])
def test_what_ends_something_open_is_neither_counted_nor_refused(kind: str) -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    end = replace(envelope(kind, context="r", message="long text"), correlation_id=("open",))
    assert send(talk, end, limits, limits)
    assert talk.state.space.turns == talk.state.space.tokens == 0
    assert send(talk, chat(), limits)
    assert send(talk, end, limits, limits)
    assert not send(talk, replace(end, correlation_id=("closed",)), limits, limits)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (kinds.START, {}),
        (kinds.THOUGHT, {}),
        ("reasoning/guess", {}),
        (kinds.PROPOSAL, {"method": "tools/call"}),
        (kinds.REQUEST, {"method": "tools/call"}),
        (kinds.REQUEST, {"method": "prompts/get", "params": {"text": "and you?"}}),
        (kinds.REQUEST, {"method": "tools/list", "params": {"cursor": "and you?"}}),
        (kinds.REQUEST, {"method": "notifications/cancelled", "params": {"reason": "and you?"}}),
        (kinds.REQUEST, {"method": "tools/list", "note": "and you?"}),
        (kinds.REQUEST, {"method": "ping", "id": "and you?"}),
        (kinds.REQUEST, {"method": "ping", "params": {"and you?": 1}}),
        (kinds.RESPONSE, {"result": "and you?"}),
        (kinds.CONCLUSION, {"message": "and you?"}),
        (kinds.CANCEL, {"reason": "and you?"}),
        (kinds.CHAT_ACK, {"text": "and you?"}),
        (kinds.CHAT_CANCEL, {"reason": "and you?"}),
        (kinds.GRANT_ACK, {"status": "and you?"}),
        (kinds.SHARE, {"participants": ["bee"], "reason": "and you?"}),
        ("participant/status", {"status": {"text": ["and you?"]}}),
        ("participant/status", {"and you?": 1}),
        ("mcp/other", {}),
        ("acme/ping", {}),
        ("chat/shout", {}),
    ],
)
def test_whatever_others_may_react_to_is_refused_at_the_limit(kind: str, payload: dict[str, Any]) -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    assert send(talk, chat(), limits)
    assert not send(talk, envelope(kind, context="r", **payload), limits)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "and you?"},
        {"correlation_id": ("m", "and you?")},
        {"extra": {"note": "and you?"}},
        {"context_operation": {"and you?": "push"}},
    ],
)
def test_words_outside_of_a_payload_count(fields: dict[str, Any]) -> None:
    talk = Talk()
    status = replace(envelope("participant/status", tokens=17), **fields)
    assert send(talk, status)
    assert (talk.state.space.turns, talk.state.space.tokens >= 2) == (1, True)
    assert not send(talk, status, TalkLimits(turns=1))


def test_thoughts_are_turns_of_their_context_only_and_nested_ones_count_for_the_outermost() -> None:
    talk, limits = Talk(), TalkLimits(turns=2)
    thoughts = [envelope(kinds.THOUGHT, context=path, message="hm") for path in ("r", "r/s", "r", "q")]
    assert [send(talk, one, limits, limits) for one in thoughts] == [True, True, False, True]
    assert talk.state.space.turns == 0
    assert send(talk, chat(), limits, limits)
    # A person who writes in a context renews it, and an envelope of the context alone does not renew others.
    assert send(talk, envelope(kinds.THOUGHT, context="q", message="hm"), limits, limits)
    assert send(talk, chat(sender="ada", context="r"), limits, limits)
    assert send(talk, thoughts[2], limits, limits)
    assert not send(talk, thoughts[3], limits, limits)


def test_tokens_are_estimated_from_the_text() -> None:
    talk, limits = Talk(), TalkLimits(tokens=10)
    assert send(talk, chat("x" * 36), limits)
    assert talk.state.space.tokens == 9
    assert send(talk, chat("x" * 400), limits)  # what is over the limit is the last
    assert not send(talk, chat("x"), limits)


def test_time_runs_from_the_first_envelope_of_an_agent() -> None:
    talk, limits = Talk(), TalkLimits(seconds=60)
    send(talk, chat(sender="ada"), limits, at=0)
    assert send(talk, chat(), limits, at=500_000)
    assert send(talk, chat(), limits, at=559_999)
    assert not send(talk, chat(), limits, at=560_000)
    assert send(talk, chat(sender="ada"), limits, at=560_000)
    assert send(talk, chat(), limits, at=900_000)


def test_a_renewal_is_for_the_space_or_for_one_context() -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    send(talk, chat(context="r"), limits, limits)
    send(talk, envelope(kinds.RENEW, "ada", context="r"))
    assert not send(talk, chat(), limits, limits)
    assert "r" not in talk.state.contexts
    send(talk, envelope(kinds.RENEW, "ada"))
    assert send(talk, chat(context="q"), limits, limits)


def test_a_notice_names_a_limit_once_until_the_limit_changes() -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    send(talk, chat(), limits)
    reached = talk.unannounced(None, limits, 0)
    assert reached is not None
    assert (reached.name, reached.allowed, reached.used, reached.context) == ("turns", 1, 1, None)
    talk.apply(envelope(kinds.LIMIT, GATEWAY, **reached.payload), None, PEOPLE, 0)
    assert talk.unannounced(None, limits, 0) is None
    assert not send(talk, chat(), limits)
    raised = TalkLimits(turns=2)
    assert send(talk, chat(), raised)
    assert talk.unannounced(None, raised, 0) is not None


def test_without_named_people_those_who_reason_or_answer_are_agents() -> None:
    talk, limits = Talk(), TalkLimits(turns=1)
    answer = replace(envelope(kinds.RESPONSE, "tools", result={}), correlation_id=("open",))
    for one in [envelope(kinds.THOUGHT, "bot", "r", message="hm"), answer]:
        send(talk, one, limits, people=())
    # A person who cancels another's reasoning, or who has a tool called, remains a person.
    send(talk, envelope(kinds.CANCEL, "ada", "r"), limits, people=())
    assert send(talk, chat(sender="bot"), limits, people=())
    assert not send(talk, chat(sender="tools"), limits, people=())
    assert send(talk, chat(sender="ada"), limits, people=())
    assert send(talk, chat(sender="tools"), limits, people=())


_sent = st.lists(
    st.builds(
        envelope,
        st.sampled_from([kinds.CHAT, kinds.THOUGHT, kinds.RENEW, kinds.RESPONSE, kinds.CONCLUSION]),
        st.sampled_from(["ada", "bot", "bee"]),
        st.sampled_from([None, "r", "r/s", "q"]),
        text=st.text(max_size=40),
    )
    | st.builds(listed, st.text(max_size=3), sender=st.sampled_from(["ada", "bot", "bee"])),
    max_size=40,
)


@given(_sent, st.integers(1, 5), st.sampled_from([(), PEOPLE]))
def test_the_state_survives_json_and_accepted_envelopes_give_it_again(
    sent: list[Envelope], turns: int, people: tuple[str, ...]
) -> None:
    limits = TalkLimits(turns=turns)
    talk, accepted = Talk(), []
    for at, one in enumerate(sent):
        if send(talk, one, limits, limits, people, at):
            accepted.append((at, one))
        assert talk.state.space.turns <= turns
        talk = Talk(msgspec.json.decode(msgspec.json.encode(talk.state), type=TalkState))
    again = Talk()
    for at, one in accepted:
        assert send(again, one, FREE, FREE, people, at)  # other limits, the same counts
    assert again.state == talk.state
