"""Requests to Mistral: settings, tools, and which parts of the history are sent back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from pellucid.providers.mistral.encode import encode, safe_call_id
from pellucid.settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from tests.small_wires import FOREIGN, ROWS, SECRET, assistant, foreign_parts, origin, response_of, sse

ROW = ROWS["mistral"]
HELLO = ModelRequest([UserPromptPart("hello")])


def request(*, model: str = "mistral-small-latest", **call: Any) -> dict[str, Any]:
    call.setdefault("messages", [HELLO])
    return encode(ModelCall(model, **call), ROW.for_model(model), origin("mistral", model))


def request_fields(settings: ModelSettings, **call: Any) -> dict[str, Any]:
    """Return the fields that the settings add to the body."""
    plain = request(**call)
    return {name: value for name, value in request(settings=settings, **call).items() if name not in plain}


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert request(stream=False) == {
        "model": "mistral-small-latest",
        "messages": [{"role": "user", "content": "hello"}],
    }
    assert request()["stream"] is True


def test_settings_are_sent_under_their_wire_names() -> None:
    assert request_fields(
        {
            "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop_sequences": ["x"], "cache_key": "k",
            "presence_penalty": 0.1, "frequency_penalty": 0.2, "parallel_tool_calls": False, "user": "nobody",
            "logit_bias": {"1": 2},
        }
    ) == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "random_seed": 7, "stop": ["x"], "prompt_cache_key": "k",
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "parallel_tool_calls": False,
    }  # fmt: skip


def test_extra_body_takes_precedence() -> None:
    assert request_fields({"thinking": "high", "extra_body": {"reasoning_effort": "max", "safe_prompt": True}}) == {
        "reasoning_effort": "max",
        "safe_prompt": True,
    }


@pytest.mark.parametrize(
    ("level", "small"), [(True, "high"), ("minimal", "high"), ("max", "high"), (False, "none"), ("none", "none")]
)
def test_thinking_settings(level: Any, small: str) -> None:
    """mozilla-ai/any-llm#1241: "Reasoning prompt mode is not enabled for this model", Magistral included."""
    assert request_fields({"thinking": level}) == {"reasoning_effort": small}
    assert request_fields({"thinking": level}, model="magistral-medium-latest") == {"reasoning_effort": small}
    assert request_fields({"thinking": level}, model="magistral-medium-2509") == {}
    assert request_fields({"thinking": level}, model="magistral-small-2506") == {}


def test_the_levels_of_glm_are_those_of_its_maker() -> None:
    settings: list[tuple[ModelSettings, str | None, str]] = [
        ({"thinking": "low"}, "low", "high"),
        ({"thinking": "max"}, "max", "max"),
        ({"thinking": False}, None, "none"),
    ]
    for requested, glm_5_3, glm_5_2 in settings:
        for model, effort in (("zai-glm-5-3-flash", glm_5_3), ("zai-glm-5-2", glm_5_2)):
            assert request_fields(requested, model=model).get("reasoning_effort") == effort


def test_without_settings_no_fields_are_sent() -> None:
    assert request_fields({}) == request_fields({}, model="magistral-medium-latest") == {}


# --- tools and output --------------------------------------------------------------------------------------------

F, G = ToolDefinition("f", {"type": "object"}, "does f", strict=True), ToolDefinition("g")


def test_tools_are_sent_as_functions() -> None:
    assert request(tools=(F, G))["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]


@pytest.mark.parametrize(
    ("choice", "offered", "expected"),
    [
        (ToolChoice(), "fg", None),
        (ToolChoice("none"), "fg", "none"),
        (ToolChoice("required"), "fg", "any"),
        (ToolChoice("required", ("f",)), "f", {"type": "function", "function": {"name": "f"}}),
        (ToolChoice("required", ("f", "g")), "fg", "any"),
        (ToolChoice("auto", ("g",)), "g", None),
    ],
)
def test_tool_choice(choice: ToolChoice, offered: str, expected: Any) -> None:
    body = request(tools=(F, G), tool_choice=choice)
    assert "".join(tool["function"]["name"] for tool in body["tools"]) == offered
    assert body.get("tool_choice") == expected


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice names h; the tools are: f, g"):
        request(tools=(F, G), tool_choice=ToolChoice("auto", ("h",)))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (OutputFormat(), None),
        (OutputFormat("json_object"), {"type": "json_object"}),
        (
            OutputFormat("json_schema", "o", {"type": "object"}, strict=True),
            {"type": "json_schema", "json_schema": {"name": "o", "schema": {"type": "object"}, "strict": True}},
        ),
    ],
)
def test_output_format(output: OutputFormat, expected: Any) -> None:
    assert request(output=output).get("response_format") == expected


