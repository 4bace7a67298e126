"""How a model behind Bedrock is told how much to think: fields of its own maker, in `additionalModelRequestFields`.

The row says which. Claude's follow from `thinking_mode`; of the others,

* `effort` is `{effort_field: low}`: `reasoning_effort` of gpt-oss, DeepSeek, GLM and Kimi, `reasoning_config` of Qwen;
* `reasoning_object` is `{"reasoning": {"effort": low}}`: closed GPTs and Grok;
* `reasoning_switch` is `{"reasoningConfig": {"type": enabled, "maxReasoningEffort": low}}`: Nova 2.
"""

from __future__ import annotations

from collections.abc import Callable

from ...settings import nearest_effort
from ..claude import LEAST_BUDGET, claim_claude_thinking, claude_thinking
from ..effort import asked_effort, levels_at, thinking_off
from ..profile import Profile
from ..setting_fields import Body, SettingFields, Settings

NAMES = frozenset({"thinking", "output_config", "reasoning_effort", "reasoning_config", "reasoning", "reasoningConfig"})
"""The fields that any of these ways uses. A caller who sets one of them by hand has said it all."""


def ask(settings: Settings, row: Profile, *, lost: bool = False) -> Body:
    """The fields; none where nothing was asked for or it cannot be said.

    `lost`: the reasoning that the call to be answered came of did not come back.
    """
    if row.thinking_mode == "none":
        return _THINKING[row.thinking](settings, row)
    config, effort, budget = claude_thinking(settings, row, lost=lost)
    if config is None:
        return {}
    if budget is not None:
        config["budget_tokens"] = max(budget, LEAST_BUDGET)
    return {"thinking": config} | ({"output_config": {"effort": effort}} if effort is not None else {})


def claim_thinking(fields: SettingFields, row: Profile, at: str, *, own: bool) -> None:
    """Record which settings say how much to think. `own`: the caller's fields do, in place of the unified settings."""
    settings = fields.settings
    if row.thinking_mode != "none":
        limit = (settings["max_tokens"],) if "max_tokens" in settings else ()
        claim_claude_thinking(
            fields,
            row,
            f"{at}.thinking",
            f"{at}.output_config.effort",
            numbers=None if own else lambda budget: (*limit, *(() if budget is None else (max(budget, LEAST_BUDGET),))),
        )
    elif "thinking" in settings:
        fields.thinking_at(*(f"{at}.{path}" for path in _PATHS.get(row.thinking, _nowhere)(row)))
        for name, value in ask({"thinking": settings["thinking"]}, row).items():
            fields.claim("thinking", f"{at}.{name}", value)


def thinks(fields: Body) -> bool:
    """Whether these fields switch thinking on."""
    claude, nova = fields.get("thinking"), fields.get("reasoningConfig")
    switches = [value.get("type") for value in (claude, nova) if isinstance(value, dict)]
    return any(type_ not in ("disabled", "between_tools") for type_ in switches)


def _ask_nothing(settings: Settings, row: Profile) -> Body:
    return {}


def _ask_effort(settings: Settings, row: Profile) -> Body:
    level = asked_effort(settings, row)
    return {row.effort_field: level} if level is not None else {}


def _ask_reasoning_object(settings: Settings, row: Profile) -> Body:
    level = asked_effort(settings, row)
    return {"reasoning": {"effort": level}} if level is not None else {}


def _ask_switch(settings: Settings, row: Profile) -> Body:
    """A switch and an effort, which must be said with it."""
    if "thinking" not in settings:
        return {}
    if thinking_off(settings):
        return {"reasoningConfig": {"type": "disabled"}}
    level = asked_effort(settings, row) or nearest_effort("medium", row.efforts)
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}


_THINKING: dict[str, Callable[[Settings, Profile], Body]] = {
    "none": _ask_nothing,
    "effort": _ask_effort,
    "reasoning_object": _ask_reasoning_object,
    "reasoning_switch": _ask_switch,
}
THINKING = frozenset(_THINKING)

_PATHS: dict[str, Callable[[Profile], tuple[str, ...]]] = {
    "effort": lambda row: levels_at(row, row.effort_field),
    "reasoning_object": lambda row: levels_at(row, "reasoning.effort"),
    "reasoning_switch": lambda row: ("reasoningConfig",),
}
"""Where these values are written."""


def _nowhere(row: Profile) -> tuple[str, ...]:
    return ()
