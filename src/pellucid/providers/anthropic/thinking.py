"""How Claude is asked to think in a Messages request: see `claude`.

`anthropic_thinking` and `anthropic_effort` are sent as they are, in place of the unified settings.
"""

from __future__ import annotations

from typing import NamedTuple

from ..claude import claim_claude_thinking, claude_thinking
from ..effort import thinking_off
from ..profiles import Profile
from ..setting_fields import HISTORY, Body, SettingFields, Settings

ROOM = 4096
"""Tokens for the answer, beside a budget."""


class Asked(NamedTuple):
    """What a request says of thinking."""

    config: Body | None
    """`thinking`; None to say nothing."""
    effort: str | None
    max_tokens: int

    @property
    def on(self) -> bool:
        """Whether thinking was asked for."""
        return self.config is not None and self.config.get("type") in ("enabled", "adaptive")

    @property
    def off(self) -> bool:
        """Whether the model was told that thinking is disabled: then it refuses thinking in the last message, too."""
        return self.config is not None and self.config.get("type") == "disabled"

    @property
    def budgeted(self) -> bool:
        return self.config is not None and self.config.get("type") == "enabled"


def ask(settings: Settings, row: Profile, *, lost: bool = False) -> Asked:
    """`lost`: the reasoning that the call to be answered came of did not come back."""
    own, effort = settings.get("anthropic_thinking"), settings.get("anthropic_effort")
    if isinstance(own, dict):
        config: Body | None = own
        budget = own.get("budget_tokens")
    else:
        config, level, budget = claude_thinking(settings, row, lost=lost)
        effort = effort or level
    most = settings.get("max_tokens")
    if most is None:
        most = max(row.max_tokens_default, budget + ROOM if type(budget) is int else 0)
    return Asked(config, effort, most)


def claim_thinking(fields: SettingFields, row: Profile) -> None:
    """Record which settings say how much to think."""
    settings, effort = fields.settings, "output_config.effort"
    own = settings.get("anthropic_thinking")
    budgets = row.budgets.values() if row.thinking_mode == "budget" else ()
    raised = ("max_tokens",) if any(budget + ROOM > row.max_tokens_default for budget in budgets) else ()
    numbers = None if isinstance(own, dict) else lambda settings: _numbers(settings, row)
    claim_claude_thinking(fields, row, "thinking", effort, *raised, numbers=numbers)
    off = thinking_off(settings)
    if off and ask({"thinking": settings["thinking"]}, row).off:
        fields.claim_history(row)
    for name, is_used in (("thinking", off or not settings.get("thinking_budget")), ("thinking_budget", not off)):
        most = ask({name: settings[name]}, row).max_tokens if name in settings else row.max_tokens_default
        if most == row.max_tokens_default:
            continue
        if is_used:
            fields.claim(name, "max_tokens", most)
        else:
            fields.withhold(name, "max_tokens")
        if off and settings["thinking_budget"] != row.max_tokens_default:
            # The limit that the budget does not raise now counts as a number that is sent because of thinking.
            fields.claim("thinking", "max_tokens", row.max_tokens_default)
    if isinstance(own, dict):
        fields.bar("anthropic_thinking", effort, HISTORY, "max_tokens")
        fields.claim("anthropic_thinking", "thinking")
        alone = ask({"anthropic_thinking": own}, row)
        if alone.off and row.replay != "none" and row.replay_on == "thinking":
            fields.claim("anthropic_thinking", HISTORY)
        if alone.max_tokens != row.max_tokens_default:
            fields.claim("anthropic_thinking", "max_tokens", alone.max_tokens)
    if settings.get("anthropic_effort"):
        fields.claim("anthropic_effort", effort)


def _numbers(settings: Settings, row: Profile) -> tuple[int, ...]:
    _, _, budget = claude_thinking(settings, row)
    most = ask(settings, row).max_tokens
    return (most,) if budget is None else (most, budget)


def turn_thinking_on(settings: Settings, row: Profile) -> list[str]:
    """The settings of which each alone switches thinking on."""
    names = ("thinking", "thinking_budget", "anthropic_thinking")
    return [name for name in names if name in settings and ask({name: settings[name]}, row).on]
