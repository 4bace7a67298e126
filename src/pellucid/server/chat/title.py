"""What a chat is called until somebody names it: the beginning of its first question."""

from __future__ import annotations

from unicodedata import category

LONGEST = 80
"""Characters."""


def plain(text: str) -> str:
    """In one line, without control characters."""
    return "".join(one for one in " ".join(text.split()) if category(one) != "Cc")


_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10))))
"""Letters, signs and marks by their category, that are there to take a place and show nothing."""


def shows(text: str) -> bool:
    """Whether anything of it can be seen: not of spaces alone, marks of direction and the like, which would leave
    nothing in a list to point at."""
    return any(one not in _BLANK and category(one) not in _UNSEEN for one in text)


def title_of(text: str) -> str:
    """In one line, whole words where there are any; always something that can be seen."""
    words = plain(text.lstrip()[: 10 * LONGEST])
    if not shows(words[: LONGEST - 1]):
        return "…"
    if len(words) <= LONGEST:
        return words
    cut = words[: LONGEST - 1]
    # One more than fits, so that a word that ends there is whole.
    end = words.rfind(" ", 0, LONGEST)
    # A text without spaces (a URL, Chinese) is cut where it must be.
    return (cut[:end] if end >= LONGEST // 2 else cut).rstrip() + "…"
