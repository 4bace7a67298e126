"""Recorded responses of real providers, compared with the result of another decoder.

Each recording comes with `expected.json`: what Pydantic AI decodes from the same bytes. `normalised` and the tables
below it list the differences that are intended; any other difference is a failure.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import msgspec
import pytest

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.openai_responses.encode import encode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.providers_openai_responses.responses_kit import folded, origin
from tests.providers_openai_responses.strict_upstream import deepseek_refusal, openai_refusal
from tests.recordings import Recording, larger_set, own_recordings

PROVIDERS = ("openai-responses", "azure-responses", "bedrock-mantle", "deepseek-responses", "openrouter-responses")

needs_recordings = pytest.mark.needs("recordings")


@cache
def recorded() -> list[Recording]:
    """Return the recordings that another decoder decoded."""
    return larger_set(*PROVIDERS)


@cache
def complete() -> list[Recording]:
    """Return all recordings of complete responses, except `NOT_COMPARED`."""
    own = [one for one in own_recordings() if one.row.wire == "openai_responses" and one.name not in NOT_COMPARED]
    return [*(one for one in own if one.expected["finish_reason"] in ("stop", "tool_call")), *recorded()]


NOT_COMPARED = {
    "copilot-responses/ids_rotate": "its end does not list the output",
    "openai-responses/generated_image": "an image is looked up by its id, so it is sent only if the provider stores it",
    "openai-responses/refusal": "a refusal has no id",
    "xai-responses/reasoning_outside_the_count": "a custom call is answered by xAI itself, unlike OpenAI's",
}
"""Own recordings to which the rules for items that are sent back do not apply, with the reason."""


# --- intended differences ----------------------------------------------------------------------------------------


def normalised(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part in a form that both decoders produce."""
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
    part = {**{name: part[name] for name in compared_fields if part.get(name) is not None}, **_file(part)}
    details = part.pop("provider_details", {})
    if "raw_content" in details:
        # RAW: plain reasoning is the content of a thinking part here, not a detail of an empty one.
        part["content"] = "".join(details.pop("raw_content"))
    # NATIVE: the item of a builtin tool is kept, to be sent back unchanged.
    details.pop("native", None)
    # CITATIONS: they are annotations of the text here.
    details.pop("citations", None)
    if part["part_kind"].startswith("builtin") or part["part_kind"] == "file":
        # IDS: every part of a builtin tool has the id of its item here.
        part.pop("id", None)
        # ARGS: arguments of a builtin tool are an object here, streamed or not.
        if isinstance(part.get("args"), str):
            part["args"] = json.loads(part["args"])
    return part | ({"provider_details": details} if details else {})


def _file(part: dict[str, Any]) -> dict[str, Any]:
    """BASE64: data is as on the wire here; the other decoder uses the URL-safe alphabet."""
    if part["part_kind"] != "file":
        return {}
    content = part.get("content") or part
    data = content["data"].replace("-", "+").replace("_", "/").rstrip("=")
    return {"content": {"data": data, "media_type": content["media_type"]}}


PICTURES = "openai-responses/test_openai_responses.test_openai_responses_code_execution_return_image_stream-0"
"""ORDER: the files that a tool created follow its result, because call and result are one item."""

WITH_TOOL_CALLS = "tool_call"
"""FINISH: the finish reason of a response with calls is `tool_call`, as on every wire; the other decoder has `stop`."""


