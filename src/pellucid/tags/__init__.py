"""Reasoning in tags: split streamed text with reasoning markers into reasoning and answer.

`Splitter` reads the marker families (`<think>` and similar markers, which are rows of data in `FAMILIES`), `Harmony`
the message format of gpt-oss. Both take text piece by piece with `feed`, then `end` once, and return spans: pairs of a
kind and a text. They do no I/O and know no provider.
"""

from pellucid.tags.families import FAMILIES, Family, ImplicitStart, Pair, Position, custom, family, hy
from pellucid.tags.harmony import Harmony
from pellucid.tags.splitter import (
    CLOSE,
    DROP,
    OPEN,
    TEXT,
    THINKING,
    TOOL,
    TOOL_ARGS,
    TOOL_END,
    Span,
    Splitter,
)

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
    "Pair",
    "Position",
    "Span",
    "Splitter",
    "custom",
    "family",
    "hy",
]
