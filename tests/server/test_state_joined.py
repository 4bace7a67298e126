"""What goes on, as one conversation: nothing is lost or doubled, and results stand in the order of their calls."""

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
said_parts: st.SearchStrategy[ModelRequestPart] = st.one_of(
    st.builds(UserPromptPart, st.sampled_from(["x", "y"])),
    st.builds(ToolReturnPart, st.just("f"), st.integers(0, 9), ids),
    st.builds(RetryPromptPart, st.just("again"), st.just("f"), ids),
)
requests = st.builds(
    ModelRequest, st.lists(said_parts, min_size=1, max_size=4), instructions=st.none() | st.sampled_from("pq")
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
def test_where_it_was_cut_does_not_matter(messages: list[ModelMessage], cuts: list[int]) -> None:
    whole = join_messages(messages)
    assert join_messages(*pieces(messages, cuts)) == whole
    assert join_messages(whole) == whole, "and once joined, it stays as it is"
    first, *rest = pieces(messages, cuts)
    assert join_messages(join_messages(first), *rest) == whole, "nor does it if a part of it was joined before"


@given(conversations)
def test_nothing_is_lost_doubled_or_changed(messages: list[ModelMessage]) -> None:
    kept = messages_to_json(messages)
    whole = join_messages(messages)
    assert sorted(parts_of(whole)) == sorted(parts_of(messages))
    assert messages_to_json(messages) == kept, "what is joined stays itself as it was"
    assert join_messages(messages_from_json(kept)) == whole
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    assert [message for message in whole if isinstance(message, ModelResponse)] == answers


@given(conversations)
def test_what_is_said_in_a_row_is_one_request_with_its_results_first(messages: list[ModelMessage]) -> None:
    whole = join_messages(messages)
    for before, after in pairwise(whole):
        assert not (isinstance(before, ModelRequest) and isinstance(after, ModelRequest))
        if isinstance(before, ModelResponse) and isinstance(after, ModelRequest):
            place = {call.tool_call_id: n for n, call in enumerate(before.tool_calls)}
            answers = [place.get(getattr(part, "tool_call_id", None) or "", len(place)) for part in after.parts]
            assert answers == sorted(answers), "in the order of the calls; all else comes behind"


@given(conversations)
def test_what_is_no_result_keeps_its_order(messages: list[ModelMessage]) -> None:
    def prompts(messages: Sequence[ModelMessage]) -> list[str]:
        return [
            repr(part)
            for message in messages
            for part in message.parts
            if not isinstance(part, ToolReturnPart | RetryPromptPart)
        ]

    assert prompts(join_messages(messages)) == prompts(messages)


@given(conversations)
def test_the_last_word_on_instructions_counts(messages: list[ModelMessage]) -> None:
    runs: list[list[str]] = [[]]
    for message in messages:
        if isinstance(message, ModelResponse):
            runs.append([])
        elif message.instructions:
            runs[-1].append(message.instructions)
    wanted = [run[-1] for run in runs if run]
    told = [message.instructions for message in join_messages(messages) if isinstance(message, ModelRequest)]
    assert [instructions for instructions in told if instructions] == wanted
