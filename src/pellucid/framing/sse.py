"""Server-sent events, both ways (WHATWG HTML, "Interpreting an event stream").

The decoder takes bytes as they come and gives whole events. Its rules:

* lines end with LF, CRLF or CR, even mixed, also when a CRLF is cut in two; one leading BOM is skipped;
* a blank line dispatches; `data` lines join with LF; a comment (`:` first) and unknown fields are nothing;
* an event without data is nothing, whatever its name (the standard says so, and keep-alives rely on it);
* an event that the bytes end in the middle of is never dispatched (`rest` says whether there was one);
* an event may not exceed `limit` bytes: `FrameTooLarge`, before memory is spent on it, and from then on.

`id` and `retry` steer reconnection, which is no part of reading one response; they are skipped.

Two paths: blocks that are nothing but LF-ended `data:`/`event:` lines (all that providers send) are split by C
code; everything else takes the line-by-line path. Both give the same events: a test compares them.

Newline-delimited JSON (Ollama's stream): one JSON value a line, blank lines are nothing.

The same rules as for SSE: independent of cuts, LF or CRLF, a size limit, pieces joined once. Unlike SSE, a last
line without its newline counts (`end`): servers leave it out, and JSON itself shows whether it is whole.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import FrameTooLarge

DEFAULT_LIMIT = 32 * 1024 * 1024
"""Bytes in one event. Providers send whole base64 images in one."""

_BOM = b"\xef\xbb\xbf"


class SSE(NamedTuple):
    """One event: its name (`""` when it has none, which means `message`) and its data, still encoded."""

    event: str
    data: bytes


_frame = tuple.__new__
"""`SSE(…)` without the Python function that a named tuple has for its constructor."""


class SSEDecoder:
    """`feed(bytes) -> [SSE]`. Keep one per response."""

    __slots__ = (
        "_at_start",
        "_data",
        "_data_size",
        "_error",
        "_event",
        "_held",
        "_held_size",
        "_limit",
        "_skip_lf",
        "idle",
    )

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        """Pieces of the line under way; joined once, when it ends."""
        self._held_size = 0
        self._data: list[bytes] = []
        """Data lines of the event under way."""
        self._data_size = 0
        self._event = ""
        self._error: FrameTooLarge | None = None
        self._at_start = True
        self.idle = False
        """Whether nothing is under way, so that the next read can be taken for itself."""
        self._skip_lf = False

    @property
    def rest(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._held or self._data or self._event or self._error)

    def feed(self, data: bytes) -> list[SSE]:
        """The events that `data` completes. Raises `FrameTooLarge`, but never instead of an event that is whole."""
        # One unnamed event and nothing else: what a read brings while a model writes.
        one = self.idle and data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2 <= self._limit
        if one and data.endswith(b"\n\n") and b"\r" not in data:
            return [_frame(SSE, ("", data[6:-2]))]
        if self._error is not None:
            raise self._error
        events: list[SSE] = []
        try:
            self._feed(data, events)
        except FrameTooLarge as error:
            self._error = error
            self._held, self._data = [], []
            if not events:
                raise
        self.idle = not (self._held or self._data or self._event or self._at_start or self._skip_lf or self._error)
        return events

    def _feed(self, chunk: bytes, events: list[SSE]) -> None:
        if self._at_start:
            chunk = self._without_bom(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if not chunk:
            return
        if b"\r" in chunk:
            # Google ends its lines with CRLF. If there is no CR but in those, LF alone says the same.
            plain = chunk.replace(b"\r\n", b"\n")
            chunk = chunk if b"\r" in plain else plain
        # The path nearly all real traffic takes: whole events, LF only, nothing under way.
        if not self._held and not self._data and not self._event and b"\r" not in chunk:
            end = chunk.rfind(b"\n\n")
            if end >= 0:
                for block in chunk[:end].split(b"\n\n"):
                    self._block(block, events)
                chunk = chunk[end + 2 :]
                if not chunk:
                    return
        self._lines(chunk, events)

    def _block(self, block: bytes, events: list[SSE]) -> None:
        """One event of the two forms that providers write, or whatever else."""
        if len(block) > self._limit:
            raise FrameTooLarge("a server-sent event", self._limit)
        name, data = "", block
        if block.startswith(b"event: "):
            head, _, data = block.partition(b"\n")
            name = head[7:].decode("utf-8", "replace")
        if data.startswith(b"data: ") and b"\n" not in data:
            events.append(_frame(SSE, (name, data[6:])))
        else:
            self._lines(block + b"\n\n", events)

    def _without_bom(self, chunk: bytes) -> bytes:
        """`chunk`, less a byte-order mark at the very start, which may come in pieces."""
        start = b"".join(self._held) + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._held = [start]
            return b""
        self._held = []
        self._at_start = False
        return start[len(_BOM) :] if start.startswith(_BOM) else start

    def _lines(self, chunk: bytes, events: list[SSE]) -> None:
        """The general path: line by line."""
        if b"\r" in chunk:
            # A CR at the very end ends its line now; an LF that follows it in the next chunk belongs to it.
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            if self._held:
                self._held.append(line)
                line = b"".join(self._held)
                self._held = []
                self._held_size = 0
            self._line(line, events)
        if tail:
            self._held.append(tail)
            self._held_size += len(tail)
            self._check()

    def _line(self, line: bytes, events: list[SSE]) -> None:
        if not line:
            if self._data:
                events.append(SSE(self._event, b"\n".join(self._data)))
                self._data = []
                self._data_size = 0
            self._event = ""
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value)
            self._check()
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")

    def _check(self) -> None:
        if self._data_size + self._held_size > self._limit:
            raise FrameTooLarge("a server-sent event", self._limit)


def sse_event(data: bytes, event: str | None = None) -> bytes:
    """One event as bytes, LF only. Raises `ValueError` for data with a line break: JSON on one line has none."""
    if b"\n" in data or b"\r" in data:
        raise ValueError("a line break in the data of a server-sent event")
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


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
