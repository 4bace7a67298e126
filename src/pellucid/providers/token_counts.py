"""Token counts: servers differ in whether the output's count includes reasoning, and in when they send which count."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

ReasoningCounted: TypeAlias = Literal["inside", "outside", "by_total"]
"""Whether a server's output count includes reasoning; `by_total`: whichever matches the reported total."""


def counted_output(
    output: int | None, reasoning: int | None, prompt: int | None, total: int | None, counted: ReasoningCounted
) -> int | None:
    """Return the output tokens with reasoning, from the counts that a server reports."""
    if output is None or not reasoning:
        return output
    is_outside = counted == "by_total" and prompt is not None and total == prompt + output + reasoning
    return output + reasoning if is_outside or counted == "outside" else output


def merge_counts(known: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """Merge the counts of a later event. Counts that it omits or sets to null keep their value."""
    return {**known, **{name: value for name, value in update.items() if value is not None}}
