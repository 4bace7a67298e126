"""Requests that a provider refused, each with the words of the refusal or of the documentation."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pellucid.models import Model
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
from pellucid.settings import ModelCall, ModelSettings, ToolChoice, ToolDefinition

ROWS = builtin_profiles()
TOOLS = (ToolDefinition("look", parameters_json_schema={"type": "object", "properties": {}}),)


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


ALWAYS = [
    # Kimi K3: "invalid thinking"; it has levels. K2.7 Code and K2 Thinking have neither.
    ("kimi", "kimi-k3", {"reasoning_effort": "low"}),
    ("kimi", "kimi-k2.7-code", {}),
    ("kimi", "kimi-k2-thinking", {}),
    # Z.ai: "please use low, high, or max".
    ("zai", "glm-5.3", {"thinking": {"clear_thinking": False, "type": "enabled"}, "reasoning_effort": "low"}),
    # xAI: "reasoning_effort none is not supported".
    ("xai", "grok-4.6", {"reasoning_effort": "low"}),
    ("xai-responses", "grok-4.6", {"reasoning": {"effort": "low"}}),
    # MiniMax M3.1: "requires adaptive thinking" (2013).
    ("minimax", "MiniMax-M3.1-Flash", {"thinking": {"type": "adaptive"}, "reasoning_effort": "low"}),
    ("minimax-anthropic", "MiniMax-M3.1-Flash", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    ("kimi-anthropic", "kimi-k3", {"thinking": {"type": "enabled"}, "output_config": {"effort": "low"}}),
    # Models without a switch on these hosts (models.dev: `reasoning_options` has no toggle).
    ("fireworks", "accounts/fireworks/models/kimi-k3", {"reasoning_effort": "low"}),
    ("fireworks", "accounts/fireworks/models/glm-5p3", {"reasoning_effort": "low"}),
    ("fireworks", "accounts/fireworks/models/kimi-k2p7-code", {}),
    ("together", "zai-org/GLM-5.3", {"reasoning": {"enabled": True}, "reasoning_effort": "low"}),
    # DashScope: "parameter.enable_thinking" of these cannot be false.
    ("qwen", "qwen3-235b-a22b-thinking-2507", {"enable_thinking": True}),
    ("qwen", "kimi-k3", {}),
    # OpenRouter: "Reasoning is mandatory for this endpoint and cannot be disabled".
    ("openrouter", "anthropic/claude-sonnet-5.5", {"reasoning": {"effort": "minimal"}}),
    ("openrouter", "openai/gpt-oss-120b", {"reasoning": {"effort": "minimal"}}),
    ("openrouter", "anthropic/claude-opus-5.5", {"reasoning": {"effort": "minimal"}}),
    ("openrouter", "openai/gpt-5", {"reasoning": {"effort": "minimal"}}),
    ("openrouter", "minimax/minimax-m3.1-flash", {"reasoning": {"effort": "minimal"}}),
    # Bedrock: "reasoning_effort: none" of gpt-oss, and effort "none" of the others.
    ("bedrock", "openai.gpt-oss-120b-1:0", {"additionalModelRequestFields": {"reasoning_effort": "low"}}),
    ("bedrock", "openai.gpt-6-astra", {"additionalModelRequestFields": {"reasoning": {"effort": "low"}}}),
    ("bedrock", "xai.grok-4.6", {"additionalModelRequestFields": {"reasoning": {"effort": "low"}}}),
]
THINKING_FIELDS = (
    "reasoning_effort", "thinking", "reasoning", "additionalModelRequestFields", "output_config", "enable_thinking",
)  # fmt: skip


@pytest.mark.parametrize(("row", "model", "expected"), ALWAYS)
def test_no_request_switches_off_thinking_that_is_always_on(row: str, model: str, expected: dict[str, Any]) -> None:
    body = body_of(row, model, thinking=False)
    assert {name: body[name] for name in THINKING_FIELDS if name in body} == expected


NO_LEVEL = ["grok-4.20-0309-reasoning", "grok-4.20-0309-non-reasoning", "grok-build-0.1", "grok-code-fast-1"]


@pytest.mark.parametrize("row", ["xai", "xai-responses"])
def test_a_grok_without_levels_gets_none(row: str) -> None:
    """chenyme/grok2api#814: "Model grok-4.20-0309-reasoning does not support parameter reasoningEffort"."""
    for model in NO_LEVEL:
        profile = ROWS[row].for_model(model)
        for level in (True, False, "high"):
            body = body_of(row, model, thinking=level)
            assert not {"reasoning", "reasoning_effort"} & set(body), model
            fields = WIRES[profile.wire].setting_fields({"thinking": level}, profile)
            assert setting_warnings(fields, profile, model) == [f"thinking: the thinking of {model} cannot be set"]


