"""Calls and results go to a provider together or not at all."""

from __future__ import annotations

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.history import repair_calls

HELLO = ModelRequest([UserPromptPart("hello")])


def called(*ids: str, complete: bool = True) -> ModelResponse:
    return ModelResponse([ToolCallPart("f", {}, id, complete=complete) for id in ids])


def returned(*ids: str) -> ModelRequest:
    return ModelRequest([ToolReturnPart("f", "ok", id) for id in ids])


def whole(messages: list[ModelMessage]) -> list[list[str]]:
    """The ids of the calls that go, answer by answer."""
    return [
        [c.tool_call_id for c in message.tool_calls if c.complete]
        for message in repair_calls(messages)
        if isinstance(message, ModelResponse)
    ]


def test_what_is_in_order_is_left_alone() -> None:
    retried = ModelRequest([RetryPromptPart("again", "f", "2")])
    history: list[ModelMessage] = [HELLO, called("1"), returned("1"), called("2"), retried, called("3")]
    assert all(after is before for after, before in zip(repair_calls(history), history, strict=True))


def test_a_call_that_was_passed_over_is_cut_off() -> None:
    assert whole([HELLO, called("1", "2"), returned("2"), HELLO]) == [["2"]]
    assert whole([HELLO, called("1"), HELLO]) == [[]]
    assert whole([HELLO, called("1")]) == [["1"]], "the last message's calls wait"
    assert whole([HELLO, called("1"), ModelResponse([TextPart("a")]), returned("1")]) == [["1"], []], "it came late"


def test_an_id_that_comes_again_is_another_call() -> None:
    assert whole([called("1"), HELLO, called("1"), returned("1"), HELLO]) == [[], ["1"]]
    assert whole([called("1"), returned("1"), called("1"), HELLO]) == [["1"], []]


def test_a_result_of_a_cut_off_call_does_not_go() -> None:
    assert repair_calls([called("1", complete=False), returned("1", "2")])[1] == returned("2")
    assert repair_calls([returned("1")]) == [returned("1")], "its call may be kept elsewhere"


def test_a_call_has_one_result() -> None:
    late = ModelRequest([ToolReturnPart("f", "late", "1"), UserPromptPart("hello")])
    assert repair_calls([called("1"), returned("1", "1")])[1] == returned("1")
    assert repair_calls([called("1"), returned("1"), ModelResponse([TextPart("a")]), late])[3] == HELLO
    twice: list[ModelMessage] = [called("1", "1"), returned("1", "1"), called("1"), returned("1")]
    assert repair_calls(twice) == twice, "as many as there are calls"
