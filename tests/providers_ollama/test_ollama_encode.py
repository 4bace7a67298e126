"""Requests to Ollama's native endpoint: settings, tools, and which parts of the history are sent back."""

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
)
from pellucid.providers.ollama.encode import encode
from pellucid.settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from tests.small_wires import FOREIGN, ROWS, SECRET, assistant, foreign_parts, lines, origin, response_of

ROW = ROWS["ollama-native"]
HELLO = ModelRequest([UserPromptPart("hello")])


def request(model: str = "qwen3", **call: Any) -> dict[str, Any]:
    call.setdefault("messages", [HELLO])
    return encode(ModelCall(model, **call), ROW.for_model(model), origin("ollama-native", model))


def request_fields(settings: ModelSettings, model: str = "qwen3") -> dict[str, Any]:
    """Return the fields that the settings add to the body."""
    plain = request(model)
    return {name: value for name, value in request(model, settings=settings).items() if name not in plain}


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_minimal_request_has_the_stream_field() -> None:
    """Ollama streams by default."""
    hello = {"role": "user", "content": "hello"}
    assert request(stream=False) == {"model": "qwen3", "messages": [hello], "stream": False}
    assert request()["stream"] is True
    assert (ROW.base_url, ROW.path) == ("http://127.0.0.1:11434", "/api/chat")


def test_settings_are_sent_as_options() -> None:
    assert request_fields(
        {
            "max_tokens": 9, "temperature": 0, "top_p": 0.9, "top_k": 5, "seed": 7, "stop_sequences": ["x"],
            "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": True, "top_logprobs": 2, "user": "nobody",
        }
    ) == {
        "options": {
            "num_predict": 9, "temperature": 0, "top_p": 0.9, "top_k": 5, "seed": 7, "stop": ["x"],
            "presence_penalty": 0.1, "frequency_penalty": 0.2,
        },
        "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("level", "qwen", "gpt_oss"),
    [
        (True, True, True),
        (False, False, False),
        ("none", False, False),
        ("minimal", True, "low"),
        ("low", True, "low"),
        ("high", True, "high"),
        ("max", True, "high"),
    ],
)
def test_thinking_settings(level: Any, qwen: Any, gpt_oss: Any) -> None:
    """charmbracelet/crush#2623: `think value "medium" is not supported for this model`."""
    assert request_fields({"thinking": level}) == {"think": qwen}
    assert request_fields({"thinking": level}, "gpt-oss:20b") == {"think": gpt_oss}


def test_models_in_the_cloud_have_levels() -> None:
    """ollama/ollama#16877 documents `max`; models.dev has the levels of each model."""
    for model, low in (("kimi-k3:cloud", "low"), ("glm-5.2:cloud", "high"), ("deepseek-v4-pro:0813-cloud", "low")):
        assert request_fields({"thinking": "low"}, model) == {"think": low}
        assert request_fields({"thinking": "max"}, model) == {"think": "max"}


def test_without_settings_no_fields_are_sent() -> None:
    assert request_fields({}) == request_fields({}, "gpt-oss:20b") == {}


def test_extra_body_takes_precedence() -> None:
    assert request_fields({"thinking": True, "extra_body": {"think": "max", "keep_alive": "5m"}}) == {
        "think": "max",
        "keep_alive": "5m",
    }


# --- tools and output --------------------------------------------------------------------------------------------

F, G = ToolDefinition("f", {"type": "object"}, "does f"), ToolDefinition("g")


@pytest.mark.parametrize(
    ("choice", "offered"),
    [(ToolChoice(), "fg"), (ToolChoice("none"), ""), (ToolChoice("auto", ("g",)), "g")],
)
def test_tools_are_sent_as_functions(choice: ToolChoice, offered: str) -> None:
    body = request(tools=(F, G), tool_choice=choice)
    assert "".join(tool["function"]["name"] for tool in body.get("tools", ())) == offered
    assert "tool_choice" not in body


