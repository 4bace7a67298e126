"""Decompression of response bodies that are compressed although `identity` was requested (RFC 9110, section 8.4).

A `DecodingReceiver` is placed between a connection and the receiver of the body.

* The output is delivered in slices of 256 KiB, one for each iteration of the event loop. A read of a few kilobytes may
  decompress to megabytes; the slices keep the event loop responsive.
* The receiver limits the decompressed size: it gets the slices of a decompression bomb one by one, and closes.
* Supported codings: gzip, with any number of members (RFC 1952), and deflate, with or without its zlib wrapper, which
  some servers omit (RFC 9110, section 8.4.1.2). `br` and `zstd` are refused. A body of any other coding is passed on
  unchanged.
* A compressed stream that ends too early, or that is followed by other bytes, is reported as truncated.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Protocol

from ..errors import ErrorInfo
from .errors import InvalidResponse, truncated_error

SLICE_BYTES = 1 << 18
_MAX_MEMBERS = 32
"""Gzip members that one slice may contain. The start of each member copies the remaining input."""

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_UNSUPPORTED_CODINGS = frozenset({"br", "zstd"})


class PausableSource(Protocol):
    """A source of data whose reading can be paused."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def is_decodable(encoding: str) -> bool:
    """Return whether a body of this content coding is decompressed here.

    Raises:
        InvalidResponse: The coding is `br` or `zstd`, which are not supported.
    """
    if encoding in _UNSUPPORTED_CODINGS:
        raise InvalidResponse(f"Can not decode content-encoding: {encoding}")
    return encoding in _WINDOW_BITS


class Decompressor:
    """Decompresses a stream, one slice at a time. It does no I/O."""

    __slots__ = ("_encoding", "_has_started", "_input", "_zlib", "decoded_bytes")

    def __init__(self, encoding: str) -> None:
        self.decoded_bytes = 0
        """Number of bytes produced so far."""
        self._encoding = encoding
        self._zlib = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._has_started = False
        self._input = b""

    @property
    def is_complete(self) -> bool:
        """Whether all input was consumed and the compressed stream is complete."""
        return not self._input and (not self._has_started or self._zlib.eof)

    def feed(self, data: bytes) -> None:
        """Add compressed bytes to the input."""
        self._input = self._input + data if self._input else data

    def next_slice(self) -> tuple[bytes, bool]:
        """Decompress up to `SLICE_BYTES` of output.

        Returns:
            The bytes, and whether the input may give more of them.

        Raises:
            zlib.error: The input is not of this coding.
        """
        out, size = [], 0
        for _ in range(_MAX_MEMBERS):
            if self._zlib.eof:
                if not self._input:
                    break
                self._zlib = zlib.decompressobj(_WINDOW_BITS[self._encoding])
                self._has_started = False
            if self._input and not self._has_started:
                self._has_started = True
                if self._encoding == "deflate" and self._input[0] & 15 != 8:
                    self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            piece = self._zlib.decompress(self._input, SLICE_BYTES - size)
            self._input = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
            out.append(piece)
            size += len(piece)
            if size >= SLICE_BYTES or not self._zlib.eof:
                break
        self.decoded_bytes += size
        return b"".join(out), bool(self._input) or size >= SLICE_BYTES


class DecodingReceiver:
    """Receives a compressed body and delivers it decompressed, in slices.

    It is a `PausableSource` itself: the receiver of the body pauses and resumes this object, which pauses and resumes
    the connection.
    """

    __slots__ = (
        "_decompressor",
        "_deliver",
        "_error",
        "_has_ended",
        "_is_closed",
        "_is_paused",
        "_is_source_paused",
        "_loop",
        "_next_handle",
        "_on_end",
        "_source",
    )

    def __init__(
        self,
        encoding: str,
        source: PausableSource,
        deliver: Callable[[bytes], None],
        end: Callable[[ErrorInfo | None], None],
    ) -> None:
        self._decompressor = Decompressor(encoding)
        self._source = source
        self._deliver = deliver
        self._on_end = end
        self._loop = asyncio.get_running_loop()
        self._next_handle: asyncio.Handle | None = None
        """The scheduled delivery of the next slice, if there is one."""
        self._is_paused = False
        self._is_source_paused = False
        """Whether the connection is paused, either by the receiver or because slices are still to be delivered."""
        self._is_closed = False
        self._has_ended = False
        self._error: ErrorInfo | None = None

    @property
    def body_bytes(self) -> int:
        """Bytes of the decompressed body so far."""
        return self._decompressor.decoded_bytes

    def data_received(self, data: bytes) -> None:
        self._decompressor.feed(data)
        if self._next_handle is None and not self._is_paused:
            self._deliver_slice()

    def body_ended(self, error: ErrorInfo | None) -> None:
        self._has_ended, self._error = True, error
        if self._next_handle is None and not self._is_paused:
            self._deliver_slice()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._next_handle is not None:
            self._next_handle.cancel()
            self._next_handle = None
        self._pause_source()

    def resume_reading(self) -> None:
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._next_handle = self._loop.call_soon(self._deliver_slice)

    def close(self) -> None:
        """Stop delivering."""
        self._is_closed = True
        if self._next_handle is not None:
            self._next_handle.cancel()
            self._next_handle = None

    def _deliver_slice(self) -> None:
        self._next_handle = None
        if self._is_closed:
            return
        try:
            data, has_more = self._decompressor.next_slice()
        except zlib.error:
            self._finish(truncated_error())
            return
        if has_more or (data and self._has_ended):
            self._pause_source()
            self._next_handle = self._loop.call_soon(self._deliver_slice)
        elif self._is_source_paused and not self._has_ended:
            self._is_source_paused = False
            self._source.resume_reading()
        if data:
            self._deliver(data)
        elif self._has_ended and self._next_handle is None:
            self._finish(self._error or (None if self._decompressor.is_complete else truncated_error()))

    def _pause_source(self) -> None:
        # After the end of the body, the connection may already belong to another response.
        if not self._is_source_paused and not self._has_ended:
            self._is_source_paused = True
            self._source.pause_reading()

    def _finish(self, error: ErrorInfo | None) -> None:
        self.close()
        self._on_end(error)
