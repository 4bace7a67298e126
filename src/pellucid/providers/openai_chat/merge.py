"""Strategies for servers whose reasoning fragments are not simply the next piece of text.

`cumulative`: every fragment is everything so far (DashScope's old default, MiniMax's documentation).
`detect`: decided by the second fragment: if it starts with all of the first and is longer, cumulative.
`drop` repeats: a fragment equal to the one before it is a second copy (xAI). A real repeated token is lost with
it, which is why only the rows that need it have it.
"""

from __future__ import annotations

from typing import Literal

from ...text import GrowingText


class Merge:
    """`next(fragment)` gives what is new in it."""

    __slots__ = ("_last", "_mode", "_repeats", "_seen")

    def __init__(
        self,
        mode: Literal["incremental", "cumulative", "detect"] = "incremental",
        repeats: Literal["keep", "drop"] = "keep",
    ) -> None:
        self._mode = mode
        self._repeats = repeats
        self._seen = ""
        self._last: str | None = None

    def next(self, fragment: str) -> str:
        if self._repeats == "drop":
            if fragment == self._last:
                return ""
            self._last = fragment
        if self._mode == "incremental":
            return fragment
        seen = self._seen
        if self._mode == "detect" and seen:
            cumulative = len(fragment) > len(seen) and fragment.startswith(seen)
            self._mode = "cumulative" if cumulative else "incremental"
            if not cumulative:
                return fragment
        self._seen = fragment
        return fragment[len(seen) :] if fragment.startswith(seen) else fragment


class Told:
    """Text that was told once already, so that a second telling of it is not told again.

    llama.cpp's `deepseek-legacy` sends reasoning in a field and, in tags, in the content; others send a field and
    details. `news` is what the second telling has that the first had not; white space around is no difference.
    """

    __slots__ = ("_at", "_coming", "_rest", "_started")

    def __init__(self) -> None:
        self._coming = GrowingText()
        self._rest = ""
        self._at = 0
        """How much of `_rest` the second telling has repeated; `_coming` is what follows it."""
        self._started = False

    def add(self, text: str) -> None:
        self._coming.add(text)

    def text(self) -> str:
        """What the second telling has not repeated yet."""
        return self._rest[self._at :] + self._coming.value()

    def news(self, text: str) -> str:
        """The end of `text` from where it first differs; all of it once the first telling is used up."""
        if not self._started:
            self._rest = (self._rest + self._coming.take()).lstrip()
            text = text.lstrip() if self._rest else text
            self._started = bool(text and self._rest)
        while text and (self._at < len(self._rest) or self._coming.length):
            if self._at == len(self._rest):
                self._rest, self._at = self._coming.take(), 0
            told = self._rest[self._at : self._at + len(text)]
            if not text.startswith(told):
                self._rest, self._at = "", 0
                self._coming.take()
                return text
            self._at += len(told)
            text = text[len(told) :]
        return text
