"""Requests: who may answer one, how often, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from pellucid.envelopes import Envelope
from pellucid.envelopes.requests import Requests, RequestState, is_trusted_response
from tests.envelopes.life_kit import conversations, envelope_of

LIST: dict[str, Any] = {"method": "tools/list"}
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "search", "arguments": {}}}


def send(requests: Requests, envelope: Envelope) -> str | None:
    """Send an envelope; return the code of its error."""
    verdict = requests.check(envelope, "strict")
    if verdict.error is not None:
        return verdict.error.code
    requests.apply(envelope)
    return None


def answer(by: str, to: str = "q", **payload: Any) -> Envelope:
    return envelope_of("response", by=by, about=to, **(payload or {"result": {}}))


def offer(requests: Requests, by: str, *names: str) -> None:
    """Have a participant list its tools."""
    requests.apply(envelope_of("request", id=f"list-{by}", by="z", to=[by], **LIST))
    listed = {"tools": [{"name": name} for name in names]}
    assert send(requests, answer(by, f"list-{by}", result=listed)) is None


def test_an_addressed_request_is_answered_by_its_recipients_once() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", to=["b", "c"], **CALL))
    assert send(requests, answer("d")) == "not_addressed"
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
    assert not requests.state.tools


@pytest.mark.parametrize("about", [(), ("other",)])
def test_an_answer_to_nothing_is_flagged(about: tuple[str, ...]) -> None:
    verdict = Requests().check(envelope_of("response", by="b", about=about), "strict")
    assert verdict.error is None
    assert [flag.code for flag in verdict.flags] == ["unknown_request"]


def test_a_flagged_answer_is_accepted_and_counts_for_nothing() -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", to=["b"], **LIST))
    forged = answer("d", result={"tools": [{"name": "search"}]})
    verdict = requests.check(forged, "flag")
    assert verdict.error is None
    assert not is_trusted_response(msgspec.structs.replace(forged, flags=verdict.flags))
    assert is_trusted_response(forged)
    requests.apply(forged)
    assert not requests.state.tools
    assert send(requests, answer("b")) is None


@pytest.mark.parametrize("result", [None, 7, {"tools": 7}, {"tools": [7, {"name": 7}, {}]}, {"tools": {"name": "x"}}])
def test_a_result_of_any_shape_lists_no_tools(result: Any) -> None:
    requests = Requests()
    requests.apply(envelope_of("request", id="q", by="a", **LIST))
    requests.apply(answer("b", result=result))
    assert not requests.state.tools


@given(conversations(max_size=60))
def test_memory_is_bounded_and_a_restored_state_behaves_as_before(conversation: list[Envelope]) -> None:
    requests = Requests(max_requests=3, max_tools=2)
    for number, envelope in enumerate(conversation):
        tools = {"tools": [{"name": f"t{number % 4}"}, {"name": "search"}]}
        one = msgspec.structs.replace(envelope, payload={**(LIST if number % 2 else CALL), "result": tools})
        restored = msgspec.json.decode(msgspec.json.encode(requests.state), type=RequestState)
        other = Requests(restored, max_requests=3, max_tools=2)
        assert other.check(one, "strict") == requests.check(one, "strict")
        requests.apply(one)
        other.apply(one)
        assert other.state == requests.state
        assert len(requests.state.requests) <= 3
        assert len(requests.state.tools) <= 2
