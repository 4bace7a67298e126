"""Google's Gemini, over the Gemini API and Vertex AI."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class GoogleModelSettings(ModelSettings, total=False):
    """Settings that only Google has. Each takes precedence over its unified setting."""

    google_thinking_config: dict[str, Any]
    """`{"include_thoughts": True, "thinking_budget": 2048}`, or `thinking_level`; names in snake_case or camelCase."""
    google_safety_settings: list[dict[str, Any]]
    google_labels: dict[str, str]
    google_video_resolution: str
    google_cached_content: str
    google_logprobs: bool
    google_top_logprobs: int
    google_service_tier: str
    """The Gemini API's tier (`standard`, `flex`, `priority`)."""
    google_cloud_service_tier: Literal[
        "pt_then_on_demand", "pt_only", "pt_then_flex", "pt_then_priority", "on_demand", "flex_only", "priority_only"
    ]
    """Vertex AI's tier."""
    google_model_armor_config: dict[str, Any]


class GoogleModel(ProviderModel):
    """A Gemini model. Its reasoning's signature is on the part that the reasoning led to, and is returned there."""

    profile_names: ClassVar = ("google",)
