"""NDJSON framing: lines, independent of the cuts of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import FrameTooLarge
from pellucid.framing import NDJSONDecoder


@given(st.lists(st.sampled_from([b'{"a":1}', b"x", b"\n", b"\r\n", b" "]), max_size=30), st.data())
def test_any_cut_gives_the_same_lines(pieces: list[bytes], data: st.DataObject) -> None:
    body = b"".join(pieces)
    expected = [line.strip() for line in body.split(b"\n") if line.strip()]
    decoder, lines, rest = NDJSONDecoder(), [], body
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        lines += decoder.feed(rest[:n])
        rest = rest[n:]
    assert lines + decoder.end() == expected
    assert decoder.end() == []


def test_a_line_that_never_ends_is_refused() -> None:
    decoder = NDJSONDecoder(max_bytes=10)
    decoder.feed(b"xxxxxxxx")
    with pytest.raises(FrameTooLarge, match="10 bytes"):
        decoder.feed(b"xxxx")
    with pytest.raises(FrameTooLarge):
        NDJSONDecoder(max_bytes=10).feed(b"x" * 11 + b"\n")


@given(st.integers(0, 40))
def test_frames_before_a_frame_that_is_too_large_are_returned(place: int) -> None:
    body = b"{}\n" + b"xxxxxxxxxxxxxxxxxxxx"
    decoder, whole = NDJSONDecoder(max_bytes=12), []
    with pytest.raises(FrameTooLarge):  # noqa: PT012 (whichever of the reads)
        for piece in (body[:place], body[place:], b"\n"):
            whole += decoder.feed(piece)
    assert len(whole) == 1
