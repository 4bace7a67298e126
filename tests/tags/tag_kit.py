"""Helpers of the tests of the splitters: they split divided text and compare spans."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TypedDict, Unpack

from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.tags import FAMILIES, Family, Harmony, ImplicitStart, Span, Splitter, family

Which = Family | str | tuple[str, str]
"""A family, its name, or a pair of markers."""

ANYWHERE = replace(FAMILIES["think"], position="anywhere")
"""The family `think`, whose markers open also inside the answer."""

Merged = list[tuple[str, str]]
"""Spans, with neighbours of one kind joined: what two divisions of one input must agree on."""


class Options(TypedDict, total=False):
    """The options of a `Splitter`."""

    implicit_start: ImplicitStart | None
    max_undecided_chars: int


def merge(spans: Iterable[Span]) -> Merged:
    """Join neighbouring spans of one kind."""
    return [(kind, "".join(text for _, text in group)) for kind, group in groupby(spans, key=lambda span: span.kind)]


def splitter_of(which: Which = "think", **options: Unpack[Options]) -> Splitter:
    """Return a splitter of a family."""
    return Splitter(which if isinstance(which, Family) else family(which), **options)


def run(pieces: Iterable[str], which: Which = "think", **options: Unpack[Options]) -> Merged:
    """Split these pieces and return the merged spans."""
    splitter = splitter_of(which, **options)
    return merge([span for piece in pieces for span in splitter.feed(piece)] + splitter.end())


def split(text: str, which: Which = "think", **options: Unpack[Options]) -> Merged:
    """Return the merged spans of `text`; they must be equal for one piece, characters, and every two parts."""
    whole = run([text], which, **options)
    assert run(text, which, **options) == whole
    for at in range(1, len(text)):
        assert run([text[:at], text[at:]], which, **options) == whole
    assert "".join(part for _, part in whole) == text
    return whole


def run_harmony(pieces: Iterable[str]) -> Merged:
    """Parse these pieces of Harmony and return the merged spans."""
    parser = Harmony()
    return merge([span for piece in pieces for span in parser.feed(piece)] + parser.end())


def parse_harmony(text: str) -> Merged:
    """Return the merged spans of a Harmony text; they must be equal for every two parts and for characters."""
    whole = run_harmony([text])
    assert run_harmony(text) == whole
    for at in range(1, len(text)):
        assert run_harmony([text[:at], text[at:]]) == whole
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
