"""Newline-delimited JSON (Ollama's stream): one JSON value a line, blank lines are nothing.

The same rules as for SSE: independent of cuts, LF or CRLF, a size limit, pieces joined once. Unlike SSE, a last
line without its newline counts (`end`): servers leave it out, and JSON itself shows whether it is whole.
"""

from __future__ import annotations

from ..errors import FrameTooLarge
from .sse import DEFAULT_LIMIT


class NDJSONDecoder:
    """`feed(bytes) -> [line]`, then `end() -> [line]`."""

    __slots__ = ("_held", "_limit", "_size")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes. Raises `FrameTooLarge`."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._hold(chunk)
            return []
        lines = (b"".join(self._held) + head).split(b"\n")
        self._held = []
        self._size = 0
        self._hold(tail)
        whole = [line for line in map(bytes.strip, lines) if line]
        if any(len(line) > self._limit for line in whole):
            raise FrameTooLarge("a line of JSON", self._limit)
        return whole

    def end(self) -> list[bytes]:
        """The last line, if it came without a newline."""
        line = b"".join(self._held).strip()
        self._held = []
        return [line] if line else []

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._held.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise FrameTooLarge("a line of JSON", self._limit)
