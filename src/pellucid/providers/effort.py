"""How much to think, in the words that a provider knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .profiles import Profile

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def thinking_off(settings: Mapping[str, Any]) -> bool:
    return settings.get("thinking") in (False, "none")


def asked_effort(settings: Mapping[str, Any], row: Profile) -> str | None:
    """The row's nearest word for the level asked for; None to say nothing."""
    level = settings.get("thinking")
    if level is None:
        return None
    if level is True:
        return row.effort_on or None
    return nearest_effort(level or "none", row.efforts)


def levels_at(row: Profile, path: str) -> tuple[str, ...]:
    """`path`, if the row has any word for a level to send there."""
    return (path,) if row.effort_on or any(effort in LEVELS for effort in row.efforts) else ()


def may_sample(row: Profile, effort: str | None) -> bool:
    """Whether a model that is asked for this effort can also be told how to choose its tokens."""
    if row.sampling == "without_thinking":
        return effort in (None, "none")
    return row.sampling == "free" or (row.sampling == "told_off" and effort == "none")


SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"}
)
"""The settings that say how, on OpenAI's wires."""


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
