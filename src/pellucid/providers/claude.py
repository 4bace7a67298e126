"""How Claude is told how much to think, on Anthropic's own API and behind Bedrock.

Older models take a budget of tokens, which must lie inside `max_tokens`; newer ones think as they see fit, with an
effort beside it. Which a model takes, and how it is told not to think, is in its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import RequestError
from ..settings import nearest_effort
from .effort import thinking_off
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings

LEAST_BUDGET = 1024
"""Tokens: Claude takes no smaller budget."""


Numbers = Callable[[int | None], tuple[int, ...]]
"""The numbers in a request because of thinking and of `max_tokens`, where so many tokens are for thought."""


class Thinking(NamedTuple):
    """What a request says of thinking."""

    config: Body | None = None
    """`thinking`; None to say nothing."""
    effort: str | None = None
    budget: int | None = None


def claude_thinking(settings: Settings, row: Profile, *, lost: bool = False) -> Thinking:
    """What the unified settings ask for.

    `lost`: the reasoning that the call to be answered came of did not come back. Raises `RequestError` where
    `max_tokens` leaves no room for thought.
    """
    if row.thinking_mode == "none" or not ("thinking" in settings or "thinking_budget" in settings):
        return Thinking()
    if thinking_off(settings):
        if row.thinking_off == "least":
            return Thinking({"type": "adaptive"}, row.efforts[0])
        return Thinking({"type": row.thinking_off})
    level = settings.get("thinking", True)
    # Newer models sign their thought and do not show it, unless they are asked to.
    shown = row.thinking_display or ("summarized" if "thinking_summary" in settings else "")
    display = {"display": shown} if shown else {}
    if row.thinking_mode == "adaptive":
        effort = None if level is True else nearest_effort(str(level), row.efforts)
        return Thinking({"type": "adaptive"} | display, effort)
    if lost and row.lost_stops_thinking:
        return Thinking()
    budget = _budget(settings, row)
    return Thinking({"type": "enabled", "budget_tokens": budget} | display, budget=budget)


def _budget(settings: Settings, row: Profile) -> int:
    """The tokens that were asked for or that a level stands for, less than the answer may have in all."""
    most = settings.get("max_tokens")
    if most is not None and most <= LEAST_BUDGET:
        raise RequestError(
            f"max_tokens is {most}, and thinking takes at least {LEAST_BUDGET} of them; "
            f"raise max_tokens, or switch thinking off",
            code="max_tokens_too_small",
            param="max_tokens",
        )
    return _within(settings.get("thinking_budget") or budget_of(settings.get("thinking", True), row), most)


def budget_of(level: bool | str, row: Profile) -> int:
    """The tokens that a level stands for."""
    return row.budgets.get("on" if level is True else str(level), LEAST_BUDGET)


def _within(budget: int, most: int | None) -> int:
    return budget if most is None else max(LEAST_BUDGET, min(budget, most - LEAST_BUDGET))


def claim_claude_thinking(
    fields: SettingFields,
    row: Profile,
    config: str,
    effort: str,
    *paths: str,
    numbers: Numbers | None = None,
) -> None:
    """Record which of the unified settings act at the paths `config` and `effort`, and maybe at the other `paths`.

    `numbers` is None where another setting is sent in place of these.
    """
    settings = fields.settings
    has_level, has_budget = "thinking" in settings, "thinking_budget" in settings
    if row.thinking_mode == "none" or not (has_level or has_budget):
        return
    adaptive = row.thinking_mode == "adaptive"
    fields.thinking_at(config, *paths, *((effort,) if adaptive or row.thinking_off == "least" else ()))
    asked = claude_thinking({name: value for name, value in settings.items() if name != "max_tokens"}, row)
    if thinking_off(settings):
        fields.claim("thinking", config, asked.config)
        if has_budget:
            fields.withhold("thinking_budget", config, by=["thinking"])
    elif adaptive:
        if has_level and has_budget:
            fields.withhold("thinking_budget", config, by=["thinking"])
            fields.withhold("thinking", config, by=["thinking_budget"] if asked.effort is None else ())
        elif has_level:
            fields.claim("thinking", config, asked.config)
        else:
            fields.claim("thinking_budget", config, asked.config)
            number = settings["thinking_budget"]
            fields.notes["thinking_budget"] = f"{{model}} does not take the number {number}, only that there was one"
    else:
        if has_level and settings.get("thinking_budget"):
            fields.withhold("thinking", config, by=["thinking_budget"])
        elif has_level:
            fields.claim("thinking", config, asked.config)
        if has_budget:
            if has_level and budget_of(settings["thinking"], row) == settings["thinking_budget"]:
                fields.add_silencers("thinking_budget", ["thinking"])
            note = "" if numbers is None else _about_budget(settings, row, numbers)
            if note is None:
                fields.withhold("thinking_budget", config)
            else:
                fields.claim("thinking_budget", config, asked.config)
                if note:
                    fields.notes["thinking_budget"] = note
    if asked.effort is not None:
        fields.claim("thinking", effort, asked.effort)
    if "thinking_summary" in settings and not row.thinking_display and "display" in (asked.config or {}):
        fields.dependent.add("thinking_summary")
        if numbers is not None:
            fields.claim("thinking_summary", f"{config}.display")


def _about_budget(settings: Settings, row: Profile, numbers: Numbers) -> str | None:
    """What to say of the budget where it is not to be seen in the request; None if in these bounds every budget near it
    comes to the same as none."""
    given, most = settings["thinking_budget"], settings.get("max_tokens")
    if given is None:
        return ""
    usual = budget_of(settings.get("thinking", True), row)
    sent, *others = [numbers(_within(one or usual, most)) for one in (given, given + 1, given // 2)]
    without = numbers(_within(usual, most) if "thinking" in settings else None)
    if all(one == without for one in (sent, *others)):
        return None
    changed = [number for one in (without, *others) for number in sent if number not in one]
    if not changed:
        return f"{{model}} does not take the number {given}, only that there was one"
    return f"{given} is sent as {changed[0]}, which is what {{model}} takes"
