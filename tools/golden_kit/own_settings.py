"""Settings that only one provider has. Only the library takes them: an agent asks the upstream with each, twice.

The agent is in a process of the version that is looked at. It reads a question a line, and writes what came of it.
"""

from __future__ import annotations

import json
import subprocess
import threading
from functools import partial
from typing import Any, NamedTuple

from .captures import Case
from .fixtures import Script
from .setting import Cases, Setting, play_of, record_requests
from .upstream import pieces

_AGENT = """
import asyncio, importlib, json, sys
from pellucid import Agent

def look_up(city: str) -> str:
    "Look up a city."
    return "found"

async def answers():
    start = json.loads(sys.stdin.readline())
    kind = getattr(importlib.import_module("pellucid.models." + start["module"]), start["class"])
    model = kind(start["model"], api_key="key", **start["more"])
    agent = Agent(model, instructions="Be brief.", tools=[look_up])
    for line in sys.stdin:
        question = json.loads(line)
        outcome = []
        try:
            history = []
            for text in ("Which?", "And then?"):
                result = await agent.run(text, model_settings=question, message_history=history)
                history = result.all_messages()
                outcome.append([result.output, result.thinking, result.warnings])
        except Exception as error:
            outcome.append(f"{type(error).__name__}: {error}")
        print(json.dumps(outcome), flush=True)

asyncio.run(answers())
"""


class Model(NamedTuple):
    """A class of the library, and the settings that its provider has of its own, with values."""

    module: str
    name: str
    settings: dict[str, list[Any]]


_EFFORTS = ["low", "high"]
_CACHE = [True, "1h", False]
_OPENAI: dict[str, list[Any]] = {
    "openai_reasoning_effort": _EFFORTS,
    "openai_logprobs": [True, False],
    "openai_top_logprobs": [3],
    "openai_store": [True, False, None],
    "openai_user": ["u-1"],
    "openai_moderation": [{"model": "m"}],
    "openai_text_verbosity": ["low"],
    "openai_service_tier": ["flex"],
    "openai_prediction": [{"type": "content", "content": "x"}],
    "openai_prompt_cache_key": ["k-1"],
    "openai_prompt_cache_retention": ["24h"],
    "openai_prompt_cache_options": [{"a": 1}],
}
_RESPONSES: dict[str, list[Any]] = {
    **_OPENAI,
    "openai_reasoning_summary": ["concise"],
    "openai_reasoning_context": ["all_turns"],
    "openai_reasoning_mode": ["pro"],
    "openai_send_reasoning_ids": [True, False],
    "openai_truncation": ["auto"],
    "openai_previous_response_id": ["auto", "resp_7"],
    "openai_conversation_id": ["conv_7"],
    "openai_native_tools": [[{"type": "web_search"}]],
    "openai_builtin_tools": [[{"type": "code_interpreter", "container": {"type": "auto"}}]],
    "openai_include_code_execution_outputs": [True, False],
    "openai_include_web_search_sources": [True],
    "openai_include_file_search_results": [True],
    "openai_context_management": [[{"type": "compaction", "compact_threshold": 9}]],
    "openai_background": [True],
}
_ANTHROPIC: dict[str, list[Any]] = {
    "anthropic_thinking": [{"type": "enabled", "budget_tokens": 2000}, {"type": "disabled"}, {"type": "adaptive"}],
    "anthropic_effort": [*_EFFORTS, None],
    "anthropic_task_budget": [{"type": "tokens", "total": 20_000}],
    "anthropic_metadata": [{"user_id": "u-1"}],
    "anthropic_service_tier": ["standard_only"],
    "anthropic_speed": ["standard", "fast"],
    "anthropic_betas": [["b-1", "b-2"]],
    "anthropic_container": ["c-1", {"skills": []}, False],
    "anthropic_context_management": [{"edits": [{"type": "clear_tool_uses_20250919"}]}],
    "anthropic_mcp_servers": [[{"type": "url", "url": "https://x.example", "name": "x"}]],
    "anthropic_tools": [[{"type": "web_search_20250305", "name": "web_search"}]],
    "anthropic_eager_input_streaming": [True],
    "anthropic_cache": _CACHE,
    "anthropic_cache_instructions": _CACHE,
    "anthropic_cache_tool_definitions": _CACHE,
    "anthropic_cache_messages": _CACHE,
}
_GOOGLE: dict[str, list[Any]] = {
    "google_thinking_config": [{"thinkingBudget": 9}],
    "google_safety_settings": [[{"category": "C", "threshold": "T"}]],
    "google_labels": [{"a": "b"}],
    "google_video_resolution": ["MEDIA_RESOLUTION_LOW"],
    "google_cached_content": ["cachedContents/x"],
    "google_logprobs": [True],
    "google_top_logprobs": [3],
    "google_service_tier": ["flex"],
    "google_cloud_service_tier": ["pt_only", "flex_only"],
    "google_model_armor_config": [{"a": "b"}],
}
_BEDROCK: dict[str, list[Any]] = {
    "bedrock_additional_model_requests_fields": [{"a": 1, "thinking": {"type": "disabled"}}],
    "bedrock_additional_model_response_fields_paths": [["/x"]],
    "bedrock_guardrail_config": [{"guardrailIdentifier": "g", "guardrailVersion": "1"}],
    "bedrock_performance_configuration": [{"latency": "optimized"}],
    "bedrock_request_metadata": [{"a": "b"}],
    "bedrock_prompt_variables": [{"a": {"text": "b"}}],
    "bedrock_service_tier": [{"type": "flex"}],
    "bedrock_inference_profile": ["arn:aws:bedrock:us-east-1:1:inference-profile/x"],
    "bedrock_cache_instructions": _CACHE,
    "bedrock_cache_tool_definitions": _CACHE,
    "bedrock_cache_messages": _CACHE,
}
COMMON: dict[str, list[Any]] = {
    "thinking": [True, False, "low", "max"],
    "thinking_budget": [2000],
    "metadata": [{"a": "b"}],
    "timeout": [20.0],
    "extra_headers": [{"X-Extra": "yes"}],
    "extra_body": [{"mood": "good"}],
    "unknown": ["x"],
}
MODELS: dict[str, Model] = {
    "openai": Model("openai", "OpenAIChatModel", _OPENAI),
    "openai-responses": Model("openai", "OpenAIResponsesModel", _RESPONSES),
    "anthropic": Model("anthropic", "AnthropicModel", _ANTHROPIC),
    "google": Model("google", "GoogleModel", _GOOGLE),
    "bedrock": Model("bedrock", "BedrockConverseModel", _BEDROCK),
    "mistral": Model(
        "mistral",
        "MistralModel",
        {
            "mistral_reasoning_effort": ["none", "high"],
            "mistral_prompt_mode": ["reasoning"],
            "mistral_prompt_cache_key": ["k-1"],
        },
    ),
    "cohere": Model("cohere", "CohereModel", {"cohere_thinking": [{"type": "enabled", "token_budget": 9}]}),
    "ollama-native": Model("ollama", "OllamaModel", {"ollama_think": [True, False, "low"]}),
    "groq": Model(
        "groq", "GroqModel", {"groq_reasoning_format": ["hidden", "parsed"], "groq_reasoning_effort": ["none", "low"]}
    ),
    "openrouter": Model(
        "openai",
        "OpenAIChatModel",
        {
            "openrouter_reasoning": [{"effort": "low"}],
            "openrouter_models": [["a/b", "c/d"]],
            "openrouter_provider": [{"sort": "price"}],
            "openrouter_preset": ["p"],
            "openrouter_transforms": [["middle-out"]],
            "openrouter_usage": [{"include": True}],
            "openai_reasoning_effort": _EFFORTS,
            "openai_user": ["u-1"],
        },
    ),
    "snowflake": Model("openai", "OpenAIChatModel", {"snowflake_reasoning": [{"effort": "low"}]}),
    "cerebras": Model(
        "openai",
        "OpenAIChatModel",
        {
            "cerebras_disable_reasoning": [True],
            "cerebras_clear_thinking": [False],
            "cerebras_reasoning_format": ["parsed"],
            "openai_reasoning_effort": _EFFORTS,
        },
    ),
    "zai": Model(
        "openai", "OpenAIChatModel", {"zai_clear_thinking": [True, False], "openai_reasoning_effort": _EFFORTS}
    ),
}
"""By the row of the profiles."""


