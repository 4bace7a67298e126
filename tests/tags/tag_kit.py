"""Helpers of the tests of the splitters: they split divided text and compare spans."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Literal, TypedDict, Unpack

from hypothesis import strategies as st

from pellucid.tags import Family, Harmony, ImplicitStart, Position, Span, Splitter

Which = Family | str | tuple[str, str]
"""A family, its name, or a pair of markers."""

Merged = list[tuple[str, str]]
"""Spans, with neighbours of one kind joined: what two divisions of one input must agree on."""


class Options(TypedDict, total=False):
    """The options of a `Splitter`."""

    implicit_start: ImplicitStart | None
    position: Position | None
    thinking: bool
    prefill: str
    stray: Literal["drop", "keep"]
    max_undecided_chars: int


def merge(spans: Iterable[Span]) -> Merged:
    """Join neighbouring spans of one kind."""
    return [(kind, "".join(text for _, text in group)) for kind, group in groupby(spans, key=lambda span: span.kind)]


def run(pieces: Iterable[str], which: Which = "think", **options: Unpack[Options]) -> Merged:
    """Split these pieces and return the merged spans."""
    splitter = Splitter(which, **options)
    return merge([span for piece in pieces for span in splitter.feed(piece)] + splitter.end())


def split(text: str, which: Which = "think", **options: Unpack[Options]) -> Merged:
    """Return the merged spans of `text`; they must be equal for one piece, characters, and every two parts."""
    whole = run([text], which, **options)
    assert run(text, which, **options) == whole
    for at in range(1, len(text)):
        assert run([text[:at], text[at:]], which, **options) == whole
    assert "".join(part for _, part in whole) == text
    return whole


def run_harmony(pieces: Iterable[str], *, glued: bool = False) -> Merged:
    """Parse these pieces of Harmony and return the merged spans."""
    parser = Harmony(glued=glued)
    return merge([span for piece in pieces for span in parser.feed(piece)] + parser.end())


def parse_harmony(text: str, *, glued: bool = False) -> Merged:
    """Return the merged spans of a Harmony text; they must be equal for every two parts and for characters."""
    whole = run_harmony([text], glued=glued)
    assert run_harmony(text, glued=glued) == whole
    for at in range(1, len(text)):
        assert run_harmony([text[:at], text[at:]], glued=glued) == whole
    assert input_of(whole) == text
    return whole


def text_of(spans: Iterable[Span] | Merged, kind: str) -> str:
    """Return the text of all spans of a kind."""
    return "".join(text for span_kind, text in spans if span_kind == kind)


def input_of(spans: Iterable[Span] | Merged) -> str:
    """Return the input of the spans: the text of all except the names of tools, which come from headers."""
    return "".join(text for kind, text in spans if kind != "tool")


@st.composite
def divisions(draw: st.DrawFn, text: str) -> list[str]:
    """Draw a division of a text into up to nine pieces."""
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
