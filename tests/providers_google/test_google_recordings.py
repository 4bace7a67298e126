"""Recorded answers of Google, compared with the parts of another decoder.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. `normalize`
and `DEVIATIONS` have the intended differences; every other difference is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pellucid.providers.google.encode import encode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.providers_google.google_kit import events_of, folded, origin
from tests.recordings import Recording, larger_set, recordings

needs_recordings = pytest.mark.needs("recordings")


@cache
def recorded() -> list[Recording]:
    return larger_set("google")


# --- intended differences ----------------------------------------------------------------------------------------


def normalize(part: dict[str, Any]) -> dict[str, Any]:
    """Reduce a part to the fields that both decoders have. All differences in form are removed here.

    * A signature is in `signature` here, and in both in `thought_signature` of the details.
    * For calls without an id, the other decoder generates one; here the run does.
    * Thoughts have a provider name and a form here; results have an outcome.
    """
    fields: tuple[str, ...] = (
        "part_kind",
        "content",
        "tool_name",
        "args",
        "provider_details",
        "provider_name",
        "data",
        "media_type",
    )
    if part["part_kind"] == "thinking":
        fields = tuple(name for name in fields if name != "provider_name")
    if "signature" in part:
        assert part["signature"] == part["provider_details"]["thought_signature"]
    return {name: part[name] for name in fields if part.get(name) is not None}


TOOL_CALL: Callable[[str], str] = {"stop": "tool_call"}.__getitem__
"""Google sends STOP after calls, too; here the finish reason is `tool_call`."""

DEVIATIONS: dict[str, Callable[[str], str]] = dict.fromkeys(
    (
        "test_google.test_google_instructions_only_with_tool_calls-0",
        "test_google.test_google_instructions_only_with_tool_calls-2",
        "test_google.test_google_instructions_only_with_tool_calls-4",
        "test_structured_output.test_native_output_with_function_tools_stream-0",
    ),
    TOOL_CALL,
)
"""Recordings with another finish reason here."""


@needs_recordings
def test_every_deviation_is_about_a_recording() -> None:
    assert set(DEVIATIONS) <= {recording.case for recording in recorded()}


# --- decoding ----------------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, row=recording.provider, model=recording.model)
    assert result.error is None
    assert result.response is not None
    return result.response


@needs_recordings
def test_the_parts_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                ours = [normalize(msgspec.to_builtins(part)) for part in decoded(recording).parts]
                assert ours == [normalize(part) for part in recording.expected["parts"]]


@needs_recordings
def test_usage_and_finish_reason_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response, expected = decoded(recording), recording.expected
                assert response.finish_reason == DEVIATIONS.get(recording.case, str)(expected["finish_reason"])
                assert response.native_finish_reason == expected["provider_details"]["finish_reason"]
                assert response.model_name == expected["response_model_name"]
                assert response.provider_response_id == expected["provider_response_id"]
                for field in ("input_tokens", "output_tokens", "output_reasoning_tokens", "cache_read_tokens"):
                    # Usage that was not reported is None here and 0 there.
                    assert (getattr(response.usage, field) or 0) == expected["usage"][field]
                assert response.usage.details == expected["usage"]["details"]


@needs_recordings
def test_replayed_answers_are_the_expected_ones() -> None:
    """They are the other library's, except for generated ids, a field's name, and the alphabet of base64."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.case):
                response = decoded(recording)
                calls = response.tool_calls
                follow_up = ModelRequest(
                    [ToolReturnPart(part.tool_name, "ok", part.tool_call_id) for part in calls]
                    or [UserPromptPart("go on")]
                )
                messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), response, follow_up]
                row = recording.row
                request = encode(ModelCall(recording.model, messages), row, origin(recording.provider, recording.model))
                theirs = recording.expected["roundtrip_request"]["contents"]
                assert [_normalize_content(content) for content in request["contents"]] == [
                    _normalize_content(content) for content in theirs
                ]


def _normalize_content(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        ignored = ("id",) if name in ("functionCall", "functionResponse") else ()
        other_names = {"return_value": "output"}  # the second one is in Google's documentation
        return {
            other_names.get(inner, inner): _normalize_content(entry, inner)
            for inner, entry in value.items()
            if inner not in ignored
        }
    if isinstance(value, list):
        return [_normalize_content(entry) for entry in value]
    return value.replace("-", "+").replace("_", "/") if name == "thoughtSignature" else value


# --- other forms of the bytes --------------------------------------------------------------------------------------


def test_a_stream_as_an_array_gives_the_same_events() -> None:
    with Cases() as case:
        for recording in recordings("google"):
            # The end of an array shows that the response is complete.
            if "cut" in recording.meta.get("cases", ()):
                continue
            with case(recording.name):
                data = recording.body
                if data.startswith(b"data:") and b"event_type" not in data:
                    frames = [line[6:].strip() for line in data.splitlines() if line.startswith(b"data:")]
                    as_array = b"[" + b",\r\n".join(frames) + b"]"
                    assert events_of(as_array) == events_of(data)
                    assert events_of([as_array[at : at + 1] for at in range(len(as_array))]) == events_of(data)
