"""JSON that is still being written: its value so far.

    partial = PartialJSON()
    partial.feed('{"name": "Ben", "bio": "Lik')
    partial.value()                      # {"name": "Ben", "bio": "Lik"}
    partial.value(with_last=False)       # {"name": "Ben"}

The text is read once, however often the value is wanted: what is kept is the brackets that are open, and the last place
at which closing them makes the text valid. Numbers and words count when the character after them has come. A string
that is a value counts as far as it has come, a key does not.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SPECIAL = re.compile(r'["\\]')
_CLOSER = {"{": "}", "[": "]"}


class PartialJSON:
    """A JSON text that grows."""

    def __init__(self) -> None:
        self._text = ""
        self._closers: list[str] = []
        """The brackets that close the open ones, the outermost first."""
        self._valid = (0, 0)
        """A position after which the text is valid JSON if that many of the open brackets are closed."""
        self._string_start: int | None = None
        """Where the open string begins."""
        self._is_key = False
        """Whether the open string, or the next one, is a key."""
        self._is_escaped = False
        """Whether the next character belongs to an escape."""
        self._in_word = False
        """Whether the last character belongs to a number or a word."""

    def feed(self, text: str) -> None:
        """Add text at the end."""
        position = len(self._text)
        self._text += text
        while position < len(self._text):
            position = self._read_string(position) if self._string_start is not None else self._read(position)

    def _read_string(self, position: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        special = _SPECIAL.search(self._text, position)
        if special is None:
            return len(self._text)
        if special[0] == "\\":
            self._is_escaped = True
        else:
            self._string_start = None
            if not self._is_key:
                self._valid = (special.end(), len(self._closers))
        return special.end()

    def _read(self, position: int) -> int:
        character = self._text[position]
        if self._in_word and character in ",]} \t\r\n":
            self._in_word = False
            self._valid = (position, len(self._closers))
        if character == '"':
            self._string_start = position
        elif character in _CLOSER:
            self._closers.append(_CLOSER[character])
            self._valid = (position + 1, len(self._closers))
            self._is_key = character == "{"
        elif character in "}]":
            if self._closers:
                self._closers.pop()
            self._valid = (position + 1, len(self._closers))
        elif character == ",":
            self._is_key = bool(self._closers) and self._closers[-1] == "}"
        elif character == ":":
            self._is_key = False
        elif character not in " \t\r\n":
            self._in_word = True
        return position + 1

    def value(self, *, with_last: bool = True) -> Any:
        """Return the value so far.

        Args:
            with_last: Whether a string that is still being written is part of it.

        Raises:
            ValueError: There is no value yet, or the text is not JSON.
        """
        if with_last and self._string_start is not None and not self._is_key:
            closers, text = '"' + "".join(reversed(self._closers)), self._text
            for _ in range(3):
                try:
                    return msgspec.json.decode(text + closers)
                except (msgspec.DecodeError, UnicodeEncodeError):
                    # Its end is a part of an escape, or of two escapes for one character.
                    text = text[: max(text.rfind("\\", self._string_start), 0)]
        position, depth = self._valid
        try:
            return msgspec.json.decode(self._text[:position] + "".join(reversed(self._closers[:depth])))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise ValueError(f"there is no value yet: {error}") from error
