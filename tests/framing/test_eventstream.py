"""Amazon's event stream: the format, limits, errors, and independence from the cuts of the bytes.

The reference is `botocore`, Amazon's own decoder.
"""

from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from pellucid.framing import EventStreamDecoder, EventStreamMessage
from pellucid.framing.eventstream import MAX_HEADER_BYTES, HeaderValue, Timestamp
from tests.cutting import cut
from tests.event_stream_messages import eventstream_message

# Encoded by Amazon's tools.
KNOWN = bytes.fromhex(
    "000000b9000000578dfa715b0b3a6576656e742d74797065070011636f6e74656e74426c6f636b44656c74610d3a636f6e74656e742d7479"
    "70650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22636f6e74656e74426c6f63"
    "6b496e646578223a302c2264656c7461223a7b22726561736f6e696e67436f6e74656e74223a7b2274657874223a224c6574227d7d2c2270"
    "223a226162636465666768227d01dffc5e"
)
HEADERS = {":event-type": "contentBlockDelta", ":content-type": "application/json", ":message-type": "event"}
PAYLOAD = b'{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let"}},"p":"abcdefgh"}'


def decode(*chunks: bytes, limit: int = 1 << 20) -> list[EventStreamMessage]:
    """Decode data that must be valid."""
    decoder = EventStreamDecoder(limit)
    messages = [message for chunk in chunks for message in decoder.feed(chunk)]
    assert decoder.error is None, decoder.error
    assert not decoder.has_partial
    return messages


def fault(*chunks: bytes, limit: int = 1 << 20) -> tuple[list[EventStreamMessage], str]:
    """Decode data that must be invalid; return the messages before the error, and its text."""
    decoder = EventStreamDecoder(limit)
    messages = [message for chunk in chunks for message in decoder.feed(chunk)]
    assert decoder.error is not None
    assert decoder.error.kind == "model_error"
    assert decoder.feed(KNOWN) == [], "there are no messages after an error"
    return messages, decoder.error.full_message


def message(head: bytes = b"", payload: bytes = b"", *, total: int | None = None, headers: int | None = None) -> bytes:
    """Encode a message with correct checksums and arbitrary lengths."""
    total = 16 + len(head) + len(payload) if total is None else total
    lengths = pack(">II", total, len(head) if headers is None else headers)
    body = lengths + pack(">I", crc32(lengths)) + head + payload
    return body + pack(">I", crc32(body))


# --- the format ----------------------------------------------------------------------------------------------------


def test_a_known_message() -> None:
    assert decode(KNOWN) == [EventStreamMessage(HEADERS, PAYLOAD)]


def test_a_known_message_is_written_byte_for_byte() -> None:
    assert eventstream_message(PAYLOAD, HEADERS) == KNOWN


def test_every_cut_in_two_gives_the_same() -> None:
    data = KNOWN + KNOWN
    for place in range(len(data)):
        assert decode(data[:place], data[place:]) == decode(data)


def test_byte_by_byte() -> None:
    assert decode(*cut(KNOWN * 3, range(len(KNOWN) * 3))) == decode(KNOWN) * 3


def test_a_message_may_hold_nothing() -> None:
    assert decode(message()) == [EventStreamMessage({}, b"")]


def test_an_incomplete_message_is_no_error() -> None:
    decoder = EventStreamDecoder()
    rests = [decoder.has_partial]
    assert decoder.feed(KNOWN + KNOWN[:5]) == decode(KNOWN)
    rests.append(decoder.has_partial)
    assert decoder.error is None
    decoder.feed(KNOWN[5:])
    rests.append(decoder.has_partial)
    assert rests == [False, True, False]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\x00", True),
        (b"\x01", False),
        (b"\x02\xff", -1),
        (b"\x03\x01\x00", 256),
        (b"\x04\x80\x00\x00\x00", -(2**31)),
        (b"\x05\x00\x00\x00\x01\x00\x00\x00\x00", 2**32),
        (b"\x06\x00\x02\x00\xff", b"\x00\xff"),
        (b"\x07\x00\x02\xc3\xa9", "é"),
        (b"\x08\x00\x00\x01\x8b\xcf\xe5\x68\x00", Timestamp(1_700_000_000_000)),
        (b"\x09" + bytes(range(16)), UUID(bytes=bytes(range(16)))),
    ],
)
def test_every_type_of_header_both_ways(raw: bytes, value: HeaderValue) -> None:
    data = message(b"\x01n" + raw, b"payload")
    (read,) = decode(data)
    assert read.headers == {"n": value}
    assert type(read.headers["n"]) is type(value)
    assert eventstream_message(b"payload", {"n": value}) == data


# --- errors --------------------------------------------------------------------------------------------------------


