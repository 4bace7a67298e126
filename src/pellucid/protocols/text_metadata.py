"""What a provider said beside its text, read for any protocol: log-probabilities and citations.

Total: whatever comes gives something that can be written; entries that mean nothing are left out. What UTF-8 cannot
hold (half a surrogate pair, from somebody's Python) is shown as U+FFFD, one for one, so that indices stay true.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..unicode import replace_surrogates

MIN_LOGPROB = -9999.0
"""The log-probability of what is as good as impossible: OpenAI's word for minus infinity, which JSON has none for."""


class TokenLogprob(NamedTuple):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenLogprob]
    """What else might have stood there."""


def token_logprobs(raw: Any) -> list[TokenLogprob]:
    """With every field that clients expect; entries without a token are left out."""
    return [
        _token_logprob(entry, [_token_logprob(top, []) for top in _token_entries(entry.get("top_logprobs"))])
        for entry in _token_entries(raw)
    ]


def _token_logprob(entry: dict[str, Any], top_logprobs: list[TokenLogprob]) -> TokenLogprob:
    return TokenLogprob(
        replace_surrogates(entry["token"]), _finite_logprob(entry.get("logprob")), _token_bytes(entry), top_logprobs
    )


def _token_entries(raw: Any) -> list[dict[str, Any]]:
    entries = raw if isinstance(raw, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("token"), str)]


def _finite_logprob(value: Any) -> float:
    if not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return MIN_LOGPROB
    return number if math.isfinite(number) else MIN_LOGPROB


def _token_bytes(entry: dict[str, Any]) -> list[int]:
    raw = entry.get("bytes")
    if isinstance(raw, list) and all(type(byte) is int for byte in raw):
        return raw
    return list(replace_surrogates(entry["token"]).encode())


class Citation(NamedTuple):
    url: str
    title: str
    start: int | None
    end: int | None
    """Characters of the text; None: the provider did not say."""


def citations(raw: list[dict[str, Any]]) -> list[Citation]:
    """The URL citations among the annotations, which some providers nest one level deeper."""
    url_citations: list[Citation] = []
    for entry in raw:
        inner = entry.get("url_citation")
        fields = inner if isinstance(inner, dict) else entry
        url, title = fields.get("url"), fields.get("title")
        if entry.get("type") == "url_citation" and isinstance(url, str):
            start, end = (_index_or_none(fields.get(name)) for name in ("start_index", "end_index"))
            url_citations.append(
                Citation(
                    replace_surrogates(url), replace_surrogates(title) if isinstance(title, str) else "", start, end
                )
            )
    return url_citations


def _index_or_none(value: Any) -> int | None:
    return value if type(value) is int else None
