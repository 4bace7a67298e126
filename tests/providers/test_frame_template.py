"""Frame templates: a frame that matches the template gives the same events as if it were decoded in full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ModelEvent
from pellucid.providers.frame_template import FrameTemplate, never_matches
from pellucid.providers.wires import WIRES
from tests.cutting import content_deltas
from tests.providers.wire_kit import ROWS, chunk, origin, sse

TEXTS = st.text(alphabet='ab "\\,:{}\né😀<>/', max_size=4) | st.sampled_from(
    [" tok", "the", "<think>", "</think>", '","content":"x', 'x"}}]}', "m", "content", "reasoning", "stop"]
)
FRAMES = st.tuples(st.sampled_from(["content", "reasoning", "reasoning_content", "refusal"]), TEXTS)


def frame(field: str, text: str, ascii_only: bool) -> bytes:
    delta: dict[str, Any] = {field: text}
    return b"data: " + json.dumps(chunk(**delta), ensure_ascii=ascii_only).encode() + b"\n\n"


def decoded(row: str, reads: list[bytes], *, tries: int = 8) -> list[ModelEvent]:
    reader = WIRES["openai_chat"].decoder(ROWS[row], origin(row))
    reader._template.tries = tries
    events: list[ModelEvent] = []
    for read in reads:
        events += reader.feed(read)
    return events + reader.end()


@given(
    st.sampled_from(["vllm", "deepseek", "openai", "llama.cpp"]),
    st.lists(FRAMES, min_size=2, max_size=12),
    st.booleans(),
    st.integers(1, 4),
)
def test_events_are_the_same_with_and_without_the_template(
    row: str, frames: list[tuple[str, str]], ascii_only: bool, together: int
) -> None:
    written = [frame(field, text, ascii_only) for field, text in frames] + [sse(chunk("stop"))]
    reads = [b"".join(written[at : at + together]) for at in range(0, len(written), together)]
    assert decoded(row, reads) == decoded(row, reads, tries=0)


ODD_FRAMES = [
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a","content":"b"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a"}},{"index":1,"delta":{"reasoning":"b"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a\\ud83d"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a\xff"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":null}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a"}}],"usage":{"completion_tokens":3}}\n\n',
    b'event: error\ndata: {"choices":[{"index":0,"delta":{"reasoning":"a"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"a"}}]}\ndata:\n\n',
    b': {"choices":[{"index":0,"delta":{"reasoning":"a"}}]}\n\n',
]


@pytest.mark.parametrize("odd", ODD_FRAMES)
def test_a_frame_that_differs_elsewhere_is_decoded_in_full(odd: bytes) -> None:
    alike = [b'data: {"choices":[{"index":0,"delta":{"reasoning":" tok%d"}}]}\n\n' % n for n in range(4)]
    reads = [*alike, odd, *alike, b"data: [DONE]\n\n"]
    assert decoded("openai-compat", reads) == decoded("openai-compat", reads, tries=0)
    # The same if the frame is split, so that a read begins in the middle of it.
    pieces = [*alike, odd[:-3], odd[-3:] + alike[0], *alike, b"data: [DONE]\n\n"]
    assert decoded("openai-compat", pieces) == decoded("openai-compat", pieces, tries=0)


def test_a_frame_that_differs_only_in_its_text_is_not_decoded_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = WIRES["openai_chat"].decoder(ROWS["vllm"], origin("vllm"))
    for number in range(3):
        reader.feed(frame("reasoning", f" tok{number}", True))
    monkeypatch.setattr(reader._reader, "read_frame", None)
    assert content_deltas(reader.feed(frame("reasoning", ' "more"\n', True))) == [' "more"\n']


def test_a_text_that_occurs_twice_gives_no_template() -> None:
    like = FrameTemplate()
    like.learn("", b'{"model":"m","text":"m"}', "m", never_matches)
    assert like.frame is None


def test_learning_stops_if_every_frame_has_another_timestamp() -> None:
    reader = WIRES["openai_chat"].decoder(ROWS["vllm"], origin("vllm"))
    for number in range(20):
        reader.feed(sse(chunk(reasoning=" tok") | {"created": number}, done=False))
    assert reader._template.tries == 0


def test_a_text_that_is_also_a_key_gives_no_template() -> None:
    like = FrameTemplate()
    like.learn("", b'{"delta":{"content":"c\\u006fntent"}}', "content", never_matches)
    assert like.frame is None


def test_learning_continues_if_the_timestamp_changes_now_and_then() -> None:
    reader = WIRES["openai_chat"].decoder(ROWS["vllm"], origin("vllm"))
    for number in range(400):
        reader.feed(sse(chunk(reasoning=" tok") | {"created": number // 20}, done=False))
    assert reader._template.tries > 0


def test_a_frame_with_white_space_around_the_text_is_decoded_in_full() -> None:
    """JSON permits white space there, but a blank line ends a frame."""
    alike = [b'data: {"choices":[{"index":0,"delta":{"reasoning":" tok%d"}}]}\n\n' % n for n in range(4)]
    for odd in (b'\n\n"x"', b' "x"', b'"x"\n', b'"x"\r\n\r\n'):
        reads = [*alike, b'data: {"choices":[{"index":0,"delta":{"reasoning":%b}}]}\n\n' % odd, *alike]
        assert decoded("openai-compat", reads) == decoded("openai-compat", reads, tries=0)
