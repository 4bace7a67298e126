"""How Claude is told how much to think, on Anthropic's own API and behind Bedrock.

Older models take a budget of tokens, which must lie inside `max_tokens`; newer ones think as they see fit, with an
effort beside it. Which a model takes, and how it is told not to think, is in its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import RequestError
from ..settings import nearest_effort
from .effort import is_thinking_off
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings

MIN_BUDGET_TOKENS = 1024
"""Tokens: Claude takes no smaller budget."""


RequestNumbers = Callable[[int | None], tuple[int, ...]]
"""The numbers in a request because of thinking and of `max_tokens`, where so many tokens are for thought."""


class ClaudeThinking(NamedTuple):
    """What a request says of thinking."""

    config: Body | None = None
    """`thinking`; None to say nothing."""
    effort: str | None = None
    budget: int | None = None


def claude_thinking(settings: Settings, row: Profile, *, reasoning_lost: bool = False) -> ClaudeThinking:
    """What the unified settings ask for.

    `lost`: the reasoning that the call to be answered came of did not come back. Raises `RequestError` where
    `max_tokens` leaves no room for thought.
    """
    if row.thinking_mode == "none" or not ("thinking" in settings or "thinking_budget" in settings):
        return ClaudeThinking()
    if is_thinking_off(settings):
        if row.thinking_off == "least":
            return ClaudeThinking({"type": "adaptive"}, row.efforts[0])
        return ClaudeThinking({"type": row.thinking_off})
    level = settings.get("thinking", True)
    # Newer models sign their thought and do not show it, unless they are asked to.
    display_value = row.thinking_display or ("summarized" if "thinking_summary" in settings else "")
    display = {"display": display_value} if display_value else {}
    if row.thinking_mode == "adaptive":
        effort = None if level is True else nearest_effort(str(level), row.efforts)
        return ClaudeThinking({"type": "adaptive"} | display, effort)
    if reasoning_lost and row.lost_stops_thinking:
        return ClaudeThinking()
    budget = _budget_tokens(settings, row)
    return ClaudeThinking({"type": "enabled", "budget_tokens": budget} | display, budget=budget)


def _budget_tokens(settings: Settings, row: Profile) -> int:
    """The tokens that were asked for or that a level stands for, less than the answer may have in all."""
    max_tokens = settings.get("max_tokens")
    if max_tokens is not None and max_tokens <= MIN_BUDGET_TOKENS:
        raise RequestError(
            f"max_tokens is {max_tokens}, and thinking takes at least {MIN_BUDGET_TOKENS} of them; "
            f"raise max_tokens, or switch thinking off",
            code="max_tokens_too_small",
            param="max_tokens",
        )
    return _clamp_budget(
        settings.get("thinking_budget") or budget_for_level(settings.get("thinking", True), row), max_tokens
    )


def budget_for_level(level: bool | str, row: Profile) -> int:
    """The tokens that a level stands for."""
    return row.budgets.get("on" if level is True else str(level), MIN_BUDGET_TOKENS)


def _clamp_budget(budget: int, max_tokens: int | None) -> int:
    return budget if max_tokens is None else max(MIN_BUDGET_TOKENS, min(budget, max_tokens - MIN_BUDGET_TOKENS))


def claim_claude_thinking(
    fields: SettingFields,
    row: Profile,
    config: str,
    effort: str,
    *paths: str,
    numbers: RequestNumbers | None = None,
) -> None:
    """Record which of the unified settings act at the paths `config` and `effort`, and maybe at the other `paths`.

    `numbers` is None where another setting is sent in place of these.
    """
    settings = fields.settings
    has_level, has_budget = "thinking" in settings, "thinking_budget" in settings
    if row.thinking_mode == "none" or not (has_level or has_budget):
        return
    adaptive = row.thinking_mode == "adaptive"
    fields.set_thinking_paths(config, *paths, *((effort,) if adaptive or row.thinking_off == "least" else ()))
    thinking = claude_thinking({name: value for name, value in settings.items() if name != "max_tokens"}, row)
    if is_thinking_off(settings):
        fields.claim("thinking", config, thinking.config)
        if has_budget:
            fields.withhold("thinking_budget", config, by=["thinking"])
    elif adaptive:
        if has_level and has_budget:
            fields.withhold("thinking_budget", config, by=["thinking"])
            fields.withhold("thinking", config, by=["thinking_budget"] if thinking.effort is None else ())
        elif has_level:
            fields.claim("thinking", config, thinking.config)
        else:
            fields.claim("thinking_budget", config, thinking.config)
            number = settings["thinking_budget"]
            fields.notes["thinking_budget"] = f"{{model}} does not take the number {number}, only that there was one"
    else:
        if has_level and settings.get("thinking_budget"):
            fields.withhold("thinking", config, by=["thinking_budget"])
        elif has_level:
            fields.claim("thinking", config, thinking.config)
        if has_budget:
            if has_level and budget_for_level(settings["thinking"], row) == settings["thinking_budget"]:
                fields.add_suppressors("thinking_budget", ["thinking"])
            note = "" if numbers is None else _budget_note(settings, row, numbers)
            if note is None:
                fields.withhold("thinking_budget", config)
            else:
                fields.claim("thinking_budget", config, thinking.config)
                if note:
                    fields.notes["thinking_budget"] = note
    if thinking.effort is not None:
        fields.claim("thinking", effort, thinking.effort)
    if "thinking_summary" in settings and not row.thinking_display and "display" in (thinking.config or {}):
        fields.dependent.add("thinking_summary")
        if numbers is not None:
            fields.claim("thinking_summary", f"{config}.display")


def _budget_note(settings: Settings, row: Profile, numbers: RequestNumbers) -> str | None:
    """What to say of the budget where it is not to be seen in the request; None if in these bounds every budget near it
    comes to the same as none."""
    budget, max_tokens = settings["thinking_budget"], settings.get("max_tokens")
    if budget is None:
        return ""
    default_budget = budget_for_level(settings.get("thinking", True), row)
    sent, *others = [
        numbers(_clamp_budget(one or default_budget, max_tokens)) for one in (budget, budget + 1, budget // 2)
    ]
    numbers_without_budget = numbers(_clamp_budget(default_budget, max_tokens) if "thinking" in settings else None)
    if all(one == numbers_without_budget for one in (sent, *others)):
        return None
    changed = [number for one in (numbers_without_budget, *others) for number in sent if number not in one]
    if not changed:
        return f"{{model}} does not take the number {budget}, only that there was one"
    return f"{budget} is sent as {changed[0]}, which is what {{model}} takes"
