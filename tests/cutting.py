"""Splitting bytes anywhere, and the properties of events that must not depend on it: for tests of every wire."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pellucid.events import Event, ModelEvent, PartDeltaEvent
from pellucid.parts import PartDelta, RefusalPartDelta, TextPartDelta, ThinkingPartDelta
from tests.examples import by_circle


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Split these bytes at these positions; a position after the end is the end."""
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


class GrownPart(NamedTuple):
    """Consecutive deltas of one part, merged."""

    part: int
    kind: type[PartDelta]
    fields: dict[str, Any]


_APPENDED = frozenset({"content_delta", "args_delta", "logprobs", "annotations"})


_APART = 1024
"""The distance of positions that are tried together: several frames lie between two of them."""


def cuts_to_try(data: bytes, *frame_ends: bytes, seed: str) -> Iterator[list[int]]:
    """Yield positions at which to split a recorded body: those far from each other together, because each try decodes
    the whole body.

    The positions are all of a small body; of a large one, some around the ends of frames, and others: more in the long
    circle.

    Args:
        data: the body.
        frame_ends: the bytes at the end of a frame; without any, all positions are equivalent.
        seed: the recording's name; the same positions are chosen each time.
    """
    together: deque[list[int]] = deque()  # by their last position
    for place in sorted(set(_places_to_cut(data, frame_ends, seed))):
        places = together.popleft() if together and together[0][-1] + _APART <= place else []
        together.append([*places, place])
    yield from together


def _places_to_cut(data: bytes, frame_ends: tuple[bytes, ...], seed: str) -> Iterable[int]:
    examples = by_circle(25, 200)
    if len(data) <= 45 * examples:
        return range(len(data))
    count = 25_000 * examples // len(data) + 10
    dice = random.Random(seed)
    ends = [at for at in range(len(data)) if data.startswith(frame_ends, at)] or range(len(data))
    around = [max(at + dice.randrange(-2, 4), 0) for at in dice.choices(ends, k=count)]
    return [*around, *(dice.randrange(len(data)) for _ in range(count))]


def merged(events: Iterable[ModelEvent]) -> list[object]:
    """Merge consecutive deltas of one part: the result does not depend on how the bytes were split.

    Text and lists are appended, details merged, and other values replaced, as in a fold.
    """
    out: list[object] = []
    for event in events:
        if not isinstance(event, PartDeltaEvent):
            out.append(event)
            continue
        delta = event.delta
        last = out[-1] if out else None
        if not isinstance(last, GrownPart) or (last.part, last.kind) != (event.index, type(delta)):
            last = GrownPart(event.index, type(delta), {})
            out.append(last)
        fields = last.fields
        for name in delta.__struct_fields__:
            if value := getattr(delta, name):
                before = fields.get(name)
                if before is None:
                    fields[name] = value
                elif name in _APPENDED:
                    fields[name] = before + value
                else:
                    fields[name] = before | value if isinstance(value, dict) else value
    return out


def content_deltas(events: Sequence[Event] | Sequence[ModelEvent]) -> list[str]:
    """Return the text that each delta of thinking, text or refusal adds, in order."""
    return [
        event.delta.content_delta or ""
        for event in events
        if isinstance(event, PartDeltaEvent)
        and isinstance(event.delta, ThinkingPartDelta | TextPartDelta | RefusalPartDelta)
    ]
