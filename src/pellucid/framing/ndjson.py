"""Newline-delimited JSON (Ollama's stream): one JSON value a line, blank lines are nothing.

The same rules as for SSE: independent of cuts, LF or CRLF, a size limit, pieces joined once. Unlike SSE, a last
line without its newline counts (`end`): servers leave it out, and JSON itself shows whether it is whole.
"""

from __future__ import annotations

from ..errors import FrameTooLarge
from .sse import DEFAULT_LIMIT


class NDJSONDecoder:
    """`feed(bytes) -> [line]`, then `end() -> [line]`."""

    __slots__ = ("_error", "_held", "_limit", "_size")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._error: FrameTooLarge | None = None
        self._held: list[bytes] = []
        self._size = 0

    @property
    def idle(self) -> bool:
        """Whether no line is under way."""
        return not self._held and self._error is None

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes. Raises `FrameTooLarge`, but never instead of a line that is whole."""
        if self._error is not None:
            raise self._error
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._hold(chunk)
            if self._error is not None:
                raise self._error
            return []
        lines = (b"".join(self._held) + head).split(b"\n")
        self._held = []
        self._size = 0
        self._hold(tail)
        whole: list[bytes] = []
        for line in map(bytes.strip, lines):
            if len(line) > self._limit:
                self._error = FrameTooLarge("a line of JSON", self._limit)
                break
            if line:
                whole.append(line)
        if self._error is not None and not whole:
            raise self._error
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
                self._held = []
                self._error = self._error or FrameTooLarge("a line of JSON", self._limit)