# --- user messages -----------------------------------------------------------------------------------------------


def test_a_request_with_everything() -> None:
    message = ModelRequest(
        [
            SystemPromptPart("a", "developer"),
            ToolReturnPart("f", {"x": 1}, "aaaaaaaaa"),
            RetryPromptPart("wrong", "g", "bbbbbbbbb"),
        ],
        instructions="be brief",
    )
    assert request(messages=[message])["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "system", "content": "a"},
        {"role": "tool", "tool_call_id": "aaaaaaaaa", "name": "f", "content": '{"x":1}'},
        {"role": "tool", "tool_call_id": "bbbbbbbbb", "name": "g", "content": "wrong"},
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (Text("a"), {"type": "text", "text": "a"}),
        (Image(url="https://e.x/i"), {"type": "image_url", "image_url": "https://e.x/i"}),
        (
            Image(data="AA", media_type="image/gif", detail="low"),
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA", "detail": "low"}},
        ),
        (Audio(data="AA"), {"type": "input_audio", "input_audio": "AA"}),
        (File(file_id="f1"), {"type": "file", "file_id": "f1"}),
        (
            File(url="https://e.x/d", filename="d.pdf"),
            {"type": "document_url", "document_url": "https://e.x/d", "document_name": "d.pdf"},
        ),
        (File(data="AA"), {"type": "document_url", "document_url": "data:application/pdf;base64,AA"}),
    ],
)
def test_user_content(content: UserContent, expected: dict[str, Any]) -> None:
    (message,) = request(messages=[ModelRequest([UserPromptPart([content])])])["messages"]
    assert message["content"] == [expected]


@pytest.mark.parametrize("content", [Video(url="https://e.x"), Image(), Image(file_id="x"), File()])
def test_unsupported_content_is_refused(content: UserContent) -> None:
    with pytest.raises(RequestError, match=f"a {content.kind} in this form cannot be sent to Mistral"):
        request(messages=[ModelRequest([UserPromptPart([content])])])


# --- the history that is sent back -------------------------------------------------------------------------------


def sent(*parts: ModelResponsePart, by: Any = "own", model: str = "m", **row: Any) -> dict[str, Any] | None:
    response = ModelResponse(list(parts), origin=origin("mistral", model) if by == "own" else by)
    if row:
        body = encode(ModelCall(model, [response]), replace(ROW, **row), origin("mistral", model))
        return body["messages"][0] if body["messages"] else None
    return assistant("mistral", response, model=model)


WHY, SO = ThinkingPart("why"), TextPart("so")
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}
ANSWER = {"type": "text", "text": "so"}


@pytest.mark.parametrize(
    ("by", "foreign", "content"),
    [
        ("own", "drop", [THOUGHT, ANSWER]),
        (FOREIGN, "drop", "so"),
        (FOREIGN, "field", [THOUGHT, ANSWER]),
        (None, "drop", [THOUGHT, ANSWER]),
    ],
    ids=["own", "foreign", "foreign, welcome", "unknown"],
)
def test_reasoning_is_sent_back_by_origin(by: Any, foreign: Any, content: Any) -> None:
    message = sent(WHY, SO, by=by, foreign=foreign)
    assert message is not None
    assert message["content"] == content


