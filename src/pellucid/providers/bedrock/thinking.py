"""How a model behind Bedrock is told how much to think: fields of its own maker, in `additionalModelRequestFields`.

The row says which. Claude's follow from `thinking_mode`; of the others,

* `effort` is `{effort_field: low}`: `reasoning_effort` of gpt-oss, DeepSeek, GLM and Kimi, `reasoning_config` of Qwen;
* `reasoning_object` is `{"reasoning": {"effort": low}}`: closed GPTs and Grok;
* `reasoning_switch` is `{"reasoningConfig": {"type": enabled, "maxReasoningEffort": low}}`: Nova 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import RequestError
from ...settings import ModelSettings
from ..effort import nearest_effort, thinking_off
from ..profiles import Profile

Body = dict[str, Any]

NAMES = frozenset({"thinking", "output_config", "reasoning_effort", "reasoning_config", "reasoning", "reasoningConfig"})
"""The fields that any of these ways uses. A caller who sets one of them by hand has said it all."""

LEAST_BUDGET = 1024
"""Tokens: Claude takes no smaller budget."""


def ask(settings: ModelSettings, row: Profile, *, lost: bool = False) -> Body:
    """The fields; none where nothing was asked for or it cannot be said.

    `lost`: the reasoning that the call to be answered came of did not come back.
    """
    if row.thinking_mode != "none":
        return _claude(settings, row, lost)
    return _THINKING.get(row.thinking, _ask_nothing)(settings, row)


def thinks(fields: Body) -> bool:
    """Whether these fields switch thinking on."""
    claude, nova = fields.get("thinking"), fields.get("reasoningConfig")
    switches = [value.get("type") for value in (claude, nova) if isinstance(value, dict)]
    return any(type_ not in ("disabled", "between_tools") for type_ in switches)


def _claude(settings: ModelSettings, row: Profile, lost: bool) -> Body:
    if "thinking" not in settings and "thinking_budget" not in settings:
        return {}
    if thinking_off(settings):
        if row.thinking_off != "least":
            return {"thinking": {"type": row.thinking_off}}
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": row.efforts[0]}}
    level = settings.get("thinking", True)
    if row.thinking_mode == "adaptive":
        effort = None if level is True else nearest_effort(str(level), row.efforts)
        fields: Body = {"thinking": {"type": "adaptive"} | _display(settings, row)}
        return fields if effort is None else fields | {"output_config": {"effort": effort}}
    if lost and row.lost_stops_thinking:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": _budget(settings, row)} | _display(settings, row)}


def _display(settings: ModelSettings, row: Profile) -> Body:
    """Newer models sign their thought and do not show it, unless asked to."""
    shown = row.thinking_display or ("summarized" if "thinking_summary" in settings else "")
    return {"display": shown} if shown else {}


def _budget(settings: ModelSettings, row: Profile) -> int:
    """The tokens that a level stands for, less than the answer may have in all."""
    level = settings.get("thinking", True)
    budget = settings.get("thinking_budget") or row.budgets.get("on" if level is True else str(level), LEAST_BUDGET)
    given = settings.get("max_tokens")
    if given is None:
        return max(budget, LEAST_BUDGET)
    if given <= LEAST_BUDGET:
        raise RequestError(
            f"max_tokens is {given}, and thinking takes at least {LEAST_BUDGET} of them; "
            f"raise max_tokens, or switch thinking off",
            code="max_tokens_too_small",
            param="max_tokens",
        )
    return max(LEAST_BUDGET, min(budget, given - LEAST_BUDGET))


def _level(settings: ModelSettings, row: Profile) -> str | None:
    """The row's nearest word for what was asked; None to leave it to the model."""
    level = settings.get("thinking")
    if level is None or level is True:
        return None
    return nearest_effort("none" if level is False else level, row.efforts)


def _ask_nothing(settings: ModelSettings, row: Profile) -> Body:
    return {}


def _ask_effort(settings: ModelSettings, row: Profile) -> Body:
    level = _level(settings, row)
    return {row.effort_field: level} if level is not None else {}


def _ask_reasoning_object(settings: ModelSettings, row: Profile) -> Body:
    level = _level(settings, row)
    return {"reasoning": {"effort": level}} if level is not None else {}


def _ask_switch(settings: ModelSettings, row: Profile) -> Body:
    """A switch and an effort, which must be said with it."""
    if "thinking" not in settings:
        return {}
    if thinking_off(settings):
        return {"reasoningConfig": {"type": "disabled"}}
    level = _level(settings, row) or nearest_effort("medium", row.efforts)
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}


_THINKING: dict[str, Callable[[ModelSettings, Profile], Body]] = {
    "none": _ask_nothing,
    "effort": _ask_effort,
    "reasoning_object": _ask_reasoning_object,
    "reasoning_switch": _ask_switch,
}
