"""Answers that Bedrock really gave, and what another decoder made of them.

Where this package says something else on purpose, `DEVIATIONS` names it; anything else that differs is a failure.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from pellucid.parts import ModelResponse
from pellucid.providers.bedrock import encode, path
from pellucid.settings import ModelCall
from tests.providers_bedrock.bedrock_kit import cut, events_of, folded, merged, origin, recordings, row_of

ROOT = recordings()
NAMES = [folder.name for folder in sorted((ROOT / "bedrock").glob("*"))] if ROOT else []

pytestmark = pytest.mark.skipif(not NAMES, reason="no recordings here; PELLUCID_RECORDINGS says where they are")


class Recording(NamedTuple):
    model: str
    body: bytes
    expected: dict[str, Any]
    meta: dict[str, Any]
    request: dict[str, Any]


def load(name: str) -> Recording:
    assert ROOT is not None
    folder = ROOT / "bedrock" / name
    expected = json.loads((folder / "expected.json").read_bytes())
    meta = json.loads((folder / "meta.json").read_bytes())
    request = json.loads((folder / "request.json").read_bytes())
    return Recording(expected["model_name"], (folder / "response.body").read_bytes(), expected, meta, request)


# --- where we differ on purpose ------------------------------------------------------------------------------------


def out_of_the_tags(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nova thinks aloud in the text. The other decoder leaves it there; here it is reasoning."""
    before, _, after = parts[0]["content"].partition("</thinking>")
    thinking = {
        "part_kind": "thinking",
        "content": before.removeprefix("<thinking>").strip(),
        "provider_name": "bedrock",
    }
    answer = [{"part_kind": "text", "content": after.strip()}] if after.strip() else []
    return [thinking, *answer, *parts[1:]]


DEVIATIONS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "test_bedrock.test_bedrock_model_iter_stream-0": out_of_the_tags,
    "test_bedrock.test_bedrock_model_retry-1": out_of_the_tags,
}
"""Recordings whose expected parts are changed so."""


def normal(part: dict[str, Any]) -> dict[str, Any]:
    """A part as both sides tell it."""
    kept = ("part_kind", "content", "signature", "id", "tool_name", "args", "tool_call_id", "provider_name")
    part = {name: part[name] for name in kept if part.get(name) is not None}
    if isinstance(part.get("args"), str):
        part["args"] = json.loads(part["args"])
    return part


def test_every_deviation_is_about_a_recording() -> None:
    assert set(DEVIATIONS) <= set(NAMES)


# --- what is decoded -----------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, recording.model)
    assert result.error is None
    assert result.response is not None
    return result.response


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_are_the_expected_ones(name: str) -> None:
    recording = load(name)
    expected = DEVIATIONS.get(name, lambda parts: parts)(recording.expected["parts"])
    ours = [normal(msgspec.to_builtins(part)) for part in decoded(recording).parts]
    assert ours == [normal(part) for part in expected]


@pytest.mark.parametrize("name", NAMES)
def test_usage_and_finish_reason_are_the_expected_ones(name: str) -> None:
    recording = load(name)
    response, usage = decoded(recording), recording.expected["usage"]
    assert response.finish_reason == recording.expected["finish_reason"]
    assert response.native_finish_reason == recording.expected["provider_details"]["finish_reason"]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        usage["input_tokens"],
        usage["output_tokens"],
    )
    assert response.usage.output_reasoning_tokens is None, "it is not reported, so it is not known"
    assert (response.usage.cache_read_tokens or 0) == usage["cache_read_tokens"]
    assert response.usage.details == usage["details"]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_goes_back_as_it_came(name: str) -> None:
    """Byte for byte what the other library sends back, also where it calls the reasoning text."""
    recording = load(name)
    call = ModelCall(model=recording.model, messages=[decoded(recording)])
    (message,) = encode(call, row_of(recording.model), origin(recording.model))["messages"]
    theirs = recording.expected["roundtrip_request"]["messages"]
    assert [message] == [entry for entry in theirs if entry["role"] == "assistant"]


@pytest.mark.parametrize("name", NAMES)
def test_the_path_is_the_one_that_was_asked(name: str) -> None:
    recording = load(name)
    call = ModelCall(model=recording.model, messages=[], stream=recording.meta["streaming"])
    assert recording.meta["uri"] == row_of().base_url + path(call, row_of())


# --- however the bytes are cut -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_events(name: str) -> None:
    recording = load(name)
    data, model = recording.body, recording.model
    whole = merged(events_of(data, model))
    for place in range(len(data)):
        assert merged(events_of(cut(data, [place]), model)) == whole, f"cut at {place}"
    assert merged(events_of([data[at : at + 1] for at in range(len(data))], model)) == whole, "byte by byte"
    dice = random.Random(name)
    for pieces in (3, 30, 300):
        assert merged(events_of(cut(data, dice.choices(range(len(data)), k=pieces)), model)) == whole
