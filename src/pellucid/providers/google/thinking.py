"""Thinking fields of Gemini: how much to think, and whether to show it.

Gemini 2.5 takes a number of tokens, Gemini 3 a level; a request with both is rejected. Reasoning is shown only on
request (`includeThoughts`); a request to think is also a request to show it. If thinking cannot be disabled, the
lowest level is sent (the first of the row's `efforts`), because the default is high.
"""

from __future__ import annotations

from ...settings import EFFORTS, nearest_effort
from ..effort import is_thinking_off
from ..profile import Profile
from ..setting_fields import SettingFields
from .chunk import to_camel_case

AUTOMATIC_BUDGET = -1
"""The budget with which the model chooses the amount itself."""


_CONFIG = "generationConfig.thinkingConfig"
_INCLUDE_THOUGHTS = f"{_CONFIG}.includeThoughts"


def write_thinking(fields: SettingFields, row: Profile) -> None:
    """Write the thinking fields. Google's own setting takes precedence, and is sent unchanged."""
    settings = fields.settings
    native_config = settings.get("google_thinking_config")
    if row.thinking != "none" and not settings.keys().isdisjoint(_THINKING_SETTINGS):
        _write_unified(fields, row)
    if native_config is not None:
        fields.put("google_thinking_config", _CONFIG, to_camel_case(native_config))
        if not native_config:
            fields.remove(_CONFIG)


_THINKING_SETTINGS = ("thinking", "thinking_budget", "thinking_summary")


def _write_unified(fields: SettingFields, row: Profile) -> None:
    settings = fields.settings
    level, is_off = settings.get("thinking"), is_thinking_off(settings)
    field = f"{_CONFIG}.thinkingBudget" if row.budgets else f"{_CONFIG}.thinkingLevel"
    fields.set_thinking_paths(_INCLUDE_THOUGHTS, field)
    has_budget = "thinking_budget" in settings and bool(row.budget_field)
    amount_settings = [
        name for name, is_set in (("thinking", level is not None), ("thinking_budget", has_budget)) if is_set
    ]
    if "thinking_summary" in settings:
        if amount_settings:
            fields.withhold("thinking_summary", _INCLUDE_THOUGHTS, by=amount_settings)
        else:
            fields.put("thinking_summary", _INCLUDE_THOUGHTS, True)
    if has_budget and not is_off:
        if level is not None:
            fields.withhold("thinking", _INCLUDE_THOUGHTS, by=["thinking_budget"])
            if row.budgets and _budget_tokens(level, row) == settings["thinking_budget"]:
                fields.add_suppressors("thinking_budget", ["thinking"])
        fields.put("thinking_budget", f"{_CONFIG}.{row.budget_field}", settings["thinking_budget"])
        if settings["thinking_budget"]:
            fields.put("thinking_budget", _INCLUDE_THOUGHTS, True)
        return
    if has_budget:
        fields.withhold("thinking_budget", f"{_CONFIG}.{row.budget_field}", by=["thinking"])
    if level is None:
        return
    if row.budgets:
        fields.put("thinking", field, _budget_tokens("none" if is_off else level, row))
    if is_off:
        if row.efforts and not row.budgets:
            fields.put("thinking", field, row.efforts[0])
        return
    fields.put("thinking", _INCLUDE_THOUGHTS, True)
    effort = None if level is True or row.budgets else nearest_effort(str(level), row.efforts)
    if effort is not None:
        fields.put("thinking", field, effort)


def _budget_tokens(level: bool | str, row: Profile) -> int:
    if level is True:
        return AUTOMATIC_BUDGET
    if level in row.budgets:
        return row.budgets[str(level)]
    if level not in EFFORTS or level == "none":
        return min(row.budgets.values())
    effort = nearest_effort(str(level), tuple(row.budgets))
    return row.budgets[effort] if effort is not None else AUTOMATIC_BUDGET
