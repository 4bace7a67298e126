"""Create a model from a text: `anthropic:claude-sonnet-4-0`, `deepseek:deepseek-v4-pro`, `local:NAME`.

The provider before the colon is a name of a built-in profile (see `profiles.named_profiles`); Pydantic AI's names are
among them, with the same meaning.
`openai:` is the Responses API, as in Pydantic AI, because its reasoning can be read and sent back; `openai-chat:` is
Chat Completions.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError
from ..local import LOCAL_PROVIDER
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles, named_profiles
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


def infer_model(spec: str | ChatModel, **options: Any) -> ChatModel:
    """Return the model for a name.

    Args:
        spec: `PROVIDER:MODEL`, or `test` for a `TestModel`. A model is returned unchanged.
        **options: Arguments of the model's class (`settings`, `transport`, `base_url` …).

    Raises:
        ConfigError: The name has no provider, or an unknown one.
    """
    if not isinstance(spec, str):
        return spec
    if spec == "test":
        from .test import TestModel

        return TestModel(**options)
    profiles = builtin_profiles()
    provider, colon, name = spec.partition(":")
    if not (colon and name):
        family = provider.lower().partition("-")[0].rstrip("0123456789.")
        maker = next((name for name, profile in profiles.items() if family in profile.model_families), "PROVIDER")
        example = f"{maker}:{provider or 'MODEL'}"
        raise ConfigError([f"model: {spec!r} has no provider; write it as PROVIDER:MODEL, for example {example}"])
    if provider == LOCAL_PROVIDER:
        from .local import LocalModel

        return LocalModel(name, **options)
    named = named_profiles()
    if provider not in named:
        known = [*named, LOCAL_PROVIDER]
        close_matches = get_close_matches(provider, known, 3)
        hint = (
            f"did you mean {' or '.join(close_matches)}?" if close_matches else f"there are: {', '.join(sorted(known))}"
        )
        raise ConfigError([f"model: {spec!r}: there is no provider {provider!r}; {hint}"])
    return _class_for(named[provider])(name, profile=named[provider], **options)


def _class_for(profile: Profile) -> type[ProviderModel]:
    """Return the profile's own class, else the first class with its wire, else `ProviderModel`."""
    own_class = [model for model in _CLASSES if profile.name in model.profile_names]
    same_wire = [model for model in _CLASSES if builtin_profiles()[model.profile_names[0]].wire == profile.wire]
    return next(iter(own_class + same_wire), ProviderModel)
