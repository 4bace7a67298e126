"""Context paths: `msg-301/msg-302` is a reasoning inside a reasoning.

A path is a sequence of segments with `/` between them and none at its ends. It has at most five segments and 255
characters. A segment consists of the characters that MEW's p4m allows (letters, digits, `-` and `_`). After its first
character it may also have `. : @ + ~ =`, because names of participants become ids and ids become contexts. So no
segment is `.` or `..`.

Paths are strings. All functions but `parse` and `child` expect a parsed path.
"""

from __future__ import annotations

import re

from .envelope import field_error

MAX_DEPTH = 5
MAX_LENGTH = 255

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:@+~=-]*")
_ALLOWED = "letters, digits, '-' and '_', and after the first character also '.', ':', '@', '+', '~' and '='"


def parse(text: str, location: str = "context") -> str:
    """Check a path and return it.

    Args:
        text: The path.
        location: Where it stands, for the error.

    Raises:
        EnvelopeError: If it is too long, too deep, or has an invalid segment.
    """
    if len(text) > MAX_LENGTH:
        raise field_error(location, f"at most {MAX_LENGTH} characters, not {len(text)}", "too_long")
    parts = text.split("/")
    if len(parts) > MAX_DEPTH:
        raise field_error(location, f"at most {MAX_DEPTH} segments, not {len(parts)}", "too_deep")
    for number, part in enumerate(parts, 1):
        if not is_segment(part):
            reason = (
                f"{part!r} is not valid: it may have {_ALLOWED}"
                if part
                else "it is empty ('/' only separates segments)"
            )
            raise field_error(location, f"segment {number}: {reason}", "invalid_context")
    return text


def is_segment(text: str) -> bool:
    """Check that a text can be a segment. An id that cannot be one opens no context."""
    return _SEGMENT.fullmatch(text) is not None


def child(path: str | None, segment: str, location: str = "context") -> str:
    """Return the path of `segment` under `path`, or a root if `path` is None.

    Raises:
        EnvelopeError: If the segment is not valid or the path becomes too deep or too long.
    """
    if not is_segment(segment):
        raise field_error(
            location, f"{segment[:MAX_LENGTH]!r} cannot name a context: a name may have {_ALLOWED}", "invalid_context"
        )
    return parse(f"{path}/{segment}" if path else segment, location)


def segments(path: str) -> tuple[str, ...]:
    """Return the segments of a path."""
    return tuple(path.split("/"))


def depth(path: str | None) -> int:
    """Return the number of segments; 0 in the main conversation."""
    return path.count("/") + 1 if path else 0


def root(path: str) -> str:
    """Return the first segment: the outermost context."""
    return path.partition("/")[0]


def leaf(path: str) -> str:
    """Return the last segment. For a started context it is the id of its start."""
    return path.rpartition("/")[2]


def parent(path: str) -> str | None:
    """Return the path of the enclosing context; None for a root."""
    return path.rpartition("/")[0] or None


def ancestors(path: str) -> tuple[str, ...]:
    """Return the paths of the enclosing contexts, the nearest first."""
    paths: list[str] = []
    above = parent(path)
    while above is not None:
        paths.append(above)
        above = parent(above)
    return tuple(paths)


def is_within(path: str | None, of: str) -> bool:
    """Check that `path` is `of` or a path under it. The main conversation is within no context."""
    return path is not None and (path == of or path.startswith(of + "/"))
