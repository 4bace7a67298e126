"""The state machine of one response: bytes in, head and body out (RFC 9112). It does no I/O.

    parser = ResponseParser()
    body = parser.feed(data)        # the body's bytes in this read; `parser.head` is set when the head is complete
    parser.end()                    # the connection has ended
    parser.is_over                  # nothing more is to come: wholly read, or broken (`parser.is_broken`)

It parses with llhttp (httptools), as leniently as aiohttp does with the same library: a bare LF ends a line, a header
may be folded, spaces may follow a chunk's size. What it adds:

* Interim responses (1xx) are skipped. 101 is final: the request offers no other protocol (RFC 9110, section 15.2.2).
* A response to 1xx, 204 or 304 has no body, whatever its headers say (RFC 9112, section 6.3).
* A body without a length ends with the connection; one with a length that ends so is truncated (RFC 9112, section 8).
* The head and the trailers have limits: 128 fields, 8190 bytes each. So has everything that is neither body nor field:
  chunk extensions, white space, a status line (RFC 9112, section 7.1.1).
* Bytes behind the response are no part of it, and the connection cannot be used again (RFC 9112, section 9.2).
* What came before the framing broke is given out first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import httptools

from .errors import DisconnectError, InvalidResponse

MAX_FIELDS = 128
MAX_FIELD_BYTES = 8190
"""Of one header field, name and value; and of what is neither body nor field, over any number of reads."""
_STATUSES_WITHOUT_BODY = frozenset({101, 204, 304})
_QUOTED_BYTES = 100


@lru_cache(maxsize=512)
def _field_name(name: bytes) -> str:
    """A field's name in lower case, the same string for all responses."""
    return name.decode("latin-1").lower()


class Headers(Mapping[str, str]):
    """The header fields of a response by name, in upper or lower case. Of fields with one name, the first counts.

    Iterating yields the names in lower case. Bytes that are not UTF-8 are surrogates (PEP 383).
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
    """Stops llhttp from within one of its callbacks."""


class ResponseParser:
    """Reads one response. The methods `on_…` are called by llhttp."""

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
        "is_broken",
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
        self.is_broken = False
        self.is_over = False
        """Whether it is complete or broken: one flag, for the hot path."""
        self.is_reusable = False
        """Whether the server keeps the connection open, and sent nothing behind a complete response."""
        self.error: InvalidResponse | None = None
        """Why it is broken, if the head is."""
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
        """Take the bytes of one read. Returns those of the body among them; never raises."""
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
        """The connection has ended: in good order, or with an error of the system.

        Raises:
            Disconnected: the head is not complete.
        """
        self.is_reusable = False
        if self.is_over:
            return
        if self.head is None:
            self.is_broken = self.is_over = True
            raise DisconnectError(self.has_begun, cause)
        if self._ends_with_connection and cause is None:
            self.is_complete = self.is_over = True
        else:
            self.is_broken = self.is_over = True

    def close(self) -> None:
        """Let go of llhttp, which holds this object. Nothing can be fed any more."""
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
        # Else it is a trailer, which is discarded (RFC 9112, section 7.1.2).

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
            self.has_begun = False  # an interim response is over
        else:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = self.is_over = True

    def _fail(self, reason: str) -> None:
        self.is_broken = self.is_over = True
        self.is_reusable = False
        if self.head is None:
            self.error = InvalidResponse(reason)

    def _abort(self, reason: str) -> None:
        self._abort_reason = reason
        raise _ParseAborted


def _first_line(data: bytes) -> bytes:
    return data[:_QUOTED_BYTES].split(b"\r\n", 1)[0]
