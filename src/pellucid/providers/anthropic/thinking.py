"""How Claude is asked to think in a Messages request: see `claude`.

`anthropic_thinking` and `anthropic_effort` are sent as they are, in place of the unified settings.
"""

from __future__ import annotations

from typing import NamedTuple

from ..claude import budget_of, claim_claude_thinking, claude_thinking
from ..effort import thinking_off
from ..profile import Profile
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
        effort = effort or level if level is not None else effort
    return Asked(config, effort, _limit(settings, row, budget))


def _limit(settings: Settings, row: Profile, budget: object) -> int:
    """`max_tokens`: if it is not given, there is room for the answer beside the budget."""
    most = settings.get("max_tokens")
    if most is None:
        most = max(row.max_tokens_default, budget + ROOM if type(budget) is int else 0)
    limit: int = most
    return limit


def claim_thinking(fields: SettingFields, row: Profile) -> None:
    """Record which settings say how much to think."""
    settings, effort = fields.settings, "output_config.effort"
    own = settings.get("anthropic_thinking")
    if row.thinking_mode != "none" and ("thinking" in settings or "thinking_budget" in settings):
        _claim_unified(fields, row, effort, replaced=isinstance(own, dict))
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


def _claim_unified(fields: SettingFields, row: Profile, effort: str, *, replaced: bool) -> None:
    """`replaced`: Anthropic's own setting is sent in place of these."""
    settings, most = fields.settings, row.max_tokens_default
    off, budget = thinking_off(settings), settings.get("thinking_budget")
    budgets: dict[str, int] = {}
    if row.thinking_mode == "budget":
        if "thinking" in settings and not off:
            budgets["thinking"] = budget_of(settings["thinking"], row)
        if "thinking_budget" in settings:
            budgets["thinking_budget"] = budget or budget_of(True, row)

    def numbers(budget: int | None) -> tuple[int, ...]:
        limit = _limit(settings, row, budget)
        return (limit,) if budget is None else (limit, budget)

    can_raise = row.thinking_mode == "budget" and any(number + ROOM > most for number in row.budgets.values())
    paths = ("max_tokens",) if can_raise else ()
    claim_claude_thinking(fields, row, "thinking", effort, *paths, numbers=None if replaced else numbers)
    if off and row.thinking_off == "disabled":
        fields.claim_history(row)
    for name, number in budgets.items():
        if number + ROOM <= most:
            continue
        if off or (name == "thinking" and budget):
            fields.withhold(name, "max_tokens")
        else:
            fields.claim(name, "max_tokens", number + ROOM)
        if off and budget != most:
            # The limit that the budget does not raise now counts as a number that is sent because of thinking.
            fields.claim("thinking", "max_tokens", most)


def turn_thinking_on(settings: Settings, row: Profile) -> list[str]:
    """The settings of which each alone switches thinking on."""
    names = ("thinking", "thinking_budget", "anthropic_thinking")
    return [name for name in names if name in settings and ask({name: settings[name]}, row).on]
