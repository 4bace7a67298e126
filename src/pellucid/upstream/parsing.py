"""Parser for one HTTP/1.1 response (RFC 9112): bytes in, head and body out. It does no I/O.

    parser = ResponseParser()
    body = parser.feed(data)        # the body bytes in this read; `parser.head` is set when the head is complete
    parser.end()                    # the connection has ended
    parser.is_over                  # the response is complete (`parser.is_complete`) or broken

It uses llhttp (httptools), with the same leniency as aiohttp: a bare LF ends a line, a header may be folded, spaces may
follow a chunk size. It adds these rules:

* Interim responses (1xx) are skipped. 101 is final, because the request offers no other protocol (RFC 9110, section
  15.2.2).
* A response with status 1xx, 204 or 304 has no body, whatever its headers say (RFC 9112, section 6.3).
* A body without a length ends with the connection. A body with a length is truncated if the connection ends before it
  is complete (RFC 9112, section 8).
* The head and the trailers have limits: 128 fields of 8190 bytes each. The same limit of bytes applies to everything
  that is neither body nor field: chunk extensions, white space, the status line (RFC 9112, section 7.1.1).
* Bytes after the response do not belong to it, and make the connection unusable (RFC 9112, section 9.2).
* Body bytes that arrived before invalid framing are returned first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import httptools

from .errors import DisconnectError, InvalidResponse

MAX_FIELDS = 128
MAX_FIELD_BYTES = 8190
"""Limit for one header field (name and value), and for bytes that are neither body nor field, over several reads."""
_STATUSES_WITHOUT_BODY = frozenset({101, 204, 304})
_QUOTED_BYTES = 100


@lru_cache(maxsize=512)
def _field_name(name: bytes) -> str:
    """Return a field name in lower case. The cache makes it the same string object for all responses."""
    return name.decode("latin-1").lower()


class Headers(Mapping[str, str]):
    """The header fields of a response, by case-insensitive name. If a name is repeated, its first value is used.

    Iterating yields the names in lower case. Bytes that are not UTF-8 become surrogates (PEP 383).
    """

    __slots__ = ("_values",)

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in fields:
            self._values.setdefault(_field_name(name), value.rstrip(b" \t").decode("utf-8", "surrogateescape"))

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class ResponseHead(NamedTuple):
    """The head of a final response."""

    status: int
    headers: Headers
    content_encoding: str
    """The value of the last `Content-Encoding`, in lower case; empty if there is none."""


class _ParseAborted(Exception):
    """Raised in a callback to stop llhttp."""


class ResponseParser:
    """Parses one response. llhttp calls the methods `on_…`."""

    __slots__ = (
        "_abort_reason",
        "_body_pieces",
        "_ends_with_connection",
        "_feed",
        "_field_count",
        "_fields",
        "_llhttp",
        "_overhead_bytes",
        "_status_bytes",
        "error",
        "has_begun",
        "head",
        "is_complete",
        "is_over",
        "is_reusable",
        "on_body",
    )

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.has_begun = False
        """Whether a part of a final response has arrived."""
        self.is_complete = False
        self.is_over = False
        """Whether it is complete or broken. One flag, because the hot path reads it."""
        self.is_reusable = False
        """Whether the server keeps the connection open, and no byte followed the complete response."""
        self.error: InvalidResponse | None = None
        """Why the head is invalid; None if it is valid."""
        self._body_pieces: list[bytes] = []
        self.on_body = self._body_pieces.append
        self._fields: list[tuple[bytes, bytes]] = []
        self._field_count = 0
        self._status_bytes = 0
        self._overhead_bytes = 0
        self._ends_with_connection = False
        self._abort_reason = ""
        self._llhttp = httptools.HttpResponseParser(self)
        self._llhttp.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._feed = self._llhttp.feed_data

    def feed(self, data: bytes) -> bytes:
        """Parse the bytes of one read. Never raises.

        Returns:
            The body bytes among them.
        """
        if self.is_over:
            self.is_reusable = False
            return b""
        feed = self._feed
        try:
            feed(data)
        except httptools.HttpParserUpgrade:
            self.is_reusable = False
        except httptools.HttpParserError as error:
            if self.is_complete:
                self.is_reusable = False
            else:
                self._fail(self._abort_reason or f"{error}: {_first_line(data)!r}")
        pieces = self._body_pieces
        if len(pieces) == 1:
            self._overhead_bytes = 0
            return pieces.pop()
        if pieces:
            body = b"".join(pieces)
            pieces.clear()
            self._overhead_bytes = 0
            return body
        if not self.is_over:
            self._overhead_bytes += len(data)
            if self._overhead_bytes > MAX_FIELD_BYTES:
                self._fail(f"a line is longer than {MAX_FIELD_BYTES} bytes")
        return b""

    def end(self, cause: Exception | None = None) -> None:
        """Handle the end of the connection.

        Args:
            cause: The error of the system, or None if the connection was closed in order.

        Raises:
            DisconnectError: The head is not complete.
        """
        self.is_reusable = False
        if self.is_over:
            return
        self.is_over = True
        if self.head is None:
            raise DisconnectError(self.has_begun, cause)
        self.is_complete = self._ends_with_connection and cause is None

    def close(self) -> None:
        """Release llhttp, which refers to this object. `feed` must not be called after this."""
        self.is_over = True
        del self._llhttp, self._feed

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _ParseAborted
        self.has_begun = True

    def on_status(self, reason: bytes) -> None:
        self._status_bytes += len(reason)
        if self._status_bytes > MAX_FIELD_BYTES:
            self._abort(f"the status line is longer than {MAX_FIELD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._overhead_bytes = 0
        self._field_count += 1
        if self._field_count > MAX_FIELDS:
            self._abort(f"there are more than {MAX_FIELDS} header fields")
        if len(name) + len(value) > MAX_FIELD_BYTES:
            self._abort(f"a header field is longer than {MAX_FIELD_BYTES} bytes")
        if b"\0" in value:
            self._abort("a header field contains NUL")
        if self.head is None:
            self._fields.append((name, value))
        # Otherwise it is a trailer, which is discarded (RFC 9112, section 7.1.2).

    def on_headers_complete(self) -> None:
        status = self._llhttp.get_status_code()
        fields, self._fields = self._fields, []
        self._field_count = self._overhead_bytes = self._status_bytes = 0
        if 100 <= status < 200 and status != 101:
            return
        headers = Headers(fields)
        encoding, transfer = b"", b""
        if "content-encoding" in headers or "transfer-encoding" in headers:
            for name, value in fields:
                if name.lower() == b"content-encoding":
                    encoding = value.strip().lower()
                elif name.lower() == b"transfer-encoding":
                    transfer = value.rpartition(b",")[2].strip().lower()
        self._ends_with_connection = "content-length" not in headers and transfer != b"chunked"
        self.head = ResponseHead(status, headers, encoding.decode("latin-1"))
        self.is_reusable = status != 101 and self._llhttp.should_keep_alive()
        if status in _STATUSES_WITHOUT_BODY:
            self._complete()

    def on_message_complete(self) -> None:
        if self.head is None:
            self.has_begun = False  # this was an interim response
        else:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = self.is_over = True

    def _fail(self, reason: str) -> None:
        self.is_over = True
        self.is_reusable = False
        if self.head is None:
            self.error = InvalidResponse(reason)

    def _abort(self, reason: str) -> None:
        self._abort_reason = reason
        raise _ParseAborted


def _first_line(data: bytes) -> bytes:
    return data[:_QUOTED_BYTES].split(b"\r\n", 1)[0]
