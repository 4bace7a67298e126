"""Text that grows by a token at a time.

A list of tokens keeps some fifty bytes of string object for every few characters, for as long as the answer lasts; one
string that is added to is copied each time. Here tokens are joined as soon as there is a handful of them, and the
handfuls once, at the end.
"""

from __future__ import annotations

_HANDFUL = 16


class GrowingText:
    """`add` as often as you like; `value()` is all of it."""

    __slots__ = ("_handfuls", "_tokens", "length")

    def __init__(self) -> None:
        self._handfuls: list[str] = []
        self._tokens: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self.length += len(text)
        tokens = self._tokens
        tokens.append(text)
        if len(tokens) == _HANDFUL:
            self._handfuls.append("".join(tokens))
            tokens.clear()

    def value(self) -> str:
        return "".join(self._handfuls) + "".join(self._tokens)

    @property
    def last(self) -> str:
        """The token that came last, or the handful that it went into."""
        pieces = self._tokens or self._handfuls
        return pieces[-1] if pieces else ""

    def since(self, start: int) -> str:
        """The end of it, from character `start`; not all of it is put together for that."""
        missing = self.length - start
        if missing <= 0:
            return ""
        found: list[str] = []
        for pieces in (self._tokens, self._handfuls):
            for piece in reversed(pieces):
                if missing > 0:
                    found.append(piece)
                    missing -= len(piece)
        return "".join(reversed(found))[max(0, -missing) :]

    def take(self) -> str:
        """All of it, and begin again."""
        text = self.value()
        self._handfuls.clear()
        self._tokens.clear()
        self.length = 0
        return text
