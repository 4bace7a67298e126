"""Log-probabilities and citations of a text, read from what providers send, for any client protocol.

Reading never fails: every input gives values that can be encoded, and entries without a meaning are left out. Each code
unit that UTF-8 cannot hold (half a surrogate pair, for example from a Python program) is replaced by one U+FFFD, so
that indices stay correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..unicode import replace_surrogates

MIN_LOGPROB = -9999.0
"""The log-probability of a token that is practically impossible.

OpenAI sends this number in place of minus infinity, which JSON cannot hold.
"""


E = TypeVar("E")


def token_logprobs(raw: Any, entry_type: Callable[..., E], top_type: Callable[..., Any]) -> list[E]:
    """Return the log-probabilities in `raw` with every field that clients expect.

    Entries without a token are left out.

    Args:
        raw: The log-probabilities as a provider sent them.
        entry_type: Makes the entry of a token from `token`, `logprob`, `bytes` and `top_logprobs`, the most likely
            tokens at this position.
        top_type: Makes one of those from the first three.
    """
    return [
        entry_type(
            **_fields(entry),
            top_logprobs=[top_type(**_fields(top)) for top in _token_entries(entry.get("top_logprobs"))],
        )
        for entry in _token_entries(raw)
    ]


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "token": replace_surrogates(entry["token"]),
        "logprob": _finite_logprob(entry.get("logprob")),
        "bytes": _token_bytes(entry),
    }


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
    """A citation of a URL."""

    url: str
    title: str
    start: int | None
    end: int | None
    """`start` and `end` are indices in characters of the text; None if the provider did not report them."""


def citations(raw: list[dict[str, Any]]) -> list[Citation]:
    """Return the URL citations among the annotations of a text.

    Some providers nest the fields one level deeper, under `url_citation`.
    """
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
