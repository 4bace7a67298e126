"""Answers that Google gave, and what another decoder made of them.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. Where this package says
something else on purpose, `normal` and `DEVIATIONS` say so; anything else that differs is a failure.
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
from tests.cutting import places_to_cut
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


# --- where we differ on purpose ----------------------------------------------------------------------------------


def normal(part: dict[str, Any]) -> dict[str, Any]:
    """A part as both sides tell it: everything that is only bookkeeping is levelled here, and nowhere else.

    * A signature is `signature` for us, and as with them `thought_signature` among the details.
    * Ids of calls to which Google gave none are made up there, and minted by the run here.
    * Thought has its maker's name here; what Google shows of it are summaries; success goes without saying.
    """
    kept: tuple[str, ...] = (
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
        kept = tuple(name for name in kept if name != "provider_name")
    if "signature" in part:
        assert part["signature"] == part["provider_details"]["thought_signature"]
    return {name: part[name] for name in kept if part.get(name) is not None}


TOOL_CALL: Callable[[str], str] = {"stop": "tool_call"}.__getitem__
"""Google says STOP after calls, too; a finish reason that hides them is no help to anyone."""

DEVIATIONS: dict[str, Callable[[str], str]] = dict.fromkeys(
    (
        "test_google.test_google_instructions_only_with_tool_calls-0",
        "test_google.test_google_instructions_only_with_tool_calls-2",
        "test_google.test_google_instructions_only_with_tool_calls-4",
        "test_structured_output.test_native_output_with_function_tools_stream-0",
    ),
    TOOL_CALL,
)
"""Recordings whose finish reason is another one."""


def test_every_deviation_is_about_a_recording() -> None:
    assert set(DEVIATIONS) <= {recording.name for recording in recorded()}


# --- what is decoded ---------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, row=recording.row, model=recording.model)
    assert result.error is None
    assert result.response is not None
    return result.response


def test_the_parts_are_the_expected_ones() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                ours = [normal(msgspec.to_builtins(part)) for part in decoded(recording).parts]
                assert ours == [normal(part) for part in recording.expected["parts"]]


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
                    # What was not reported is None here, 0 there.
                    assert (getattr(response.usage, field) or 0) == expected["usage"][field]
                assert response.usage.details == expected["usage"]["details"]


def test_what_goes_back_is_what_came() -> None:
    """The other side's request, but for its made-up ids, its name for results, and base64 in another alphabet."""
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
                assert [_level(content) for content in request["contents"]] == [_level(content) for content in theirs]


def _level(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        gone = ("id",) if name in ("functionCall", "functionResponse") else ()
        said = {"return_value": "output"}  # the second is the one that Google documents
        return {said.get(inner, inner): _level(entry, inner) for inner, entry in value.items() if inner not in gone}
    if isinstance(value, list):
        return [_level(entry) for entry in value]
    return value.replace("-", "+").replace("_", "/") if name == "thoughtSignature" else value


# --- however the bytes are cut -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_any_cut_in_two_gives_the_same_events(line_end: bytes) -> None:
    """Every cut of a small body; of a large one those around frame boundaries, and some anywhere."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                data = recording.body.replace(b"\r\n", b"\n").replace(b"\n", line_end)
                whole = merged(events_of(data))
                for place in places_to_cut(data, line_end * 2, b'"}', b"\\", seed=recording.name):
                    assert merged(events_of(cut(data, [place]))) == whole, f"cut at {place}"
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
