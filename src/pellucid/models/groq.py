"""Models on Groq."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class GroqModelSettings(ModelSettings, total=False):
    """Settings that only Groq has."""

    groq_reasoning_format: Literal["hidden", "raw", "parsed"]
    """Where reasoning comes: not at all, between tags in the text, or in a field of its own. All are decoded."""
    groq_reasoning_effort: Literal["none", "default", "low", "medium", "high"]


class GroqModel(ProviderModel):
    """A model that Groq runs."""

    profile_names: ClassVar = ("groq",)
