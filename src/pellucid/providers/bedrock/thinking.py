"""Thinking fields of models behind Bedrock: each maker has its own, in `additionalModelRequestFields`.

The profile selects the form. Claude's fields follow from `thinking_mode`; for other models, `thinking` is one of

* `none`: no field;

* `effort`: `{effort_field: low}` (`reasoning_effort` of gpt-oss, DeepSeek, GLM and Kimi, `reasoning_config` of Qwen);
* `reasoning_object`: `{"reasoning": {"effort": low}}` (closed GPTs and Grok);
* `reasoning_switch`: `{"reasoningConfig": {"type": enabled, "maxReasoningEffort": low}}` (Nova 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...settings import nearest_effort
from ..claude import MIN_BUDGET_TOKENS, claim_claude_thinking, claude_thinking
from ..effort import effort_paths, is_thinking_off, requested_effort
from ..profile import Profile
from ..setting_fields import Body, SettingFields, Settings

THINKING_FIELDS = frozenset(
    {"thinking", "output_config", "reasoning_effort", "reasoning_config", "reasoning", "reasoningConfig"}
)
"""Fields that any of these forms uses. If the caller sets one of them, none is added."""


def thinking_fields(settings: Settings, profile: Profile, *, reasoning_lost: bool = False) -> Body:
    """Return the thinking fields; empty if the settings have none or the model takes none.

    Args:
        settings: The settings of the call.
        profile: The profile of the model's server.
        reasoning_lost: Whether the history lacks the reasoning before the call that now gets its result.
    """
    if profile.thinking_mode == "none":
        return _FORMS[profile.thinking].fields(settings, profile)
    config, effort, budget = claude_thinking(settings, profile, reasoning_lost=reasoning_lost)
    if config is None:
        return {}
    if budget is not None:
        config["budget_tokens"] = max(budget, MIN_BUDGET_TOKENS)
    return {"thinking": config} | ({"output_config": {"effort": effort}} if effort is not None else {})


def claim_thinking(fields: SettingFields, profile: Profile, prefix: str, *, is_overridden: bool) -> None:
    """Record which settings control thinking. `is_overridden`: the caller's fields replace the unified settings."""
    settings = fields.settings
    if profile.thinking_mode != "none":
        limit = (settings["max_tokens"],) if "max_tokens" in settings else ()
        claim_claude_thinking(
            fields,
            profile,
            f"{prefix}.thinking",
            f"{prefix}.output_config.effort",
            numbers=None
            if is_overridden
            else lambda budget: (*limit, *(() if budget is None else (max(budget, MIN_BUDGET_TOKENS),))),
        )
    elif "thinking" in settings:
        fields.set_thinking_paths(*(f"{prefix}.{path}" for path in _FORMS[profile.thinking].paths(profile)))
        for name, value in thinking_fields({"thinking": settings["thinking"]}, profile).items():
            fields.claim("thinking", f"{prefix}.{name}", value)


def enables_thinking(fields: Body) -> bool:
    """Whether these fields enable thinking."""
    claude, nova = fields.get("thinking"), fields.get("reasoningConfig")
    switches = [value.get("type") for value in (claude, nova) if isinstance(value, dict)]
    return any(type_ not in ("disabled", "between_tools") for type_ in switches)


def _effort_fields(settings: Settings, profile: Profile) -> Body:
    level = requested_effort(settings, profile)
    return {profile.effort_field: level} if level is not None else {}


def _reasoning_object_fields(settings: Settings, profile: Profile) -> Body:
    level = requested_effort(settings, profile)
    return {"reasoning": {"effort": level}} if level is not None else {}


def _reasoning_switch_fields(settings: Settings, profile: Profile) -> Body:
    """Return the switch. When it is on, an effort is required."""
    if "thinking" not in settings:
        return {}
    if is_thinking_off(settings):
        return {"reasoningConfig": {"type": "disabled"}}
    level = requested_effort(settings, profile) or nearest_effort("medium", profile.efforts)
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}


class _ThinkingFields(NamedTuple):
    """The thinking fields of some models, and their paths."""

    fields: Callable[[Settings, Profile], Body]
    paths: Callable[[Profile], tuple[str, ...]]


_FORMS = {
    "none": _ThinkingFields(lambda settings, profile: {}, lambda profile: ()),
    "effort": _ThinkingFields(_effort_fields, lambda profile: effort_paths(profile, profile.effort_field)),
    "reasoning_object": _ThinkingFields(
        _reasoning_object_fields, lambda profile: effort_paths(profile, "reasoning.effort")
    ),
    "reasoning_switch": _ThinkingFields(_reasoning_switch_fields, lambda profile: ("reasoningConfig",)),
}
THINKING = frozenset(_FORMS)