@pytest.mark.parametrize(
    ("model", "highest", "off"),
    [("grok-4-0709", "high", "none"), ("grok-4.3", "high", "none"), ("grok-4.7", "xhigh", "low"),
     ("grok-4.20-multi-agent-0309", "xhigh", "low"), ("grok-build-latest", "high", "low")],
)  # fmt: skip
def test_the_levels_of_grok_are_the_same_on_both_of_its_apis(model: str, highest: str, off: str) -> None:
    for level, effort in (("max", highest), (False, off)):
        assert body_of("xai", model, thinking=level)["reasoning_effort"] == effort
        assert body_of("xai-responses", model, thinking=level)["reasoning"]["effort"] == effort


def test_copilot_gets_only_levels_that_it_lists_for_claude() -> None:
    """charmbracelet/crush#2902: "model claude-sonnet-4.5 does not support reasoning effort"; 1jehuang/jcode#558."""
    for model, level, effort in (
        ("claude-sonnet-4.5", "high", None),
        ("claude-opus-4.6", "xhigh", "high"),
        ("claude-sonnet-5", "minimal", "low"),
        ("claude-sonnet-5", False, None),
    ):
        assert body_of("copilot", model, thinking=level).get("reasoning_effort") == effort


def test_the_levels_of_other_makers_behind_the_apis_of_openai_and_anthropic() -> None:
    """DeepSeek's thinking mode: `none` in Responses; `output_config.effort` without a budget in Messages."""
    assert body_of("deepseek-responses", "deepseek-flash", thinking=False)["reasoning"] == {"effort": "none"}
    for row, model, kind, efforts in (
        ("deepseek-anthropic", "deepseek-flash", "enabled", {"low": "low", "xhigh": "high", "max": "max"}),
        ("kimi-anthropic", "kimi-k3", "enabled", {"low": "low", "xhigh": "high", "max": "max"}),
        ("minimax-anthropic", "MiniMax-M3.1-Flash", "adaptive", {"low": "low", "xhigh": "xhigh", "max": "max"}),
        ("minimax-anthropic", "MiniMax-M3", "adaptive", {"low": None, "max": None}),
    ):
        for level, effort in efforts.items():
            body = body_of(row, model, thinking=level)
            assert body["thinking"] == {"type": kind}
            assert body.get("output_config") == (None if effort is None else {"effort": effort})
        assert body_of(row, model, thinking=True)["thinking"] == {"type": kind}
    for row, model in (("deepseek-anthropic", "deepseek-flash"), ("minimax-anthropic", "MiniMax-M3")):
        assert body_of(row, model, thinking=False)["thinking"] == {"type": "disabled"}
    assert body_of("kimi-anthropic", "kimi-k2.6", thinking="low")["thinking"]["budget_tokens"] == 2048


def test_qwen_gets_its_reasoning_where_it_can_be_preserved() -> None:
    """DashScope ignores the reasoning of earlier turns without `preserve_thinking` (vercel/ai def3cdf)."""
    for model in ("qwen3.8-max", "qwen3.7-plus", "qwen3.6-plus-2026-04-02"):
        body = body_of("qwen", model)
        assert (assistant_of(body)["reasoning_content"], body["preserve_thinking"]) == ("I look.", True)
        assert "reasoning_content" not in assistant_of(body_of("qwen", model, thinking=False))
        assert body_of("qwen", model, extra_body={"preserve_thinking": False})["preserve_thinking"] is False
    for model in ("qwen3-max", "qwen-plus"):
        body = body_of("qwen", model)
        assert "preserve_thinking" not in body
        assert "reasoning_content" not in assistant_of(body)


@pytest.mark.parametrize("model", ["kimi-k3", "kimi-k2.7-code", "kimi-k2-thinking"])
def test_a_kimi_that_always_thinks_gets_its_reasoning_although_the_request_switches_thinking_off(model: str) -> None:
    """Otherwise "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"."""
    assert assistant_of(body_of("kimi", model, thinking=False))["reasoning_content"] == "I look."
    assert "reasoning_content" not in assistant_of(body_of("kimi", "kimi-k2.6", thinking=False))


def test_levels_are_sent_to_the_models_of_zai_that_have_them() -> None:
    for model, effort in (("glm-5.2", "medium"), ("glm-5.3", "low"), ("glm-5.1", None), ("glm-5", None)):
        assert body_of("zai", model, thinking="medium").get("reasoning_effort") == effort
    assert body_of("zai", "glm-4.7")["thinking"] == {"clear_thinking": False}, "or earlier reasoning is removed"
    assert body_of("zai", "glm-4.7", zai_clear_thinking=True)["thinking"] == {"clear_thinking": True}


