"""Incremental decoder of one JSON array of objects (Gemini's stream, if the request does not ask for SSE).

The rules are those of the other framings: the elements do not depend on how the bytes are cut, an element has a size
limit, and pieces are joined once. The decoder examines only brackets outside strings. Elements are returned unparsed
and may be invalid inside. Anything between objects, except commas and white space, is an element too.
"""

from __future__ import annotations

import re

from ..errors import FrameTooLarge
from .sse import DEFAULT_MAX_BYTES

# Atomic groups, because CPython before 3.11.5 matches possessive ones wrongly (python/cpython#106052).
_STRING = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?>(?:%b[^"\[\]{}]*+)*)' % _STRING, re.DOTALL)
"""Matches up to the next bracket outside strings, or up to a string that does not end."""
_TO_QUOTE = re.compile(rb'[^"\\]*+(?>(?:\\.[^"\\]*+)*)', re.DOTALL)
"""Matches the inside of a string, up to its end or to a backslash at the end of the bytes."""


def _nested_pattern(depth: int) -> bytes:
    """Return a pattern of a bracketed value with up to `depth` levels inside it."""
    inner = b"|" + _nested_pattern(depth - 1) if depth else b""
    return rb'[\[{][^"\[\]{}]*+(?>(?:(?:%b%b)[^"\[\]{}]*+)*)[\]}]' % (_STRING, inner)


_ELEMENT = re.compile(rb'[^"\[\]{}]*+' + _nested_pattern(8), re.DOTALL)
"""Matches a complete element that is not nested too deeply, and the bytes before it."""

_QUOTE = b'"'[0]
_BETWEEN = b", \t\r\n"


class JSONArrayDecoder:
    """Decoder of an array's elements: `feed(bytes) -> [element]`, then `end() -> [element]`.

    The first bracket is taken as the array's own.

    Args:
        max_bytes: Limit of one element.
    """

    __slots__ = ("_depth", "_held_bytes", "_in_escape", "_in_string", "_max_bytes", "_pieces", "closed")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        """Pieces of the incomplete element."""
        self._held_bytes = 0
        self._depth = 0
        self._in_string = False
        """Whether the last bytes ended inside a string."""
        self._in_escape = False
        """Whether the last bytes ended in a backslash inside a string."""
        self.closed = False
        """Whether the array has ended; bytes after its end are ignored."""

    @property
    def idle(self) -> bool:
        """Whether the next bytes are between two elements."""
        return self._depth == 1 and not self._pieces and not self._in_string and not self.closed

    def feed(self, chunk: bytes) -> list[bytes]:
        """Decode the elements that `chunk` completes.

        Raises:
            FrameTooLarge: An element exceeds the limit.
        """
        elements: list[bytes] = []
        start = at = 0
        while at < len(chunk) and not self.closed:
            if self._in_string:
                at = self._skip_string_rest(chunk, at)
                continue
            if self._depth == 1 and at == start and not self._pieces:
                # Nearly all elements take this path. Others, and incomplete ones, are read bracket by bracket.
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
        """Return the bytes of the last element, which may be incomplete."""
        element = b"".join(self._pieces).strip(_BETWEEN)
        self._pieces = []
        self._held_bytes = 0
        return [element] if element else []

    def _skip_string_rest(self, chunk: bytes, at: int) -> int:
        """Return the index after the string in which the last bytes ended."""
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
