"""Levels of effort that a model knows, and when it accepts sampling settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..settings import EFFORTS, SETTINGS, nearest_effort
from .profile import Profile


def is_thinking_off(settings: Mapping[str, Any]) -> bool:
    """Whether the settings switch thinking off."""
    return settings.get("thinking") in (False, "none")


def switches_thinking_off(settings: Mapping[str, Any], profile: Profile) -> bool:
    """Whether a request with these settings switches thinking off, which some models do not permit.

    Notes between calls (`between_tools`) are thoughts, too. A model without a level `none` is not switched off.
    """
    if not is_thinking_off(settings) or profile.thinking_off != "disabled":
        return False
    if profile.thinking_mode != "none":
        return True
    return profile.thinking != "none" and (profile.thinking != "effort" or "none" in profile.efforts)


def may_think(settings: Mapping[str, Any], profile: Profile) -> bool:
    """Whether a model may think with these settings, for what it does not take together with thinking."""
    if switches_thinking_off(settings, profile):
        return False
    return profile.forced_calls == "thinking_switched_off" or "thinking" in settings or "thinking_budget" in settings


def requested_effort(settings: Mapping[str, Any], profile: Profile) -> str | None:
    """Return the level to send: the nearest that the model knows; None to send none."""
    level = settings.get("thinking")
    if level is None:
        return None
    if level is True:
        return profile.effort_on or None
    if is_thinking_off(settings) and profile.thinking_off == "least":
        return next((effort for effort in profile.efforts if effort != "none"), None)
    return nearest_effort(level or "none", profile.efforts)


def effort_paths(profile: Profile, path: str) -> tuple[str, ...]:
    """Return `(path,)` if the model knows a level that can be sent there; otherwise `()`."""
    return (path,) if profile.effort_on or any(effort in EFFORTS for effort in profile.efforts) else ()


def accepts_sampling(profile: Profile, effort: str | None) -> bool:
    """Whether a model accepts sampling settings together with this effort."""
    if profile.sampling == "without_thinking":
        return effort in (None, "none")
    return profile.sampling == "free" or (profile.sampling == "thinking_switched_off" and effort == "none")


SAMPLING = frozenset(name for name, setting in SETTINGS.items() if setting.is_sampling)
"""The settings that change how tokens are chosen. OpenAI's wires have a field of the same name for each."""
