"""One JSON array of objects, element by element, while it comes (Gemini's stream, if it was not asked for events).

The same rules as for the other framings: independent of cuts, a size limit for one element, pieces joined once. Only
brackets outside strings are looked at: elements are handed over unparsed, and may be broken inside. What stands
between objects, but for commas and white space, is an element too, whatever it is.
"""

from __future__ import annotations

import re

from ..errors import FrameTooLarge
from .sse import DEFAULT_MAX_BYTES

# Atomic groups, because CPython before 3.11.5 matches possessive ones wrongly (python/cpython#106052).
_STRING = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?>(?:%b[^"\[\]{}]*+)*)' % _STRING, re.DOTALL)
"""Everything up to the next bracket outside strings, or up to a string that does not end."""
_TO_QUOTE = re.compile(rb'[^"\\]*+(?>(?:\\.[^"\\]*+)*)', re.DOTALL)
"""The inside of a string, up to its end, or to a backslash at the end of the bytes."""


def _nested_pattern(depth: int) -> bytes:
    """Something in brackets, with so many levels in it."""
    inner = b"|" + _nested_pattern(depth - 1) if depth else b""
    return rb'[\[{][^"\[\]{}]*+(?>(?:(?:%b%b)[^"\[\]{}]*+)*)[\]}]' % (_STRING, inner)


_ELEMENT = re.compile(rb'[^"\[\]{}]*+' + _nested_pattern(8), re.DOTALL)
"""A whole element that is not nested too deeply, and what stands before it."""

_QUOTE = b'"'[0]
_BETWEEN = b", \t\r\n"


class JSONArrayDecoder:
    """`feed(bytes) -> [element]`, then `end() -> [element]`. The first bracket is taken for the array's."""

    __slots__ = ("_depth", "_held_bytes", "_in_escape", "_in_string", "_max_bytes", "_pieces", "closed")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        """Pieces of the element under way."""
        self._held_bytes = 0
        self._depth = 0
        self._in_string = False
        """Whether the last bytes ended in a string."""
        self._in_escape = False
        """Whether they ended in a backslash in it."""
        self.closed = False
        """Whether the array's own end came; what follows it is nothing."""

    @property
    def idle(self) -> bool:
        """Whether the next bytes stand between two elements."""
        return self._depth == 1 and not self._pieces and not self._in_string and not self.closed

    def feed(self, chunk: bytes) -> list[bytes]:
        """The elements that `chunk` completes. Raises `FrameTooLarge`."""
        elements: list[bytes] = []
        start = at = 0
        while at < len(chunk) and not self.closed:
            if self._in_string:
                at = self._skip_string_rest(chunk, at)
                continue
            if self._depth == 1 and at == start and not self._pieces:
                # The way that nearly all go; what does not fit, or is not whole, is gone through bracket by bracket.
                element = _ELEMENT.match(chunk, at)
                if element is not None and element.end() - at <= self._max_bytes:
                    elements.append(element.group().strip(_BETWEEN))
                    start = at = element.end()
                    continue
            match = _TO_BRACKET.match(chunk, at)
            assert match is not None, "it matches nothing at all, too"
            bracket_at = match.end()
            at = bracket_at + 1
            if bracket_at == len(chunk):
                break
            character = chunk[bracket_at]
            if character == _QUOTE:
                self._in_string = True
            elif character in b"[{":
                self._depth += 1
                if self._depth == 1:
                    start = at
            else:
                self._depth -= 1
                self.closed = self._depth <= 0
                if self._depth <= 1:
                    self._hold(chunk[start : bracket_at if self.closed else at])
                    elements += self.end()
                    start = at
        if not self.closed:
            self._hold(chunk[start:])
        return elements

    def end(self) -> list[bytes]:
        """What there is of the element under way, which may be broken off."""
        element = b"".join(self._pieces).strip(_BETWEEN)
        self._pieces = []
        self._held_bytes = 0
        return [element] if element else []

    def _skip_string_rest(self, chunk: bytes, at: int) -> int:
        """Where to go on after the string that the last bytes ended in."""
        match = _TO_QUOTE.match(chunk, at + self._in_escape)
        self._in_escape = False
        if match is None or match.end() == len(chunk):
            return len(chunk)
        self._in_string = chunk[match.end()] != _QUOTE
        self._in_escape = self._in_string
        return match.end() + 1

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)
            if self._held_bytes > self._max_bytes:
                raise FrameTooLarge("an element of a JSON array", self._max_bytes)
