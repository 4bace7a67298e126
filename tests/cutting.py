"""Bytes cut anywhere, and what of the events must not depend on it: for the tests of every wire."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from pellucid.events import ModelEvent, PartDeltaEvent, ThinkingPartDelta


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


def merged(events: list[ModelEvent]) -> list[Any]:
    """The events, with neighbouring deltas of one part made one: what does not depend on how the bytes were cut."""
    out: list[Any] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, PartDeltaEvent) and isinstance(last, list) and last[0] == event.index:
            last.append(event.delta)
        else:
            out.append([event.index, event.delta] if isinstance(event, PartDeltaEvent) else event)
    return [_one(entry) if isinstance(entry, list) else entry for entry in out]


def _one(run: list[Any]) -> tuple[Any, ...]:
    index, *deltas = run
    texts = (getattr(delta, "args_delta", None) or getattr(delta, "content_delta", None) for delta in deltas)
    text = "".join(piece or "" for piece in texts)
    signature, details = None, {}
    for delta in deltas:
        if isinstance(delta, ThinkingPartDelta):
            signature = delta.signature_delta if delta.signature_delta is not None else signature
            details |= delta.provider_details or {}
    more = [entry for delta in deltas for entry in (getattr(delta, "annotations", None) or [])]
    return (index, type(deltas[0]), text, signature, details, more)
