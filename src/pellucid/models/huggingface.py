"""Models behind Hugging Face's router."""

from __future__ import annotations

from typing import ClassVar

from ..settings import ModelSettings
from .provider import ProviderModel


class HuggingFaceModelSettings(ModelSettings, total=False):
    """Hugging Face has no settings of its own: it forwards the request."""


class HuggingFaceModel(ProviderModel):
    """A model that one of the router's partners runs. Reasoning between tags is decoded (`thinking_tags`)."""

    profile_names: ClassVar = ("huggingface",)
