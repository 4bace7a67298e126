"""The words of an envelope, for people and models to read: what its sender said, without the field names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...envelopes import Envelope, kinds, text_of

BRIEF = 200
"""Characters of what is said in one line."""

_BESIDE: Mapping[str, tuple[str, ...]] = {
    kinds.START: ("approach",),
    kinds.OBSERVATION: ("details",),
    kinds.HYPOTHESIS: ("evidence",),
    kinds.CONCLUSION: ("decision", "key_factors", "recommendation"),
}
"""What else a kind says in words."""


def words(envelope: Envelope) -> str:
    """All that it says; empty if it says nothing in words."""
    said = [text_of(envelope)]
    for name in _BESIDE.get(envelope.kind, ()):
        said += _lines(envelope.payload.get(name))
    return "\n".join(dict.fromkeys(line for line in said if line))


def brief(envelope: Envelope) -> str:
    """The beginning of it, on one line; an ellipsis where more was said."""
    text = " ".join(text_of(envelope).split())
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1]}…"


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [f"- {one if isinstance(one, str) else json_text(one)}" for one in value]
    return [] if value is None else [json_text(value)]
