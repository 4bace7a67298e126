"""What a provider said beside its text, in this protocol's form: log-probabilities, citations, usage.

Total: whatever comes gives something that can be written; entries that mean nothing are left out. What UTF-8 cannot
hold (half a surrogate pair, from somebody's Python) is shown as U+FFFD, one for one, so that indices stay true.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import UNSET, UnsetType

from ...parts import Usage
from ...text import shown
from . import types as t

NEVER = -9999.0
"""The log-probability of what is as good as impossible: OpenAI's word for minus infinity, which JSON has none for."""


def logprobs(raw: list[dict[str, Any]]) -> list[t.ChatLogProb]:
    """With every field that clients expect; entries without a token are left out."""
    return [
        t.ChatLogProb(
            token=shown(entry["token"]),
            logprob=_number(entry.get("logprob")),
            bytes=_bytes(entry),
            top_logprobs=[
                t.ChatTopLogProb(shown(top["token"]), _number(top.get("logprob")), _bytes(top))
                for top in _tokens(entry.get("top_logprobs"))
            ],
        )
        for entry in _tokens(raw)
    ]


def _tokens(raw: Any) -> list[dict[str, Any]]:
    entries = raw if isinstance(raw, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("token"), str)]


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return NEVER
    return number if math.isfinite(number) else NEVER


def _bytes(entry: dict[str, Any]) -> list[int]:
    raw = entry.get("bytes")
    if isinstance(raw, list) and all(type(byte) is int for byte in raw):
        return raw
    return list(shown(entry["token"]).encode())


def citations(raw: list[dict[str, Any]], before: int) -> list[t.ChatAnnotation]:
    """The URL citations among the annotations of a text that has `before` characters of the message before it."""
    found: list[t.ChatAnnotation] = []
    for entry in raw:
        inner = entry.get("url_citation")
        fields = inner if isinstance(inner, dict) else entry
        if entry.get("type") == "url_citation" and isinstance(fields.get("url"), str):
            title = fields.get("title")
            start, end = (_moved(fields.get(name), before) for name in ("start_index", "end_index"))
            citation = t.ChatUrlCitation(
                shown(fields["url"]), shown(title) if isinstance(title, str) else "", start, end
            )
            found.append(t.ChatAnnotation(citation))
    return found


def _moved(index: Any, before: int) -> int:
    """0 where the provider did not say."""
    return index + before if type(index) is int else 0


def usage(usage: Usage) -> t.ChatUsage | None:
    """None if nothing was counted."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    read, wrote = usage.input_tokens or 0, usage.output_tokens or 0
    prompt = t.ChatPromptTokensDetails(
        _known(usage.cache_read_tokens), _known(usage.cache_write_tokens), _known(usage.input_audio_tokens)
    )
    completion = t.ChatCompletionTokensDetails(_known(usage.output_reasoning_tokens), _known(usage.output_audio_tokens))
    return t.ChatUsage(
        prompt_tokens=read,
        completion_tokens=wrote,
        total_tokens=read + wrote,
        prompt_tokens_details=prompt if prompt != t.ChatPromptTokensDetails() else UNSET,
        completion_tokens_details=completion if completion != t.ChatCompletionTokensDetails() else UNSET,
    )


def _known(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count
