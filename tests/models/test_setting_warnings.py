"""Warnings about settings: what the wires declare, against trial encodings.

`setting_trials` finds the settings that a model ignores without knowledge of any wire: it encodes the request with and
without each setting. It is too slow for requests, and is the oracle of these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.local.model_index import all_models
from pellucid.models.embedded import embedded_warnings, request_body
from pellucid.models.model import Model
from pellucid.parts import Origin
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall, ModelSettings, ToolDefinition
from tests.cases import Cases
from tests.models.setting_trials import Trial, trial_warnings

CUSTOM_PROFILES: dict[str, dict[str, Any]] = {
    "own-details": {
        "extends": "openrouter",
        "knows": ["top_k", "metadata", "user"],
        "budget_field": "thinking_budget",
        "efforts": ["low", "max"],
        "models": [{"match": "small*", "thinking": "none", "max_tokens": "max_completion_tokens"}],
    },
    "own-switch": {"thinking": "reasoning_switch", "sampling": "never"},
    "own-words": {"thinking": "effort", "efforts": ["fast", "slow"], "sampling": "without_thinking"},
    "own-claude": {
        "extends": "anthropic",
        "betas": ["b-1", "b-2"],
        "max_tokens_default": 777,
        "budgets": {"low": 1111, "high": 2222, "on": 1500},
        "thinking_mode": "budget",
        "sampling": "without_thinking",
    },
}
"""Profiles as an operator writes them."""
ROWS = builtin_profiles() | load_profiles(CUSTOM_PROFILES, builtin_profiles())

# Values that can be distinguished from each other, and some that cannot.
VALUES: dict[str, list[Any]] = {
    "max_tokens": [7777, 3000, 1500, 2048, 4096],
    "temperature": [0.123, 1.0],
    "top_p": [0.456, 1.0],
    "top_k": [789, 5],
    "seed": [4711],
    "presence_penalty": [0.321],
    "frequency_penalty": [0.654],
    "logit_bias": [{"50256": -99}, {}],
    "stop_sequences": [["STOP-HERE"], []],
    "logprobs": [True, False],
    "top_logprobs": [13, 5],
    "parallel_tool_calls": [True, False],
    "thinking": [True, False, "none", "minimal", "low", "medium", "high", "xhigh", "max"],
    "thinking_budget": [2345, 500, 1024, 2048, 4096, 16384, 50_000],
    "thinking_summary": ["detailed", "auto"],
    "verbosity": ["low", "high"],
    "service_tier": ["priority", "auto", "default", "flex", "some"],
    "user": ["user-17", "user-18"],
    "cache_key": ["cache-17"],
    "metadata": [{"who": "metadata-17"}, {}],
    "timeout": [17.5],
    "extra_headers": [{"x-extra": "header-17"}, {}, {"anthropic-beta": "beta-17"}],
    "extra_body": [
        {"extra_field": "body-17"},
        {"temperature": 0.3},
        {"reasoning_effort": "high"},
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "low"}},
        {"thinking": {"type": "disabled"}},
        {"user": "user-17", "top_k": 5},
        {"generationConfig": {"temperature": 0.5, "thinkingConfig": {"thinkingLevel": "low"}}},
        {"inferenceConfig": {"topP": 0.5}},
        {"output_config": {"effort": "low"}},
        {"options": {"seed": 3}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {},
    ],
    "openai_reasoning_effort": ["none", "low", "high"],
    "openai_logprobs": [True, False],
    "openai_top_logprobs": [3, 5],
    "openai_store": [True, False, None],
    "openai_user": ["user-17", "user-19"],
    "openai_moderation": [{"model": "o"}],
    "openai_text_verbosity": ["low", "high"],
    "openai_service_tier": ["flex", "priority"],
    "openai_prediction": [{"type": "content"}],
    "openai_prompt_cache_key": ["cache-17", "cache-18"],
    "openai_prompt_cache_retention": ["24h"],
    "openai_prompt_cache_options": [{"ttl": "1h"}],
    "openai_reasoning_summary": ["detailed", "concise"],
    "openai_reasoning_context": ["all_turns"],
    "openai_reasoning_mode": ["pro"],
    "openai_send_reasoning_ids": [True, False],
    "openai_truncation": ["auto"],
    "openai_previous_response_id": ["auto", "resp_7"],
    "openai_conversation_id": ["conv_7"],
    "openai_native_tools": [[{"type": "web_search"}], []],
    "openai_builtin_tools": [[{"type": "web_search"}]],
    "openai_include_code_execution_outputs": [True, False],
    "openai_include_web_search_sources": [True],
    "openai_include_file_search_results": [True],
    "openai_context_management": [[{"type": "compaction"}]],
    "openai_background": [True, False],
    "anthropic_thinking": [{"type": "enabled", "budget_tokens": 2000}, {"type": "disabled"}, {"type": "adaptive"}],
    "anthropic_effort": ["low", "max", None],
    "anthropic_task_budget": [{"type": "tokens", "total": 20_000}],
    "anthropic_metadata": [{"user_id": "user-17"}, {"user_id": "user-20"}],
    "anthropic_service_tier": ["standard_only", "auto"],
    "anthropic_speed": ["standard", "fast"],
    "anthropic_betas": [["b-1"], ["b-1", "b-2"], ["interleaved-thinking-2025-05-14"], ["fast-mode-2026-02-01"]],
    "anthropic_container": ["c-1", {"skills": []}, False],
    "anthropic_context_management": [{"edits": [{"type": "clear_tool_uses_20250919"}]}],
    "anthropic_mcp_servers": [[{"type": "url", "url": "https://x.example", "name": "x"}]],
    "anthropic_tools": [[{"type": "web_search_20250305", "name": "web_search"}]],
    "anthropic_eager_input_streaming": [True, False],
    "anthropic_cache": [True, "1h", False],
    "anthropic_cache_instructions": [True, "1h", False],
    "anthropic_cache_tool_definitions": [True, False],
    "anthropic_cache_messages": [True, "5m", False],
    "google_thinking_config": [{"thinking_budget": 9}, {"thinking_level": "low"}, {}],
    "google_safety_settings": [[{"category": "C", "threshold": "T"}]],
    "google_labels": [{"a": "b"}],
    "google_video_resolution": ["LOW"],
    "google_cached_content": ["cachedContents/x"],
    "google_logprobs": [True, False],
    "google_top_logprobs": [3, 5],
    "google_service_tier": ["flex", "priority"],
    "google_cloud_service_tier": ["pt_only", "flex_only", "pt_then_on_demand"],
    "google_model_armor_config": [{"a": "b"}],
    "bedrock_additional_model_requests_fields": [
        {"a": 1},
        {"top_k": 5},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}},
        {"reasoning_effort": "low"},
        {},
    ],
    "bedrock_additional_model_response_fields_paths": [["/x"]],
    "bedrock_guardrail_config": [{"guardrailIdentifier": "g"}],
    "bedrock_performance_configuration": [{"latency": "optimized"}],
    "bedrock_request_metadata": [{"a": "b"}, {"who": "metadata-17"}],
    "bedrock_prompt_variables": [{"a": {"text": "b"}}],
    "bedrock_service_tier": [{"type": "flex"}, {"type": "priority"}],
    "bedrock_inference_profile": ["arn:aws:bedrock:us-east-1:1:inference-profile/x"],
    "bedrock_cache_instructions": [True, "1h", False],
    "bedrock_cache_tool_definitions": [True, False],
    "bedrock_cache_messages": [True, False],
    "mistral_reasoning_effort": ["none", "high"],
    "mistral_prompt_mode": ["reasoning"],
    "mistral_prompt_cache_key": ["cache-17", "cache-18"],
    "cohere_thinking": [{"type": "enabled", "token_budget": 9}, {"type": "disabled"}],
    "ollama_think": [True, False, "low"],
    "groq_reasoning_format": ["parsed"],
    "groq_reasoning_effort": ["none", "default", "low"],
    "openrouter_reasoning": [{"effort": "low"}, {"max_tokens": 9}],
    "openrouter_models": [["a/b", "c/d"]],
    "openrouter_provider": [{"sort": "price"}],
    "snowflake_reasoning": [{"effort": "low"}],
    "cerebras_disable_reasoning": [True],
    "cerebras_reasoning_format": ["parsed"],
    "zai_clear_thinking": [True, False],
    "unknown": ["x"],
    "temprature": [1],
}
THINKING_FIELDS = {"thinking", "reasoning", "reasoning_effort", "output_config", "generationConfig", "inferenceConfig"}
"""Fields of `extra_body` that replace those for the amount of thinking."""
OWN_PREFIXES = {
    "openai_chat": ("openai_",),
    "openai_responses": ("openai_",),
    "anthropic": ("anthropic_",),
    "google": ("google_",),
    "mistral": ("mistral_",),
    "cohere": ("cohere_",),
    "bedrock": ("bedrock_",),
    "ollama": ("ollama_",),
}
"""The prefixes of each wire's own settings."""


