"""What the tests of the splitters share: runs over divided text, and spans to compare."""

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
    """The merged spans of these pieces."""
    splitter = Splitter(which, **options)
    return merge([span for piece in pieces for span in splitter.feed(piece)] + splitter.end())


def split(text: str, which: Which = "think", **options: Unpack[Options]) -> Merged:
    """The merged spans of `text`, the same for one piece, for single characters and for every two parts."""
    whole = run([text], which, **options)
    assert run(text, which, **options) == whole
    for at in range(1, len(text)):
        assert run([text[:at], text[at:]], which, **options) == whole
    assert "".join(part for _, part in whole) == text
    return whole


def run_harmony(pieces: Iterable[str], *, glued: bool = False) -> Merged:
    """The merged spans of these pieces of Harmony."""
    parser = Harmony(glued=glued)
    return merge([span for piece in pieces for span in parser.feed(piece)] + parser.end())


def parse_harmony(text: str, *, glued: bool = False) -> Merged:
    """The merged spans of a text in Harmony, the same for every division into two parts and into characters."""
    whole = run_harmony([text], glued=glued)
    assert run_harmony(text, glued=glued) == whole
    for at in range(1, len(text)):
        assert run_harmony([text[:at], text[at:]], glued=glued) == whole
    assert input_of(whole) == text
    return whole


def text_of(spans: Iterable[Span] | Merged, kind: str) -> str:
    """The text of all spans of this kind."""
    return "".join(text for span_kind, text in spans if span_kind == kind)


def input_of(spans: Iterable[Span] | Merged) -> str:
    """What the spans were made of: the text of all but the names of tools, which are read out of headers."""
    return "".join(text for kind, text in spans if kind != "tool")


@st.composite
def divisions(draw: st.DrawFn, text: str) -> list[str]:
    """This text, in up to nine pieces."""
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