@pytest.mark.parametrize("model", ["openai.gpt-5.6-sol", "openai.gpt-6.1-sol", "xai.grok-4.6"])
def test_bedrock_gets_no_sampling_settings_for_models_that_reject_them(model: str) -> None:
    """ValidationException: temperature, topP and top_k are not supported by this model."""
    body = body_of("bedrock", model, temperature=0.5, top_p=0.5, top_k=5)
    assert "inferenceConfig" not in body
    assert "additionalModelRequestFields" not in body


@pytest.mark.parametrize("row", ["openai", "azure"])
@pytest.mark.parametrize("model", ["gpt-5.4", "gpt-5.5", "gpt-5.6-terra", "gpt-6-astra", "gpt-6-sol"])
def test_functions_stop_the_thinking_of_gpt_over_chat_completions(row: str, model: str) -> None:
    """ "Function tools with reasoning_effort are not supported … set reasoning_effort to 'none'", without one, too."""
    client = Model(model, ROWS[row], base_url="https://host/v1")
    question: list[ModelMessage] = [ModelRequest([UserPromptPart("Why?")])]
    for thinking in (None, True, False, "high"):
        settings: ModelSettings = {} if thinking is None else {"thinking": thinking}
        with_functions = ModelCall(model, question, settings, TOOLS)
        assert client.request(with_functions).body["reasoning_effort"] == "none"
        assert bool(client.warnings(with_functions)) == (thinking is not None)
    assert client.request(ModelCall(model, question, {"thinking": "high"})).body["reasoning_effort"] == "high"
    own = cast("ModelSettings", {"openai_reasoning_effort": "low"})
    assert client.request(ModelCall(model, question, own, TOOLS)).body["reasoning_effort"] == "low"


def test_functions_do_not_stop_thinking_over_responses() -> None:
    assert body_of("openai-responses", "gpt-5.6", thinking="high")["reasoning"] == {"effort": "high"}


@pytest.mark.parametrize("row", ["xai", "xai-responses"])
def test_grok_without_levels_gets_none(row: str) -> None:
    """ "Model grok-4.20-0309-reasoning does not support parameter reasoningEffort."."""
    for thinking in (True, False, "high"):
        body = body_of(row, "grok-4.20-0309-reasoning", thinking=thinking)
        assert not body.keys() & {"reasoning_effort", "reasoning"}


@pytest.mark.parametrize("model", ["us.meta.llama4-scout-17b-instruct-v1:0", "mistral.mistral-large-2402-v1:0"])
def test_bedrock_gets_the_results_of_llama_and_mistral_alone(model: str) -> None:
    """ "Conversation blocks and tool result blocks cannot be provided in the same turn"."""
    history = [*loop("bedrock", model), ModelRequest([UserPromptPart("And now?")])]
    profile = ROWS["bedrock"].for_model(model)
    body = WIRES["bedrock"].encode(ModelCall(model, history, {}, TOOLS), profile, Origin("bedrock", "bedrock", model))
    result, between, question = body["messages"][-3:]
    assert [list(block) for block in result["content"]] == [["toolResult"]]
    assert (between["role"], question["content"]) == ("assistant", [{"text": "And now?"}])


def test_reasoning_at_snowflake_has_a_temperature_of_one() -> None:
    for settings in ({"thinking": True}, {"thinking": "high", "temperature": 0.5}, {"thinking_budget": 2000}):
        assert body_of("snowflake", "claude-opus-5", **settings)["temperature"] == 1
    assert "temperature" not in body_of("snowflake", "claude-opus-5")
    assert body_of("snowflake", "claude-opus-5", thinking=False, temperature=0.5)["temperature"] == 0.5


@pytest.mark.parametrize("model", ["qwen.qwen3-32b-v1:0", "deepseek.v3.2", "zai.glm-5"])
def test_bedrock_cannot_force_a_tool_while_these_models_think(model: str) -> None:
    profile = ROWS["bedrock"].for_model(model)
    for thinking, is_forced in ((True, False), (False, True), (None, True)):
        settings: ModelSettings = {} if thinking is None else {"thinking": thinking}
        choice = ToolChoice("required", is_preference=True)
        call = ModelCall(model, loop("bedrock", model), settings, TOOLS, choice)
        body = WIRES["bedrock"].encode(call, profile, Origin("bedrock", "bedrock", model))
        assert ("toolChoice" in body["toolConfig"]) == is_forced
