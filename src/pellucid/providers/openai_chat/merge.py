"""Strategies for servers whose reasoning fragments are not simply the next piece of text.

`cumulative`: every fragment is everything so far (DashScope's old default, MiniMax's documentation).
`detect`: decided by the second fragment: if it starts with all of the first and is longer, cumulative.
`drop` repeats: a fragment equal to the one before it is a second copy (xAI). A real repeated token is lost with
it, which is why only the rows that need it have it.
"""

from __future__ import annotations

from typing import Literal


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

    __slots__ = ("_at", "_offset", "_pieces", "_started")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._at = 0
        self._offset = 0
        self._started = False

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def text(self) -> str:
        return "".join(self._pieces)

    def news(self, text: str) -> str:
        """The end of `text` from where it first differs; all of it once the first telling is used up."""
        while text and self._at < len(self._pieces):
            first = self._pieces[self._at][self._offset :]
            if not self._started:
                first_bare, text_bare = first.lstrip(), text.lstrip()
                if not first_bare:
                    self._next()
                    continue
                if not text_bare:
                    return ""
                self._offset += len(first) - len(first_bare)
                first, text = first_bare, text_bare
                self._started = True
            length = min(len(first), len(text))
            if first[:length] != text[:length]:
                self._at = len(self._pieces)
                return text
            text = text[length:]
            self._offset += length
            if length == len(first):
                self._next()
        return text

    def _next(self) -> None:
        self._at += 1
        self._offset = 0
