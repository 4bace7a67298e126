"""Every model family of every row of the provider table, each with the strict upstream that plays it.

The families are the plain one of a row and one for each different set of values in its `models`. A row, or a family,
that no entry of `FORMS` covers fails the test that uses them.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from pellucid.providers.profiles import builtin_profiles

from . import chat, claude, google, responses, typed
from .core import Upstream
from .limits import limits_of, matches


class Form(NamedTuple):
    """How models send and take reasoning. The first that matches counts."""

    rows: str
    models: str
    kind: type[Upstream]


FORMS = (
    Form("openai azure", "*", chat.NoReasoning),
    Form("deepseek", "*", chat.DeepSeek),
    Form("groq", "*llama*", chat.NoReasoning),
    Form("groq ollama crusoe bedrock-mantle-chat", "*", chat.Groq),
    Form("openai-compat huggingface fireworks zai llama.cpp lmstudio", "*", chat.Chat),
    Form("openrouter snowflake", "*claude*", chat.OpenRouter),
    Form("openrouter", "openai/gpt-5*", chat.OpenRouterSealed),
    Form("openrouter", "*gemini*", chat.OpenRouterGemini),
    Form("openrouter", "*", chat.OpenRouterReadable),
    Form("together", "*", chat.Together),
    Form("cerebras", "*glm* *qwen*", chat.Cerebras),
    Form("cerebras", "*gpt-oss*", chat.CerebrasHarmony),
    Form("cerebras", "*", chat.Groq),
    Form("qwen", "*qwen3.[678]*", chat.Qwen),
    Form("qwen", "*", chat.UnreturnedReasoning),
    Form("kimi", "*", chat.Kimi),
    Form("minimax", "*", chat.MiniMax),
    Form("xai", "*grok-3*", chat.UnreturnedReasoning),
    Form("xai", "*", chat.NoReasoning),
    Form("perplexity", "*", chat.Perplexity),
    Form("copilot", "*", chat.Copilot),
    Form("vllm sglang", "*", chat.VLLM),
    Form("google google-vertex", "*gemini-[12]* *gemma*", google.Gemini2),
    Form("google google-vertex", "*", google.Gemini),
    Form("copilot-responses", "*", responses.CopilotResponses),
    Form("bedrock-mantle", "*gpt-oss*", responses.OpenResponses),
    Form("openai-responses azure-responses bedrock-mantle xai-responses", "*", responses.Responses),
    Form("deepseek-responses", "*", responses.DeepSeekResponses),
    Form("openrouter-responses", "*", responses.LateResponses),
    Form("openresponses vllm-responses lmstudio-responses", "*", responses.OpenResponses),
    Form("anthropic anthropic-vertex", "*", claude.Anthropic),
    Form("minimax-anthropic", "*", claude.MiniMaxMessages),
    Form("deepseek-anthropic", "*", claude.DeepSeekMessages),
    Form("kimi-anthropic", "*", claude.KimiMessages),
    Form("anthropic-compat", "*", claude.UnsignedMessages),
    Form("mistral", "magistral-*-2506", typed.MagistralTagged),
    Form("mistral", "magistral-*", typed.Magistral),
    Form("mistral", "*", typed.Mistral),
    Form("cohere", "command-r*", typed.CoherePlan),
    Form("cohere", "*", typed.Cohere),
    Form("ollama-native", "*", typed.Ollama),
    Form("bedrock", "*claude-3-7*", claude.Bedrock),
    Form("bedrock", "*claude-[23iv]*", claude.BedrockUnsigned),
    Form("bedrock", "*claude*", claude.Bedrock),
    Form("bedrock", "*gpt-oss* *minimax* *nova-2*", claude.BedrockReadable),
    Form("bedrock", "*openai.gpt* *grok*", claude.BedrockEncrypted),
    Form("bedrock", "*kimi*", claude.BedrockTagged),
    Form("bedrock", "*nova*", claude.BedrockNova),
    Form("bedrock", "*deepseek.r1*", claude.BedrockUnsigned),
    Form("bedrock", "*qwen* *deepseek* *glm*", claude.BedrockOnRequest),
    Form("bedrock", "*", claude.BedrockUnsigned),
)

_OPENAI = "gpt-5.6 gpt-5.4 gpt-6-sol"
_GROK = "grok-5 grok-4.20-0309-reasoning grok-4 grok-code-fast-1 grok-4.20-multi-agent"

PLAIN_MODELS = {
    "openai-compat": "some-model",
    "openai": _OPENAI,
    "azure": _OPENAI,
    "deepseek": "deepseek-v4-pro",
    "groq": "qwen/qwen3.8-27b llama-3.3-70b-versatile qwen/qwen3.6-27b",
    "huggingface": "zai-org/GLM-5.2:partner",
    "openrouter": "deepseek/deepseek-v4 anthropic/claude-opus-5 openai/gpt-5.6 google/gemini-2.5-pro",
    "snowflake": "claude-opus-5",
    "together": "zai-org/GLM-5.2",
    "fireworks": "accounts/fireworks/models/kimi-k2p6",
    "cerebras": "gemma-4-31b",
    "qwen": "qwen3-max",
    "kimi": "kimi-k2.6",
    "zai": "glm-5.2 glm-4.7 glm-4-plus",
    "minimax": "MiniMax-M3",
    "xai": _GROK,
    "perplexity": "sonar-reasoning-pro",
    "crusoe": "moonshotai/Kimi-K2.6",
    "bedrock-mantle-chat": "openai.gpt-oss-safeguard-120b",
    "copilot": "claude-sonnet-5",
    "vllm": "qwen3",
    "sglang": "qwen3",
    "llama.cpp": "qwen3",
    "ollama": "qwen3",
    "lmstudio": "qwen3",
    "google": "gemini-3.5-pro",
    "google-vertex": "gemini-3.5-pro",
    "openai-responses": _OPENAI,
    "azure-responses": _OPENAI,
    "bedrock-mantle": "openai.gpt-5.6-sol",
    "copilot-responses": _OPENAI,
    "xai-responses": _GROK,
    "openresponses": "some-model",
    "deepseek-responses": "deepseek-v4-pro",
    "openrouter-responses": "anthropic/claude-opus-5",
    "vllm-responses": "qwen3",
    "lmstudio-responses": "qwen3",
    "anthropic": "claude-opus-5",
    "anthropic-vertex": "claude-opus-5",
    "anthropic-compat": "some-model",
    "deepseek-anthropic": "deepseek-v4-pro",
    "minimax-anthropic": "MiniMax-M3",
    "kimi-anthropic": "kimi-k2.6",
    "mistral": "mistral-medium-3-5 codestral-2508",
    "cohere": "command-a-reasoning-08-2025 command-r-plus-08-2024",
    "ollama-native": "qwen3",
    "bedrock": "us.meta.llama4-maverick-17b-instruct-v1:0 mistral.mistral-large-3 writer.palmyra-x5-v1:0",
}
"""Models of each row that have the row's own values, or whose providers differ although the values do not."""


