"""Models of Mistral."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class MistralModelSettings(ModelSettings, total=False):
    """Settings that only Mistral has."""

    mistral_reasoning_effort: Literal["none", "high"]
    mistral_prompt_mode: Literal["reasoning"]
    """Whether a magistral model gets Mistral's own prompt on how to think."""
    mistral_prompt_cache_key: str


class MistralModel(ProviderModel):
    """A model of Mistral. The magistral models think by default."""

    profile_names: ClassVar = ("mistral",)