def test_one_wrong_bit_anywhere_is_an_error() -> None:
    for bit in range(8 * len(KNOWN)):
        broken = bytearray(KNOWN)
        broken[bit // 8] ^= 1 << bit % 8
        messages, message = fault(KNOWN + bytes(broken) + KNOWN)
        assert messages == decode(KNOWN), "the message before the error is decoded"
        assert "checksum" in message


def test_the_first_checksum_is_checked_before_a_length_is_believed() -> None:
    """Otherwise one flipped bit could make the decoder wait for gigabytes."""
    assert fault(b"\x7f" + KNOWN[1:12]) == ([], fault(b"\x00" * 12)[1])


def test_another_format_is_an_error_after_twelve_bytes() -> None:
    assert fault(b"<html><head>")[1].endswith("the checksum of a message's first bytes is wrong")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (message(total=15), "a message of 15 bytes says that 0 of them are headers"),
        (message(headers=1), "a message of 16 bytes says that 1 of them are headers"),
        (message(b"\x05n"), "headers end in the middle of one"),
        (message(b"\x01n"), "headers end in the middle of one"),
        (message(b"\x01n\x04\x00"), "headers end in the middle of one"),
        (message(b"\x01n\x07\x00"), "headers end in the middle of one"),
        (message(b"\x01n\x07\x00\x09short"), "headers end in the middle of one"),
        (message(b"\x01n\x0a"), "a header of type 10; there are 0 to 9"),
        (message(b"\x01\xff\x00"), "a header that is not UTF-8"),
        (message(b"\x01n\x07\x00\x01\xff"), "a header that is not UTF-8"),
        (message(b"\x01n\x00\x01n\x00"), "a header twice: n"),
    ],
)
def test_an_invalid_message_is_a_named_error(data: bytes, expected: str) -> None:
    messages, message_ = fault(KNOWN + data)
    assert messages == decode(KNOWN)
    assert expected in message_
    assert message_.startswith("the provider's event stream cannot be read any further: ")


# --- limits --------------------------------------------------------------------------------------------------------


def test_a_payload_that_is_too_large_is_refused_before_it_is_read() -> None:
    assert decode(message(payload=bytes(1000)), limit=1000)[0].payload == bytes(1000)
    expected = "the payload of an event-stream message did not end within 1000 bytes"
    assert fault(message(payload=bytes(1001))[:12], limit=1000) == ([], expected)


def test_headers_have_a_limit() -> None:
    expected = f"the headers of an event-stream message did not end within {MAX_HEADER_BYTES} bytes"
    assert fault(message(bytes(MAX_HEADER_BYTES + 1))[:12]) == ([], expected)


def test_many_different_headers_are_read_but_not_all_cached() -> None:
    decoder = EventStreamDecoder()
    for number in range(1000):
        (read,) = decoder.feed(eventstream_message(b"", {"n": number}))
        assert read.headers == {"n": number}
    assert len(decoder._cache) <= 64


def test_a_large_message_in_small_pieces_is_joined_once() -> None:
    """Ten megabytes come in kilobytes: if every piece were joined, this would copy fifty gigabytes."""
    data = eventstream_message(bytes(10_000_000), HEADERS)
    decoder = EventStreamDecoder()
    messages = [read for at in range(0, len(data), 1024) for read in decoder.feed(data[at : at + 1024])]
    assert [len(read.payload) for read in messages] == [10_000_000]


# --- arbitrary input, compared with botocore -----------------------------------------------------------------------

names = st.text(max_size=20)
values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=40),
    st.text(max_size=40),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.uuids(),
)
messages = st.builds(EventStreamMessage, st.dictionaries(names, values, max_size=5), st.binary(max_size=200))
places = st.lists(st.integers(0, 2000), max_size=20)


def written(sent: list[EventStreamMessage]) -> bytes:
    return b"".join(eventstream_message(entry.payload, entry.headers) for entry in sent)


def botocores(data: bytes) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
    """Decode with botocore; return the messages and whether it raised."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    read: list[tuple[dict[str, Any], bytes]] = []
    try:
        read.extend((entry.headers, entry.payload) for entry in buffer)
    except Exception:
        return read, True
    return read, False


def plain(read: list[EventStreamMessage]) -> list[tuple[dict[str, Any], bytes]]:
    """Convert messages to the types of botocore."""
    return [
        ({name: value.bytes if isinstance(value, UUID) else value for name, value in headers.items()}, payload)
        for headers, payload in read
    ]


@given(st.lists(messages, max_size=5), places)
def test_encoded_messages_are_decoded_for_every_cut(sent: list[EventStreamMessage], places: list[int]) -> None:
    data = written(sent)
    assert decode(*cut(data, places)) == sent
    assert botocores(data) == (plain(sent), False)


@given(
    st.lists(messages, min_size=1, max_size=4),
    places,
    st.integers(0, 10**6),
    st.sampled_from(["flip", "drop", "insert", "cut"]),
)
def test_damage_is_an_error_where_botocore_finds_it(
    sent: list[EventStreamMessage], places: list[int], at: int, how: str
) -> None:
    data = bytearray(written(sent))
    at %= len(data)
    match how:
        case "flip":
            data[at] ^= 1 << at % 8
        case "drop":
            del data[at]
        case "insert":
            data.insert(at, 7)
        case "cut":
            del data[at:]
    for chunks in ([bytes(data)], cut(bytes(data), places)):
        decoder = EventStreamDecoder()
        read = [entry for chunk in chunks for entry in decoder.feed(chunk)]
        assert (plain(read), decoder.error is not None) == botocores(bytes(data))


@given(st.binary(max_size=300))
def test_any_bytes_never_raise(data: bytes) -> None:
    EventStreamDecoder().feed(data)


@given(st.binary(max_size=60))
def test_any_bytes_in_headers_never_raise(head: bytes) -> None:
    decoder = EventStreamDecoder()
    read = decoder.feed(message(head, b"x"))
    assert bool(read) != bool(decoder.error)
