"""Dropping the oldest turns of a conversation: whole turns, never the last one, and no system prompts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pellucid.conversation import count_droppable_turns, drop_oldest_turns, join_messages, turn_lengths
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[ModelMessage]:
    """Draw turns with calls whose results come at once or with the next prompt; ids may be reused."""
    pieces: list[list[ModelMessage]] = []
    pending: list[ModelRequestPart] = []
    for turn in range(draw(st.integers(1, 6))):
        parts: list[ModelRequestPart] = [*pending]
        pending = []
        if draw(st.booleans()):
            parts.append(SystemPromptPart(f"rule {turn}", draw(st.sampled_from(["system", "developer"]))))
        pieces.append([ModelRequest([*parts, UserPromptPart(f"user {turn}")])])
        for step in range(draw(st.integers(1, 3))):
            ids = [f"c{at}" if draw(st.booleans()) else f"c{turn}.{step}.{at}" for at in range(draw(st.integers(0, 2)))]
            calls = [ToolCallPart("f", "{}", id) for id in ids]
            pieces.append([ModelResponse([ThinkingPart(f"thought {turn}"), TextPart(f"text {turn}"), *calls])])
            results: list[ModelRequestPart] = [ToolReturnPart("f", f"result {turn}.{step}", id) for id in ids]
            if len(results) > 0 and draw(st.booleans()):
                pieces.append([ModelRequest(results)])
            else:
                pending = results
                break
    return join_messages(*pieces)


def parts_of(messages: list[ModelMessage]) -> list[object]:
    return [part for message in messages for part in message.parts]


Spoken = SystemPromptPart | UserPromptPart | TextPart | ThinkingPart | ToolReturnPart


def texts(messages: list[ModelMessage], kind: type[Spoken]) -> list[str]:
    return [str(part.content) for part in parts_of(messages) if isinstance(part, kind)]


def paired(messages: list[ModelMessage]) -> bool:
    """Return whether each result follows its call."""
    open_: set[str] = set()
    for part in parts_of(messages):
        if isinstance(part, ToolCallPart):
            open_.add(part.tool_call_id)
        elif isinstance(part, ToolReturnPart):
            if part.tool_call_id not in open_:
                return False
            open_.discard(part.tool_call_id)
    return True


@given(conversations(), st.data())
def test_dropping_keeps_the_last_turns_and_all_system_prompts(
    messages: list[ModelMessage], data: st.DataObject
) -> None:
    assert paired(messages)
    users = texts(messages, UserPromptPart)
    assert count_droppable_turns(messages) == len(users) - 1
    count = data.draw(st.integers(0, count_droppable_turns(messages)))
    left = drop_oldest_turns(messages, count)
    assert texts(left, UserPromptPart) == users[count:]
    assert texts(left, SystemPromptPart) == texts(messages, SystemPromptPart)
    # Only whole turns are dropped.
    for kind in (TextPart, ThinkingPart):
        assert texts(left, kind) == [text for text in texts(messages, kind) if int(text.split()[1]) >= count]
    results = [text for text in texts(messages, ToolReturnPart) if int(text.split()[1].split(".")[0]) >= count]
    assert texts(left, ToolReturnPart) == results
    assert paired(left)
    assert isinstance(left[0], ModelRequest)
    assert not any(isinstance(a, ModelRequest) and isinstance(b, ModelRequest) for a, b in pairwise(left))


@given(conversations(), st.data())
def test_turn_lengths_match_the_dropped_turns(messages: list[ModelMessage], data: st.DataObject) -> None:
    turns = turn_lengths(messages)
    assert len(turns) == count_droppable_turns(messages) + 1
    count = data.draw(st.integers(0, count_droppable_turns(messages)))
    left = turn_lengths(drop_oldest_turns(messages, count))
    # Results that came with the next prompt belong to its turn.
    assert sum(left) <= sum(turns[count:])
    assert left[1:] == turns[count + 1 :] or count == count_droppable_turns(messages)


def test_without_user_prompts_no_turn_can_be_dropped() -> None:
    messages: list[ModelMessage] = [ModelResponse([TextPart("a")]), ModelRequest([ToolReturnPart("f", "b", "c")])]
    assert count_droppable_turns(messages) == 0
    assert drop_oldest_turns(messages, 0) == messages
    assert turn_lengths(messages) == [2]
