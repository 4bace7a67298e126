"""Accumulated text: all of it, and its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pellucid.unicode import TextBuffer


@given(st.lists(st.text(max_size=3), max_size=60), st.integers(-1, 100))
def test_the_whole_text_and_its_end(tokens: list[str], start: int) -> None:
    text, whole = TextBuffer(), "".join(tokens)
    for token in tokens:
        text.add(token)
    assert (text.value(), text.length) == (whole, len(whole))
    start = max(0, start)
    assert text.text_from(start) == whole[start:]
