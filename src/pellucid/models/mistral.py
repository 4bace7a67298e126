"""Mistral."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class MistralModelSettings(ModelSettings, total=False):
    """Settings that only Mistral has."""

    mistral_reasoning_effort: Literal["none", "high"]
    mistral_prompt_mode: Literal["reasoning"]
    """Whether a magistral model is told by Mistral's own prompt how to think."""
    mistral_prompt_cache_key: str


class MistralModel(ProviderModel):
    """A model of Mistral's. The magistral models think unasked."""

    profile_names: ClassVar = ("mistral",)
