"""Strategies for servers whose reasoning fragments are not simply the next piece of text.

`cumulative`: every fragment is everything so far (DashScope's old default, MiniMax's documentation).
`detect`: decided by the second fragment: if it starts with all of the first and is longer, cumulative.
`drop` repeats: a fragment equal to the one before it is a second copy (xAI). A real repeated token is lost with
it, which is why only the rows that need it have it.
"""

from __future__ import annotations

from typing import Literal

from ...emit import Emitter, Key
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
    """Reasoning that the server tells twice, so that the second telling of it is not told again.

    llama.cpp's `deepseek-legacy` sends reasoning in a field and, in tags, in the content; others send a field and
    details. The first telling is what stands in the block `key` and was not repeated yet: nothing is kept here but how
    far the second one has come. White space around either is no difference.
    """

    __slots__ = ("_at", "_block", "_emit", "_key", "_started", "twice")

    def __init__(self, emit: Emitter, key: Key) -> None:
        self.twice = False
        """Whether there is a first telling at all: what tells it says so."""
        self._emit = emit
        self._key = key
        self._block: GrowingText | None = None
        self._at = 0
        """How much of the block the second telling has repeated, or has told itself."""
        self._started = False

    def left(self) -> str:
        """What the second telling has not repeated yet."""
        if not self.twice:
            return ""
        block = self._emit.text_of(self._key)
        if block is not self._block:
            self._block, self._at = block, 0
        return "" if block is None else block.since(self._at)

    def again(self, text: str) -> None:
        """The second telling goes on with `text`: told is the end of it from where it first differs."""
        if not self.twice:
            self._emit.thinking(self._key, text)
            return
        first = self.left()
        if first and not self._started:
            self._at += len(first) - len(first.lstrip())
            first, text = first.lstrip(), text.lstrip()
            self._started = bool(first and text)
        if first.startswith(text):
            self._at += len(text)
        else:
            self._emit.thinking(self._key, text.removeprefix(first))
            self.left()
            self._at = self._block.length if self._block is not None else 0
