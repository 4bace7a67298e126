"""Text: that grows by a token at a time, that UTF-8 cannot hold, and that was nearly a name; JSON that is too deep.

A list of tokens keeps some fifty bytes of string object for every few characters, for as long as the answer lasts; one
string that is added to is copied each time. `TextBuffer` is a buffer.

Strings may hold half a surrogate pair (from somebody's Python, or JSON's escapes), and opaque values may hold what JSON
cannot; `writable` gives what can be written of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from io import StringIO
from typing import Any, TypeVar

import msgspec

MAX_QUOTED_CHARS = 80
"""Characters of what somebody sent, by which they know it again."""


def truncate(value: Any) -> Any:
    """What somebody sent, to be told that it is wrong: the beginning of it, if it is a long text."""
    return f"{value[:MAX_QUOTED_CHARS]}…" if isinstance(value, str) and len(value) > MAX_QUOTED_CHARS else value


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """What would have been right in place of a name that is none of `choices`: the nearest, or all there are."""
    known = sorted(choices)
    near = get_close_matches(str(name)[:MAX_QUOTED_CHARS], known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"


_LOCATION = re.compile(r" - at `(?:key` in `)?\$\.?(.*?)`$")


def describe_validation_error(message: str) -> tuple[str, str]:
    """What msgspec says of a value that does not fit its type: what is wrong, and where in it (nothing: all of it)."""
    match = _LOCATION.search(message)
    return (_LOCATION.sub("", message), match.group(1)) if match else (message, "")


class TextBuffer:
    """`add` as often as you like; `value()` is all of it."""

    __slots__ = ("_buffer", "add")

    add: Callable[[str], int]
    """Append a piece: the buffer's own `write`, because this is called for every token."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._buffer = StringIO()
        self.add = self._buffer.write

    @property
    def length(self) -> int:
        """Characters."""
        return self._buffer.tell()

    def value(self) -> str:
        return self._buffer.getvalue()

    def text_from(self, start: int) -> str:
        """The end of it, from character `start`; not all of it is put together for that."""
        if start >= self._buffer.tell():
            return ""
        self._buffer.seek(max(0, start))
        return self._buffer.read()  # and the position is the end again

    def take(self) -> str:
        """All of it, and begin again."""
        text = self.value()
        self._reset()
        return text


def is_nested_deeper(value: Any, max_levels: int) -> bool:
    """Whether objects and lists stand in each other on more than so many levels. Not by recursion: how deep it goes is
    its sender's choice."""
    level: list[Any] = [value]
    for _ in range(max_levels):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
        if not level:
            return False
    return True


# --- text that is no text --------------------------------------------------------------------------------------

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_JSON_DEPTH = 200
"""Deeper than anything that was meant, and not as deep as the stack."""

_encode = msgspec.json.Encoder().encode

S = TypeVar("S", bound=msgspec.Struct)


def replace_surrogates(text: str) -> str:
    """The text as UTF-8 can hold it: what it cannot hold is U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def json_safe(value: S) -> S:
    """The value itself; or, if it holds what JSON cannot, one in which that is replaced."""
    try:
        _encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        cleaned: S = _to_json_safe(value, 0)
        return cleaned
    return value


def _to_json_safe(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if value is None or value is msgspec.UNSET or isinstance(value, bool | int | float):
        return value
    if depth > _MAX_JSON_DEPTH:
        return None
    if isinstance(value, msgspec.Struct):
        fields = {name: _to_json_safe(getattr(value, name), depth + 1) for name in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, list | tuple):
        return [_to_json_safe(entry, depth + 1) for entry in value]
    if isinstance(value, dict):
        return {
            _to_json_safe(name, depth + 1) if isinstance(name, str) else str(name): _to_json_safe(entry, depth + 1)
            for name, entry in value.items()
        }
    try:
        return msgspec.to_builtins(value)
    except (TypeError, NotImplementedError, RecursionError):
        return replace_surrogates(repr(value))
