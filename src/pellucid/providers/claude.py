"""Thinking settings of Claude, on Anthropic's own API and on Bedrock.

Older models take a budget of tokens, which must be less than `max_tokens`. Newer ones think adaptively, with a separate
effort, and models of other makers behind Claude's API are enabled, with an effort. A model's profile says which it
takes, and how thinking is switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import RequestError
from ..parts import ThinkingPart
from ..settings import nearest_effort
from .effort import is_thinking_off
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings

MIN_BUDGET_TOKENS = 1024
"""The smallest budget that Claude takes."""


_REDACTED_IDS = frozenset({"redacted_thinking", "redacted_content"})
"""The ids of redacted thinking in a history that does not mark it otherwise, as Pydantic AI's."""


def is_redacted(part: ThinkingPart) -> bool:
    """Whether a part is a redacted block: its signature is the block's data, not the signature of a text."""
    return part.form == "redacted" or (part.id in _REDACTED_IDS and not part.content)


RequestNumbers = Callable[[int | None], tuple[int, ...]]
"""Returns the numbers in a request that depend on thinking and `max_tokens`, for a budget in tokens."""


class ClaudeThinking(NamedTuple):
    """The thinking fields of a request."""

    config: Body | None = None
    """The `thinking` field; None to leave it out."""
    effort: str | None = None
    budget: int | None = None


def claude_thinking(settings: Settings, profile: Profile, *, reasoning_lost: bool = False) -> ClaudeThinking:
    """Return the thinking fields for the unified settings.

    Args:
        settings: The settings.
        profile: The profile.
        reasoning_lost: Whether the reasoning that led to the pending tool call was not sent back.

    Raises:
        RequestError: `max_tokens` is too small for any reasoning.
    """
    if profile.thinking_mode == "none" or not ("thinking" in settings or "thinking_budget" in settings):
        return ClaudeThinking()
    switch = "enabled" if profile.thinking_mode == "effort" else "adaptive"
    if is_thinking_off(settings):
        if profile.thinking_off == "least":
            return ClaudeThinking({"type": switch}, profile.efforts[0])
        return ClaudeThinking({"type": profile.thinking_off})
    level = settings.get("thinking", True)
    # Newer models sign their reasoning and show it only on request.
    display_value = profile.thinking_display or ("summarized" if "thinking_summary" in settings else "")
    display = {"display": display_value} if display_value else {}
    if profile.thinking_mode != "budget":
        effort = None if level is True else nearest_effort(str(level), profile.efforts)
        return ClaudeThinking({"type": switch} | display, effort)
    if reasoning_lost and profile.lost_stops_thinking:
        return ClaudeThinking()
    budget = _budget_tokens(settings, profile)
    return ClaudeThinking({"type": "enabled", "budget_tokens": budget} | display, budget=budget)


def _budget_tokens(settings: Settings, profile: Profile) -> int:
    """Return the requested budget, or that of the level, limited to less than `max_tokens`."""
    max_tokens = settings.get("max_tokens")
    if max_tokens is not None and max_tokens <= MIN_BUDGET_TOKENS:
        raise RequestError(
            f"max_tokens is {max_tokens}, and thinking takes at least {MIN_BUDGET_TOKENS} of them; "
            f"raise max_tokens, or switch thinking off",
            code="max_tokens_too_small",
            param="max_tokens",
        )
    return _clamp_budget(
        settings.get("thinking_budget") or budget_for_level(settings.get("thinking", True), profile), max_tokens
    )


def budget_for_level(level: bool | str, profile: Profile) -> int:
    """Return the budget of a level, in tokens."""
    return profile.budgets.get("on" if level is True else str(level), MIN_BUDGET_TOKENS)


def _clamp_budget(budget: int, max_tokens: int | None) -> int:
    return budget if max_tokens is None else max(MIN_BUDGET_TOKENS, min(budget, max_tokens - MIN_BUDGET_TOKENS))


def claim_claude_thinking(
    fields: SettingFields,
    profile: Profile,
    config: str,
    effort: str,
    *paths: str,
    numbers: RequestNumbers | None = None,
) -> None:
    """Record which of the unified settings act, and at which paths.

    Args:
        fields: The request's setting fields.
        profile: The profile.
        config: The path of the thinking configuration.
        effort: The path of the effort.
        *paths: Other paths at which thinking may act.
        numbers: Returns the numbers in the request for a budget; None if another setting replaces these.
    """
    settings = fields.settings
    has_level, has_budget = "thinking" in settings, "thinking_budget" in settings
    if profile.thinking_mode == "none" or not (has_level or has_budget):
        return
    has_efforts = profile.thinking_mode != "budget"
    fields.set_thinking_paths(config, *paths, *((effort,) if has_efforts or profile.thinking_off == "least" else ()))
    thinking = claude_thinking({name: value for name, value in settings.items() if name != "max_tokens"}, profile)
    if is_thinking_off(settings):
        fields.claim("thinking", config, thinking.config)
        if has_budget:
            fields.withhold("thinking_budget", config, by=["thinking"])
    elif has_efforts:
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
            if has_level and budget_for_level(settings["thinking"], profile) == settings["thinking_budget"]:
                fields.add_suppressors("thinking_budget", ["thinking"])
            note = "" if numbers is None else _budget_note(settings, profile, numbers)
            if note is None:
                fields.withhold("thinking_budget", config)
            else:
                fields.claim("thinking_budget", config, thinking.config)
                if note:
                    fields.notes["thinking_budget"] = note
    if thinking.effort is not None:
        fields.claim("thinking", effort, thinking.effort)
    if "thinking_summary" in settings and not profile.thinking_display and "display" in (thinking.config or {}):
        fields.dependent.add("thinking_summary")
        if numbers is not None:
            fields.claim("thinking_summary", f"{config}.display")


def _budget_note(settings: Settings, profile: Profile, numbers: RequestNumbers) -> str | None:
    """Return the note about a budget that is not visible in the request.

    Returns:
        The note; empty if none is needed; None if within these limits every nearby budget has the same effect as none.
    """
    budget, max_tokens = settings["thinking_budget"], settings.get("max_tokens")
    if budget is None:
        return ""
    default_budget = budget_for_level(settings.get("thinking", True), profile)
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
