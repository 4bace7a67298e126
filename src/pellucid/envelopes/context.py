"""Context paths: `msg-301/msg-302` is a reasoning inside a reasoning.

A path is segments with `/` between them, none at its ends: at most five segments and 255 characters. A segment is what
MEW's p4m says (letters, digits, `-` and `_`) and, because participants' names become ids and ids become contexts, the
marks `. : @ + ~ =` after its first character: so that no segment is `.` or `..`.

Paths are strings. Everything but `parse` and `child` expects one that was parsed.
"""

from __future__ import annotations

import re

from .envelope import EnvelopeError

MAX_DEPTH = 5
MAX_LENGTH = 255

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:@+~=-]*")
_ALLOWED = "letters, digits, '-' and '_', and after the first character also '.', ':', '@', '+', '~' and '='"


def parse(text: str, at: str = "context") -> str:
    """The path itself. Raises `EnvelopeError`, naming the place `at`."""
    if len(text) > MAX_LENGTH:
        raise EnvelopeError(f"{at}: at most {MAX_LENGTH} characters, not {len(text)}", code="too_long", param=at)
    parts = text.split("/")
    if len(parts) > MAX_DEPTH:
        raise EnvelopeError(f"{at}: at most {MAX_DEPTH} segments, not {len(parts)}", code="too_deep", param=at)
    for number, part in enumerate(parts, 1):
        if not is_segment(part):
            reason = (
                f"{part!r} is none: it is made of {_ALLOWED}" if part else "it is empty ('/' stands only between two)"
            )
            raise EnvelopeError(f"{at}: segment {number}: {reason}", code="invalid_context", param=at)
    return text


def is_segment(text: str) -> bool:
    """Whether it can stand between slashes. An id of which this is false opens no context."""
    return _SEGMENT.fullmatch(text) is not None


def child(path: str | None, segment: str, at: str = "context") -> str:
    """The path under `path`, or a root where that is None. Raises `EnvelopeError`."""
    if not is_segment(segment):
        raise EnvelopeError(
            f"{at}: {segment[:MAX_LENGTH]!r} cannot name a context: it is made of {_ALLOWED}",
            code="invalid_context",
            param=at,
        )
    return parse(f"{path}/{segment}" if path else segment, at)


def segments(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def depth(path: str | None) -> int:
    """How many segments; 0 in the main conversation."""
    return path.count("/") + 1 if path else 0


def root(path: str) -> str:
    return path.partition("/")[0]


def leaf(path: str) -> str:
    """The last segment: the id of the start that opened it, if one did."""
    return path.rpartition("/")[2]


def parent(path: str) -> str | None:
    """None: it is a root."""
    return path.rpartition("/")[0] or None


def ancestors(path: str) -> tuple[str, ...]:
    """Those above it, the nearest first."""
    paths: list[str] = []
    above = parent(path)
    while above is not None:
        paths.append(above)
        above = parent(above)
    return tuple(paths)


def is_within(path: str | None, of: str) -> bool:
    """Whether it is that one, or one under it. Nothing in the main conversation is within a context."""
    return path is not None and (path == of or path.startswith(of + "/"))
