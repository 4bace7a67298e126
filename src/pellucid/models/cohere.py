"""Models of Cohere."""

from __future__ import annotations

from typing import Any, ClassVar

from ..settings import ModelSettings
from .provider import ProviderModel


class CohereModelSettings(ModelSettings, total=False):
    """Settings that only Cohere has."""

    cohere_thinking: dict[str, Any]
    """`{"type": "enabled", "token_budget": 2048}`, or `{"type": "disabled"}`."""


class CohereModel(ProviderModel):
    """A model of Cohere. Its reasoning models think by default."""

    profile_names: ClassVar = ("cohere",)
