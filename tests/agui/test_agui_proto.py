"""The npm package decodes our frames to the very events that we wrote."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.events import Event
from pellucid.protocols.agui import events as e
from pellucid.protocols.agui.event_schema import EVENTS
from pellucid.protocols.agui.proto import MEDIA_TYPE, delta_frame_encoder, encode_frame, encode_message
from pellucid.protocols.agui.verify import verify
from tests.agui import agui_node
from tests.agui.agui_kit import encoded, runs, streamed

JSON: dict[str, Any] = {
    "n": None,
    "b": [True, False],
    "f": -1.5,
    "i": 2**53,
    "s": "é\U0001f600",
    "deep": {"": [[], {}]},
}
BASE = {"timestamp": 2**53 - 1, "rawEvent": [1, {"x": None}], "metadata": {"pellucid": {"form": "raw"}, "no": None}}
OWN = {**BASE, "subagentRunId": "s"}
SOURCES = [
    {"type": "data", "value": "aGk=", "mimeType": "image/png"},
    {"type": "url", "value": "https://x", "mimeType": "a/b"},
    {"type": "url", "value": "https://x"},
    {"type": "file", "value": "f", "provider": "p", "mimeType": "a/b"},
]
PARTS = [
    {"type": "text", "text": "", "id": "p", "metadata": JSON},
    *(
        {"type": kind, "source": SOURCES[at], "metadata": {"a": 1}}
        for at, kind in enumerate(["image", "audio", "video"])
    ),
    {"type": "document", "source": SOURCES[3], "id": "q"},
]
META = {"metadata": {"m": [1]}}
MESSAGES: list[dict[str, Any]] = [
    {"id": "1", "role": "developer", "content": "d", "name": "n", **META},
    {"id": "2", "role": "system", "content": "", "encryptedValue": "v"},
    {"id": "3", "role": "user", "content": PARTS, "subagentRunId": "s"},
    {"id": "4", "role": "user", "content": "hi"},
    {
        "id": "5",
        "role": "assistant",
        "content": "so",
        "toolCalls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "encryptedValue": "v", **META}
        ],
    },
    {"id": "6", "role": "tool", "toolCallId": "c", "content": "x", "error": "e"},
    {"id": "7", "role": "tool", "toolCallId": "c", "content": PARTS},
    {"id": "8", "role": "activity", "activityType": "a", "content": JSON},
    {"id": "9", "role": "reasoning", "content": "", "encryptedValue": "v", **META},
]
INPUT = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "parentRunId": "p",
    "state": JSON,
    "messages": MESSAGES,
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, **META}],
    "context": [{"description": "d", "value": "v"}],
    "forwardedProps": JSON,
    "resume": [{"interruptId": "i", "status": "resolved", "payload": JSON, **META}],
}
PATCH = [
    {"op": "add", "path": "/a", "value": None},
    {"op": "remove", "path": ""},
    {"op": "replace", "path": "/b", "value": JSON},
    {"op": "move", "from": "/a", "path": "/b"},
    {"op": "copy", "from": "", "path": "/b"},
    {"op": "test", "path": "/b", "value": 0},
]
USAGE = {
    "usage": [
        {
            "provider": "p",
            "model": "m",
            "inputTokens": 0,
            "outputTokens": 300,
            "totalTokens": 2**40,
            "reasoningTokens": 1,
        },
        {"cachedInputTokens": 5, "cacheWriteInputTokens": 6},
    ]
}
INTERRUPT = {
    "id": "i",
    "reason": "r",
    "message": "m",
    "toolCallId": "c",
    "responseSchema": {"type": "string"},
    "expiresAt": "2026-01-01T00:00:00Z",
    "subagentRunId": "s",
    **META,
}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
SAMPLES: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0", "parentRunId": "p", **BASE},
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": INPUT},
    {**FINISHED, **BASE, **USAGE, "result": JSON},
    {**FINISHED, "outcome": {"type": "success", "pendingToolCallIds": ["a", "b"]}},
    {**FINISHED, "outcome": {"type": "interrupt", "interrupts": [INTERRUPT, {"id": "j", "reason": ""}]}},
    {**FINISHED, "outcome": {"type": "cancelled"}},
    {"type": "RUN_ERROR", "message": "m", "code": "c", **BASE, **USAGE},
    {"type": "STEP_STARTED", "stepName": "s", **OWN},
    {"type": "STEP_FINISHED", "stepName": "", **OWN},
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "user", "name": "n", **OWN},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "d\n" * 200, **OWN},
    {"type": "TEXT_MESSAGE_END", "messageId": "m", **OWN},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "system", "delta": "d", "name": "n", **OWN},
    {"type": "TEXT_MESSAGE_CHUNK", "delta": ""},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m", **OWN},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{", **OWN},
    {"type": "TOOL_CALL_END", "toolCallId": "c", **OWN},
    {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m", "delta": "{", **OWN},
    {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "x", "role": "tool", **OWN},
    {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": PARTS},
    {"type": "STATE_SNAPSHOT", "snapshot": None, **OWN},
    {"type": "STATE_SNAPSHOT", "snapshot": JSON},
    {"type": "STATE_DELTA", "delta": PATCH, **OWN},
    {"type": "MESSAGES_SNAPSHOT", "messages": MESSAGES, **BASE},
    {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "a", "content": JSON, "replace": False, **OWN},
    {"type": "ACTIVITY_DELTA", "messageId": "m", "activityType": "a", "patch": PATCH, **OWN},
    {"type": "RAW", "event": JSON, "source": "s", **OWN},
    {"type": "CUSTOM", "name": "n", "value": None, **OWN},
    {"type": "REASONING_START", "messageId": "m", **OWN},
    {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning", **OWN},
    {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "d", **OWN},
    {"type": "REASONING_MESSAGE_END", "messageId": "m", **OWN},
    {"type": "REASONING_MESSAGE_CHUNK", "messageId": "m", "delta": "d", **OWN},
    {"type": "REASONING_END", "messageId": "m", **OWN},
    {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "c", "encryptedValue": "v", **OWN},
    {
        "type": "SUBAGENT_STARTED",
        "subagentRunId": "s",
        "name": "n",
        "description": "d",
        "parentSubagentRunId": "p",
        "parentToolCallId": "c",
        "parentMessageId": "m",
        **BASE,
    },
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "result": JSON, "outcome": {"type": "success"}, **BASE},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "suspended", "interruptIds": ["i"]}},
    {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "m", "code": "c", **BASE},
]


@pytest.mark.needs("node")
def test_every_event_is_decoded_to_itself() -> None:
    assert {sample["type"] for sample in SAMPLES} == set(EVENTS)
    for sample, result in zip(SAMPLES, agui_node.decode([encode_message(one) for one in SAMPLES]), strict=True):
        assert result.get("event") == sample, (sample["type"], result)


def test_our_classes_are_encoded_like_their_json_objects() -> None:
    for sample in SAMPLES:
        assert encode_message(e.decode_event(sample)) == encode_message(sample), sample["type"]


@pytest.mark.needs("node")
def test_the_client_reads_binary_frames_like_sse() -> None:
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"},
        {"type": "REASONING_START", "messageId": "s"},
        {"type": "REASONING_MESSAGE_START", "messageId": "r1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "r1"},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "r1", "encryptedValue": "v"},
        {"type": "REASONING_END", "messageId": "s"},
        {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "So\n\n\ud83d."},
        {"type": "TEXT_MESSAGE_END", "messageId": "a"},
        FINISHED,
    ]
    assert verify(events) is None
    body = b"".join(encode_frame(event) for event in events)
    assert struct.unpack(">I", body[:4])[0] == len(encode_message(events[0]))
    [result] = agui_node.play("1.0.0", [(body, MEDIA_TYPE)])
    assert result["error"] is None
    assert result["warnings"] == []
    assert result["messages"] == [
        {"id": "r1", "role": "reasoning", "content": "hm", "encryptedValue": "v"},
        {"id": "a", "role": "assistant", "content": "So\n\n\ufffd."},
    ]


DELTAS: list[Callable[[str, str], e.AGUIEvent]] = [
    lambda id, delta: e.TextMessageContentEvent(message_id=id, delta=delta),
    lambda id, delta: e.ReasoningMessageContentEvent(message_id=id, delta=delta),
    lambda id, delta: e.ToolCallArgsEvent(tool_call_id=id, delta=delta),
    lambda id, delta: e.TextMessageChunkEvent(message_id=id, delta=delta),
    lambda id, delta: e.ReasoningMessageChunkEvent(message_id=id, delta=delta),
    lambda id, delta: e.ToolCallChunkEvent(tool_call_id=id, delta=delta),
]


@given(
    st.sampled_from(DELTAS),
    st.text(max_size=9),
    st.integers(0, 300),
    st.lists(st.text(st.characters(codec=None)) | st.integers(0, 1 << 15).map(lambda size: "x" * size), max_size=5),
)
def test_deltas_by_template_are_the_same_bytes(make: Any, id: str, more: int, deltas: list[str]) -> None:
    id += "i" * more  # so that every length of a length comes
    frame = delta_frame_encoder(make(id, "x"))
    for delta in ["", *deltas]:
        assert frame(delta) == encode_frame(make(id, delta))


def test_every_length_near_a_varint_boundary_is_the_same() -> None:
    for make in DELTAS:
        frame = delta_frame_encoder(make("m", "x"))
        for size in [*range(300), *range(16_360, 16_400)]:
            assert frame("x" * size) == encode_frame(make("m", "x" * size))


@given(runs(), st.booleans())
def test_the_frames_of_a_run_are_those_of_its_events(batches: list[list[Event]], chunks: bool) -> None:
    events = streamed(batches, chunks=chunks)
    assert encoded(batches, chunks=chunks, binary=True) == b"".join(encode_frame(event) for event in events)


def test_an_unencodable_field_is_refused_by_name() -> None:
    assert len(get_args(e.ThinkingEvent)) == 5
    with pytest.raises(RequestError, match="THINKING_START events cannot be sent"):
        encode_message({"type": "THINKING_START"})
    with pytest.raises(RequestError, match="THINKING_TEXT_MESSAGE_CONTENT events cannot be sent"):
        delta_frame_encoder(e.ThinkingTextMessageContentEvent(delta="x"))


def test_integers_beyond_a_double_are_encoded() -> None:
    assert encode_message({"type": "CUSTOM", "name": "n", "value": [10**400, -(10**400)]})
