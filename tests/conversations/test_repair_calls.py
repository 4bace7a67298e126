"""Calls and their results are sent to a provider together or not at all."""

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


def calls(*ids: str, complete: bool = True) -> ModelResponse:
    return ModelResponse([ToolCallPart("f", {}, id, complete=complete) for id in ids])


def results(*ids: str) -> ModelRequest:
    return ModelRequest([ToolReturnPart("f", "ok", id) for id in ids])


def complete_call_ids(messages: list[ModelMessage]) -> list[list[str]]:
    """The ids of the complete calls that are sent, by answer."""
    return [
        [c.tool_call_id for c in message.tool_calls if c.complete]
        for message in repair_calls(messages)
        if isinstance(message, ModelResponse)
    ]


def test_a_history_in_order_is_unchanged() -> None:
    history: list[ModelMessage] = [HELLO, calls("1"), results("1"), calls("2"), results("2"), calls("3")]
    assert all(after is before for after, before in zip(repair_calls(history), history, strict=True))


def test_a_request_to_try_again_is_a_failed_result_or_a_prompt() -> None:
    retried = ModelRequest([RetryPromptPart("again", "f", "1"), RetryPromptPart("no JSON")])
    sent = ModelRequest([ToolReturnPart("f", "again", "1", "failed"), UserPromptPart("no JSON")])
    assert repair_calls([calls("1"), retried]) == [calls("1"), sent]


def test_a_call_without_a_result_is_incomplete() -> None:
    assert complete_call_ids([HELLO, calls("1", "2"), results("2"), HELLO]) == [["2"]]
    assert complete_call_ids([HELLO, calls("1"), HELLO]) == [[]]
    assert complete_call_ids([HELLO, calls("1")]) == [["1"]], "calls of the last message are pending"
    assert complete_call_ids([HELLO, calls("1"), ModelResponse([TextPart("a")]), results("1")]) == [["1"], []], (
        "the result is late"
    )


def test_a_repeated_id_is_another_call() -> None:
    assert complete_call_ids([calls("1"), HELLO, calls("1"), results("1"), HELLO]) == [[], ["1"]]
    assert complete_call_ids([calls("1"), results("1"), calls("1"), HELLO]) == [["1"], []]


def test_a_result_of_an_incomplete_call_is_dropped() -> None:
    assert repair_calls([calls("1", complete=False), results("1", "2")])[1] == results("2")
    assert repair_calls([results("1")]) == [results("1")], "its call may be stored elsewhere"


def test_a_call_has_one_result() -> None:
    late = ModelRequest([ToolReturnPart("f", "late", "1"), UserPromptPart("hello")])
    assert repair_calls([calls("1"), results("1", "1")])[1] == results("1")
    assert repair_calls([calls("1"), results("1"), ModelResponse([TextPart("a")]), late])[3] == HELLO
    twice: list[ModelMessage] = [calls("1", "1"), results("1", "1"), calls("1"), results("1")]
    assert repair_calls(twice) == twice, "as many as there are calls"