def own_settings(on: Setting, models: dict[str, tuple[str, Script]]) -> Cases:
    """A case for each row; `models` has the rows' models and what the upstream answers."""
    for row, model in MODELS.items():
        yield f"settings/{row}/library", partial(_questions_of_an_agent, on, row, model, *models[row])


def without_calls(script: Script) -> Script:
    """A streamed response without its calls, so that an agent has its answer."""
    frames = pieces(script.body, "frames", script.content_type)
    text = [frame for frame in frames if b"toolUse" not in frame and b"tool_calls" not in frame]
    return script._replace(body=b"".join(text))


def _questions_of_an_agent(on: Setting, row: str, model: Model, name: str, script: Script, case: Case) -> None:
    start = {
        "module": model.module,
        "class": model.name,
        "model": name,
        "more": {"base_url": on.upstream.url(row), "profile": row},
    }
    process = subprocess.Popen(
        [on.checkout.python, "-W", "ignore", "-c", _AGENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=on.gateway.data,
        env=on.checkout.environment(on.gateway.data),
    )
    limit = threading.Timer(180, process.kill)
    limit.start()
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(start), file=process.stdin, flush=True)
        questions: list[tuple[str, dict[str, Any]]] = [("nothing", {})]
        for setting, values in (model.settings | COMMON).items():
            questions += [(f"{setting} = {json.dumps(value)}", {setting: value}) for value in values]
        for label, settings in questions:
            on.upstream.play(row, play_of(script))
            print(json.dumps(settings), file=process.stdin, flush=True)
            outcome = process.stdout.readline()
            if not outcome:
                raise RuntimeError(f"the agent ended at {label}")
            record = Case()
            record.add(label, outcome)
            record_requests(record, on.upstream, f"{label}: upstream")
            case.records += record.records
        process.stdin.close()
    limit.cancel()