def test_lost_reasoning_is_left_out() -> None:
    assert sent(SO, ToolCallPart("f", "{}", "aaaaaaaaa")) == {
        "content": "so",
        "tool_calls": [{"id": "aaaaaaaaa", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_truncated_thoughts_and_calls_are_not_sent_back() -> None:
    assert sent(ThinkingPart("why", complete=False)) is None
    assert sent(SO, ToolCallPart("f", '{"', "c", complete=False)) == {"content": "so"}


def test_a_signed_thought_is_sent_back_only_to_its_origin() -> None:
    part = ThinkingPart("why", signature="S", provider_details={"closed": True})
    assert sent(part, SO) == {"content": [THOUGHT | {"signature": "S", "closed": True}, ANSWER]}
    assert sent(part, SO, by=None) == {"content": [THOUGHT, ANSWER]}
    assert sent(part, SO, by=origin("mistral", "another-model")) == {"content": "so"}


def test_the_order_of_parts_is_preserved() -> None:
    message = sent(WHY, SO, ThinkingPart("but"), RefusalPart("no"))
    assert message is not None
    assert [chunk["type"] for chunk in message["content"]] == ["thinking", "text", "thinking", "text"]


ANSWERS = {
    "thought, references, something new": [
        {"type": "thinking", "thinking": [
            {"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "b"},
        ], "closed": True, "signature": "S"},
        {"type": "text", "text": "c"},
        {"type": "reference", "reference_ids": [2, "x"]},
        {"type": "tool_reference", "tool": "web_search", "title": "T", "url": "https://e.x"},
        {"type": "text", "text": "d"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "e"}]},
        {"type": "new", "x": 1},
        {"type": "text", "text": "f"},
        {"type": "reference", "reference_ids": []},
    ],
    "only text": "a",
    "only thought": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}],
    "only a signature": [{"type": "thinking", "thinking": [], "signature": "S"}],
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_a_response_is_sent_back_unchanged(name: str) -> None:
    content = ANSWERS[name]
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    response = response_of("mistral", json.dumps({"choices": [choice]}).encode())
    assert assistant("mistral", response) == {"content": content}


def test_tags_are_sent_back_unchanged() -> None:
    model, text = "magistral-small-2506", "<think>\nwhy\n</think>\n\nso"
    frame = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    response = response_of("mistral", sse(frame), model=model)
    assert assistant("mistral", response, model=model) == {"content": text}


@given(foreign_parts)
def test_opaque_data_is_not_sent_to_another_origin(parts: list[ModelResponsePart]) -> None:
    for by in (FOREIGN, None, origin("mistral", "another-model")):
        message = sent(*parts, by=by)
        assert SECRET not in json.dumps(message)


def test_opaque_parts_that_are_no_chunks_are_not_sent() -> None:
    part = OpaquePart("late_arguments", {"tool_call_id": "c", "arguments": "{}"})
    assert sent(part, SO) == {"content": "so"}


# --- rules of Mistral alone --------------------------------------------------------------------------------------


def test_a_response_to_continue_is_a_prefix() -> None:
    assert request(messages=[HELLO, ModelResponse([SO], origin=None)])["messages"][-1] == {
        "role": "assistant",
        "content": "so",
        "prefix": True,
    }


def test_an_id_of_a_call_has_nine_letters_and_digits() -> None:
    """anomalyco/opencode#1680: every call of another provider was refused for its id."""
    call = ModelResponse([ToolCallPart("f", "{}", "call_0fypS1hVX")], origin=FOREIGN)
    result = ModelRequest([ToolReturnPart("f", "42", "call_0fypS1hVX")])
    _, answer, returned = request(messages=[HELLO, call, result])["messages"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", answer["tool_calls"][0]["id"])
    assert answer["tool_calls"][0]["id"] == returned["tool_call_id"]
    assert safe_call_id("D681PevKs") == "D681PevKs"
    assert safe_call_id("call_1") != safe_call_id("call_2")


def test_a_user_message_does_not_directly_follow_a_tool_message() -> None:
    """aaif-goose/goose#5998: `Unexpected role 'user' after role 'tool'`."""
    result = ModelRequest([ToolReturnPart("f", "42", "aaaaaaaaa"), UserPromptPart("stop")])
    messages = request(messages=[result])["messages"]
    assert [message["role"] for message in messages] == ["tool", "assistant", "user"]
    assert messages[1]["content"]


def test_thought_was_flattened_into_the_answer() -> None:
    """vercel/ai#17971: the history sent to the model contained the answer "391.391"."""
    chunks = [{"type": "thinking", "thinking": [{"type": "text", "text": "391."}]}, {"type": "text", "text": "391"}]
    frame = {"choices": [{"index": 0, "delta": {"content": chunks}, "finish_reason": "stop"}]}
    response = response_of("mistral", sse(frame))
    message = assistant("mistral", response)
    assert message is not None
    assert message["content"] == chunks
    assert response.text == "391"


def test_thought_never_appeared_when_streaming() -> None:
    """BerriAI/litellm#16272: a content that is a list was not read."""
    chunks = [{"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}]
    frame = {"choices": [{"index": 0, "delta": {"content": chunks}, "finish_reason": "stop"}]}
    assert response_of("mistral", sse(frame)).thinking == "why"
