"""Anthropic's Claude, and other models with the Anthropic Messages API."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel


class AnthropicModelSettings(ModelSettings, total=False):
    """Settings that only Anthropic has. Each takes precedence over its unified setting."""

    anthropic_thinking: dict[str, Any]
    """`{"type": "enabled", "budget_tokens": 1024}`, `{"type": "adaptive"}`, `{"type": "disabled"}`; sent unchanged."""
    anthropic_effort: Literal["low", "medium", "high", "xhigh", "max"] | None
    anthropic_task_budget: dict[str, Any]
    anthropic_metadata: dict[str, Any]
    anthropic_service_tier: Literal["auto", "standard_only"]
    anthropic_speed: Literal["standard", "fast"]
    anthropic_betas: list[str]
    """Names of beta features to request, in addition to those that the other settings need."""
    anthropic_container: dict[str, Any] | str | Literal[False]
    """The container for code execution; False for a new one."""
    anthropic_context_management: dict[str, Any]
    anthropic_mcp_servers: list[dict[str, Any]]
    anthropic_tools: list[dict[str, Any]]
    """Anthropic's own tools, in Anthropic's form."""
    anthropic_eager_input_streaming: bool
    """Whether arguments of calls are streamed as they are written, before they are checked to be JSON."""
    anthropic_cache: bool | Literal["5m", "1h"]
    """Whether to cache the request's prefix, and for how long. The next three settings do so for one field each."""
    anthropic_cache_instructions: bool | Literal["5m", "1h"]
    anthropic_cache_tool_definitions: bool | Literal["5m", "1h"]
    anthropic_cache_messages: bool | Literal["5m", "1h"]


class AnthropicModel(ProviderModel):
    """A Claude model over the Messages API. Its reasoning is signed, and is returned to it unchanged."""

    profile_names: ClassVar = ("anthropic",)