def _model_names(row: Profile) -> Iterator[str]:
    """Return a model name for each pattern of the profile, and one that matches none."""
    yield "some-model"
    for pattern in row.models:
        name: str = pattern["match"]
        while "[" in name:  # one of these characters
            before, _, rest = name.partition("[")
            name = before + rest[0] + rest.partition("]")[2]
        yield name.replace("*", "-x").replace("?", "x")


MODELS = [(name, model) for name, row in ROWS.items() for model in _model_names(row)]


def names_for(row: Profile) -> list[str]:
    """Return the names of the unified settings and of the profile's own."""
    own = set(row.own) | {name for name in VALUES if name.startswith(OWN_PREFIXES[row.wire])}
    return [name for name in VALUES if name in ModelSettings.__annotations__ or name in own]


def expected_warnings(model: Model, call_settings: dict[str, Any]) -> list[str]:
    return trial_warnings(call_settings, model.origin, model.profile, model.request)  # type: ignore[arg-type]


def warnings_of(model: Model, call_settings: dict[str, Any]) -> list[str]:
    return model.warnings(ModelCall(model.name, [], call_settings))  # type: ignore[arg-type]


def model_of(row: str, name: str) -> Model:
    model = Model(name, ROWS[row], base_url="https://host/v1")
    # That functions stop thinking is no matter of settings (tests/providers/test_refusals.py).
    model.profile = replace(model.profile, functions_stop_thinking=False)
    return model


