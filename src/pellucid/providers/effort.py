"""How much to think, in the words that a provider knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..settings import EFFORTS, nearest_effort
from .profile import Profile


def is_thinking_off(settings: Mapping[str, Any]) -> bool:
    return settings.get("thinking") in (False, "none")


def requested_effort(settings: Mapping[str, Any], row: Profile) -> str | None:
    """The row's nearest word for the level asked for; None to say nothing."""
    level = settings.get("thinking")
    if level is None:
        return None
    if level is True:
        return row.effort_on or None
    return nearest_effort(level or "none", row.efforts)


def effort_paths(row: Profile, path: str) -> tuple[str, ...]:
    """`path`, if the row has any word for a level to send there."""
    return (path,) if row.effort_on or any(effort in EFFORTS for effort in row.efforts) else ()


def accepts_sampling(row: Profile, effort: str | None) -> bool:
    """Whether a model that is asked for this effort can also be told how to choose its tokens."""
    if row.sampling == "without_thinking":
        return effort in (None, "none")
    return row.sampling == "free" or (row.sampling == "told_off" and effort == "none")


SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"}
)
"""The settings that say how, on OpenAI's wires."""
