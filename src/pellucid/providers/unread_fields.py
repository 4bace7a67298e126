"""Fields of responses that no reader reads: reasoning under a name that is not configured is one of them.

The structs of a wire have the fields that its reader uses; msgspec skips all others. Here their paths are found, never
their values, which may be reasoning.

This must cost nothing for each delta. A frame that a template skips has no field that an examined frame did not have.
Of the frames that are read in full, the first with each number of members is examined, and the first ones from which
nothing was emitted, as from a frame whose reasoning is unread. The paths of a shape are found once in a process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from .lenient_json import camel_case, decode_lenient_json, field_plan

MAX_FRAME_BYTES = 65_536
"""Larger frames are not examined."""

MAX_SILENT_FRAMES = 16
"""How many frames of a response from which nothing was emitted are examined for that reason alone."""

MAX_FIELDS = 16
"""How many different fields of a response are counted."""

MAX_SHAPES, MAX_MEMBERS = 1024, 64
"""How many shapes are remembered, of frames with at most so many members; and how many different numbers of members
are examined in one response."""

_members_of = re.compile(rb'"[^"\\]{1,64}"\s*+:\s*+(?:null|""|\[\]|\{\})?').findall
"""Find the members, in order: their names, and whether they are empty. It misses names that are long or have escapes,
which the number of members shows."""

_SAFE_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,39}").fullmatch
"""Matches a name that may be shown. Any other key may be text of the model."""

UNSAFE_NAME = "…"
"""Stands for a name that is not shown."""

_shapes: dict[tuple[type[msgspec.Struct], tuple[bytes, ...]], tuple[str, ...]] = {}


class UnreadFields:
    """Collects the unread fields of one response: `examine` each frame that is read in full.

    A frame need not be examined if something was emitted from it, and its number of members is in `member_counts`.

    Args:
        ignored: The paths that the wire knows and does not need. One that ends with a dot stands for all below it.
    """

    __slots__ = ("_ignored", "_silent_left", "_silent_member_counts", "counts", "has_limits", "member_counts")

    def __init__(self, ignored: tuple[str, ...]) -> None:
        self._ignored = ignored
        self._silent_left = MAX_SILENT_FRAMES
        self.member_counts: set[int] = set()
        """The numbers of members (`count_members`) of examined frames, if something was emitted from them."""
        self._silent_member_counts: set[int] = set()
        self.has_limits = True
        self.counts: Counter[str] = Counter()
        """The examined frames that had each field, by its path (`choices[].delta.thoughts`)."""

    def examine(self, frame: bytes, frame_type: type[msgspec.Struct], *, is_silent: bool) -> None:
        """Examine a frame.

        Args:
            frame: The frame's JSON.
            frame_type: The struct with the fields that were read.
            is_silent: Whether nothing was emitted from it.
        """
        if self.has_limits:
            count, known = count_members(frame), self._silent_member_counts if is_silent else self.member_counts
            is_new = count not in known and len(known) < MAX_MEMBERS
            if len(frame) > MAX_FRAME_BYTES or not (is_new or (is_silent and self._silent_left)):
                return
            known.add(count)
            if is_silent and self._silent_left:
                self._silent_left -= 1
        for path in _paths_of(frame, frame_type, self._ignored):
            if path in self.counts or len(self.counts) < MAX_FIELDS or not self.has_limits:
                self.counts[path] += 1


def count_members(frame: bytes) -> int:
    """Return about how many members the objects of a frame have, as fast as possible."""
    return frame.count(b'":')


def _paths_of(frame: bytes, frame_type: type[msgspec.Struct], ignored: tuple[str, ...]) -> tuple[str, ...]:
    """Return `unread_paths`, which depend on the shape of the frame alone."""
    members = tuple(_members_of(frame))
    if not len(members) == count_members(frame) <= MAX_MEMBERS:
        return unread_paths(frame, frame_type, ignored)
    shape = frame_type, members
    paths = _shapes.get(shape)
    if paths is None:
        if len(_shapes) >= MAX_SHAPES:
            _shapes.clear()
        paths = _shapes[shape] = unread_paths(frame, frame_type, ignored)
    return paths


def unread_paths(frame: bytes, frame_type: type[msgspec.Struct], ignored: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of the fields of a frame that its struct does not have; empty if it is not a JSON object.

    A field that is null or empty is not one.
    """
    try:
        value = decode_lenient_json(frame)
    except ValueError:
        return ()
    prefixes = tuple(path for path in ignored if path.endswith("."))
    paths = dict.fromkeys(_unread(value, frame_type, ""))
    return tuple(path for path in paths if path not in ignored and not path.startswith(prefixes))


def _unread(value: Any, struct_type: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    known = {field.wire_name: field for field in field_plan(struct_type)}
    for name, inner in value.items():
        field = known.get(name) or known.get(camel_case(name))  # gateways convert the names of Google's fields
        if field is None:
            if not _is_empty(inner):
                yield prefix + (name if _SAFE_NAME(name) else UNSAFE_NAME)
        elif field.struct is not None:
            yield from _unread(inner, field.struct, f"{prefix}{name}.")
        elif field.list_struct is not None and isinstance(inner, list):
            for entry in inner:
                yield from _unread(entry, field.list_struct, f"{prefix}{name}[].")


def _is_empty(value: Any) -> bool:
    """Whether a value is null or empty, or an object of such values. Not recursive, as providers choose the depth."""
    remaining = [value]
    while remaining:
        inner = remaining.pop()
        if isinstance(inner, dict):
            remaining += inner.values()
        elif inner not in (None, "", []):
            return False
    return True
