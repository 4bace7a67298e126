"""Levels of effort in the words that a provider knows, and when sampling settings are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..settings import EFFORTS, SETTINGS, nearest_effort
from .profile import Profile


def is_thinking_off(settings: Mapping[str, Any]) -> bool:
    """Whether the settings switch thinking off."""
    return settings.get("thinking") in (False, "none")


def requested_effort(settings: Mapping[str, Any], row: Profile) -> str | None:
    """Return the row's nearest word for the requested level; None to send none."""
    level = settings.get("thinking")
    if level is None:
        return None
    if level is True:
        return row.effort_on or None
    return nearest_effort(level or "none", row.efforts)


def effort_paths(row: Profile, path: str) -> tuple[str, ...]:
    """Return `path` as a tuple if the row has any level to send there; otherwise an empty tuple."""
    return (path,) if row.effort_on or any(effort in EFFORTS for effort in row.efforts) else ()


def accepts_sampling(row: Profile, effort: str | None) -> bool:
    """Whether a model accepts sampling settings together with this effort."""
    if row.sampling == "without_thinking":
        return effort in (None, "none")
    return row.sampling == "free" or (row.sampling == "told_off" and effort == "none")


SAMPLING = frozenset(name for name, setting in SETTINGS.items() if setting.is_sampling)
"""The settings that change how tokens are chosen. OpenAI's wires have a field of the same name for each."""