def test_a_required_tool_choice_is_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice must be auto or none"):
        request(tools=(F,), tool_choice=ToolChoice("required"))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (OutputFormat(), None),
        (OutputFormat("json_object"), "json"),
        (OutputFormat("json_schema", schema={"type": "object"}), {"type": "object"}),
    ],
)
def test_output_format(output: OutputFormat, expected: Any) -> None:
    assert request(output=output).get("format") == expected


# --- user messages -----------------------------------------------------------------------------------------------


def test_a_request_with_everything() -> None:
    images = [Image(data="AA"), Image(url="data:image/png;base64,BB")]
    parts: list[ModelRequestPart] = [
        SystemPromptPart("a", "developer"),
        UserPromptPart([Text("b"), *images, Text("c")]),
        ToolReturnPart("f", {"x": 1}, "call_1"),
        RetryPromptPart("wrong", "g"),
        RetryPromptPart("again"),
    ]
    assert request(messages=[ModelRequest(parts, instructions="be brief")])["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b\n\nc", "images": ["AA", "BB"]},
        {"role": "tool", "tool_name": "f", "tool_call_id": "call_1", "content": '{"x":1}'},
        {"role": "tool", "tool_name": "g", "content": "wrong"},
        {"role": "user", "content": "again"},
    ]


@pytest.mark.parametrize("content", [Image(url="https://e.x/i"), Image(file_id="x"), Audio(data="A"), File(data="A")])
def test_unsupported_content_is_refused(content: UserContent) -> None:
    with pytest.raises(RequestError, match="takes text, and images as base64 data"):
        request(messages=[ModelRequest([UserPromptPart([content])])])


# --- the history that is sent back -------------------------------------------------------------------------------

WHY, SO = ThinkingPart("why"), TextPart("so")


def sent(*parts: ModelResponsePart, by: Any = "own") -> dict[str, Any] | None:
    return assistant("ollama-native", ModelResponse(list(parts), origin=origin("ollama-native") if by == "own" else by))


@pytest.mark.parametrize(
    ("by", "foreign", "thought"),
    [
        ("own", "drop", {"thinking": "why"}),
        (FOREIGN, "drop", {}),
        (FOREIGN, "field", {"thinking": "why"}),
        (None, "drop", {"thinking": "why"}),
    ],
    ids=["own", "foreign", "foreign, welcome", "unknown"],
)
def test_reasoning_is_sent_back_by_origin(by: Any, foreign: Any, thought: dict[str, str]) -> None:
    response = ModelResponse([WHY, SO], origin=origin("ollama-native") if by == "own" else by)
    body = encode(ModelCall("m", [response]), replace(ROW, foreign=foreign), origin("ollama-native"))
    assert body["messages"] == [{"role": "assistant", "content": "so", **thought}]


def test_lost_reasoning_is_left_out() -> None:
    assert sent(ToolCallPart("f", {"a": 1}, "call_1")) == {
        "content": "",
        "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": {"a": 1}}}],
    }


def test_truncated_thoughts_and_calls_are_not_sent_back() -> None:
    assert sent(ThinkingPart("why", complete=False)) is None
    assert sent(SO, ToolCallPart("f", '{"', "c", complete=False)) == {"content": "so"}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ("[1]", {"invalid_json": "[1]"}),
        ("{a}", {"invalid_json": "{a}"}),
    ],
)
def test_arguments_are_sent_back_as_an_object(args: Any, expected: dict[str, Any]) -> None:
    message = sent(ToolCallPart("f", args))
    assert message is not None
    assert message["tool_calls"] == [{"function": {"name": "f", "arguments": expected}}]


def test_a_response_is_sent_back_unchanged() -> None:
    message = {
        "content": "so",
        "thinking": "why",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}],
    }
    response = response_of("ollama-native", lines({"message": message, "done": True}))
    assert assistant("ollama-native", response) == message


@given(foreign_parts)
def test_opaque_data_is_not_sent_to_another_origin(parts: list[ModelResponsePart]) -> None:
    for by in (FOREIGN, None, origin("ollama-native", "another-model")):
        assert SECRET not in json.dumps(sent(*parts, by=by))
