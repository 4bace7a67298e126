"""How much to think, in the words that a provider knows."""

from __future__ import annotations

from ..settings import ModelSettings

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def thinking_off(settings: ModelSettings) -> bool:
    return settings.get("thinking") in (False, "none")


def nearest_effort(level: str, known: tuple[str, ...]) -> str | None:
    """`level`, or the nearest of the `known` ones; None where there is none to name.

    Thinking is not switched on or off by rounding.
    """
    if level in known or level not in LEVELS:
        return level
    if level == "none":
        return None
    at = LEVELS.index(level)
    choices = [name for name in known if name in LEVELS and name != "none"]
    return min(choices, key=lambda name: abs(LEVELS.index(name) - at), default=None)
