"""Recorded answers of Google, compared with the parts of another decoder.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. `normalize`
and `DEVIATIONS` have the intended differences; every other difference is a failure.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pellucid.providers.google import encode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.cutting import cuts_to_try
from tests.providers_google.google_kit import ROWS, cut, events_of, folded, merged, origin
from tests.recordings import recordings

pytestmark = pytest.mark.needs("recordings")


class Recording(NamedTuple):
    name: str
    row: str
    model: str
    body: bytes
    expected: dict[str, Any]


@cache
def recorded() -> list[Recording]:
    return [load(folder) for folder in recordings("google")]


def load(folder: Path) -> Recording:
    expected = json.loads((folder / "expected.json").read_bytes())
    body = (folder / "response.body").read_bytes()
    return Recording(folder.name, "google", expected["model_name"], body, expected)


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


def test_every_deviation_is_about_a_recording() -> None:
    assert set(DEVIATIONS) <= {recording.name for recording in recorded()}


# --- decoding ----------------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, row=recording.row, model=recording.model)
    assert result.error is None
    assert result.response is not None
    return result.response


def test_the_parts_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                ours = [normalize(msgspec.to_builtins(part)) for part in decoded(recording).parts]
                assert ours == [normalize(part) for part in recording.expected["parts"]]


def test_usage_and_finish_reason_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                response, expected = decoded(recording), recording.expected
                assert response.finish_reason == DEVIATIONS.get(recording.name, str)(expected["finish_reason"])
                assert response.native_finish_reason == expected["provider_details"]["finish_reason"]
                assert response.model_name == expected["response_model_name"]
                assert response.provider_response_id == expected["provider_response_id"]
                for field in ("input_tokens", "output_tokens", "output_reasoning_tokens", "cache_read_tokens"):
                    # Usage that was not reported is None here and 0 there.
                    assert (getattr(response.usage, field) or 0) == expected["usage"][field]
                assert response.usage.details == expected["usage"]["details"]


def test_replayed_answers_are_the_expected_ones() -> None:
    """They are the other library's, except for generated ids, a field's name, and the alphabet of base64."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                response = decoded(recording)
                calls = response.tool_calls
                follow_up = ModelRequest(
                    [ToolReturnPart(part.tool_name, "ok", part.tool_call_id) for part in calls]
                    or [UserPromptPart("go on")]
                )
                messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), response, follow_up]
                row = ROWS[recording.row].for_model(recording.model)
                request = encode(ModelCall(recording.model, messages), row, origin(recording.row, recording.model))
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


# --- cuts of the bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_any_cut_gives_the_same_events(line_end: bytes) -> None:
    """Every cut of a small body; of a large one, those near frame boundaries and some others."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                data = recording.body.replace(b"\r\n", b"\n").replace(b"\n", line_end)
                whole = merged(events_of(data))
                for places in cuts_to_try(data, line_end * 2, b'"}', b"\\", seed=recording.name):
                    assert merged(events_of(cut(data, places))) == whole, f"cut at {places}"
                dice = random.Random(recording.name)
                for pieces in (3, 30, 300):
                    assert merged(events_of(cut(data, dice.choices(range(len(data)), k=pieces)))) == whole


def test_a_stream_as_an_array_gives_the_same_events() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                data = recording.body
                if data.startswith(b"data:"):
                    frames = [line[6:].strip() for line in data.splitlines() if line.startswith(b"data:")]
                    as_array = b"[" + b",\r\n".join(frames) + b"]"
                    assert events_of(as_array) == events_of(data)
                    assert events_of([as_array[at : at + 1] for at in range(len(as_array))]) == events_of(data)
