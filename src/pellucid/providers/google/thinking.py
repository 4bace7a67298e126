"""How much a Gemini is to think, and whether it shows it.

Gemini 2.5 is told a number of tokens, Gemini 3 a level; never both, which is refused. Thought is shown only on
request (`includeThoughts`), and asking for thought is asking to see it. Where a model cannot be told not to think, it
is told to think as little as it can (the first of the row's `efforts`): its default would be much.
"""

from __future__ import annotations

from typing import Any

from ...settings import ModelSettings
from ..effort import LEVELS, nearest_effort, thinking_off
from ..profiles import Profile
from .chunk import camel

AUTOMATIC = -1
"""The budget that leaves the amount to the model."""


def thinking_config(settings: ModelSettings, row: Profile) -> dict[str, Any]:
    """`thinkingConfig`; empty to say nothing. Google's own setting wins, and is taken as it is."""
    own: dict[str, Any] | None = settings.get("google_thinking_config")  # type: ignore[assignment]
    if own is not None:
        config: dict[str, Any] = camel(own)
        return config
    if row.thinking == "none":
        return {}
    off = thinking_off(settings)
    shown = {"includeThoughts": True}
    if "thinking_budget" in settings and row.budget_field and not off:
        return {row.budget_field: settings["thinking_budget"], **(shown if settings["thinking_budget"] else {})}
    level = settings.get("thinking")
    if level is None:
        return shown if "thinking_summary" in settings else {}
    if row.budgets:
        return {"thinkingBudget": _budget("none" if off else level, row)} | ({} if off else shown)
    if off:
        return {"thinkingLevel": row.efforts[0]} if row.efforts else {}
    word = None if level is True else nearest_effort(str(level), row.efforts)
    return shown | ({"thinkingLevel": word} if word is not None else {})


def _budget(level: bool | str, row: Profile) -> int:
    if level is True:
        return AUTOMATIC
    if level in row.budgets:
        return row.budgets[str(level)]
    if level not in LEVELS or level == "none":
        return min(row.budgets.values())
    word = nearest_effort(str(level), tuple(row.budgets))
    return row.budgets[word] if word is not None else AUTOMATIC
