"""Chunks are expanded as the official client does it; in the proposal's dialect, as the proposal defines it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.protocols import agui
from pellucid.protocols.agui import DIALECTS, DialectName, Expander, decode_event, encode_event
from pellucid.protocols.agui.verify import verify
from tests.agui import agui_node
from tests.agui.agui_kit import several

Raw = dict[str, Any]

OWNERS: st.SearchStrategy[Raw] = st.sampled_from([{}, {}, {}, {"subagentRunId": "s1"}, {"subagentRunId": "s2"}])
DELTAS: st.SearchStrategy[Raw] = st.sampled_from(
    [{}, {"delta": ""}, {"delta": "a"}, {"delta": "b"}, {"delta": "c", "metadata": {"k": 1}}]
)
MARKS: st.SearchStrategy[Raw] = st.sampled_from([{}, {}, {"metadata": {"m": 2}}, {"rawEvent": {"x": 1}}])


def merged(*strategies: st.SearchStrategy[Raw]) -> st.SearchStrategy[Raw]:
    return st.tuples(*strategies).map(lambda parts: {name: value for part in parts for name, value in part.items()})


def ids(field: str, prefix: str) -> st.SearchStrategy[Raw]:
    return st.sampled_from([{}, {}, {field: f"{prefix}1"}, {field: f"{prefix}2"}])


chunk: st.SearchStrategy[Raw] = st.one_of(
    merged(st.just({"type": "REASONING_MESSAGE_CHUNK"}), ids("messageId", "r"), MARKS, DELTAS, OWNERS),
    merged(
        st.just({"type": "TEXT_MESSAGE_CHUNK"}),
        ids("messageId", "t"),
        st.sampled_from([{}, {}, {"role": "assistant"}, {"name": "n"}]),
        MARKS,
        DELTAS,
        OWNERS,
    ),
    merged(
        st.just({"type": "TOOL_CALL_CHUNK"}),
        ids("toolCallId", "c"),
        st.sampled_from([{}, {"toolCallName": "f"}, {"toolCallName": "f"}]),
        MARKS,
        DELTAS,
        OWNERS,
    ),
)
other: st.SearchStrategy[Raw] = st.sampled_from(
    [
        {"type": "CUSTOM", "name": "n", "value": 1},
        {"type": "RAW", "event": 1},
        {"type": "STATE_SNAPSHOT", "snapshot": {}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "p", "content": {}},
    ]
)


@st.composite
def sequences(draw: st.DrawFn) -> list[Raw]:
    """Draw chunks as agents send them; the first chunk of a message mostly has its required fields."""
    out: list[Raw] = []
    seen: dict[str, str] = {}
    for one in draw(st.lists(chunk | other, max_size=8)):
        key = "toolCallId" if one["type"] == "TOOL_CALL_CHUNK" else "messageId"
        if one["type"].endswith("_CHUNK") and (one["type"] not in seen or key in one):
            one = {**one, key: one.get(key, f"{one['type'][:4]}0")}
            seen[one["type"]] = one[key]
            if key == "toolCallId":
                one["toolCallName"] = "f"
        out.append(one)
    return [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        *out,
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]


def expanded(events: list[Raw], dialect: DialectName = "1.0") -> list[Raw] | None:
    """Expand the chunks; None if a chunk belongs to no message."""
    expander = Expander(DIALECTS[dialect])
    try:
        out = [whole for event in events for whole in expander.feed(decode_event(event))]
    except RequestError:
        return None
    assert not expander.is_open
    return [json.loads(encode_event(event)) for event in out]


@pytest.mark.needs("node")
def test_chunks_are_expanded_as_by_the_official_client() -> None:
    examples = several(sequences())
    ours = [expanded(one) for one in examples]
    whole = [(one, result) for one, result in zip(examples, ours, strict=True) if result is not None]
    assert len(examples) // 3 < len(whole) < len(examples)
    theirs = agui_node.play("1.0.0", examples)
    for one, result, played in zip(examples, ours, theirs, strict=True):
        assert played["accepted"] or result is None or verify(result, least="fatal") is not None, (one, played)
        assert result is not None or not played["accepted"], (one, played)
    again = agui_node.play("1.0.0", [result for _, result in whole])
    before = [played for played, result in zip(theirs, ours, strict=True) if result is not None]
    for (one, result), first, second in zip(whole, before, again, strict=True):
        assert (first["accepted"], first["messages"]) == (second["accepted"], second["messages"]), (one, result)


@given(sequences(), st.sampled_from(["1.0", "0.x", "proposal"]))
def test_the_expansion_has_no_chunk_and_no_empty_delta(events: list[Raw], dialect: DialectName) -> None:
    result = expanded(events, dialect) or []
    assert not [event for event in result if event["type"].endswith("_CHUNK") or event.get("delta") == ""]
    assert sum(event["type"].endswith("_START") for event in result) == sum(
        event["type"].endswith("_END") for event in result
    )
    input_text = "".join(event.get("delta", "") for event in events if isinstance(event.get("delta"), str))
    if result:
        assert "".join(event.get("delta", "") for event in result) == input_text


START = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
THOUGHT = {"type": "REASONING_MESSAGE_CHUNK", "messageId": "msg-456", "delta": "Analyzing the requirements..."}


def kinds(dialect: DialectName, *events: Raw) -> list[str]:
    expander = Expander(DIALECTS[dialect])
    out = [whole for event in (START, *events) for whole in expander.feed(decode_event(event))]
    return [event.type.removeprefix("REASONING_MESSAGE_") for event in out][1:]


def test_the_proposal_closes_at_an_empty_chunk() -> None:
    """The document's own example."""
    closing = {"type": "REASONING_MESSAGE_CHUNK", "messageId": "msg-456", "delta": ""}
    assert kinds("proposal", THOUGHT, closing) == ["START", "CONTENT", "END"]
    assert kinds("1.0", THOUGHT, closing) == ["START", "CONTENT"]


@pytest.mark.parametrize("event", [{"type": "RAW", "event": 1}, {"type": "CUSTOM", "name": "n", "value": 1}])
def test_the_proposal_closes_at_the_next_event_that_is_not_of_reasoning(event: Raw) -> None:
    assert kinds("proposal", THOUGHT, event) == ["START", "CONTENT", "END", event["type"]]


def test_reasoning_events_keep_the_message_open_in_the_proposal_only() -> None:
    end = {"type": "REASONING_END", "messageId": "reasoning-001"}
    assert kinds("proposal", THOUGHT, end) == ["START", "CONTENT", "REASONING_END"]
    assert kinds("1.0", THOUGHT, end) == ["START", "CONTENT", "END", "REASONING_END"]


@pytest.mark.parametrize("dialect", ["1.0", "0.x", "proposal"])
@pytest.mark.parametrize("type", ["REASONING_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK"])
def test_the_first_chunk_needs_an_id(dialect: DialectName, type: str) -> None:
    with pytest.raises(RequestError, match=r"the first .* needs a"):
        Expander(DIALECTS[dialect]).feed(decode_event({"type": type, "delta": "x"}))


def test_invalid_chunks_have_an_error_code() -> None:
    with pytest.raises(RequestError) as caught:
        Expander(DIALECTS["1.0"]).feed(decode_event({"type": "TEXT_MESSAGE_CHUNK"}))
    assert caught.value.info.code == "bad_chunk"


def test_the_role_depends_on_the_dialect() -> None:
    for dialect in DIALECTS.values():
        start, _ = Expander(dialect).feed(decode_event(THOUGHT))
        assert isinstance(start, agui.ReasoningMessageStartEvent)
        assert start.role == dialect.reasoning_role
