"""Server-sent events, both ways (WHATWG HTML, "Interpreting an event stream").

The decoder takes bytes as they arrive and returns whole events. Its rules:

* lines end with LF, CRLF or CR, also mixed, and also if a CRLF is cut in two; one leading BOM is skipped;
* a blank line dispatches the event; `data` lines are joined with LF; comments (`:` first) and unknown fields are
  ignored;
* an event without data is ignored, whatever its name (the standard requires it, and keep-alives rely on it);
* an event that is incomplete at the end of the bytes is never dispatched (`has_partial` shows whether there is one);
* an event has at most `max_bytes`: a larger one raises `FrameTooLarge` before memory is spent on it, and so does every
  later call.

`id` and `retry` control reconnection, which does not concern the reading of one response; they are skipped.

There are two paths. Blocks of LF-ended `data:`/`event:` lines only (all that providers send) are split by C code;
everything else takes the line-by-line path. Both give the same events: a test compares them.

The module also decodes newline-delimited JSON (Ollama's stream): one JSON value a line, blank lines are ignored. The
rules are those of SSE: the lines do not depend on how the bytes are cut, LF or CRLF, a size limit, pieces joined once.
Unlike SSE, a last line without a newline counts (`end`): servers leave the newline out, and JSON itself shows whether
it is complete.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import FrameTooLarge

DEFAULT_MAX_BYTES = 32 * 1024 * 1024
"""Limit of one event. Providers send whole base64 images in one event."""

_BOM = b"\xef\xbb\xbf"


class SSE(NamedTuple):
    """One event: its name (`""` for none, which means `message`) and its data, still encoded."""

    event: str
    data: bytes


_new_sse = tuple.__new__
"""Faster than `SSE(…)`: a named tuple's constructor is a Python function."""


class SSEDecoder:
    """Decoder of server-sent events: `feed(bytes) -> [SSE]`. Use one for each response.

    Args:
        max_bytes: Limit of one event.
    """

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
        """Pieces of the incomplete line; joined once, when it ends."""
        self._line_bytes = 0
        self._data_lines: list[bytes] = []
        """Data lines of the incomplete event."""
        self._data_bytes = 0
        self._event = ""
        self._error: FrameTooLarge | None = None
        self._at_start = True
        self.idle = False
        """Whether nothing is incomplete, so that the next read can be decoded by itself."""
        self._skip_lf = False

    @property
    def has_partial(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._line_pieces or self._data_lines or self._event or self._error)

    def feed(self, data: bytes) -> list[SSE]:
        """Decode the events that `data` completes.

        Raises:
            FrameTooLarge: An event exceeds the limit. Complete events before it are returned first.
        """
        # One unnamed event and nothing else: the usual read while a model writes.
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
            # Google ends lines with CRLF. If every CR is part of a CRLF, the LFs alone are equivalent.
            without_crlf = chunk.replace(b"\r\n", b"\n")
            chunk = chunk if b"\r" in without_crlf else without_crlf
        # The path of nearly all real traffic: whole events, LF only, nothing incomplete.
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
        """Decode one block: fast for the two forms that providers write, line by line for any other."""
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
        """Remove a byte-order mark at the start of the stream, which may arrive in pieces."""
        start = b"".join(self._line_pieces) + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._line_pieces = [start]
            return b""
        self._line_pieces = []
        self._at_start = False
        return start[len(_BOM) :] if start.startswith(_BOM) else start

    def _feed_lines(self, chunk: bytes, events: list[SSE]) -> None:
        """Decode line by line: the general path."""
        if b"\r" in chunk:
            # A CR at the end of the chunk ends its line now; an LF at the start of the next chunk belongs to it.
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
    """Encode one event, with LF line ends.

    Raises:
        ValueError: The data has a line break. JSON on one line has none.
    """
    if b"\n" in data or b"\r" in data:
        raise ValueError("a line break in the data of a server-sent event")
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


class NDJSONDecoder:
    """Decoder of newline-delimited JSON: `feed(bytes) -> [line]`, then `end() -> [line]`.

    Args:
        max_bytes: Limit of one line.
    """

    __slots__ = ("_error", "_held_bytes", "_max_bytes", "_pieces")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._error: FrameTooLarge | None = None
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no line is incomplete."""
        return not self._pieces and self._error is None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Decode the lines that `chunk` completes.

        Raises:
            FrameTooLarge: A line exceeds the limit. Complete lines before it are returned first.
        """
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
        """Return the last line, if it has no newline."""
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
