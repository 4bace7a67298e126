"""Token counts, and why a turn ended. Reasoning is counted with the output, and not apart."""

from __future__ import annotations

from typing import Any

from ...parts import FinishReason, Usage
from .chunk import dicts_of

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}


def read_usage(raw: dict[str, Any]) -> Usage:
    """`inputTokens` leaves out what was read from a cache or written to one; the total of the input does not."""
    fresh, output = _int(raw, "inputTokens"), _int(raw, "outputTokens")
    read, written = _int(raw, "cacheReadInputTokens"), _int(raw, "cacheWriteInputTokens")
    details = {name: value for name in raw if name not in _STANDARD and (value := _int(raw, name)) is not None}
    for entry in dicts_of(raw.get("cacheDetails")):
        count = _int(entry, "inputTokens")
        if count is not None:
            details[f"cacheDetails.{entry.get('ttl')}"] = count
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        details=details,
    )


def _int(raw: dict[str, Any], name: str) -> int | None:
    value = raw.get(name)
    return value if type(value) is int else None


# Counts that have a field of their own, the total of them, and second names of the same.
_STANDARD = frozenset(
    {
        "inputTokens",
        "outputTokens",
        "totalTokens",
        "cacheReadInputTokens",
        "cacheWriteInputTokens",
        "cacheReadInputTokenCount",
        "cacheWriteInputTokenCount",
    }
)
