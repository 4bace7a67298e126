"""How much a Gemini is to think, and whether it shows it.

Gemini 2.5 is told a number of tokens, Gemini 3 a level; never both, which is refused. Thought is shown only on
request (`includeThoughts`), and asking for thought is asking to see it. Where a model cannot be told not to think, it
is told to think as little as it can (the first of the row's `efforts`): its default would be much.
"""

from __future__ import annotations

from ...settings import EFFORTS, nearest_effort
from ..effort import thinking_off
from ..profile import Profile
from ..setting_fields import SettingFields
from .chunk import camel

AUTOMATIC = -1
"""The budget that leaves the amount to the model."""


_CONFIG = "generationConfig.thinkingConfig"
_SHOWN = f"{_CONFIG}.includeThoughts"


def write_thinking(fields: SettingFields, row: Profile) -> None:
    """Google's own setting wins, and is taken as it is."""
    settings = fields.settings
    own = settings.get("google_thinking_config")
    if row.thinking != "none" and not settings.keys().isdisjoint(_SETTINGS):
        _write_unified(fields, row)
    if own is not None:
        fields.put("google_thinking_config", _CONFIG, camel(own))
        if not own:
            fields.remove(_CONFIG)


_SETTINGS = ("thinking", "thinking_budget", "thinking_summary")


def _write_unified(fields: SettingFields, row: Profile) -> None:
    settings = fields.settings
    level, off = settings.get("thinking"), thinking_off(settings)
    field = f"{_CONFIG}.thinkingBudget" if row.budgets else f"{_CONFIG}.thinkingLevel"
    fields.thinking_at(_SHOWN, field)
    budgeted = "thinking_budget" in settings and bool(row.budget_field)
    asked = [name for name, is_asked in (("thinking", level is not None), ("thinking_budget", budgeted)) if is_asked]
    if "thinking_summary" in settings:
        if asked:
            fields.withhold("thinking_summary", _SHOWN, by=asked)
        else:
            fields.put("thinking_summary", _SHOWN, True)
    if budgeted and not off:
        if level is not None:
            fields.withhold("thinking", _SHOWN, by=["thinking_budget"])
            if row.budgets and _budget(level, row) == settings["thinking_budget"]:
                fields.add_silencers("thinking_budget", ["thinking"])
        fields.put("thinking_budget", f"{_CONFIG}.{row.budget_field}", settings["thinking_budget"])
        if settings["thinking_budget"]:
            fields.put("thinking_budget", _SHOWN, True)
        return
    if budgeted:
        fields.withhold("thinking_budget", f"{_CONFIG}.{row.budget_field}", by=["thinking"])
    if level is None:
        return
    if row.budgets:
        fields.put("thinking", field, _budget("none" if off else level, row))
    if off:
        if row.efforts and not row.budgets:
            fields.put("thinking", field, row.efforts[0])
        return
    fields.put("thinking", _SHOWN, True)
    word = None if level is True or row.budgets else nearest_effort(str(level), row.efforts)
    if word is not None:
        fields.put("thinking", field, word)


def _budget(level: bool | str, row: Profile) -> int:
    if level is True:
        return AUTOMATIC
    if level in row.budgets:
        return row.budgets[str(level)]
    if level not in EFFORTS or level == "none":
        return min(row.budgets.values())
    word = nearest_effort(str(level), tuple(row.budgets))
    return row.budgets[word] if word is not None else AUTOMATIC
