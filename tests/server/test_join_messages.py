"""Joining messages to one conversation: nothing is lost or duplicated, and results are in the order of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pellucid.conversation import join_messages
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    messages_from_json,
    messages_to_json,
)

ids = st.sampled_from("abcdef")
request_parts: st.SearchStrategy[ModelRequestPart] = st.one_of(
    st.builds(UserPromptPart, st.sampled_from(["x", "y"])),
    st.builds(ToolReturnPart, st.just("f"), st.integers(0, 9), ids),
    st.builds(RetryPromptPart, st.just("again"), st.just("f"), ids),
)
requests = st.builds(
    ModelRequest, st.lists(request_parts, min_size=1, max_size=4), instructions=st.none() | st.sampled_from("pq")
)
responses = st.builds(
    lambda calls, text: ModelResponse([TextPart(text), *(ToolCallPart("f", "{}", id) for id in calls)]),
    st.lists(ids, unique=True, max_size=4),
    st.sampled_from(["m", "n"]),
)
conversations = st.lists(requests | responses, max_size=8)
cuts = st.lists(st.integers(0, 8), max_size=3)


def pieces(messages: Sequence[ModelMessage], cuts: list[int]) -> list[Sequence[ModelMessage]]:
    places = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    return [messages[start:end] for start, end in pairwise(places)]


def parts_of(messages: Sequence[ModelMessage]) -> list[str]:
    return [repr(part) for message in messages for part in message.parts]


@given(conversations, cuts)
def test_joining_in_parts_gives_the_same_result(messages: list[ModelMessage], cuts: list[int]) -> None:
    whole = join_messages(messages)
    assert join_messages(*pieces(messages, cuts)) == whole
    assert join_messages(whole) == whole, "joining is idempotent"
    first, *rest = pieces(messages, cuts)
    assert join_messages(join_messages(first), *rest) == whole, "a part may be joined beforehand"


@given(conversations)
def test_nothing_is_lost_duplicated_or_changed(messages: list[ModelMessage]) -> None:
    serialized = messages_to_json(messages)
    whole = join_messages(messages)
    assert sorted(parts_of(whole)) == sorted(parts_of(messages))
    assert messages_to_json(messages) == serialized, "the input is not changed"
    assert join_messages(messages_from_json(serialized)) == whole
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    assert [message for message in whole if isinstance(message, ModelResponse)] == answers


@given(conversations)
def test_consecutive_requests_are_merged_with_results_first(messages: list[ModelMessage]) -> None:
    whole = join_messages(messages)
    for before, after in pairwise(whole):
        assert not (isinstance(before, ModelRequest) and isinstance(after, ModelRequest))
        if isinstance(before, ModelResponse) and isinstance(after, ModelRequest):
            positions = {call.tool_call_id: n for n, call in enumerate(before.tool_calls)}
            answers = [positions.get(getattr(part, "tool_call_id", None) or "", len(positions)) for part in after.parts]
            assert answers == sorted(answers), "results in the order of the calls, then other parts"


@given(conversations)
def test_prompts_keep_their_order(messages: list[ModelMessage]) -> None:
    def prompts(messages: Sequence[ModelMessage]) -> list[str]:
        return [
            repr(part)
            for message in messages
            for part in message.parts
            if not isinstance(part, ToolReturnPart | RetryPromptPart)
        ]

    assert prompts(join_messages(messages)) == prompts(messages)


@given(conversations)
def test_the_last_instructions_apply(messages: list[ModelMessage]) -> None:
    runs: list[list[str]] = [[]]
    for message in messages:
        if isinstance(message, ModelResponse):
            runs.append([])
        elif message.instructions:
            runs[-1].append(message.instructions)
    expected = [run[-1] for run in runs if run]
    joined = [message.instructions for message in join_messages(messages) if isinstance(message, ModelRequest)]
    assert [instructions for instructions in joined if instructions] == expected
