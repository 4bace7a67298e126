"""Forced calls of tools: which models take `tool_choice: required`, for all rows and wires."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from pellucid.errors import RequestError
from pellucid.parts import ModelMessage, ModelRequest, Origin, UserPromptPart
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall, ModelSettings, ToolChoice, ToolDefinition

ROWS = builtin_profiles()
TOOLS = (ToolDefinition("the_tool", parameters_json_schema={"type": "object", "properties": {}}),)
FORCED_WORDS = ('"required"', '"any"', '"ANY"', '"REQUIRED"')
QUESTION: list[ModelMessage] = [ModelRequest([UserPromptPart("Why?")])]


def body_of(profile: Profile, model: str, choice: ToolChoice, **settings: Any) -> str:
    call = ModelCall(model, QUESTION, cast("ModelSettings", settings), TOOLS, choice)
    row = profile.for_model(model)
    return json.dumps(WIRES[row.wire].encode(call, row, Origin("p", model, row.wire)), separators=(",", ":"))


def is_forced(body: str) -> bool:
    return any(word in body for word in FORCED_WORDS) or '"any":{}' in body


REFUSING = [
    ("deepseek", "deepseek-v4-flash"),
    ("deepseek-responses", "deepseek-v4-pro"),
    ("deepseek-anthropic", "deepseek-v4-flash"),
    ("kimi", "kimi-k2.6"),
    ("kimi-anthropic", "kimi-k2.6"),
    ("qwen", "qwen3.6-plus"),
]
"""Models that think by default, and refuse forced calls then."""


@pytest.mark.parametrize(("row", "model"), REFUSING)
def test_a_model_that_thinks_by_default_is_forced_only_when_thinking_is_off(row: str, model: str) -> None:
    profile = ROWS[row]
    for settings in ({}, {"thinking": True}, {"thinking": "high"}):
        with pytest.raises(RequestError, match="or thinking switched off") as caught:
            body_of(profile, model, ToolChoice("required"), **settings)
        assert (caught.value.info.code, caught.value.info.param) == ("forced_tool_choice", "tool_choice")
        assert not is_forced(body_of(profile, model, ToolChoice("required", is_preference=True), **settings))
    assert is_forced(body_of(profile, model, ToolChoice("required"), thinking=False))


NEVER = [
    ("deepseek", "deepseek-reasoner"),
    ("kimi", "kimi-k3"),
    ("kimi", "kimi-k2-thinking"),
    ("qwen", "qwen3-235b-a22b-thinking-2507"),
    ("together", "openai/gpt-oss-120b"),
    ("together", "deepseek-ai/DeepSeek-V4-Pro".lower()),
    ("cerebras", "gpt-oss-120b"),
    ("crusoe", "openai/gpt-oss-120b"),
    ("vllm", "openai/gpt-oss-20b"),
    ("ollama", "gpt-oss:20b"),
    ("ollama-native", "qwen3"),
    ("bedrock-mantle", "openai.gpt-oss-120b"),
    ("anthropic", "claude-opus-5-5"),
]


@pytest.mark.parametrize(("row", "model"), NEVER)
def test_a_model_that_is_never_forced(row: str, model: str) -> None:
    for settings in ({}, {"thinking": False}):
        with pytest.raises(RequestError, match="cannot be made to call a tool; tool_choice must be auto or none"):
            body_of(ROWS[row], model, ToolChoice("required"), **settings)
        assert not is_forced(body_of(ROWS[row], model, ToolChoice("required", is_preference=True), **settings))


@pytest.mark.parametrize(
    ("row", "model"),
    [("deepseek", "deepseek-chat"), ("qwen", "qwen3-coder-plus"), ("vllm", "qwen3"), ("openrouter", "x-ai/grok-4")],
)
def test_other_models_are_forced(row: str, model: str) -> None:
    assert is_forced(body_of(ROWS[row], model, ToolChoice("required")))


@pytest.mark.parametrize("row", ROWS)
def test_every_wire_honours_the_row(row: str) -> None:
    profile = ROWS[row]
    for model in ("m", *(str(entry["match"]).replace("*", "x") for entry in profile.models)):
        choice = ToolChoice("required", is_preference=True)
        flag = profile.for_model(model).forced_calls
        off = body_of(profile, model, choice, thinking=False)
        on = body_of(profile, model, choice, thinking=True)
        assert is_forced(off) == (flag != "never"), (model, flag)
        if flag == "free":
            assert is_forced(on), model
        if flag in ("never", "thinking_switched_off"):
            assert not is_forced(on), model


def test_a_choice_of_named_tools_offers_only_these_where_it_cannot_be_forced() -> None:
    other = ToolDefinition("the_other", parameters_json_schema={"type": "object", "properties": {}})
    call = ModelCall(
        "deepseek-v4-flash", QUESTION, {}, (*TOOLS, other), ToolChoice("required", ("the_tool",), is_preference=True)
    )
    profile = ROWS["deepseek"]
    body = WIRES[profile.wire].encode(call, profile, Origin("p", "m", profile.wire))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["the_tool"]
    assert "tool_choice" not in body