class Host(NamedTuple):
    """A model at a provider."""

    row: str
    model: str
    kind: type[Upstream]

    @property
    def side(self) -> str:
        """Its name in canaries and URLs."""
        return re.sub("[^a-z0-9]+", "-", f"{self.row}-{self.model}".lower()).strip("-")


def model_of(pattern: str) -> str:
    """A name that a pattern matches."""
    return (
        re.sub(r"\[(.)[^]]*\]", r"\1", pattern)
        .replace("-*-", "-sonnet-" if "claude" in pattern else "-medium-")
        .replace("*", "")
        .replace("?", ".")
    )


def all_hosts() -> dict[str, list[Host]]:
    """The families of each row, by row: the plain models, and one for each different set of values, forms and limits.

    A family that an earlier row has, too, with another address alone, is not repeated.
    """
    by_row: dict[str, list[Host]] = {}
    known: list[object] = []
    for row, profile in builtin_profiles().items():
        by_row[row] = []
        plain = PLAIN_MODELS[row].split()
        for model in (*plain, *(model_of(entry["match"]) for entry in profile.models)):
            kind = next(form.kind for form in FORMS if matches(row, form.rows) and matches(model, form.models))
            values = replace(profile.for_model(model), **_ADDRESS)
            family = (kind, limits_of(row, model), values)
            if family not in known or model == plain[0]:
                known.append(family)
                by_row[row].append(Host(row, model, kind))
    return by_row


_ADDRESS: dict[str, Any] = {
    **dict.fromkeys(("aliases", "model_families", "base_url_env", "api_key_env"), ()),
    **dict.fromkeys(
        ("name", "title", "telemetry_name", "base_url", "base_url_env_path", "models_path", "path", "path_whole"), ""
    ),
    "auth": "none",
}
"""The values of a row that do not change the body of a request."""
