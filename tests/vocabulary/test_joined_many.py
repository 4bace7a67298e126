"""Messages of a long conversation are joined in linear time and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pellucid.conversation import join_messages
from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart


@given(st.permutations(range(6)), st.integers(0, 3))
def test_results_come_first_in_the_order_of_their_calls_and_nothing_is_lost(order: list[int], equal: int) -> None:
    calls = ModelResponse([ToolCallPart("f", "{}", f"c{number}") for number in range(6)])
    results = [ModelRequest([ToolReturnPart("f", "1", f"c{number}")]) for number in order]
    # Results without a call, which are equal to each other.
    strays = [ModelRequest([ToolReturnPart("f", "1", "else")]) for _ in range(equal)]
    messages: list[ModelMessage] = [calls, *strays, *results, ModelRequest([UserPromptPart("And?")])]
    [_, request] = join_messages(messages)
    assert isinstance(request, ModelRequest)
    ids = [getattr(part, "tool_call_id", None) for part in request.parts]
    assert ids == [*(f"c{number}" for number in range(6)), *["else"] * equal, None]


def test_twenty_thousand_messages_are_joined_without_comparing_them() -> None:
    calls = ModelResponse([ToolCallPart("f", "{}", f"c{number}") for number in range(10_000)])
    results = [ModelRequest([ToolReturnPart("f", "1", f"c{number}")]) for number in reversed(range(10_000))]
    _, request = join_messages([calls, *results])
    first = [part.tool_call_id for part in request.parts[:3] if isinstance(part, ToolReturnPart)]
    assert first == ["c0", "c1", "c2"]
