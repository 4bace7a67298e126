"""Anthropic's Claude, and everybody who speaks Anthropic Messages."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class AnthropicModelSettings(ModelSettings, total=False):
    """Settings that only Anthropic has. Each wins over its unified twin."""

    anthropic_thinking: dict[str, Any]
    """`{"type": "enabled", "budget_tokens": 1024}`, `{"type": "adaptive"}`, `{"type": "disabled"}`; sent as it is."""
    anthropic_effort: Literal["low", "medium", "high", "xhigh", "max"] | None
    anthropic_task_budget: dict[str, Any]
    anthropic_metadata: dict[str, Any]
    anthropic_service_tier: Literal["auto", "standard_only"]
    anthropic_speed: Literal["standard", "fast"]
    anthropic_betas: list[str]
    """Features to ask for by name, besides those that the other settings need."""
    anthropic_container: dict[str, Any] | str | Literal[False]
    """The container that code runs in; False for a new one."""
    anthropic_context_management: dict[str, Any]
    anthropic_mcp_servers: list[dict[str, Any]]
    anthropic_tools: list[dict[str, Any]]
    """Anthropic's own tools, as it writes them."""
    anthropic_eager_input_streaming: bool
    """Whether the arguments of calls are streamed as they are written, before they are known to be JSON."""
    anthropic_cache: bool | Literal["5m", "1h"]
    """Whether to keep what can be kept of the request, and for how long; the next three say it for a place."""
    anthropic_cache_instructions: bool | Literal["5m", "1h"]
    anthropic_cache_tool_definitions: bool | Literal["5m", "1h"]
    anthropic_cache_messages: bool | Literal["5m", "1h"]


class AnthropicModel(ProviderModel):
    """A Claude model over the Messages API. Its reasoning is signed, and goes back as it came."""

    profile_names: ClassVar = ("anthropic",)
