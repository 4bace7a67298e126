"""What a provider said beside its text, read for any protocol: log-probabilities and citations.

Total: whatever comes gives something that can be written; entries that mean nothing are left out. What UTF-8 cannot
hold (half a surrogate pair, from somebody's Python) is shown as U+FFFD, one for one, so that indices stay true.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..text import shown

NEVER = -9999.0
"""The log-probability of what is as good as impossible: OpenAI's word for minus infinity, which JSON has none for."""


class Token(NamedTuple):
    token: str
    logprob: float
    bytes: list[int]
    top: list[Token]
    """What else might have stood there."""


def tokens(raw: Any) -> list[Token]:
    """With every field that clients expect; entries without a token are left out."""
    return [_token(entry, [_token(top, []) for top in _entries(entry.get("top_logprobs"))]) for entry in _entries(raw)]


def _token(entry: dict[str, Any], top: list[Token]) -> Token:
    return Token(shown(entry["token"]), _number(entry.get("logprob")), _bytes(entry), top)


def _entries(raw: Any) -> list[dict[str, Any]]:
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


class Citation(NamedTuple):
    url: str
    title: str
    start: int | None
    end: int | None
    """Characters of the text; None: the provider did not say."""


def citations(raw: list[dict[str, Any]]) -> list[Citation]:
    """The URL citations among the annotations, which some providers nest one level deeper."""
    found: list[Citation] = []
    for entry in raw:
        inner = entry.get("url_citation")
        fields = inner if isinstance(inner, dict) else entry
        url, title = fields.get("url"), fields.get("title")
        if entry.get("type") == "url_citation" and isinstance(url, str):
            start, end = (_index(fields.get(name)) for name in ("start_index", "end_index"))
            found.append(Citation(shown(url), shown(title) if isinstance(title, str) else "", start, end))
    return found


def _index(value: Any) -> int | None:
    return value if type(value) is int else None
