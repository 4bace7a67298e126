"""What a chat is called until somebody names it: the beginning of its first question."""

from __future__ import annotations

from unicodedata import category

LONGEST = 80
"""Characters."""


def plain(text: str) -> str:
    """In one line, without control characters."""
    return "".join(one for one in " ".join(text.split()) if category(one) != "Cc")


def title_of(text: str) -> str:
    """In one line, whole words where there are any; never empty."""
    words = plain(text.lstrip()[: 10 * LONGEST])
    if len(words) <= LONGEST:
        return words or "…"
    cut = words[: LONGEST - 1]
    # One more than fits, so that a word that ends there is whole.
    end = words.rfind(" ", 0, LONGEST)
    # A text without spaces (a URL, Chinese) is cut where it must be.
    return (cut[:end] if end >= LONGEST // 2 else cut).rstrip() + "…"


__all__ = ["LONGEST", "plain", "title_of"]
