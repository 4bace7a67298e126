"""From a text to a model: `anthropic:claude-sonnet-4-0`, `deepseek:deepseek-v4-pro`, `local:NAME`.

Before the colon stands a provider: one of the names that Pydantic AI has, which mean the same here, or the name of any
profile that ships. `openai:` is the Responses API, as it is there today, because there reasoning can be read and sent
back; `openai-chat:` is Chat Completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError
from ..providers.profiles import builtin_profiles
from .anthropic import AnthropicModel
from .bedrock import BedrockConverseModel
from .cohere import CohereModel
from .google import GoogleModel
from .groq import GroqModel
from .huggingface import HuggingFaceModel
from .mistral import MistralModel
from .model import ChatModel
from .ollama import OllamaModel
from .openai import OpenAIChatModel, OpenAIResponsesModel
from .provider import ProviderModel

LOCAL = "local"

_ALIASES = {
    "openai": "openai-responses",
    "openai-chat": "openai",
    "google-gla": "google",
    "google-cloud": "google-vertex",
    "moonshotai": "kimi",
    "alibaba": "qwen",
    "github-copilot": "copilot",
}
"""What providers are called elsewhere, and the row that is meant."""

_CLASSES: tuple[type[ProviderModel], ...] = (
    OpenAIChatModel,
    OpenAIResponsesModel,
    AnthropicModel,
    GoogleModel,
    GroqModel,
    MistralModel,
    CohereModel,
    HuggingFaceModel,
    BedrockConverseModel,
    OllamaModel,
)

_PROVIDER_OF_PREFIX = {"gpt": "openai", "o": "openai", "claude": "anthropic", "gemini": "google", "command": "cohere"}
"""How well-known models' names begin, for whoever forgets the provider."""


def infer_model(spec: str | ChatModel, **options: Any) -> ChatModel:
    """The model that `spec` names; what is a model already is given back.

    `options` go to the model's class (`settings`, `transport`, `base_url` …). Raises `ConfigError` for a name that
    names nothing.
    """
    if not isinstance(spec, str):
        return spec
    provider, colon, name = spec.partition(":")
    if not (colon and name):
        prefix = provider.lower().partition("-")[0].rstrip("0123456789.")
        example = f"{_PROVIDER_OF_PREFIX.get(prefix, 'PROVIDER')}:{provider or 'MODEL'}"
        raise ConfigError(
            [f"model: {spec!r} does not say whose model it is; write it as PROVIDER:MODEL, say {example}"]
        )
    if provider == LOCAL:
        from .local import LocalModel

        return LocalModel(name, **options)
    rows = builtin_profiles()
    row = rows.get(_ALIASES.get(provider, provider))
    if row is None:
        known = [*_ALIASES, *rows, LOCAL]
        close_matches = get_close_matches(provider, known, 3)
        hint = (
            f"did you mean {' or '.join(close_matches)}?"
            if close_matches
            else f"there are: {', '.join(sorted(set(known)))}"
        )
        raise ConfigError([f"model: {spec!r}: there is no provider {provider!r}; {hint}"])
    return _class_for(row.name, rows)(name, profile=row, **options)


def _class_for(row: str, rows: Mapping[str, Any]) -> type[ProviderModel]:
    """The row's own class, or the first that speaks its wire, or the one for any row."""
    for model in _CLASSES:
        if row in model.profile_names:
            return model
    return next((model for model in _CLASSES if rows[model.profile_names[0]].wire == rows[row].wire), ProviderModel)
