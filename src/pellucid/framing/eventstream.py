"""Decoder of Amazon's binary event stream (`application/vnd.amazon.eventstream`).

A message, all numbers big-endian:

    0     u32  length of the whole message
    4     u32  length of the headers
    8     u32  CRC-32 of bytes 0..7
    12    …    headers: name length u8, name, type u8, value
          …    payload
    end-4 u32  CRC-32 of everything before it

The rules:

* the first checksum is verified before either length is used;
* a message has at most 128 KiB of headers and `max_payload_bytes` of payload; a larger one is rejected before memory is
  spent on it;
* any fault in a message is fatal, because nothing marks the beginning of the next one. The messages before it are
  returned, `error` has the fault, and no more messages follow;
* the messages do not depend on how the bytes are cut; the pieces of a message are joined once.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias
from uuid import UUID
from zlib import crc32

from ..errors import ErrorInfo, FrameTooLarge

MAX_HEADER_BYTES = 128 * 1024
DEFAULT_MAX_PAYLOAD_BYTES = 24 * 1024 * 1024
"""Limit of one payload."""

_PRELUDE = Struct(">III")
_U32 = Struct(">I")
_OVERHEAD_BYTES = 16
"""Bytes of the prelude and the last checksum."""

_MAX_CACHED_HEADERS = 64
"""Limit of decoded header blocks in the cache. A stream has a few different ones, and thousands of each."""


class Timestamp(int):
    """A header's timestamp: milliseconds since 1970."""


HeaderValue: TypeAlias = bool | int | bytes | str | Timestamp | UUID


class EventStreamMessage(NamedTuple):
    """One message. Messages with equal headers may share the `headers` object."""

    headers: Mapping[str, HeaderValue]
    payload: bytes


class EventStreamDecoder:
    """Decoder of event-stream messages: `feed(bytes) -> [EventStreamMessage]`. Use one for each response.

    Args:
        max_payload_bytes: Limit of one payload.
    """

    __slots__ = ("_cache", "_held_bytes", "_max_payload_bytes", "_needed_bytes", "_pieces", "error")

    def __init__(self, max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES) -> None:
        self.error: ErrorInfo | None = None
        """The fault of the message after the last returned one; None while there is none."""
        self._max_payload_bytes = max_payload_bytes
        self._pieces: list[bytes] = []
        """Pieces of the incomplete message; joined once, when there are enough of them."""
        self._held_bytes = 0
        self._needed_bytes = _PRELUDE.size
        """Bytes that must be buffered before decoding can go on."""
        self._cache: dict[bytes, Mapping[str, HeaderValue]] = {}

    @property
    def has_partial(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._held_bytes > 0

    def feed(self, chunk: bytes) -> list[EventStreamMessage]:
        """Decode the messages that `chunk` completes."""
        if self.error is not None or not chunk:
            return []
        if self._held_bytes:
            self._pieces.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes < self._needed_bytes:
                return []
            chunk = b"".join(self._pieces)
        messages: list[EventStreamMessage] = []
        at, size, needed = 0, len(chunk), _PRELUDE.size
        try:
            while size - at >= _PRELUDE.size:
                total, headers_size, checksum = _PRELUDE.unpack_from(chunk, at)
                running = crc32(chunk[at : at + 8])
                if running != checksum:
                    raise _malformed("the checksum of a message's first bytes is wrong")
                payload_size = total - headers_size - _OVERHEAD_BYTES
                if not 0 <= payload_size <= self._max_payload_bytes or headers_size > MAX_HEADER_BYTES:
                    raise self._length_error(total, headers_size)
                end = at + total
                if end > size:
                    needed = total
                    break
                # The second checksum continues the first one.
                if crc32(chunk[at + 8 : end - 4], running) != _U32.unpack_from(chunk, end - 4)[0]:
                    raise _malformed("the checksum of a message is wrong")
                payload_at = at + 12 + headers_size
                head = chunk[at + 12 : payload_at]
                headers = self._cache.get(head)
                if headers is None:
                    headers = self._headers(head)
                messages.append(EventStreamMessage(headers, chunk[payload_at : end - 4]))
                at = end
        except (_MalformedMessage, FrameTooLarge) as error:
            self.error = error.info
            self._pieces, self._held_bytes = [], 0
            return messages
        self._pieces = [chunk[at:]] if at < size else []
        self._held_bytes = size - at
        self._needed_bytes = needed
        return messages

    def _length_error(self, total: int, headers_size: int) -> _MalformedMessage | FrameTooLarge:
        """Return the error for lengths that cannot be right."""
        if total < _OVERHEAD_BYTES + headers_size:
            return _malformed(f"a message of {total} bytes says that {headers_size} of them are headers")
        if headers_size > MAX_HEADER_BYTES:
            return FrameTooLarge("the headers of an event-stream message", MAX_HEADER_BYTES)
        return FrameTooLarge("the payload of an event-stream message", self._max_payload_bytes)

    def _headers(self, head: bytes) -> Mapping[str, HeaderValue]:
        headers = read_headers(head)
        if len(self._cache) < _MAX_CACHED_HEADERS and len(head) <= 1024:
            self._cache[head] = headers
        return headers


class _MalformedMessage(Exception):
    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.full_message)
        self.info = info


def _malformed(reason: str, upstream_message: str | None = None) -> _MalformedMessage:
    return _MalformedMessage(
        ErrorInfo(
            kind="model_error",
            code="frame_broken",
            message=f"the provider's event stream cannot be read any further: {reason}",
            upstream_message=upstream_message,
        )
    )


# --- headers -------------------------------------------------------------------------------------------------------

# Types of values with a fixed length. Types 0 and 1 are true and false.
_FIXED = {2: Struct(">b"), 3: Struct(">h"), 4: Struct(">i"), 5: Struct(">q"), 8: Struct(">q"), 9: Struct("16s")}
_BYTES, _TEXT, _TIMESTAMP, _UUID = 6, 7, 8, 9


def read_headers(head: bytes) -> dict[str, HeaderValue]:
    """Decode a block of headers, by name."""
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(head):
            name_end = at + 1 + head[at]
            name, kind = head[at + 1 : name_end].decode(), head[name_end]
            value, at = _read_value(head, kind, name_end + 1)
            if name in headers:
                raise _malformed("a message has a header twice", name)
            headers[name] = value
    except (IndexError, StructError):
        raise _malformed("a message's headers end in the middle of one") from None
    except UnicodeDecodeError:
        raise _malformed("a message has a header that is not UTF-8") from None
    return headers


def _read_value(head: bytes, kind: int, at: int) -> tuple[HeaderValue, int]:
    """Decode the value that begins at `at`. Return it and the index of its end."""
    if kind in (0, 1):
        return kind == 0, at
    if kind in (_BYTES, _TEXT):
        begin = at + 2
        end = begin + (head[at] << 8 | head[at + 1])
        if end > len(head):
            raise IndexError(end)
        raw = head[begin:end]
        return (raw if kind == _BYTES else raw.decode()), end
    form = _FIXED.get(kind)
    if form is None:
        raise _malformed(f"a message has a header of type {kind}; there are 0 to 9")
    (value,) = form.unpack_from(head, at)
    if kind == _TIMESTAMP:
        value = Timestamp(value)
    elif kind == _UUID:
        value = UUID(bytes=value)
    return value, at + form.size
