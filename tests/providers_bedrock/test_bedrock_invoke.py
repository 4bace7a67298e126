"""InvokeModel: a model's own wire, taken out of Bedrock's frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import ModelResponse, Origin, ThinkingPart
from pellucid.providers.bedrock import InvokedDecoder, invoke_body, invoke_path
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.examples import many
from tests.providers_bedrock.bedrock_kit import b64, completeness, cut, exception, frame, merged, said

ROW = builtin_profiles()["anthropic"]

NATIVE: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
                                          "model": "claude", "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me\nsee."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EvYB"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Three."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}},
]  # fmt: skip


def chunk(event: dict[str, Any], **how: Any) -> bytes:
    return frame("chunk", {"bytes": b64(json.dumps(event, **how).encode()), "p": "abcdefg"})


def inner() -> Any:
    return WIRES["anthropic"].decoder(ROW, Origin("bedrock", "anthropic", "m"), "text/event-stream")


def events_of(*reads: bytes) -> list[ModelEvent]:
    reader = InvokedDecoder(inner())
    events = [event for read in reads for event in reader.feed(read)]
    events += reader.end()
    assert reader.end() == []
    return events


def folded(*reads: bytes) -> tuple[Fold, ModelResponse]:
    result = fold([*events_of(*reads)])
    assert result.response is not None
    return result, result.response


WHOLE = b"".join(chunk(event) for event in NATIVE)


def test_the_models_own_events_are_read() -> None:
    _, response = folded(WHOLE)
    assert said(response) == [("thinking", "Let me\nsee."), ("text", "Three.")]
    assert isinstance(response.parts[0], ThinkingPart)
    assert response.parts[0].signature == "EvYB"
    assert (response.finish_reason, response.usage.output_tokens) == ("stop", 9)


def test_it_is_what_the_models_own_wire_says() -> None:
    reader = inner()
    sse = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in NATIVE).encode()
    assert merged(events_of(WHOLE)) == merged(reader.feed(sse) + reader.end())


def test_events_on_several_lines_are_put_on_one() -> None:
    assert merged(events_of(*(chunk(event, indent=1) for event in NATIVE))) == merged(events_of(WHOLE))


@given(st.lists(st.integers(0, len(WHOLE)), max_size=9))
@many
def test_any_cut_gives_the_same(places: list[int]) -> None:
    assert merged(events_of(*cut(WHOLE, places))) == merged(events_of(WHOLE))


def test_it_is_done_when_the_models_own_wire_is() -> None:
    reader = InvokedDecoder(inner())
    reader.feed(b"".join(chunk(event) for event in NATIVE[:-1]))
    assert not reader.done
    reader.feed(chunk(NATIVE[-1]))
    assert reader.done


def test_an_exception_ends_it() -> None:
    data = b"".join(chunk(event) for event in NATIVE[:3])
    result, response = folded(data + exception("modelTimeoutException", {"message": "Too slow."}) + WHOLE)
    assert result.error is not None
    assert (result.error.kind, result.error.said) == ("timeout", "Too slow.")
    assert said(response) == [("thinking", "Let me\nsee.")]
    assert completeness(response) == [False]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\x00" * 16, "frame_broken"),
        (frame("chunk", {"bytes": "no base64!"}), "not_converse"),
        (frame("chunk", {"bytes": b64(b"no json")}), "not_converse"),
        (frame("chunk", {"bytes": 3}), "not_converse"),
        (frame("chunk", {}), "not_converse"),
    ],
)
def test_what_cannot_be_read_ends_it(bad: bytes, code: str) -> None:
    result, _ = folded(chunk(NATIVE[0]) + bad + WHOLE)
    assert result.error is not None
    assert result.error.code == code


def test_events_that_nobody_knows_are_passed_over() -> None:
    assert merged(events_of(frame("progress", {"percent": 3}) + WHOLE)) == merged(events_of(WHOLE))


def test_a_stream_that_breaks_off() -> None:
    result, _ = folded(WHOLE[: len(WHOLE) // 2])
    assert result.error is not None
    assert result.error.code == "stream_truncated"


def test_a_body_goes_through_as_it_is() -> None:
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 1, "output_tokens": 2}}  # fmt: skip
    _, response = folded(json.dumps(body).encode())
    assert response.text == "Hi."


@given(st.binary(max_size=200), st.integers(0, 10**6))
@many
def test_any_damage_gives_a_legal_turn(noise: bytes, at: int) -> None:
    folded(noise)
    damaged = bytearray(WHOLE)
    damaged[at % len(WHOLE)] ^= 4
    folded(bytes(damaged))


def test_the_request() -> None:
    call = ModelCall("anthropic.claude-x:0", [])
    assert invoke_path(call, ROW) == "/model/anthropic.claude-x%3A0/invoke-with-response-stream"
    assert invoke_path(ModelCall("a/b", [], stream=False), ROW) == "/model/a%2Fb/invoke"
    body = {"model": "m", "stream": True, "max_tokens": 5, "messages": []}
    assert invoke_body(body) == {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "messages": []}
    assert invoke_body(body, betas=("b",))["anthropic_beta"] == ["b"]