BOOLEAN_DETAILS = (
    "input_tokens",
    "output_tokens",
    "output_reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)

UNREPORTED = ("is_byok", "web_search_requests")
"""COUNTS: a boolean is no count, and searches are not reported as usage: the other decoder counts them itself."""


@needs_recordings
def test_every_deviation_is_about_a_recording() -> None:
    assert PICTURES in {recording.name for recording in recorded()}


def test_every_exception_is_about_an_own_recording() -> None:
    assert NOT_COMPARED.keys() <= {recording.name for recording in own_recordings()}


# --- decoding ----------------------------------------------------------------------------------------------------


def decoded(recording: Recording) -> ModelResponse:
    result = folded(recording.body, recording.row)
    assert result.error is None
    assert result.response is not None
    return result.response


@needs_recordings
def test_parts_are_as_expected() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                response = decoded(recording)
                ours = [normalised(msgspec.to_builtins(part)) for part in response.parts]
                theirs = [normalised(part) for part in recording.expected["parts"]]
                if recording.name == PICTURES:
                    assert [part["part_kind"] for part in theirs[2:4]] == ["file", "builtin-tool-return"]
                    theirs[2:4] = reversed(theirs[2:4])
                assert ours == theirs


@needs_recordings
def test_usage_and_finish_reason_are_as_expected() -> None:
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                response = decoded(recording)
                expected = recording.expected
                assert response.finish_reason == (WITH_TOOL_CALLS if response.tool_calls else expected["finish_reason"])
                assert response.native_finish_reason == expected["provider_details"]["finish_reason"]
                assert response.model_name == expected["response_model_name"]
                assert response.provider_response_id == expected["provider_response_id"]
                usage = expected["usage"]
                for field in (
                    "input_tokens",
                    "output_tokens",
                    "output_reasoning_tokens",
                    "cache_read_tokens",
                    "cache_write_tokens",
                ):
                    ours = getattr(response.usage, field)
                    # What was not reported is None here, 0 there.
                    assert (ours or 0) == usage[field]
                assert response.usage.details == {k: v for k, v in usage["details"].items() if k not in UNREPORTED}


@needs_recordings
def test_output_items_are_sent_back_unchanged() -> None:
    """The same origin gets every reasoning item complete, and the rest as the other decoder sends it."""
    with Cases() as case:
        for recording in recorded():
            with case(recording.name):
                response = decoded(recording)
                history: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), response]
                ours = encode(ModelCall("m", history), recording.row, origin(recording.row))["input"]
                theirs = recording.expected["roundtrip_request"]["input"]
                for item, other in zip(ours, theirs, strict=False):
                    if other.get("encrypted_content") or item.get("type") == "reasoning":
                        assert item["summary"] == other.get("summary", [])
                        assert (
                            item.get("content") == other.get("content") or "<think>" in other["content"]
                        )  # TAGS: never
                        assert (
                            item.get("encrypted_content") == other.get("encrypted_content")
                            or "<think>" in other["content"]
                        )
                    elif item.get("type") == "message":
                        assert [c["text"] for c in item["content"]] == [_text(other)]
                        # PHASE, ID: they are sent back to every own origin, not only to OpenAI.
                        assert item.get("phase") == other.get("phase", item.get("phase"))
                        assert item["id"] == other.get("id", item["id"])
                    elif item.get("type") == "function_call":
                        assert json.loads(item.pop("arguments")) == json.loads(other["arguments"])
                        assert item == {**item, **{k: v for k, v in other.items() if k != "arguments"}}
                    else:
                        # SOURCES, LOGS: results of a builtin tool are sent back, too, if the response had them.
                        assert {k: v for k, v in item.items() if k not in ("action", "outputs")} == {
                            k: v for k, v in other.items() if k not in ("action", "outputs")
                        }


def output_of(recording: Recording) -> list[dict[str, Any]]:
    """Return the output of a recorded response, as the provider lists it at the end."""
    if recording.body.lstrip().startswith(b"{"):
        whole: list[dict[str, Any]] = json.loads(recording.body)["output"]
        return whole
    lines = [line.removeprefix(b"data: ") for line in recording.body.splitlines() if line.startswith(b"data: {")]
    ends = [event["response"] for event in map(json.loads, lines) if event["type"] == "response.completed"]
    output: list[dict[str, Any]] = ends[-1]["output"]
    return output


def _sent(recording: Recording, response: ModelResponse) -> list[dict[str, Any]]:
    returns: list[ModelRequestPart] = [
        ToolReturnPart(call.tool_name, "r", call.tool_call_id) for call in response.tool_calls
    ]
    history: list[ModelMessage] = [response, ModelRequest([*returns, UserPromptPart("go on")])]
    items: list[dict[str, Any]] = encode(ModelCall("m", history), recording.row, origin(recording.row))["input"]
    return items


def test_every_item_of_a_response_is_sent_back_with_its_id() -> None:
    with Cases() as case:
        for recording in complete():
            with case(recording.name):
                items, output = _sent(recording, decoded(recording)), output_of(recording)
                ours = [item for item in items if "id" in item]
                if not recording.row.interleaved_calls:
                    output.sort(key=lambda item: item["type"] == "function_call")
                    assert deepseek_refusal(items) is None
                assert [item["type"] for item in ours] == [item["type"] for item in output]
                if recording.row.native_forms:  # OpenRouter changes the ids at the end
                    assert [item["id"] for item in ours] == [item["id"] for item in output]
                    assert openai_refusal(items, [output]) is None or not recording.row.include


def test_a_response_without_its_reasoning_is_not_refused() -> None:
    with Cases() as case:
        for recording in complete():
            if recording.row.native_forms:
                with case(recording.name):
                    whole = decoded(recording)
                    parts = [part for part in whole.parts if not isinstance(part, ThinkingPart)]
                    items = _sent(recording, msgspec.structs.replace(whole, parts=parts))
                    assert openai_refusal(items, [output_of(recording)]) is None
                    assert [item.get("call_id") for item in items if item.get("type") == "function_call"] == [
                        call.tool_call_id for call in whole.tool_calls
                    ]


def _text(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(entry["text"] for entry in content)


# --- truncated bytes -----------------------------------------------------------------------------------------------


def test_a_stream_truncated_anywhere_keeps_the_content_received() -> None:
    with Cases() as case:
        for recording in complete():
            if not recording.name.startswith("openai-responses/") or recording.body.startswith(b"{"):
                continue
            with case(recording.name):
                data, row = recording.body, recording.row
                dice = random.Random(recording.name)
                for place in dice.choices(range(data.index(b"\n\n"), len(data) - 200), k=12):
                    result = folded(data[:place], row)
                    assert result.error is not None
                    assert result.error.code == "stream_truncated"
