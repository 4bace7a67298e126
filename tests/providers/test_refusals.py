"""Requests that a provider refused, each with the words of the refusal or of the documentation."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.setting_warnings import setting_warnings
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall, ModelSettings, ToolDefinition

ROWS = builtin_profiles()
TOOLS = (ToolDefinition("look", parameters={"type": "object", "properties": {}}),)


def loop(row: str, model: str) -> list[ModelMessage]:
    """Return a tool loop of this model, whose reasoning is not signed."""
    origin = Origin(row, ROWS[row].wire, model)
    return [
        ModelRequest([UserPromptPart("Why?")]),
        ModelResponse(
            [ThinkingPart("I look.", provider_name=row), TextPart("So."), ToolCallPart("look", {}, "c1")], origin=origin
        ),
        ModelRequest([ToolReturnPart("look", "seen", "c1")]),
    ]


def body_of(row: str, model: str, **settings: Any) -> dict[str, Any]:
    profile = ROWS[row].for_model(model)
    call = ModelCall(model, loop(row, model), cast("ModelSettings", settings), TOOLS)
    return WIRES[profile.wire].encode(call, profile, Origin(row, profile.wire, model))


def assistant_of(body: dict[str, Any]) -> dict[str, Any]:
    (message,) = (message for message in body["messages"] if message["role"] == "assistant")
    return cast("dict[str, Any]", message)


ALWAYS_THINKING = [
    # "reasoning_effort 'none' is not supported" (gpt-oss, code wrong_api_format), K3 and GLM-5.3 likewise.
    ("cerebras", "gpt-oss-120b", "low"),
    ("cerebras", "kimi-k3", "low"),
    ("cerebras", "zai-glm-5.3", "low"),
    ("groq", "openai/gpt-oss-20b", "low"),
]


@pytest.mark.parametrize(("row", "model", "lowest"), ALWAYS_THINKING)
def test_a_model_that_always_thinks_gets_the_lowest_level(row: str, model: str, lowest: str) -> None:
    profile = ROWS[row].for_model(model)
    for off in (False, "none"):
        assert body_of(row, model, thinking=off)["reasoning_effort"] == lowest
        fields = WIRES[profile.wire].setting_fields({"thinking": off}, profile)
        assert setting_warnings(fields, profile, model) == [
            f"thinking: the thinking of {model} cannot be switched off; the lowest level is requested"
        ]
    assert "reasoning_effort" not in body_of(row, model)


def test_cerebras_switches_the_thinking_of_other_models_off() -> None:
    for model in ("zai-glm-4.7", "qwen-3.8-27b"):
        assert body_of("cerebras", model, thinking=False)["reasoning_effort"] == "none"


@pytest.mark.parametrize("model", ["zai-glm-4.7", "zai-glm-5.3", "qwen-3-32b", "qwen-3.8-27b"])
def test_cerebras_gets_the_thinking_of_glm_and_qwen_in_the_content(model: str) -> None:
    body = body_of("cerebras", model)
    message = assistant_of(body)
    assert message["content"] == "<think>\nI look.\n</think>\n\nSo."
    assert "reasoning" not in message, "this field of GLM is not read"
    assert body["clear_thinking"] is False, "by default the thinking is removed again"
    assert body_of("cerebras", model, cerebras_clear_thinking=True)["clear_thinking"] is True


def test_cerebras_gets_the_thinking_of_harmony_in_its_field() -> None:
    body = body_of("cerebras", "gpt-oss-120b")
    assert (assistant_of(body)["content"], assistant_of(body)["reasoning"]) == ("So.", "I look.")
    assert "clear_thinking" not in body


BLOB = "EqQBCgIYAhIM"


@pytest.mark.parametrize(
    "redacted",
    [
        ThinkingPart("", signature=BLOB, form="redacted"),
        # Pydantic AI's, from Anthropic's own API and from Bedrock: only the id shows what it is.
        ThinkingPart("", id="redacted_thinking", signature=BLOB, provider_name="anthropic"),
        ThinkingPart("", id="redacted_content", signature=BLOB, provider_name="bedrock"),
    ],
)
def test_redacted_thinking_from_elsewhere_is_no_signature_of_an_empty_text(redacted: ThinkingPart) -> None:
    """`reasoningText` with an empty text and this signature: "Invalid `signature` in `thinking` block"."""
    for row, model, block in (
        (
            "bedrock",
            "us.anthropic.claude-opus-5",
            {"reasoningContent": {"redactedContent": b64encode(BLOB.encode()).decode()}},
        ),
        ("anthropic", "claude-opus-5", {"type": "redacted_thinking", "data": BLOB}),
    ):
        profile = ROWS[row].for_model(model)
        origin = Origin(row, profile.wire, model)
        question, answer, result = loop(row, model)
        assert isinstance(answer, ModelResponse)
        history = [question, replace(answer, parts=[redacted, *answer.parts[1:]]), result]
        body = WIRES[profile.wire].encode(ModelCall(model, history, {}, TOOLS), profile, origin)
        assert assistant_of(body)["content"][0] == block


def test_redacted_thinking_without_its_data_is_not_sent() -> None:
    """`data: null`: "messages.1.content.0.redacted_thinking.data: Input should be a valid string"."""
    part = ThinkingPart("", form="redacted")
    profile = ROWS["anthropic-compat"]
    response = ModelResponse([part, TextPart("So.")], origin=Origin("p", "anthropic", "m"))
    body = WIRES["anthropic"].encode(ModelCall("m", [response]), profile, Origin("p", "anthropic", "m"))
    assert assistant_of(body)["content"] == [{"type": "text", "text": "So."}]
