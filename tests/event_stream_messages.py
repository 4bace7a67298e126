"""Messages of Amazon's binary event stream as bytes: what a scripted Bedrock sends. The layout is that of
`pellucid.framing.eventstream`, written a second time, so that reader and writer check each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, pack
from uuid import UUID
from zlib import crc32

from pellucid.framing.eventstream import HeaderValue, Timestamp

_BYTES, _TEXT, _TIMESTAMP, _UUID = 6, 7, 8, 9
_OVERHEAD = 16
_U32 = Struct(">I")


def _value(value: HeaderValue) -> bytes:
    """Encode the value of a header with its type; integers in the shortest type that holds them."""
    match value:
        case bool():
            return b"\x00" if value else b"\x01"
        case Timestamp():
            return pack(">Bq", _TIMESTAMP, value)
        case int():
            kind, form = next(((k, f) for k, f in ((2, "b"), (3, "h"), (4, "i")) if _fits(value, f)), (5, "q"))
            return pack(">B" + form, kind, value)
        case bytes():
            return pack(">BH", _BYTES, len(value)) + value
        case str():
            raw = value.encode()
            return pack(">BH", _TEXT, len(raw)) + raw
        case UUID():
            return bytes((_UUID,)) + value.bytes


def _fits(value: int, form: str) -> bool:
    bits = 8 * Struct(">" + form).size - 1
    return -(1 << bits) <= value < 1 << bits


def eventstream_message(payload: bytes, headers: Mapping[str, HeaderValue]) -> bytes:
    """Encode one message. Raises `struct.error` if a name, a value or the message is too long for its length field."""
    head = b"".join(pack(">B", len(name.encode())) + name.encode() + _value(value) for name, value in headers.items())
    lengths = pack(">II", _OVERHEAD + len(head) + len(payload), len(head))
    message = b"".join((lengths, _U32.pack(crc32(lengths)), head, payload))
    return message + _U32.pack(crc32(message))
