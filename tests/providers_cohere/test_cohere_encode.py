"""Requests to Cohere: settings, tools, and which parts of the history are sent back."""

from __future__ import annotations

import json
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
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
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
from pellucid.providers.cohere.encode import encode
from pellucid.settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from tests.small_wires import FOREIGN, ROWS, SECRET, assistant, foreign_parts, origin, response_of

ROW = ROWS["cohere"]
HELLO = ModelRequest([UserPromptPart("hello")])


def request(**call: Any) -> dict[str, Any]:
    call.setdefault("messages", [HELLO])
    return encode(ModelCall("m", **call), ROW, origin("cohere"))


def request_fields(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields that the settings add to the body."""
    plain = request()
    return {name: value for name, value in request(settings=settings).items() if name not in plain}


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert request(stream=False) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert request()["stream"] is True
    assert (ROW.base_url, ROW.path) == ("https://api.cohere.com", "/v2/chat")


def test_settings_are_sent_under_their_wire_names() -> None:
    assert request_fields(
        {
            "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "stop_sequences": ["x"],
            "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": True, "user": "nobody",
            "parallel_tool_calls": False,
        }
    ) == {
        "max_tokens": 9, "temperature": 0.5, "p": 0.9, "k": 5, "seed": 7, "stop_sequences": ["x"],
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"thinking": True}, {"type": "enabled"}),
        ({"thinking": False}, {"type": "disabled"}),
        ({"thinking": "none", "thinking_budget": 9}, {"type": "disabled"}),
        ({"thinking": "minimal"}, {"type": "enabled", "token_budget": 512}),
        ({"thinking": "low"}, {"type": "enabled", "token_budget": 2048}),
        ({"thinking": "medium"}, {"type": "enabled", "token_budget": 8192}),
        ({"thinking": "high"}, {"type": "enabled", "token_budget": 16384}),
        ({"thinking": "max"}, {"type": "enabled", "token_budget": 31000}),
        ({"thinking": "high", "thinking_budget": 9}, {"type": "enabled", "token_budget": 9}),
        ({"thinking_budget": 9}, {"type": "enabled", "token_budget": 9}),
        ({"thinking": "low", "extra_body": {"thinking": {"type": "disabled"}}}, {"type": "disabled"}),
    ],
)
def test_thinking_settings(settings: ModelSettings, expected: Any) -> None:
    assert request_fields(settings).get("thinking") == expected


# --- tools and output --------------------------------------------------------------------------------------------

F, G = ToolDefinition("f", {"type": "object"}, "does f", strict=True), ToolDefinition("g")


def test_tools_are_sent_as_functions() -> None:
    body = request(tools=(F, G))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert "strict_tools" not in body
    assert request(tools=(F,))["strict_tools"] is True


@pytest.mark.parametrize(
    ("choice", "offered", "expected"),
    [
        (ToolChoice(), "fg", None),
        (ToolChoice("none", ("f",)), "fg", "NONE"),
        (ToolChoice("required"), "fg", "REQUIRED"),
        (ToolChoice("required", ("f",)), "f", "REQUIRED"),
        (ToolChoice("auto", ("g",)), "g", None),
    ],
)
def test_tool_choice(choice: ToolChoice, offered: str, expected: Any) -> None:
    body = request(tools=(F, G), tool_choice=choice)
    assert "".join(tool["function"]["name"] for tool in body["tools"]) == offered
    assert body.get("tool_choice") == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (OutputFormat(), None),
        (OutputFormat("json_object"), {"type": "json_object"}),
        (
            OutputFormat("json_schema", "o", {"type": "object"}),
            {"type": "json_object", "json_schema": {"type": "object"}},
        ),
    ],
)
def test_output_format(output: OutputFormat, expected: Any) -> None:
    assert request(output=output).get("response_format") == expected


# --- user messages -----------------------------------------------------------------------------------------------


def test_a_request_with_everything() -> None:
    parts: list[ModelRequestPart] = [
        SystemPromptPart("a", "developer"),
        UserPromptPart([Text("b"), Image(data="AA", media_type="image/gif", detail="original")]),
        ToolReturnPart("f", {"x": 1}, "f_1"),
        RetryPromptPart("wrong", "g", "g_1"),
        RetryPromptPart("again"),
    ]
    assert request(messages=[ModelRequest(parts, instructions="be brief")])["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "system", "content": "a"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "b"},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA"}},
            ],
        },
        {"role": "tool", "tool_call_id": "f_1", "content": '{"x":1}'},
        {"role": "tool", "tool_call_id": "g_1", "content": "wrong"},
        {"role": "user", "content": "again"},
    ]


@pytest.mark.parametrize("content", [Video(url="https://e.x"), Audio(data="A"), File(data="A"), Image(file_id="x")])
def test_unsupported_content_is_refused(content: UserContent) -> None:
    with pytest.raises(RequestError, match="cannot be sent to Cohere"):
        request(messages=[ModelRequest([UserPromptPart([content])])])


# --- the history that is sent back -------------------------------------------------------------------------------

WHY, SO = ThinkingPart("why"), TextPart("so")
PLAN = ThinkingPart("I will", provider_details={"subtype": "tool_plan"})
CALL = ToolCallPart("f", "{}", "f_1")
THOUGHT, ANSWER = {"type": "thinking", "thinking": "why"}, {"type": "text", "text": "so"}
CALLED = [{"id": "f_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def sent(*parts: ModelResponsePart, by: Any = "own") -> dict[str, Any] | None:
    return assistant("cohere", ModelResponse(list(parts), origin=origin("cohere") if by == "own" else by))


@pytest.mark.parametrize(
    ("by", "foreign", "content"),
    [
        ("own", "drop", [THOUGHT, ANSWER]),
        (FOREIGN, "drop", [ANSWER]),
        (FOREIGN, "field", [THOUGHT, ANSWER]),
        (None, "drop", [THOUGHT, ANSWER]),
    ],
    ids=["own", "foreign", "foreign, welcome", "unknown"],
)
def test_reasoning_is_sent_back_by_origin(by: Any, foreign: Any, content: Any) -> None:
    response = ModelResponse([WHY, SO], origin=origin("cohere") if by == "own" else by)
    body = encode(ModelCall("m", [response]), replace(ROW, foreign=foreign), origin("cohere"))
    assert body["messages"] == [{"role": "assistant", "content": content}]


def test_lost_reasoning_is_left_out() -> None:
    assert sent(SO, CALL) == {"content": [ANSWER], "tool_calls": CALLED}
    assert sent(CALL) == {"tool_calls": CALLED}


def test_truncated_thoughts_and_calls_are_not_sent_back() -> None:
    assert sent(ThinkingPart("why", complete=False)) is None
    assert sent(SO, ToolCallPart("f", '{"', "c", complete=False)) == {"content": [ANSWER]}


def test_a_tool_plan_is_sent_back_as_a_tool_plan() -> None:
    assert sent(PLAN, CALL) == {"tool_plan": "I will", "tool_calls": CALLED}
    # A plan of another origin is not recognised as one.
    assert sent(PLAN, CALL, by=None) == {
        "content": [{"type": "thinking", "thinking": "I will"}],
        "tool_calls": CALLED,
    }
    assert sent(PLAN, CALL, by=FOREIGN) == {"tool_calls": CALLED}


def test_a_response_is_sent_back_unchanged() -> None:
    message = {
        "content": [THOUGHT, ANSWER, {"type": "new", "x": 1}, {"type": "thinking", "thinking": "but"}],
        "tool_plan": "I will",
        "tool_calls": CALLED,
        "citations": [{"start": 0, "end": 2, "text": "so", "sources": [], "type": "TEXT_CONTENT"}],
    }
    response = response_of("cohere", json.dumps({"finish_reason": "TOOL_CALL", "message": message}).encode())
    assert assistant("cohere", response) == message


@given(foreign_parts)
def test_opaque_data_is_not_sent_to_another_origin(parts: list[ModelResponsePart]) -> None:
    for by in (FOREIGN, None, origin("cohere", "another-model")):
        assert SECRET not in json.dumps(sent(*parts, by=by))


def test_the_plan_was_lost_between_tool_calls() -> None:
    """Other decoders omit the plan from the response, so it could not be sent back."""
    message = {"tool_plan": "I will", "tool_calls": CALLED}
    response = response_of("cohere", json.dumps({"finish_reason": "TOOL_CALL", "message": message}).encode())
    assert response.thinking == "I will"
    assert assistant("cohere", response) == message
