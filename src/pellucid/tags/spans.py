"""Spans of text, the patterns of markers, and the base class of the parsers that find them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from sys import maxsize
from typing import Any, NamedTuple, TypeAlias

Scan: TypeAlias = "Callable[..., re.Match[str] | None]"

OPEN = "open"
"""Reasoning begins. The text is the opening marker with the white space around it; `""` for an implicit start."""
THINKING = "thinking"
"""Reasoning text."""
CLOSE = "close"
"""Reasoning ends. The text is the closing marker with the stripped white space; `""` if a tool marker ended it."""
TEXT = "text"
"""Answer text, tool markers included."""
DROP = "drop"
"""Neither reasoning nor answer: empty blocks, stray closing markers, wrappers, end-of-sequence tokens."""
TOOL = "tool"
"""A tool call begins (harmony only). The text is its recipient, and not part of the input's text."""
TOOL_ARGS = "tool_args"
"""A piece of a tool call's arguments (harmony only)."""
TOOL_END = "tool_end"
"""A tool call ends (harmony only). The text is its end token; `""` if there was none."""


class Span(NamedTuple):
    """A piece of the input and its kind. Unpacks as `kind, text`."""

    kind: str
    text: str


def prefix_pattern(markers: Iterable[str]) -> str:
    """Return the source of a regular expression for the proper prefixes of `markers`; `""` if there are none."""
    trie: dict[str, list[str]] = {}
    for marker in markers:
        if len(marker) > 1:
            trie.setdefault(marker[0], []).append(marker[1:])
    branches = []
    for first, rest in trie.items():
        suffixes = prefix_pattern(rest)
        branches.append(re.escape(first) + (f"(?:{suffixes})?" if suffixes else ""))
    return "|".join(branches)


def marker_pattern(roles: dict[str, tuple[str, ...]], **extra: str) -> re.Pattern[str]:
    """Return a pattern that finds the leftmost live marker, as a group named by its role, or else `part`.

    `part` is the longest suffix that may be the beginning of a marker. A marker that begins with another marker is left
    out: the shorter one is complete first, and text must mean the same however it is cut into pieces. Without any
    marker, the pattern never matches.

    Args:
        roles: The markers of each role.
        **extra: Roles given as regular expression sources.
    """
    all_markers = {marker for markers in roles.values() for marker in markers}
    roles = {
        role: tuple(m for m in markers if not any(m != other and m.startswith(other) for other in all_markers))
        for role, markers in roles.items()
    }
    groups = [
        f"(?P<{role}>{'|'.join(re.escape(marker) for marker in markers)})" for role, markers in roles.items() if markers
    ]
    groups += [f"(?P<{role}>{source})" for role, source in extra.items()]
    prefixes = prefix_pattern(marker for markers in roles.values() for marker in markers)
    if prefixes:
        groups.append(rf"(?P<part>(?:{prefixes})\Z)")
    return re.compile("|".join(groups) if groups else "(?!)")


class SpanParser:
    """A state machine that splits text into spans: `feed` text, then `end` once.

    A state is a function of the parser, the text, a position that is not its end, and the list of spans. It returns the
    position that it reached. Text that it cannot decide yet it stores in the parser.
    """

    __slots__ = ("_ended", "_is_final", "_kind", "_pending", "_quick", "_state")

    def __init__(self) -> None:
        self._ended = False
        self._is_final = False  # inside end() or pause(): a proper prefix can no longer become a marker
        self._kind = TEXT  # the span kind of a quick release
        self._pending = ""  # the end of the input, while it may be the beginning of a marker
        self._quick: Scan | None = None  # set while nothing is held back: finds text that needs more than release

    _state: Callable[[Any, str, int, list[Span]], int]

    def _read(self, text: str) -> list[Span]:
        """Read a piece of text that is not released as it is.

        Raises:
            RuntimeError: `end` was called.
        """
        if self._ended:
            raise RuntimeError("feed() after end()")
        out: list[Span] = []
        if text:
            self._process(self._pending + text, out)
            self._choose_fast_path()
        return out

    def pause(self) -> list[Span]:
        """Release the held text, as `end` does, but continue. Called before a tool call that comes outside the text.

        A marker that a pause cuts in two is not a marker.
        """
        out: list[Span] = []
        if not self._ended:
            self._flush(out)
            self._choose_fast_path()
        return out

    def end(self) -> list[Span]:
        """End the input and return the remaining spans. A second call returns nothing."""
        out: list[Span] = []
        if not self._ended:
            self._flush(out)
            self._quick = None
            self._ended = True
        return out

    def _process(self, buf: str, out: list[Span]) -> None:
        self._pending = ""
        pos, size = 0, len(buf)
        while pos < size:
            pos = self._state(self, buf, pos, out)

    def _choose_fast_path(self) -> None:
        """Choose the fast path for the next piece, if nothing is held back."""
        raise NotImplementedError

    def _flush(self, out: list[Span]) -> None:
        """Release the held text."""
        raise NotImplementedError

    def _search(self, scan: Scan, buf: str, pos: int, stop: int = maxsize) -> re.Match[str] | None:
        match = scan(buf, pos, stop)
        while match is not None and self._is_final and match.lastgroup == "part":
            match = scan(buf, match.start() + 1, stop)
        return match
