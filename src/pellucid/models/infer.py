"""Create a model from a text: `anthropic:claude-sonnet-4-0`, `deepseek:deepseek-v4-pro`, `local:NAME`.

The provider before the colon is one of Pydantic AI's names, with the same meaning, or the name of a built-in profile.
`openai:` is the Responses API, as in Pydantic AI, because its reasoning can be read and sent back; `openai-chat:` is
Chat Completions.
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
"""Other names of providers, and the names of their rows."""

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
"""First word of well-known model names, and their provider: for the hint when the provider is missing."""


def infer_model(spec: str | ChatModel, **options: Any) -> ChatModel:
    """Return the model for a name.

    Args:
        spec: `PROVIDER:MODEL`, or a model, which is returned unchanged.
        **options: Arguments of the model's class (`settings`, `transport`, `base_url` …).

    Raises:
        ConfigError: The name has no provider, or an unknown one.
    """
    if not isinstance(spec, str):
        return spec
    provider, colon, name = spec.partition(":")
    if not (colon and name):
        prefix = provider.lower().partition("-")[0].rstrip("0123456789.")
        example = f"{_PROVIDER_OF_PREFIX.get(prefix, 'PROVIDER')}:{provider or 'MODEL'}"
        raise ConfigError([f"model: {spec!r} has no provider; write it as PROVIDER:MODEL, for example {example}"])
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
    """Return the row's own class, else the first class with its wire, else `ProviderModel`."""
    for model in _CLASSES:
        if row in model.profile_names:
            return model
    return next((model for model in _CLASSES if rows[model.profile_names[0]].wire == rows[row].wire), ProviderModel)
