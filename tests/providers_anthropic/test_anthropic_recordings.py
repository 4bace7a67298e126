"""Recorded answers of Anthropic, compared with the parts of another decoder.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. `DEVIATIONS` names the
intended differences; every other difference is a failure.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest

from pellucid.parts import BuiltinToolCallPart, ModelResponse
from pellucid.providers.anthropic.encode import encode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.providers_anthropic.anthropic_kit import response_of
from tests.recordings import Recording, larger_set, recordings

needs_recordings = pytest.mark.needs("recordings")


@cache
def recorded() -> list[Recording]:
    return larger_set("anthropic")


DEVIATIONS = {
    # In a stream, the other decoder drops calls of server tools that its request did not offer, and keeps their
    # results. A replayed result without its call is refused.
    "test_anthropic.test_anthropic_advisor_tool_stream-0": "the call of the advisor is kept",
    "test_anthropic.test_anthropic_web_fetch_tool_stream-0": "the call of the fetch is kept",
}
"""Recordings with one more part here: the call of a provider's tool."""

NOT_SENT = {
    # The other library does not send blocks of a tool that its next request does not offer; here they are replayed.
    "test_anthropic.test_anthropic_advisor_tool_stream-0",
    "test_anthropic.test_anthropic_advisor_tool_message_replay-0",
    "test_anthropic.test_anthropic_web_fetch_tool_stream-0",
}


def normalize(part: dict[str, Any]) -> dict[str, Any]:
    """Reduce a part to the fields that both decoders have."""
    fields = ("part_kind", "content", "signature", "id", "tool_name", "args", "tool_call_id", "provider_details")
    part = {name: part[name] for name in fields if part.get(name) is not None}
    if isinstance(part.get("args"), str):
        part["args"] = json.loads(part["args"])
    return part


def normalized_parts(name: str, response: ModelResponse) -> list[dict[str, Any]]:
    return [
        normalize(msgspec.to_builtins(part))
        for part in response.parts
        if not (name in DEVIATIONS and isinstance(part, BuiltinToolCallPart))
    ]


@needs_recordings
def test_every_deviation_is_about_a_recording() -> None:
    assert {*DEVIATIONS, *NOT_SENT} <= {recording.case for recording in recorded()}


@needs_recordings
def test_the_parts_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response = response_of(recording.body, recording.row)
                assert normalized_parts(recording.case, response) == [
                    normalize(part) for part in recording.expected["parts"]
                ]
                calls = [part for part in response.parts if isinstance(part, BuiltinToolCallPart)]
                assert recording.case not in DEVIATIONS or len(calls) == 1


@needs_recordings
def test_usage_and_finish_reason_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response, expected = response_of(recording.body, recording.row), recording.expected
                assert response.finish_reason == expected["finish_reason"]
                assert response.model_name == expected["response_model_name"]
                assert response.provider_response_id == expected["provider_response_id"]
                details = {
                    name: value for name, value in expected["provider_details"].items() if name != "finish_reason"
                }
                assert response.native_finish_reason == expected["provider_details"]["finish_reason"]
                assert (response.provider_details or {}) == details
                usage = expected["usage"]
                for field in (
                    "input_tokens",
                    "output_tokens",
                    "output_reasoning_tokens",
                    "cache_read_tokens",
                    "cache_write_tokens",
                ):
                    # Usage that was not reported is None here and 0 there.
                    assert (getattr(response.usage, field) or 0) == usage[field]
                # The details here also count the calls of each server tool.
                assert usage["details"].items() <= response.usage.details.items()


@needs_recordings
def test_replayed_answers_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response = response_of(recording.body, recording.row)
                assert response.origin is not None
                request = encode(ModelCall(model="claude", messages=[response]), recording.row, response.origin)
                (message,) = request["messages"]
                assert message["role"] == "assistant"
                (theirs,) = [m for m in recording.expected["roundtrip_request"]["messages"] if m["role"] == "assistant"]
                if recording.case not in NOT_SENT:
                    assert message["content"] == [bare(block) for block in theirs["content"]]
                else:
                    shared = ("thinking", "text")
                    assert [b for b in message["content"] if b["type"] in shared] == [
                        b for b in theirs["content"] if b["type"] in shared
                    ]


def bare(value: Any) -> Any:
    """Remove the nulls that the other library adds."""
    if isinstance(value, dict):
        return {name: bare(entry) for name, entry in value.items() if entry is not None}
    return [bare(entry) for entry in value] if isinstance(value, list) else value


def test_blocks_of_a_body_are_replayed_unchanged() -> None:
    """The body of an answer has the blocks as the provider sent them."""
    with Cases() as case:
        for recording in (one for one in recordings("anthropic") if one.body.startswith(b"{")):
            with case(recording.name):
                response = response_of(recording.body, recording.row)
                assert response.origin is not None
                (message,) = encode(ModelCall(model="claude", messages=[response]), recording.row, response.origin)[
                    "messages"
                ]
                assert message["content"] == json.loads(recording.body)["content"]
