"""Models on Ollama."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class OllamaModelSettings(ModelSettings, total=False):
    """Settings that only Ollama has."""

    ollama_think: bool | Literal["low", "medium", "high", "max"]
    """`think`, on Ollama's own endpoint (`profile="ollama-native"`)."""


class OllamaModel(ProviderModel):
    """A model that Ollama runs, over its OpenAI-compatible endpoint, or with `profile="ollama-native"` over its own."""

    profile_names: ClassVar = ("ollama", "ollama-native")
