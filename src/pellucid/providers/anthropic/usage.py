"""Token counts. They are cumulative within a message: the last word on each number is the right one.

`input_tokens` on this wire leaves out what came from the cache or went into it; here it is all input, as on every
other wire. `details` keeps the provider's own numbers under their own names.
"""

from __future__ import annotations

from typing import Any

from ...parts import Usage
from ..fitting import dict_of, int_of


def merge_usage(known: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """The counts so far, with what a later event says; what it leaves out or nulls stays."""
    return {**known, **{name: value for name, value in news.items() if value is not None}}


def read_usage(raw: dict[str, Any]) -> Usage:
    fresh, output = int_of(raw, "input_tokens"), int_of(raw, "output_tokens")
    written, read = int_of(raw, "cache_creation_input_tokens"), int_of(raw, "cache_read_input_tokens")
    details = {name: value for name in raw if (value := int_of(raw, name)) is not None}
    # How the cache writes divide up, how often which tool of the provider ran, how much of the output was thought.
    for nested in ("cache_creation", "server_tool_use", "output_tokens_details"):
        inner = raw.get(nested)
        if isinstance(inner, dict):
            details |= {name: value for name in inner if (value := int_of(inner, name))}
    return Usage(
        input_tokens=None if fresh is None else fresh + (written or 0) + (read or 0),
        output_tokens=output,
        output_reasoning_tokens=int_of(dict_of(raw, "output_tokens_details"), "thinking_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        details=details | _iterations(raw.get("iterations")),
    )


def _iterations(raw: Any) -> dict[str, int]:
    """How often the model was sampled, and what others (an advisor, a compaction) took that is not in the totals."""
    counts: dict[str, int] = {}
    for entry in raw if isinstance(raw, list) else []:
        if not isinstance(entry, dict):
            continue
        kind = str(entry.get("type") or "message").removesuffix("_message")
        counts[f"{kind}_iterations"] = counts.get(f"{kind}_iterations", 0) + 1
        # A fallback's sampling is in the totals, like the model's own.
        if kind not in ("message", "fallback"):
            for name in ("input_tokens", "output_tokens"):
                counts[f"{kind}_{name}"] = counts.get(f"{kind}_{name}", 0) + (int_of(entry, name) or 0)
    return counts
