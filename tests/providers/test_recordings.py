"""Recorded responses of real providers, compared with the result of another decoder.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. `DEVIATIONS` lists the
differences that are intended; any other difference is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pellucid.fold import Fold, fold
from pellucid.parts import ModelResponse, TextPart, ThinkingPart
from pellucid.providers.openai_chat.encode import encode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.providers.wire_kit import events_of
from tests.recordings import Recording, larger_set

PROVIDERS = (
    "groq", "deepseek", "zai", "openrouter", "cerebras", "crusoe",
    "huggingface", "ollama", "openai-compat", "snowflake", "bedrock-mantle-chat",
)  # fmt: skip

pytestmark = pytest.mark.needs("recordings")
each_provider = pytest.mark.parametrize("provider", PROVIDERS)


# --- intended differences ----------------------------------------------------------------------------------------

_TAGGED = (
    "groq/test_groq.test_groq_model_thinking_part-0",
    "groq/test_groq.test_groq_model_thinking_part_iter-0",
    "huggingface/test_huggingface.test_hf_model_instructions-0",
    "huggingface/test_huggingface.test_hf_model_thinking_part-1",
    "huggingface/test_huggingface.test_hf_model_thinking_part_iter-0",
    "huggingface/test_huggingface.test_request_simple_usage-0",
)


def strip_white_space(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Strip white space at the ends of each text: next to a tag it belongs to the tag, and is restored with it."""
    return [{**part, "content": part["content"].strip()} if "content" in part else part for part in parts]


def unchanged(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return parts


DEVIATIONS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = dict.fromkeys(
    _TAGGED, strip_white_space
)
"""Recordings whose parts are compared after this change to both sides."""

FAILURES = {
    # An error in the stream is an event, and what came before it is kept; the other decoder raises.
    "openrouter/test_openrouter.test_openrouter_stream_error-0": "Token limit reached",
    # Here the other decoder gives the answer alone, without a word of the error that follows it.
    "groq/test_groq.test_tool_use_failed_error_streaming_with_text-0": "model did not call a tool",
}
"""Recordings that end in an error, and its message."""


RESPONSE_IDS = {
    # The last chunk calls itself "stub". The answer is the one that began.
    "groq/test_groq.test_groq_model_web_search_tool_stream-0": "chatcmpl-03ea1ed2-c2dc-4f8d-ba51-54e08ca9287c",
}


def normalised(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part in a form that both decoders produce: without fields that only one of them sets."""
    compared_fields = (
        "part_kind",
        "content",
        "signature",
        "id",
        "tool_name",
        "args",
        "tool_call_id",
        "provider_details",
    )
    part = {name: part[name] for name in compared_fields if part.get(name) is not None}
    # The other decoder keeps the name of the field or tag in `id`, and makes up ids where the wire has none.
    if part.get("id") in ("reasoning", "reasoning_content", "content"):
        del part["id"]
    if part["part_kind"].startswith("builtin"):
        del part["tool_call_id"]
    if isinstance(part.get("args"), str):
        part["args"] = json.loads(part["args"])
    # The markers around tagged reasoning are ours alone.
    details = {name: value for name, value in part.pop("provider_details", {}).items() if name not in ("open", "close")}
    return part | ({"provider_details": details} if details else {})


def test_every_deviation_is_about_a_recording() -> None:
    assert {*DEVIATIONS, *FAILURES, *RESPONSE_IDS} <= {recording.name for recording in larger_set(*PROVIDERS)}


# --- decoding ----------------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> tuple[Fold, ModelResponse]:
    result = fold(list(events_of(recording.row, recording.body)))
    assert result.response is not None
    return result, result.response


@each_provider
def test_parts_are_as_expected(provider: str) -> None:
    with Cases() as case:
        for recording in larger_set(provider):
            with case(recording.name):
                result, response = decoded(recording)
                if recording.name in FAILURES:
                    assert result.error is not None
                    assert FAILURES[recording.name] in (result.error.upstream_message or "")
                    assert response.finish_reason == "error"
                    assert response.parts, "what came before the error is kept"
                else:
                    assert result.error is None
                if "parts" in recording.expected:
                    level = DEVIATIONS.get(recording.name, unchanged)
                    ours = [normalised(msgspec.to_builtins(part)) for part in response.parts]
                    assert level(ours) == level([normalised(part) for part in recording.expected["parts"]])


@each_provider
def test_usage_and_finish_reason_are_as_expected(provider: str) -> None:
    with Cases() as case:
        for recording in larger_set(provider):
            if recording.name in FAILURES:
                continue
            with case(recording.name):
                _, response = decoded(recording)
                expected = recording.expected
                assert response.finish_reason == expected["finish_reason"]
                assert response.model_name == expected["response_model_name"]
                expected_id = RESPONSE_IDS.get(recording.name, expected["provider_response_id"])
                assert (response.provider_response_id or "") == (expected_id or "")
                usage = expected["usage"]
                for field in ("input_tokens", "output_tokens", "output_reasoning_tokens", "cache_read_tokens"):
                    ours = getattr(response.usage, field)
                    # What was not reported is None here, 0 or absent there.
                    assert (ours or 0) == usage.get(field, ours or 0)
                # `is_byok` is no count but a yes or no.
                details = usage.get("details") or {}
                assert response.usage.details == {k: v for k, v in details.items() if k != "is_byok"}


@each_provider
def test_reasoning_is_sent_back_unchanged(provider: str) -> None:
    """In any field or tags, every character of the reasoning is sent back to the model that produced it."""
    with Cases() as case:
        for recording in larger_set(provider):
            if recording.name in FAILURES:
                continue
            with case(recording.name):
                _, response = decoded(recording)
                row = recording.row
                assert response.origin is not None
                request = encode(ModelCall(model="m", messages=[response]), row, response.origin)
                (message,) = request["messages"]
                sent = msgspec.json.encode(message).decode()
                for part in response.parts:
                    if isinstance(part, ThinkingPart | TextPart) and part.content:
                        assert msgspec.json.encode(part.content).decode()[1:-1] in sent
                    if isinstance(part, ThinkingPart) and part.signature:
                        assert part.signature in sent
                theirs = recording.expected.get("roundtrip_request") or {}
                answer: dict[str, Any] = next((m for m in theirs.get("messages", ()) if m["role"] == "assistant"), {})
                if answer.get("reasoning_details"):
                    entries = [
                        {k: v for k, v in entry.items() if v is not None} for entry in answer["reasoning_details"]
                    ]
                    assert message["reasoning_details"] == entries
                if answer.get(row.replay_field) and row.replay == "field":
                    assert message[row.replay_field] == answer[row.replay_field]
