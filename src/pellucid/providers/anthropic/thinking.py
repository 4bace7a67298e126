"""Thinking options of a Messages request (see `claude`).

`anthropic_thinking` and `anthropic_effort` are sent unchanged, in place of the unified settings.
"""

from __future__ import annotations

from typing import NamedTuple

from ..claude import budget_for_level, claim_claude_thinking, claude_thinking
from ..effort import is_thinking_off
from ..profile import Profile
from ..setting_fields import HISTORY, Body, SettingFields, Settings

ANSWER_TOKENS = 4096
"""Tokens that `max_tokens` leaves for the answer, in addition to the thinking budget."""


class ThinkingOptions(NamedTuple):
    """Thinking options of one request."""

    config: Body | None
    """The field `thinking`; None to leave it out."""
    effort: str | None
    max_tokens: int

    @property
    def is_on(self) -> bool:
        """Whether the request enables thinking."""
        return self.config is not None and self.config.get("type") in ("enabled", "adaptive")

    @property
    def is_off(self) -> bool:
        """Whether the request disables thinking. The model then rejects thinking blocks in the last message, too."""
        return self.config is not None and self.config.get("type") == "disabled"

    @property
    def has_budget(self) -> bool:
        return self.config is not None and self.config.get("type") == "enabled"


def thinking_options(settings: Settings, profile: Profile, *, reasoning_lost: bool = False) -> ThinkingOptions:
    """Return the thinking options of a request.

    Args:
        settings: The settings of the call.
        profile: The profile of the model's server.
        reasoning_lost: Whether the history lacks the reasoning before the call that now gets its result.
    """
    native_config, effort = settings.get("anthropic_thinking"), settings.get("anthropic_effort")
    if isinstance(native_config, dict):
        config: Body | None = native_config
        budget = native_config.get("budget_tokens")
        if "thinking_summary" in settings and profile.thinking_display and native_config.get("type") != "disabled":
            config = {"display": profile.thinking_display} | native_config
    else:
        config, level, budget = claude_thinking(settings, profile, reasoning_lost=reasoning_lost)
        effort = effort or level if level is not None else effort
    return ThinkingOptions(config, effort, _max_tokens(settings, profile, budget))


def _max_tokens(settings: Settings, profile: Profile, budget: object) -> int:
    """Return `max_tokens`. The default is large enough for the budget and an answer."""
    max_tokens = settings.get("max_tokens")
    if max_tokens is None:
        max_tokens = max(profile.max_tokens_default, budget + ANSWER_TOKENS if type(budget) is int else 0)
    limit: int = max_tokens
    return limit


def claim_thinking(fields: SettingFields, profile: Profile) -> None:
    """Record which settings control thinking."""
    settings, effort = fields.settings, "output_config.effort"
    native_config = settings.get("anthropic_thinking")
    if profile.thinking_mode != "none" and ("thinking" in settings or "thinking_budget" in settings):
        _claim_unified(fields, profile, effort, is_replaced=isinstance(native_config, dict))
    if isinstance(native_config, dict):
        fields.bar("anthropic_thinking", effort, HISTORY, "max_tokens")
        fields.claim("anthropic_thinking", "thinking")
        native_options = thinking_options({"anthropic_thinking": native_config}, profile)
        if native_options.is_off and profile.replay != "none" and profile.replay_on == "thinking":
            fields.claim("anthropic_thinking", HISTORY)
        if native_options.max_tokens != profile.max_tokens_default:
            fields.claim("anthropic_thinking", "max_tokens", native_options.max_tokens)
        is_summary_sent = profile.thinking_display and not native_options.is_off and "display" not in native_config
        if "thinking_summary" in settings and is_summary_sent:
            fields.claim("thinking_summary", "thinking.display")
    if settings.get("anthropic_effort"):
        fields.claim("anthropic_effort", effort)


def _claim_unified(fields: SettingFields, profile: Profile, effort: str, *, is_replaced: bool) -> None:
    """Record the unified settings. `is_replaced`: Anthropic's own setting is sent in their place."""
    settings, default_max_tokens = fields.settings, profile.max_tokens_default
    is_off, budget = is_thinking_off(settings), settings.get("thinking_budget")
    budgets: dict[str, int] = {}
    if profile.thinking_mode == "budget":
        if "thinking" in settings and not is_off:
            budgets["thinking"] = budget_for_level(settings["thinking"], profile)
        if "thinking_budget" in settings:
            budgets["thinking_budget"] = budget or budget_for_level(True, profile)

    def numbers(budget: int | None) -> tuple[int, ...]:
        limit = _max_tokens(settings, profile, budget)
        return (limit,) if budget is None else (limit, budget)

    can_raise_limit = profile.thinking_mode == "budget" and any(
        number + ANSWER_TOKENS > default_max_tokens for number in profile.budgets.values()
    )
    paths = ("max_tokens",) if can_raise_limit else ()
    claim_claude_thinking(fields, profile, "thinking", effort, *paths, numbers=None if is_replaced else numbers)
    if is_off and profile.thinking_off == "disabled":
        fields.claim_history(profile)
    for name, number in budgets.items():
        if number + ANSWER_TOKENS <= default_max_tokens:
            continue
        if is_off or (name == "thinking" and budget):
            fields.withhold(name, "max_tokens")
        else:
            fields.claim(name, "max_tokens", number + ANSWER_TOKENS)
        if is_off and budget != default_max_tokens:
            # The limit, which the budget does not raise now, counts as a number that is sent because of thinking.
            fields.claim("thinking", "max_tokens", default_max_tokens)


def settings_that_enable_thinking(settings: Settings, profile: Profile) -> list[str]:
    """Return the settings that each enable thinking by themselves."""
    names = ("thinking", "thinking_budget", "anthropic_thinking")
    return [name for name in names if name in settings and thinking_options({name: settings[name]}, profile).is_on]
