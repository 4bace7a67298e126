"""How Claude is asked to think.

Older models take a budget of tokens, which must lie inside `max_tokens`; newer ones think as they see fit, with an
effort beside it; which a model takes, how it is told not to, and what else it refuses while it thinks, is in its row.
`anthropic_thinking` and `anthropic_effort` are sent as they are, in place of the unified settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import RequestError
from ..profiles import Profile

Body = dict[str, Any]

LEAST_BUDGET = 1024
"""Tokens: the provider takes no smaller budget."""
ROOM = 4096
"""Tokens for the answer, beside a budget."""

_LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")


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


def ask(settings: Mapping[str, Any], row: Profile, *, lost: bool) -> Asked:
    """`lost`: the reasoning that the call to be answered came of did not come back."""
    own, own_effort = settings.get("anthropic_thinking"), settings.get("anthropic_effort")
    given = settings.get("max_tokens")
    limit = given if given is not None else row.max_tokens_default
    if isinstance(own, dict):
        budget = own.get("budget_tokens")
        if given is None and type(budget) is int:
            limit = max(limit, budget + ROOM)
        return Asked(own, own_effort, limit)
    if row.thinking_mode == "none" or ("thinking" not in settings and "thinking_budget" not in settings):
        return Asked(None, own_effort, limit)
    if settings.get("thinking") in (False, "none"):
        return _off(row, own_effort, limit)
    level = settings.get("thinking", True)
    if row.thinking_mode == "adaptive":
        effort = None if level is True else _nearest(str(level), row.efforts)
        return Asked({"type": "adaptive"} | _display(settings, row), own_effort or effort, limit)
    if lost and row.lost_stops_thinking:
        return Asked(None, own_effort, limit)
    budget = settings.get("thinking_budget") or row.budgets.get("on" if level is True else str(level), LEAST_BUDGET)
    if given is None:
        limit = max(limit, budget + ROOM)
    elif given <= LEAST_BUDGET:
        raise RequestError(
            f"max_tokens is {given}, and thinking takes at least {LEAST_BUDGET} of them; "
            f"raise max_tokens, or switch thinking off",
            code="max_tokens_too_small",
            param="max_tokens",
        )
    else:
        budget = max(LEAST_BUDGET, min(budget, given - LEAST_BUDGET))
    return Asked({"type": "enabled", "budget_tokens": budget} | _display(settings, row), own_effort, limit)


def _off(row: Profile, effort: str | None, limit: int) -> Asked:
    if row.thinking_off == "least":
        return Asked({"type": "adaptive"}, effort or row.efforts[0], limit)
    return Asked({"type": row.thinking_off}, effort, limit)


def _display(settings: Mapping[str, Any], row: Profile) -> Body:
    """Reasoning that was asked for is to be seen."""
    shown = row.thinking_display or ("summarized" if "thinking_summary" in settings else "")
    return {"display": shown} if shown else {}


def _nearest(level: str, known: tuple[str, ...]) -> str | None:
    if level in known or level not in _LEVELS:
        return level
    at = _LEVELS.index(level)
    choices = [name for name in known if name in _LEVELS]
    return min(choices, key=lambda name: abs(_LEVELS.index(name) - at), default=None)
