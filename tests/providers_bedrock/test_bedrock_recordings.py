"""Recorded answers of Bedrock, compared with the parts of another decoder.

`DEVIATIONS` names the intended differences; every other difference is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from pellucid.parts import ModelResponse
from pellucid.providers.bedrock.encode import encode, path
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.providers_bedrock.bedrock_kit import folded, origin, row_of
from tests.recordings import Recording, larger_set

pytestmark = pytest.mark.needs("recordings")


@cache
def recorded() -> list[Recording]:
    return larger_set("bedrock")


# --- intended differences ------------------------------------------------------------------------------------------


def without_tags(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move tagged thinking of Nova into a thinking part; the other decoder leaves it in the text."""
    before, _, after = parts[0]["content"].partition("</thinking>")
    thinking = {
        "part_kind": "thinking",
        "content": before.removeprefix("<thinking>").strip(),
        "provider_name": "bedrock",
    }
    answer = [{"part_kind": "text", "content": after.strip()}] if after.strip() else []
    return [thinking, *answer, *parts[1:]]


DEVIATIONS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "test_bedrock.test_bedrock_model_iter_stream-0": without_tags,
    "test_bedrock.test_bedrock_model_retry-1": without_tags,
}
"""Recordings whose expected parts are converted by a function."""


def normalize(part: dict[str, Any]) -> dict[str, Any]:
    """Reduce a part to the fields that both decoders have."""
    fields = ("part_kind", "content", "signature", "id", "tool_name", "args", "tool_call_id", "provider_name")
    part = {name: part[name] for name in fields if part.get(name) is not None}
    if isinstance(part.get("args"), str):
        part["args"] = json.loads(part["args"])
    return part


def test_every_deviation_is_about_a_recording() -> None:
    assert set(DEVIATIONS) <= {recording.case for recording in recorded()}


# --- decoding ------------------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, recording.model)
    assert result.error is None
    assert result.response is not None
    return result.response


def test_the_parts_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                expected = DEVIATIONS.get(recording.case, list)(recording.expected["parts"])
                ours = [normalize(msgspec.to_builtins(part)) for part in decoded(recording).parts]
                assert ours == [normalize(part) for part in expected]


def test_usage_and_finish_reason_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response, usage = decoded(recording), recording.expected["usage"]
                assert response.finish_reason == recording.expected["finish_reason"]
                assert response.native_finish_reason == recording.expected["provider_details"]["finish_reason"]
                assert (response.usage.input_tokens, response.usage.output_tokens) == (
                    usage["input_tokens"],
                    usage["output_tokens"],
                )
                assert response.usage.output_reasoning_tokens is None, "it is not reported"
                assert (response.usage.cache_read_tokens or 0) == usage["cache_read_tokens"]
                assert response.usage.details == usage["details"]


def test_replayed_answers_are_the_expected_ones() -> None:
    """They are equal to those of the other library, byte for byte, also where it treats reasoning as text."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                call = ModelCall(model=recording.model, messages=[decoded(recording)])
                (message,) = encode(call, row_of(recording.model), origin(recording.model))["messages"]
                theirs = recording.expected["roundtrip_request"]["messages"]
                assert [message] == [entry for entry in theirs if entry["role"] == "assistant"]


def test_the_path_is_the_recorded_one() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                call = ModelCall(model=recording.model, messages=[], stream=recording.meta["streaming"])
                assert recording.meta["uri"] == row_of().base_url + path(call, row_of())