@st.composite
def settings_for(draw: st.DrawFn, row: Profile) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(names_for(row)), min_size=1, max_size=6, unique=True))
    drawn = {name: draw(st.sampled_from(VALUES[name])) for name in names}
    if len(drawn) > 2 and not THINKING_FIELDS.isdisjoint(drawn.get("extra_body", ())):
        # If a setting has the effect that others are not sent, the trials count it as effective, although its own
        # fields are replaced.
        del drawn["extra_body"]
    if drawn.get("service_tier") == "auto":
        drawn.pop("parallel_tool_calls", None)  # The trials would take the "auto" of `tool_choice` for the tier.
    return drawn


def test_warnings_of_each_single_setting_on_every_row() -> None:
    with Cases() as case:
        for row, name in MODELS:
            model = model_of(row, name)
            trial = Trial(model.origin, model.profile, model.request)
            for setting in VALUES if name == "some-model" else names_for(model.profile):
                for value in VALUES[setting]:
                    with case(f"{row} {name} {setting}={value!r}"):
                        call_settings: Any = {setting: value}
                        assert warnings_of(model, call_settings) == trial.warnings(call_settings)


@given(st.data())
def test_warnings_of_combined_settings(data: st.DataObject) -> None:
    model = model_of(*data.draw(st.sampled_from(MODELS)))
    drawn = data.draw(settings_for(model.profile))
    assert warnings_of(model, drawn) == expected_warnings(model, drawn)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, value


@given(st.data())
def test_the_declared_fields_of_settings_are_sent(data: st.DataObject) -> None:
    model = model_of(*data.draw(st.sampled_from(MODELS)))
    drawn: Any = data.draw(settings_for(model.profile))
    try:
        sent = model.request(ModelCall(model.name, [], drawn))
    except RequestError:
        return
    declared = WIRES[model.profile.wire].setting_fields(drawn, model.profile)
    assert set(map(repr, _leaves({"body": declared.body}))) - {"(('body',), {})"} <= set(
        map(repr, _leaves({"body": sent.body}))
    )


def test_a_setting_of_none_has_no_warning() -> None:
    names = VALUES.keys() - {"thinking", "extra_body", "extra_headers"}  # without which there is no request
    with Cases() as case:
        for row, name in MODELS:
            model = model_of(row, name)
            for setting in names:
                with case(f"{row} {name} {setting}"):
                    assert warnings_of(model, {setting: None}) == []


@given(st.data())
def test_warnings_of_the_embedded_model(data: st.DataObject) -> None:
    origin, row = Origin("local", "openai_chat", "embedded"), ROWS["llama.cpp"]
    drawn: Any = data.draw(settings_for(row))
    # The engine has one switch and one level: of two settings that request the same, the trials find that neither acts.
    if "chat_template_kwargs" in drawn.get("extra_body", ()) and drawn.keys() & {"thinking", "openai_reasoning_effort"}:
        del drawn["extra_body"]
    if "thinking" in drawn:
        drawn.pop("openai_reasoning_effort", None)
    local_model = data.draw(st.sampled_from(all_models()))
    tools = data.draw(st.sampled_from([(), (ToolDefinition("look", {"type": "object", "properties": {}}),)]))
    trials = trial_warnings(
        drawn, origin, row, lambda call: request_body(replace(call, tools=tools), origin, local_model)
    )
    assert embedded_warnings(ModelCall("", [], drawn, tools), {}, origin, local_model) == trials


@pytest.mark.parametrize(
    ("thinking", "effort", "expected"),
    [
        (True, "high", []),
        ("low", "low", ["thinking: it is not sent together with openai_reasoning_effort"]),
        ("low", "high", ["thinking: it is not sent together with openai_reasoning_effort"]),
        (
            "high",
            "none",
            [
                "thinking: it is not sent together with openai_reasoning_effort",
                "openai_reasoning_effort: it is not sent together with thinking",
            ],
        ),
        (True, "none", ["openai_reasoning_effort: it is not sent together with thinking"]),
        (False, "high", ["openai_reasoning_effort: it is not sent together with thinking"]),
    ],
)
def test_of_two_settings_of_thinking_the_embedded_model_names_the_one_that_does_not_act(
    thinking: Any, effort: str, expected: list[str]
) -> None:
    origin, [local_model, *_] = Origin("local", "openai_chat", "embedded"), [one for one in all_models() if one.grammar]
    call_settings: Any = {"thinking": thinking, "openai_reasoning_effort": effort}
    assert embedded_warnings(ModelCall("", [], call_settings), {}, origin, local_model) == expected
