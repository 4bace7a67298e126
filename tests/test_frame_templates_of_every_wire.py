"""Frame templates on every wire: a frame that matches gives the same events as if it were decoded in full."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ModelEvent, ResponseEndEvent
from pellucid.parts import Origin
from pellucid.providers.frame_template import DATE, NUMBER, WORD, FrameTemplate, never_matches, varying_value
from pellucid.providers.wires import WIRES
from tests.cases import Cases
from tests.cutting import content_deltas
from tests.wire_frames import EVERY, GOOGLE, GOOGLE_ARRAY, NEXT, ROWS, Wire, encoded_frames


def decoder(wire: Wire) -> Any:
    row = ROWS[wire.row]
    return WIRES[row.wire].decoder(row, Origin(row.name, row.wire, "m"))


def decoded(wire: Wire, reads: list[bytes], *, tries: int = 8) -> list[ModelEvent]:
    reader = decoder(wire)
    reader._template.tries = tries
    events: list[ModelEvent] = []
    for read in reads:
        events += reader.feed(read)
    return events + list(reader.end())


@pytest.mark.parametrize("name", EVERY)
@given(st.lists(NEXT, max_size=6), st.booleans(), st.integers(1, 4))
def test_events_are_the_same_with_and_without_the_template(
    name: str, script: list[list[tuple[bool, str]] | int], ends: bool, together: int
) -> None:
    wire = EVERY[name]
    frames = encoded_frames(wire, script, ends=ends)
    reads = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    assert decoded(wire, reads) == decoded(wire, reads, tries=0)


@pytest.mark.parametrize("name", EVERY)
def test_an_odd_frame_in_between_is_decoded_in_full(name: str) -> None:
    wire = EVERY[name]
    with Cases() as case:
        for odd, thought in product(wire.odd, (True, False)):
            alike = [wire.frame(thought, f" tok{number}", number) for number in range(4)]
            # The frame after the odd one differs from those before it only in its text; others are similar to the odd
            # one.
            odds = [odd.replace(b'"x"', b'"z%d"' % number) for number in range(3)]
            reads = [*wire.begin, *alike, odd, alike[3].replace(b"tok3", b"again"), *alike, *odds, *alike, *wire.end]
            with case(f"{'thought' if thought else 'text'}, then {odd!r}"):
                assert decoded(wire, reads) == decoded(wire, reads, tries=0)
                assert decoded(wire, [b"".join(reads)]) == decoded(wire, [b"".join(reads)], tries=0)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("thought", [True, False])
@pytest.mark.parametrize("together", [1, 2])
def test_a_frame_that_differs_only_in_its_text_is_not_decoded_in_full(
    name: str, thought: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = EVERY[name]
    reader = decoder(wire)
    begin = [*wire.begin, *(() if thought else wire.thought_over)]
    for read in [*begin, *(wire.frame(thought, f" tok{number}", number) for number in range(3))]:
        reader.feed(read)
    monkeypatch.setattr(reader._reader, "read_frame", None)
    events = reader.feed(b"".join(wire.frame(thought, ' "more"\n', number) for number in range(13, 13 + together)))
    assert content_deltas(events) == [' "more"\n'] * together


@pytest.mark.parametrize("wire", [GOOGLE, GOOGLE_ARRAY])
def test_counts_in_frames_that_match_the_template_are_read(wire: Wire) -> None:
    reads = [*wire.begin, *(wire.frame(False, f" tok{number}", number) for number in range(1, 30))]
    end = decoded(wire, reads)[-1]
    assert isinstance(end, ResponseEndEvent)
    assert end.usage.output_tokens == 29


VALUES = (varying_value(b"n", NUMBER), varying_value(b"d", DATE), varying_value(b"w", WORD))
LEARNED = b'{"n": 7, "w":"aB", "text":"learned", "d":"2026-11-21T09:00:00Z", "n":1}'


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b'{"n": 8, "w":"", "text":"x\\n", "d":"2027-01-01T00:00:00.123456789+01:00", "n":0}', "x\n"),
        (b'{"n": 10, "w":"9", "text":"}", "d":"2026-11-21T09:00:00Z", "n":999999999999999999}', "}"),
        (b'{"n": 08, "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8.5, "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": "8", "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"\\n", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "d":"yesterday, at nine", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "d":"2026-11-21T09:00:00Z", "n":}', None),
        (b'{"n": 8, "w":"a", "text":"", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":null, "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "more":1, "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x\xff", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x', None),
    ],
)
def test_a_value_that_the_decoder_ignores_may_vary(frame: bytes, text: str | None) -> None:
    like = FrameTemplate(VALUES)
    like.learn("", LEARNED, "learned", never_matches)
    assert like.text_of("", frame) == text


def test_a_read_with_the_same_frame_twice_gives_no_template() -> None:
    frame = b'{"text":"a"}'
    like = FrameTemplate()
    like.learn("", frame, "a", never_matches)
    like.learn_read(b": " + frame + b"\ndata: " + frame + b"\n\n", "", frame)
    assert like.read is None


@pytest.mark.parametrize("name", EVERY)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6))
def test_a_delta_is_emitted_when_its_frame_is_complete(name: str, sizes: list[int]) -> None:
    """However frames are split, a complete one is decoded at once, and the events are those without templates."""
    wire = EVERY[name]
    frames = [*wire.begin, *(wire.frame(True, f" tok{number}", number) for number in range(12)), *wire.end]
    with_templates, without = decoder(wire), decoder(wire)
    without._template.tries = 0
    short: list[ModelEvent] = []
    long: list[ModelEvent] = []
    data, at = b"".join(frames), 0
    for size in cycle(sizes):
        if at >= len(data):
            break
        read, at = data[at : at + size], at + size
        short += with_templates.feed(read)
        long += without.feed(read)
        assert short == long
