"""Requests: who may answer one, how often, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from pellucid.envelopes import Envelope, Flag
from pellucid.envelopes.requests import Requests, RequestState, is_trusted_response
from tests.envelopes.life_kit import conversations, envelope_of

LIST: dict[str, Any] = {"method": "tools/list"}
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "search", "arguments": {}}}


def send(requests: Requests, envelope: Envelope) -> str | None:
    """Send an envelope; return the code of its error."""
    if errors := requests.check(envelope):
        return errors[0].code
    requests.apply(envelope)
    return None


def with_flags(requests: Requests, envelope: Envelope) -> Envelope:
    """Return an envelope with the flags that a space sets in place of errors."""
    flags = tuple(Flag(error.code or "", error.message) for error in requests.check(envelope))
    return msgspec.structs.replace(envelope, flags=flags)


def answer(by: str, to: str = "q", **payload: Any) -> Envelope:
    return envelope_of("response", by=by, about=to, **(payload or {"result": {}}))


def tools(*names: str) -> dict[str, Any]:
    """Return the result of `tools/list`."""
    return {"tools": [{"name": name} for name in names]}


def offer(requests: Requests, by: str, *names: str) -> None:
    """Have a participant list its tools."""
    requests.apply(envelope_of("request", id=f"list-{by}", by="z", to=[by], **LIST))
    assert send(requests, answer(by, f"list-{by}", result=tools(*names))) is None


def test_an_addressed_request_is_answered_by_its_recipients_once() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", to=["b", "c"], **CALL))
    assert send(requests, answer("d")) == "unknown_request"
    assert send(requests, answer("a")) == "not_addressed"
    assert send(requests, answer("b")) is None
    assert send(requests, answer("b")) == "already_answered"
    assert send(requests, answer("c")) is None


def test_a_call_without_recipients_is_answered_once_by_a_participant_who_offers_the_tool() -> None:
    requests = Requests()
    offer(requests, "b", "search", "read")
    offer(requests, "c", "read")
    requests.apply(envelope_of("request", id="q", by="a", **CALL))
    assert send(requests, answer("c")) == "tool_not_offered"
    assert send(requests, answer("b")) is None
    offer(requests, "c", "search")
    assert send(requests, answer("c")) == "already_answered"
    requests.apply(envelope_of("request", id="q2", by="a", **CALL))
    assert send(requests, answer("c", "q2")) is None


def test_a_tool_that_was_never_listed_may_be_called_of_anyone() -> None:
    requests = Requests()
    offer(requests, "b", "read")
    requests.apply(envelope_of("request", id="q", by="a", **CALL))
    assert send(requests, answer("d")) is None
    assert send(requests, answer("b")) == "already_answered"


def test_discovery_is_answered_by_everyone_once() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", **LIST))
    assert [send(requests, answer(one)) for one in ("b", "c", "b")] == [None, None, "already_answered"]


def test_a_removed_participant_offers_nothing() -> None:
    requests = Requests()
    offer(requests, "b", "search")
    requests.apply(envelope_of("space/kick", by="a", participant_id="b"))
    assert not requests.state.offers


@pytest.mark.parametrize("about", [(), ("other",)])
def test_an_answer_to_nothing_is_refused_or_flagged(about: tuple[str, ...]) -> None:
    response = envelope_of("response", by="b", about=about)
    assert send(Requests(), response) == "unknown_request"
    flagged = with_flags(Requests(), response)
    assert [flag.code for flag in flagged.flags] == ["unknown_request"]
    assert not is_trusted_response(flagged)


def test_a_request_does_not_exist_for_those_who_may_not_read_it() -> None:
    """Also if their response correlates to a request of their own."""
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", to=["b"], **CALL))
    requests.apply(envelope_of("request", id="own", by="d", to=["d"], **CALL))
    unknown = requests.check(envelope_of("response", by="d", about="other"))
    for about in ("q", ("own", "q"), ("q", "own")):
        assert requests.check(envelope_of("response", by="d", about=about)) == unknown
    assert [error.code for error in unknown] == ["unknown_request"]
    seen = requests.check(answer("d"), lambda readers: True)
    assert [error.code for error in seen] == ["not_addressed"]


def test_a_flood_displaces_the_requests_of_its_sender() -> None:
    requests = Requests(max_requests=10)
    requests.apply(envelope_of("request", id="q", by="a", to=["b"], **CALL))
    for number in range(50):
        requests.apply(envelope_of("request", id=f"open-{number}", by="d", to=["e"], **CALL))
        requests.apply(envelope_of("request", id=f"answered-{number}", by="d", to=["d"], **CALL))
        requests.apply(answer("d", f"answered-{number}"))
    assert list(requests.state.requests) == ["q", *(f"open-{number}" for number in range(42, 50))]
    assert len(requests.state.answered) == 10
    assert send(requests, answer("d")) == "unknown_request"
    assert send(requests, answer("b")) is None


def test_a_list_to_oneself_offers_nothing() -> None:
    requests = Requests()
    offer(requests, "b", "search")
    requests.apply(envelope_of("request", id="own", by="d", to=["d"], **LIST))
    assert send(requests, envelope_of("response", by="d", about="own", to=["d"], result=tools("search"))) is None
    requests.apply(envelope_of("request", id="q", by="a", **CALL))
    assert send(requests, answer("d")) == "tool_not_offered"
    assert send(requests, answer("b")) is None


def test_a_list_counts_for_those_who_could_read_it() -> None:
    requests = Requests()

    def list_privately(by: str, to: str) -> None:
        requests.apply(envelope_of("request", id=f"{by}-{to}", by=to, to=[by], **LIST))
        one = envelope_of("response", by=by, about=f"{by}-{to}", to=[to], result=tools("search"))
        assert send(requests, one) is None

    list_privately("b", "a")
    list_privately("d", "e")
    requests.apply(envelope_of("request", id="q", by="a", **CALL))
    assert send(requests, answer("d")) == "tool_not_offered"
    requests.apply(envelope_of("request", id="q2", by="e", **CALL))
    assert send(requests, answer("b", "q2")) == "tool_not_offered"
    requests.apply(envelope_of("request", id="q3", by="z", **CALL))
    assert send(requests, answer("x", "q3")) == "tool_not_offered", "it was listed, if not to z"
    assert send(requests, answer("b", "q3")) is None
    list_privately("b", "e")
    assert requests.state.offers["search"]["b"] == ("b", "a", "e")
    assert send(requests, answer("b", "q2")) is None


def test_a_state_of_an_older_version_is_read() -> None:
    """It knows neither who sent a request nor who could read a list."""
    old = b"""{"requests": {"q": {"to": ["b"], "tool": "search"}, "l": {"by": "a", "lists_tools": true}},
        "tools": {"search": ["b", "c"]}}"""
    requests = Requests(msgspec.json.decode(old, type=RequestState))
    assert requests.state.offers == {"search": {"b": (), "c": ()}}
    assert requests.state.requests["q"].readers == ()
    assert requests.state.requests["l"].discovery == "tools/list"
    assert send(requests, answer("d")) == "not_addressed"
    assert send(requests, answer("b")) is None
    assert b'"tools":' not in msgspec.json.encode(requests.state)


def test_a_notification_has_no_answer() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", method="notifications/cancelled"))
    assert send(requests, answer("b")) == "unknown_request"
    assert not requests.state.requests


def test_a_flagged_answer_is_accepted_and_counts_for_nothing() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", to=["b"], **LIST))
    forged = answer("d", result=tools("search"))
    assert not is_trusted_response(with_flags(requests, forged))
    assert is_trusted_response(forged)
    requests.apply(forged)
    assert not requests.state.offers
    assert send(requests, answer("b")) is None


@pytest.mark.parametrize("result", [None, 7, {"tools": 7}, {"tools": [7, {"name": 7}, {}]}, {"tools": {"name": "x"}}])
def test_a_result_of_any_shape_lists_no_tools(result: Any) -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", **LIST))
    requests.apply(answer("b", result=result))
    assert not requests.state.offers


@given(conversations(max_size=60))
def test_memory_is_bounded_and_a_restored_state_behaves_as_before(conversation: list[Envelope]) -> None:
    requests = Requests(max_requests=3, max_tools=2)
    for number, envelope in enumerate(conversation):
        result = tools(f"t{number % 4}", "search")
        one = msgspec.structs.replace(envelope, payload={**(LIST if number % 2 else CALL), "result": result})
        restored = msgspec.json.decode(msgspec.json.encode(requests.state), type=RequestState)
        other = Requests(restored, max_requests=3, max_tools=2)
        assert other.check(one) == requests.check(one)
        requests.apply(one)
        other.apply(one)
        assert other.state == requests.state
        assert len(requests.state.requests) <= 3
        assert len(requests.state.answered) <= 3
        assert len(requests.state.offers) <= 2
