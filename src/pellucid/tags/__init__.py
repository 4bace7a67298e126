"""Reasoning in tags: split streamed text with reasoning markers into reasoning and answer.

`Splitter` reads the marker families (`<think>` and similar markers, which are rows of data in `FAMILIES`), `Harmony`
the message format of gpt-oss. Both take text piece by piece with `feed`, then `end` once, and return spans: pairs of a
kind and a text. They do no I/O and know no provider.
"""

from .families import FAMILIES, Family, ImplicitStart, family
from .harmony import Harmony
from .spans import CLOSE, DROP, OPEN, TEXT, THINKING, TOOL, TOOL_ARGS, TOOL_END, Span
from .splitter import Splitter

__all__ = [
    "CLOSE",
    "DROP",
    "FAMILIES",
    "OPEN",
    "TEXT",
    "THINKING",
    "TOOL",
    "TOOL_ARGS",
    "TOOL_END",
    "Family",
    "Harmony",
    "ImplicitStart",
    "Span",
    "Splitter",
    "family",
]
