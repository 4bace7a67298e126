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

DEFAULT_MAX_BYTES = 32 * 1024 * 1024
"""Bytes in one event. Providers send whole base64 images in one."""

_BOM = b"\xef\xbb\xbf"


class SSE(NamedTuple):
    """One event: its name (`""` when it has none, which means `message`) and its data, still encoded."""

    event: str
    data: bytes


_new_sse = tuple.__new__
"""`SSE(…)` without the Python function that a named tuple has for its constructor."""


class SSEDecoder:
    """`feed(bytes) -> [SSE]`. Keep one per response."""

    __slots__ = (
        "_at_start",
        "_data_bytes",
        "_data_lines",
        "_error",
        "_event",
        "_line_bytes",
        "_line_pieces",
        "_max_bytes",
        "_skip_lf",
        "idle",
    )

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line_pieces: list[bytes] = []
        """Pieces of the line under way; joined once, when it ends."""
        self._line_bytes = 0
        self._data_lines: list[bytes] = []
        """Data lines of the event under way."""
        self._data_bytes = 0
        self._event = ""
        self._error: FrameTooLarge | None = None
        self._at_start = True
        self.idle = False
        """Whether nothing is under way, so that the next read can be taken for itself."""
        self._skip_lf = False

    @property
    def has_partial(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._line_pieces or self._data_lines or self._event or self._error)

    def feed(self, data: bytes) -> list[SSE]:
        """The events that `data` completes. Raises `FrameTooLarge`, but never instead of an event that is whole."""
        # One unnamed event and nothing else: what a read brings while a model writes.
        is_one_event = self.idle and data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2 <= self._max_bytes
        if is_one_event and data.endswith(b"\n\n") and b"\r" not in data:
            return [_new_sse(SSE, ("", data[6:-2]))]
        if self._error is not None:
            raise self._error
        events: list[SSE] = []
        try:
            self._feed(data, events)
        except FrameTooLarge as error:
            self._error = error
            self._line_pieces, self._data_lines = [], []
            if not events:
                raise
        self.idle = not (
            self._line_pieces or self._data_lines or self._event or self._at_start or self._skip_lf or self._error
        )
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
            without_crlf = chunk.replace(b"\r\n", b"\n")
            chunk = chunk if b"\r" in without_crlf else without_crlf
        # The path nearly all real traffic takes: whole events, LF only, nothing under way.
        if not self._line_pieces and not self._data_lines and not self._event and b"\r" not in chunk:
            end = chunk.rfind(b"\n\n")
            if end >= 0:
                for block in chunk[:end].split(b"\n\n"):
                    self._feed_block(block, events)
                chunk = chunk[end + 2 :]
                if not chunk:
                    return
        self._feed_lines(chunk, events)

    def _feed_block(self, block: bytes, events: list[SSE]) -> None:
        """One event of the two forms that providers write, or whatever else."""
        if len(block) > self._max_bytes:
            raise FrameTooLarge("a server-sent event", self._max_bytes)
        name, data = "", block
        if block.startswith(b"event: "):
            head, _, data = block.partition(b"\n")
            name = head[7:].decode("utf-8", "replace")
        if data.startswith(b"data: ") and b"\n" not in data:
            events.append(_new_sse(SSE, (name, data[6:])))
        else:
            self._feed_lines(block + b"\n\n", events)

    def _without_bom(self, chunk: bytes) -> bytes:
        """`chunk`, less a byte-order mark at the very start, which may come in pieces."""
        start = b"".join(self._line_pieces) + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._line_pieces = [start]
            return b""
        self._line_pieces = []
        self._at_start = False
        return start[len(_BOM) :] if start.startswith(_BOM) else start

    def _feed_lines(self, chunk: bytes, events: list[SSE]) -> None:
        """The general path: line by line."""
        if b"\r" in chunk:
            # A CR at the very end ends its line now; an LF that follows it in the next chunk belongs to it.
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            if self._line_pieces:
                self._line_pieces.append(line)
                line = b"".join(self._line_pieces)
                self._line_pieces = []
                self._line_bytes = 0
            self._feed_line(line, events)
        if tail:
            self._line_pieces.append(tail)
            self._line_bytes += len(tail)
            self._check_size()

    def _feed_line(self, line: bytes, events: list[SSE]) -> None:
        if not line:
            if self._data_lines:
                events.append(SSE(self._event, b"\n".join(self._data_lines)))
                self._data_lines = []
                self._data_bytes = 0
            self._event = ""
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data_lines.append(value)
            self._data_bytes += len(value)
            self._check_size()
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")

    def _check_size(self) -> None:
        if self._data_bytes + self._line_bytes > self._max_bytes:
            raise FrameTooLarge("a server-sent event", self._max_bytes)


def sse_event(data: bytes, event: str | None = None) -> bytes:
    """One event as bytes, LF only. Raises `ValueError` for data with a line break: JSON on one line has none."""
    if b"\n" in data or b"\r" in data:
        raise ValueError("a line break in the data of a server-sent event")
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


class NDJSONDecoder:
    """`feed(bytes) -> [line]`, then `end() -> [line]`."""

    __slots__ = ("_error", "_held_bytes", "_max_bytes", "_pieces")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._error: FrameTooLarge | None = None
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no line is under way."""
        return not self._pieces and self._error is None

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
        lines = (b"".join(self._pieces) + head).split(b"\n")
        self._pieces = []
        self._held_bytes = 0
        self._hold(tail)
        complete: list[bytes] = []
        for line in map(bytes.strip, lines):
            if len(line) > self._max_bytes:
                self._error = FrameTooLarge("a line of JSON", self._max_bytes)
                break
            if line:
                complete.append(line)
        if self._error is not None and not complete:
            raise self._error
        return complete

    def end(self) -> list[bytes]:
        """The last line, if it came without a newline."""
        line = b"".join(self._pieces).strip()
        self._pieces = []
        return [line] if line else []

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)
            if self._held_bytes > self._max_bytes:
                self._pieces = []
                self._error = self._error or FrameTooLarge("a line of JSON", self._max_bytes)
