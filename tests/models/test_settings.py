"""Settings: each is sent or has a warning; each provider setting is sent in its field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid import providers
from pellucid.models.anthropic import AnthropicModel, AnthropicModelSettings
from pellucid.models.bedrock import BedrockConverseModel, BedrockModelSettings
from pellucid.models.cohere import CohereModel, CohereModelSettings
from pellucid.models.google import GoogleModel, GoogleModelSettings
from pellucid.models.groq import GroqModel, GroqModelSettings
from pellucid.models.huggingface import HuggingFaceModelSettings
from pellucid.models.infer import infer_model
from pellucid.models.mistral import MistralModel, MistralModelSettings
from pellucid.models.model import Model
from pellucid.models.ollama import OllamaModel, OllamaModelSettings
from pellucid.models.openai import (
    OpenAIChatModel,
    OpenAIChatModelSettings,
    OpenAIResponsesModel,
    OpenAIResponsesModelSettings,
)
from pellucid.models.provider import ProviderModel
from pellucid.parts import ModelRequest, SystemPromptPart, UserPromptPart
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall, ModelSettings, ToolDefinition
from tests.cases import Cases

ROWS = builtin_profiles()
TOOL = ToolDefinition("look", {"type": "object", "properties": {}})


def call(**call_settings: Any) -> ModelCall:
    messages: list[Any] = [ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("q")])]
    return ModelCall("m", messages, call_settings, tools=(TOOL,))  # type: ignore[arg-type]


def model_names(row: str) -> list[str]:
    """Return a model name for each pattern of the profile, and one that matches none."""
    names = ["some-model"]
    for pattern in ROWS[row].models:
        name = pattern["match"]
        while "[" in name:  # one of these characters
            before, _, rest = name.partition("[")
            name = before + rest[0] + rest.partition("]")[2]
        names.append(name.replace("*", "-x").replace("?", "x"))
    return names


MODELS = [(row, name) for row in ROWS for name in model_names(row)]


def model_of(row: str, name: str) -> Model:
    return Model(name, ROWS[row], base_url="https://host/v1")


# --- the unified settings ----------------------------------------------------------------------------------------

# Each with a value that occurs nowhere else.
SETTINGS: dict[str, Any] = {
    "max_tokens": 7777,
    "temperature": 0.123,
    "top_p": 0.456,
    "top_k": 789,
    "seed": 4711,
    "presence_penalty": 0.321,
    "frequency_penalty": 0.654,
    "logit_bias": {"50256": -99},
    "stop_sequences": ["STOP-HERE"],
    "logprobs": True,
    "top_logprobs": 13,
    "parallel_tool_calls": False,
    "thinking": "medium",
    "thinking_budget": 2345,
    "thinking_summary": "detailed",
    "verbosity": "low",
    "service_tier": "priority",
    "user": "user-17",
    "cache_key": "cache-17",
    "metadata": {"who": "metadata-17"},
    "timeout": 17.5,
    "extra_headers": {"x-extra": "header-17"},
    "extra_body": {"extra_field": "body-17"},
}


def test_the_table_has_every_setting() -> None:
    # `wire_settings` holds settings of the others (tests/messages).
    assert {*SETTINGS, "wire_settings"} == set(ModelSettings.__annotations__)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def is_sent(model: Model, call_settings: dict[str, Any], name: str) -> bool:
    """Return whether the request contains the value; for booleans and translated values, whether it has an effect."""
    sent = list(leaves(model.request(call(**call_settings))))
    value = call_settings[name]
    if all(one in sent for one in leaves(value)) and not isinstance(value, bool):
        return True
    rest = {other: its_value for other, its_value in call_settings.items() if other != name}
    matters = sent != list(leaves(model.request(call(**rest))))
    return matters and (isinstance(value, bool) or name in ("thinking", "thinking_summary", "service_tier"))


def is_warned(model: Model, call_settings: dict[str, Any], name: str) -> bool:
    return any(warning.startswith(f"{name}: ") for warning in model.warnings(call(**call_settings)))


def test_each_single_setting_is_sent_or_has_a_warning() -> None:
    with Cases() as case:
        for row, name in MODELS:
            model = model_of(row, name)
            for setting, value in SETTINGS.items():
                with case(f"{row} {name} {setting}"):
                    sent, warned = (
                        is_sent(model, {setting: value}, setting),
                        is_warned(model, {setting: value}, setting),
                    )
                    assert sent or warned
                    if sent and warned:
                        assert setting == "thinking"  # rounded to another level


@given(st.sampled_from(MODELS), st.sets(st.sampled_from(sorted(SETTINGS)), min_size=2))
def test_each_combined_setting_is_sent_or_has_a_warning(where: tuple[str, str], names: set[str]) -> None:
    model = model_of(*where)
    combined = {name: SETTINGS[name] for name in SETTINGS if name in names}
    for name in combined:
        assert is_sent(model, combined, name) or is_warned(model, combined, name), (where, name)


def test_without_the_setting_no_field_about_thinking_is_sent() -> None:
    # The name of a feature may be in these fields: it does not start thinking.
    other = dict.fromkeys(("messages", "input", "model", "include", "anthropic_beta"))
    with Cases() as case:
        for row, name in MODELS:
            with case(f"{row} {name}"):
                model = model_of(row, name)
                # Nor do the fields of the profile, which are about earlier thinking, or switch thinking off.
                model.profile = replace(model.profile, default_fields={}, functions_stop_thinking=False)
                text = json.dumps(model.request(call(temperature=1.0)).body | other)
                for word in ("think", "reason", "effort"):
                    assert word not in text.lower()
                assert model.warnings(call()) == []


@given(
    st.sampled_from(MODELS), st.sampled_from([True, False, "none", "minimal", "low", "medium", "high", "xhigh", "max"])
)
def test_a_thinking_level_is_sent_or_rounded_or_has_a_warning(where: tuple[str, str], level: Any) -> None:
    model = model_of(*where)
    plain, with_level = model.request(call()), model.request(call(thinking=level))
    if plain == with_level and not is_warned(model, {"thinking": level}, "thinking"):
        # The only level without an effect is True for a model that thinks by default.
        assert level is True
        assert model.request(call(thinking=False)) != plain or model.request(call(thinking="high")) != plain


# --- warnings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "call_settings", "expected"),
    [
        ("anthropic:claude-sonnet-4-0", {"temperature": 0.3}, []),
        (
            "anthropic:claude-sonnet-4-0",
            {"thinking": True, "temperature": 0.3},
            ["temperature: it is not sent together with thinking"],
        ),
        (
            "anthropic:claude-sonnet-4-0",
            {"groq_reasoning_format": "raw"},
            ["groq_reasoning_format: it is a setting of Groq, and claude-sonnet-4-0 is called over Anthropic"],
        ),
        (
            "anthropic:claude-sonnet-4-0",
            {"thinking": "low", "anthropic_thinking": {"type": "enabled", "budget_tokens": 2048}},
            ["thinking: it is not sent together with anthropic_thinking"],
        ),
        (
            "anthropic:claude-sonnet-4-0",
            {"thinking": True, "max_tokens": 4000, "thinking_budget": 3500},
            ["thinking_budget: 3500 is sent as 2976, which is what claude-sonnet-4-0 takes"],
        ),
        (
            "anthropic:claude-opus-4-7",
            {"thinking": "minimal"},
            ["thinking: claude-opus-4-7 knows no level 'minimal'; the nearest, 'low', is requested"],
        ),
        (
            "anthropic:claude-opus-5-5",
            {"thinking": False},
            [
                "thinking: the thinking of claude-opus-5-5 cannot be switched off; the lowest level is requested",
            ],
        ),
        (
            "anthropic:claude-3-5-haiku",
            {"thinking": True},
            ["thinking: the thinking of claude-3-5-haiku cannot be set"],
        ),
        ("openai:gpt-4o", {"thinking": "low"}, ["thinking: the thinking of gpt-4o cannot be set"]),
        ("openai:gpt-5", {"thinking": False}, ["thinking: the thinking of gpt-5 cannot be switched off"]),
        ("openai:gpt-5", {"openai_send_reasoning_ids": True}, []),
        ("openai:gpt-5", {"top_k": 3}, ["top_k: gpt-5 takes no such setting"]),
        ("openai:gpt-5", {"temprature": 1}, ["temprature: gpt-5 takes no such setting; did you mean 'temperature'?"]),
        ("openai:gpt-5.1", {"temperature": 0.2, "logprobs": True}, []),
        (
            "openai:gpt-5.1",
            {"thinking": "low", "temperature": 1},
            ["temperature: it is not sent together with thinking"],
        ),
        ("groq:qwen/qwen3-32b", {"thinking": "low"},
         ["thinking: qwen/qwen3-32b knows no level 'low'; its default is used"]),
        ("kimi:k2", {"thinking": "low"}, ["thinking: k2 knows no level 'low'; thinking is requested without a level"]),
        ("ollama:qwen3", {"ollama_think": True}, ["ollama_think: qwen3 takes no such setting"]),
        ("google:gemini-2.5-pro", {"thinking": "low", "parallel_tool_calls": True},
         ["parallel_tool_calls: gemini-2.5-pro takes no such setting"]),
    ],
)  # fmt: skip
def test_warning_messages(spec: str, call_settings: dict[str, Any], expected: list[str]) -> None:
    model = infer_model(spec)
    assert isinstance(model, Model)
    assert model.warnings(call(**call_settings)) == expected


def test_settings_of_the_call_take_precedence_over_those_of_the_model() -> None:
    model = OpenAIResponsesModel("gpt-5", settings={"top_k": 3, "thinking": False})
    assert len(model.warnings(call())) == 2
    assert model.warnings(call(thinking="low", top_k=4)) == ["top_k: gpt-5 takes no such setting"]


# --- provider settings -------------------------------------------------------------------------------------------

CLAUDE, GEMINI, NOVA = AnthropicModel("claude-sonnet-4-5"), GoogleModel("gemini-2.5-pro"), BedrockConverseModel("m")
CHAT, RESPONSES = OpenAIChatModel("gpt-5.1"), OpenAIResponsesModel("gpt-5.1")
EPHEMERAL = {"type": "ephemeral"}

PROVIDER_SETTINGS: dict[Any, tuple[Model, dict[str, tuple[Any, str, Any]]]] = {
    OpenAIChatModelSettings: (CHAT, {
        "openai_reasoning_effort": ("high", "reasoning_effort", "high"),
        "openai_logprobs": (True, "logprobs", True),
        "openai_top_logprobs": (3, "top_logprobs", 3),
        "openai_store": (True, "store", True),
        "openai_user": ("u", "user", "u"),
        "openai_moderation": ({"model": "o"}, "moderation", {"model": "o"}),
        "openai_text_verbosity": ("low", "verbosity", "low"),
        "openai_service_tier": ("flex", "service_tier", "flex"),
        "openai_prediction": ({"type": "content"}, "prediction", {"type": "content"}),
        "openai_prompt_cache_key": ("k", "prompt_cache_key", "k"),
        "openai_prompt_cache_retention": ("24h", "prompt_cache_retention", "24h"),
        "openai_prompt_cache_options": ({"ttl": "1h"}, "prompt_cache_options.ttl", "1h"),
    }),
    OpenAIResponsesModelSettings: (RESPONSES, {
        "openai_reasoning_effort": ("high", "reasoning.effort", "high"),
        "openai_reasoning_summary": ("detailed", "reasoning.summary", "detailed"),
        "openai_reasoning_context": ("all_turns", "reasoning.context", "all_turns"),
        "openai_reasoning_mode": ("pro", "reasoning.mode", "pro"),
        "openai_logprobs": (True, "include", ["reasoning.encrypted_content", "message.output_text.logprobs"]),
        "openai_top_logprobs": (3, "top_logprobs", 3),
        "openai_store": (True, "store", True),
        "openai_user": ("u", "user", "u"),
        "openai_moderation": ({"model": "o"}, "moderation", {"model": "o"}),
        "openai_text_verbosity": ("low", "text.verbosity", "low"),
        "openai_service_tier": ("flex", "service_tier", "flex"),
        "openai_prompt_cache_key": ("k", "prompt_cache_key", "k"),
        "openai_prompt_cache_retention": ("24h", "prompt_cache_retention", "24h"),
        "openai_prompt_cache_options": ({"ttl": "1h"}, "prompt_cache_options.ttl", "1h"),
        "openai_truncation": ("auto", "truncation", "auto"),
        "openai_previous_response_id": ("resp_1", "previous_response_id", "resp_1"),
        "openai_conversation_id": ("conv_1", "conversation", "conv_1"),
        "openai_native_tools": ([{"type": "web_search"}], "tools.1.type", "web_search"),
        "openai_builtin_tools": ([{"type": "web_search"}], "tools.1.type", "web_search"),
        "openai_include_code_execution_outputs": (True, "include.1", "code_interpreter_call.outputs"),
        "openai_include_web_search_sources": (True, "include.1", "web_search_call.action.sources"),
        "openai_include_file_search_results": (True, "include.1", "file_search_call.results"),
        "openai_context_management": ([{"type": "compaction"}], "context_management.0.type", "compaction"),
        "openai_background": (True, "background", True),
    }),
    AnthropicModelSettings: (CLAUDE, {
        "anthropic_thinking": ({"type": "enabled", "budget_tokens": 1024}, "thinking.budget_tokens", 1024),
        "anthropic_effort": ("low", "output_config.effort", "low"),
        "anthropic_task_budget": ({"type": "tokens"}, "output_config.task_budget.type", "tokens"),
        "anthropic_metadata": ({"user_id": "u"}, "metadata.user_id", "u"),
        "anthropic_service_tier": ("standard_only", "service_tier", "standard_only"),
        "anthropic_speed": ("fast", "speed", "fast"),
        "anthropic_betas": (["a-beta"], "anthropic-beta", "interleaved-thinking-2025-05-14,a-beta"),
        "anthropic_container": ("c_1", "container", "c_1"),
        "anthropic_context_management": ({"edits": []}, "context_management", {"edits": []}),
        "anthropic_mcp_servers": ([{"name": "x"}], "mcp_servers.0.name", "x"),
        "anthropic_tools": ([{"type": "web_search_20250305"}], "tools.1.type", "web_search_20250305"),
        "anthropic_eager_input_streaming": (True, "tools.0.eager_input_streaming", True),
        "anthropic_cache": (True, "cache_control", EPHEMERAL),
        "anthropic_cache_instructions": ("1h", "system.0.cache_control", EPHEMERAL | {"ttl": "1h"}),
        "anthropic_cache_tool_definitions": (True, "tools.0.cache_control", EPHEMERAL),
        "anthropic_cache_messages": ("5m", "messages.0.content.0.cache_control", EPHEMERAL | {"ttl": "5m"}),
    }),
    GoogleModelSettings: (GEMINI, {
        "google_thinking_config": ({"include_thoughts": True}, "generationConfig.thinkingConfig.includeThoughts", True),
        "google_safety_settings": ([{"category": "c"}], "safetySettings.0.category", "c"),
        "google_labels": ({"a": "b"}, "labels.a", "b"),
        "google_video_resolution": ("LOW", "generationConfig.mediaResolution", "LOW"),
        "google_cached_content": ("c", "cachedContent", "c"),
        "google_logprobs": (True, "generationConfig.responseLogprobs", True),
        "google_top_logprobs": (3, "generationConfig.logprobs", 3),
        "google_service_tier": ("flex", "serviceTier", "flex"),
        "google_cloud_service_tier": ("flex_only", "X-Vertex-AI-LLM-Shared-Request-Type", "flex"),
        "google_model_armor_config": ({"a": 1}, "modelArmorConfig.a", 1),
    }),
    GroqModelSettings: (GroqModel("qwen-qwq-32b"), {
        "groq_reasoning_format": ("parsed", "reasoning_format", "parsed"),
        "groq_reasoning_effort": ("default", "reasoning_effort", "default"),
    }),
    MistralModelSettings: (MistralModel("magistral-medium"), {
        "mistral_reasoning_effort": ("high", "reasoning_effort", "high"),
        "mistral_prompt_mode": ("reasoning", "prompt_mode", "reasoning"),
        "mistral_prompt_cache_key": ("k", "prompt_cache_key", "k"),
    }),
    CohereModelSettings: (CohereModel("command-a-reasoning-08-2025"), {
        "cohere_thinking": ({"type": "enabled", "token_budget": 99}, "thinking.token_budget", 99),
    }),
    HuggingFaceModelSettings: (GEMINI, {}),
    OllamaModelSettings: (OllamaModel("qwen3", profile="ollama-native"), {
        "ollama_think": ("high", "think", "high"),
    }),
    BedrockModelSettings: (NOVA, {
        "bedrock_additional_model_requests_fields": (
            {"thinking": {"type": "enabled"}}, "additionalModelRequestFields.thinking.type", "enabled"),
        "bedrock_additional_model_response_fields_paths": (["/a"], "additionalModelResponseFieldPaths", ["/a"]),
        "bedrock_guardrail_config": ({"guardrailIdentifier": "g"}, "guardrailConfig.guardrailIdentifier", "g"),
        "bedrock_performance_configuration": ({"latency": "optimized"}, "performanceConfig.latency", "optimized"),
        "bedrock_request_metadata": ({"a": "b"}, "requestMetadata.a", "b"),
        "bedrock_prompt_variables": ({"a": {"text": "b"}}, "promptVariables.a.text", "b"),
        "bedrock_service_tier": ({"type": "flex"}, "serviceTier.type", "flex"),
        "bedrock_inference_profile": ("arn:aws:x/y", "url", "/model/arn%3Aaws%3Ax%2Fy/converse-stream"),
        "bedrock_cache_instructions": (True, "system.1.cachePoint.type", "default"),
        "bedrock_cache_tool_definitions": ("1h", "toolConfig.tools.1.cachePoint.ttl", "1h"),
        "bedrock_cache_messages": (True, "messages.0.content.1.cachePoint.type", "default"),
    }),
}  # fmt: skip


@pytest.mark.parametrize("cls", PROVIDER_SETTINGS)
def test_the_table_has_every_provider_setting(cls: Any) -> None:
    own = {name for name in get_type_hints(cls) if name not in ModelSettings.__annotations__}
    # Predicted outputs are known to Chat Completions alone; ids go back with a history, and have tests there.
    assert set(PROVIDER_SETTINGS[cls][1]) | ({"openai_prediction", "openai_send_reasoning_ids"} & own) == own
    maker = cls.__name__.partition("Model")[0].lower().removesuffix("responses").removesuffix("chat")
    assert all(name.startswith(maker) for name in own)


NO_SETTINGS = {"anthropic_beta", "anthropic_version", "google_search", *WIRES}
"""Fields, tools and wires whose names look like settings."""


def test_every_provider_setting_that_a_wire_or_profile_names_is_declared_with_its_type() -> None:
    declared = {name for cls in PROVIDER_SETTINGS for name in get_type_hints(cls)}
    makers = {name.partition("_")[0] for name in declared - ModelSettings.__annotations__.keys()}
    in_profiles = {name for profile in ROWS.values() for name in profile.own if name.partition("_")[0] in makers}
    quoted_name = re.compile(f'"((?:{"|".join(makers)})(?:_[a-z]+)+)"')
    in_wires = {
        name for file in Path(providers.__path__[0]).rglob("*.py") for name in quoted_name.findall(file.read_text())
    }
    assert in_wires > NO_SETTINGS - WIRES.keys()
    assert in_profiles | in_wires - NO_SETTINGS <= declared


@pytest.mark.parametrize("cls", [cls for cls, (_, table) in PROVIDER_SETTINGS.items() if table])
def test_a_provider_setting_is_sent_in_its_field(cls: Any) -> None:
    model, table = PROVIDER_SETTINGS[cls]
    with Cases() as case:
        for name, (value, place, expected) in table.items():
            with case(name):
                on_vertex = GoogleModel("gemini-2.5-pro", profile="google-vertex", base_url="https://host")
                serves = on_vertex if name == "google_cloud_service_tier" else model
                request = serves.request(call(**{name: value}), "key")
                if place == "url":
                    assert request.url.endswith(expected)
                    continue
                sent_value: Any = {**request.headers, **request.body}
                for step in [place] if place in sent_value else place.split("."):
                    sent_value = sent_value[int(step) if step.isdecimal() else step]
                assert sent_value == expected
                assert serves.warnings(call(**{name: value})) == []


PRECEDENCE = [
    (CHAT, {"thinking": "low", "openai_reasoning_effort": "high"}, "reasoning_effort", "high"),
    (RESPONSES, {"thinking": "low", "openai_reasoning_effort": "high"}, "reasoning", {"effort": "high"}),
    (RESPONSES, {"service_tier": "auto", "openai_service_tier": "flex"}, "service_tier", "flex"),
    (CLAUDE, {"thinking": "low", "anthropic_thinking": {"type": "disabled"}}, "thinking", {"type": "disabled"}),
    (GroqModel("x"), {"thinking": "low", "groq_reasoning_effort": "none"}, "reasoning_effort", "none"),
    (MistralModel("magistral"), {"thinking": False, "mistral_reasoning_effort": "high"}, "reasoning_effort", "high"),
    (CohereModel("c"), {"thinking": True, "cohere_thinking": {"type": "disabled"}}, "thinking", {"type": "disabled"}),
    (OllamaModel("x", profile="ollama-native"), {"thinking": True, "ollama_think": False}, "think", False),
    (
        OpenAIChatModel("x", profile="openrouter"),
        {"thinking": "low", "openrouter_reasoning": {"max_tokens": 9}},
        "reasoning",
        {"max_tokens": 9},
    ),
    (OpenAIChatModel("x", profile="openrouter"), {"thinking": "low", "openai_reasoning_effort": "high"}, "reasoning",
     {"effort": "high"}),
    (OpenAIChatModel("x", profile="zai"), {"thinking": True, "zai_clear_thinking": False}, "thinking",
     {"type": "enabled", "clear_thinking": False}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "call_settings", "field", "expected"), PRECEDENCE)
def test_a_provider_setting_takes_precedence(
    model: ProviderModel, call_settings: dict[str, Any], field: str, expected: Any
) -> None:
    assert model.request(call(**call_settings)).body[field] == expected
    assert model.request(call(**dict(reversed(call_settings.items())))).body[field] == expected, "in any order"
