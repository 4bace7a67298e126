"""SSE framing: the WHATWG rules, and independence from the cuts of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import FrameTooLarge
from pellucid.framing import SSEDecoder, sse_event
from pellucid.framing.sse import SSE
from tests.cutting import cut


def decode(*chunks: bytes, limit: int = 1 << 20) -> list[SSE]:
    decoder = SSEDecoder(limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def reference(body: bytes) -> list[SSE]:
    """Decode with the standard's algorithm, line by line: slow, simple, and written independently."""
    if body.startswith(b"\xef\xbb\xbf"):
        body = body[3:]
    lines, line, i = [], b"", 0
    while i < len(body):
        c = body[i : i + 1]
        if c == b"\r" or c == b"\n":
            lines.append(line)
            line = b""
            if body[i : i + 2] == b"\r\n":
                i += 1
        else:
            line += c
        i += 1
    events: list[SSE] = []
    data: list[bytes] = []
    name = ""
    for line in lines:
        if line == b"":
            if data:
                events.append(SSE(name, b"\n".join(data)))
            data, name = [], ""
        elif line.startswith(b":"):
            continue
        else:
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
    return events


# Text of tokens that matter to the parser, so that hypothesis finds edge cases quickly.
alphabet = st.sampled_from(
    [
        b"data",
        b"event",
        b"id",
        b"retry",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"x",
        b"{}",
        b"\xff",
    ]
)
bodies = st.lists(alphabet, max_size=40).map(b"".join) | st.binary(max_size=60)


@given(bodies, st.lists(st.integers(0, 200), max_size=12))
def test_any_cut_gives_the_standards_events(body: bytes, places: list[int]) -> None:
    assert decode(*cut(body, places)) == reference(body)


@given(bodies)
def test_byte_by_byte(body: bytes) -> None:
    assert decode(*(body[i : i + 1] for i in range(len(body)))) == reference(body)


@given(
    st.lists(
        st.tuples(st.binary(max_size=30).filter(lambda b: not {10, 13} & set(b)), st.sampled_from([None, "a.b"])),
        max_size=6,
    )
)
def test_encoded_events_are_decoded_unchanged(events: list[tuple[bytes, str | None]]) -> None:
    body = b"".join(sse_event(data, name) for data, name in events)
    assert decode(body) == [SSE(name or "", data) for data, name in events]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [SSE("", b"a")]),
        (b"data:a\n\n", [SSE("", b"a")]),
        (b"data:  a\n\n", [SSE("", b" a")]),
        (b"data: a\r\n\r\n", [SSE("", b"a")]),
        (b"data: a\r\rdata: b\r\r", [SSE("", b"a"), SSE("", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SSE("", b"a")]),
        (b"data: \xef\xbb\xbfa\n\n", [SSE("", b"\xef\xbb\xbfa")]),
        (b": keep-alive\n\ndata: a\n\n", [SSE("", b"a")]),
        (b"event: ping\n\ndata: a\n\n", [SSE("", b"a")]),
        (b"event: e\ndata: a\ndata: b\n\n", [SSE("e", b"a\nb")]),
        (b"data\n\n", [SSE("", b"")]),
        (b"id: 7\nretry: 9\ndata: a\n\n", [SSE("", b"a")]),
        (b"data: a\n\n\n\ndata: b\n\n", [SSE("", b"a"), SSE("", b"b")]),
        (b"data: cut", []),
        (b"data: cut\n", []),
    ],
)
def test_the_standards_cases(body: bytes, events: list[SSE]) -> None:
    assert decode(body) == events
    for i in range(len(body) + 1):
        assert decode(body[:i], body[i:]) == events


def test_an_event_that_never_ends_is_refused_before_memory_is_spent() -> None:
    with pytest.raises(FrameTooLarge, match="100 bytes"):
        decode(*[b"data: xxxxxxxxxx"] * 1000, limit=100)
    with pytest.raises(FrameTooLarge):
        decode(b"data: " + b"x" * 200 + b"\n\n", limit=100)
    with pytest.raises(FrameTooLarge):
        decode(*[b"data: x\n"] * 200, limit=100)


def test_endless_comments_are_not_buffered() -> None:
    assert decode(*[b": still here\n"] * 1000, b"data: a\n\n", limit=100) == [SSE("", b"a")]


def test_a_huge_event_in_tiny_pieces_is_joined_once() -> None:
    # A buffer that is joined for every piece would copy some 50 GB here.
    decoder = SSEDecoder()
    decoder.feed(b"data: ")
    for _ in range(100_000):
        assert decoder.feed(b"0123456789") == []
    assert decoder.has_partial
    [event] = decoder.feed(b"\n\n")
    assert len(event.data) == 1_000_000


@given(st.integers(0, 40))
def test_frames_before_a_frame_that_is_too_large_are_returned(place: int) -> None:
    body = b"data: ok\n\n" + b"data: xxxxxxxxxxxxxxxxxxxx"
    decoder, whole = SSEDecoder(max_bytes=12), []
    with pytest.raises(FrameTooLarge):  # noqa: PT012 (whichever of the reads)
        for piece in (body[:place], body[place:], b"\n"):
            whole += decoder.feed(piece)
    assert len(whole) == 1
