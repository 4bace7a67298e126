"""Token counts. Gemini counts thoughts beside the answer, and what its own tools read beside the prompt."""

from __future__ import annotations

from typing import Any

from ...parts import Usage
from .chunk import snake

_TOTALS = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")


def read_usage(raw: dict[str, Any]) -> Usage:
    """`usageMetadata`. `details` keeps what else was counted: `thoughts_tokens`, by modality `text_prompt_tokens` …"""
    prompt, answer, thoughts = (_count(raw.get(name)) for name in (*_TOTALS[:2], "thoughtsTokenCount"))
    of_tools = _count(raw.get("toolUsePromptTokenCount"))
    details: dict[str, int] = {}
    for name, value in raw.items():
        if isinstance(value, list) and name.endswith("TokensDetails"):
            about = snake(name.removesuffix("TokensDetails"))
            details |= {f"{modality}_{about}_tokens": count for modality, count in _modalities(value).items()}
        elif name.endswith("TokenCount") and name not in _TOTALS and _count(value):
            details[f"{snake(name.removesuffix('TokenCount'))}_tokens"] = value
    return Usage(
        input_tokens=_sum(prompt, of_tools),
        output_tokens=_sum(answer, thoughts),
        output_reasoning_tokens=thoughts,
        cache_read_tokens=_count(raw.get("cachedContentTokenCount")),
        input_audio_tokens=details.get("audio_prompt_tokens"),
        output_audio_tokens=details.get("audio_candidates_tokens"),
        details=details,
    )


def _modalities(entries: list[Any]) -> dict[str, int]:
    """Counts by modality (`text`, `image`, `audio` …)."""
    counts: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("modality"), str) and _count(entry.get("tokenCount")):
            counts[entry["modality"].lower()] = entry["tokenCount"]
    return counts


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
