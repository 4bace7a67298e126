"""Token counts as Responses reports them."""

from __future__ import annotations

from typing import Any, Literal

from ...parts import Usage

# Counts that have a field of their own; the others keep their own names in `details`.
_STANDARD = frozenset({"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"})


def read_usage(raw: dict[str, Any], counted: Literal["inside", "outside", "by_total"] = "inside") -> Usage:
    """`counted`: whether the output's count includes reasoning; `by_total`: whichever agrees with the total."""
    given, made, total = (_int(raw, name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    of_input, of_output = _dict(raw, "input_tokens_details"), _dict(raw, "output_tokens_details")
    reasoning = _int(of_output, "reasoning_tokens")
    if made is not None and reasoning:
        beside = counted == "by_total" and given is not None and total == given + made + reasoning
        if counted == "outside" or beside:
            made += reasoning
    details = {
        name: value
        for where in (raw, of_input, of_output)
        for name, value in where.items()
        if type(value) is int and name not in _STANDARD
    }
    return Usage(
        input_tokens=given,
        output_tokens=made,
        output_reasoning_tokens=reasoning,
        cache_read_tokens=_int(of_input, "cached_tokens"),
        cache_write_tokens=_int(of_input, "cache_write_tokens"),
        input_audio_tokens=_int(of_input, "audio_tokens"),
        output_audio_tokens=_int(of_output, "audio_tokens"),
        details=details,
    )


def _int(raw: dict[str, Any], name: str) -> int | None:
    value = raw.get(name)
    return value if type(value) is int else None


def _dict(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}
