"""Helpers for text: a buffer for streamed text, lone surrogates, truncation, names of files, hints for misspelled
names, JSON depth.

`TextBuffer` collects the text of an answer: a list of its tokens would cost about fifty bytes of memory for each token,
and adding to a string copies the string.

A string may hold half of a surrogate pair (from a Python program or from JSON escapes), and opaque values may hold what
JSON cannot represent. `json_safe` replaces both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from io import StringIO
from typing import Any, TypeVar
from unicodedata import category

import msgspec

MAX_QUOTED_CHARS = 80
"""Characters of a sent value that an error message quotes."""


def truncate(value: Any) -> Any:
    """Shorten a sent value for an error message. Long text is cut; other values stay as they are."""
    return f"{value[:MAX_QUOTED_CHARS]}…" if isinstance(value, str) and len(value) > MAX_QUOTED_CHARS else value


_NOT_IN_FILE_NAMES = re.compile(r'[\\/:*?"<>|\s]+')


def clean_file_name(name: str, fallback: str, max_chars: int) -> str:
    """Return a name of a file that is harmless where it is shown, sent and stored.

    It is one line, without characters that are not visible or reverse the direction of others, and without those that
    separate directories or have a meaning in a file system. It begins and ends with none of `.~-` and space.

    Args:
        name: The name, from any source.
        fallback: The result if nothing is left.
        max_chars: The maximum length. A longer name is cut in front of its extension.
    """
    visible = "".join(char for char in _NOT_IN_FILE_NAMES.sub(" ", name) if category(char)[0] != "C")
    name = " ".join(visible.split()).replace(" .", ".").strip(" .~-") or fallback
    if len(name) <= max_chars:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension) > 10:
        return name[: max_chars - 1] + "…"
    return f"{stem[: max_chars - len(extension) - 2]}…{dot}{extension}"


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """Suggest a correction for a name that is not one of `choices`: the nearest choice, or the list of all."""
    known = sorted(choices)
    near = get_close_matches(str(name)[:MAX_QUOTED_CHARS], known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"


_LOCATION = re.compile(r" - at `(?:key` in `)?\$\.?(.*?)`$")


def describe_validation_error(message: str) -> tuple[str, str]:
    """Split a msgspec validation message into what is wrong and the path of the value.

    Returns:
        The description and the path; the path is empty for the whole value.
    """
    match = _LOCATION.search(message)
    return (_LOCATION.sub("", message), match.group(1)) if match else (message, "")


class TextBuffer:
    """A buffer for text that arrives in pieces: `add` appends, `value()` returns all of it."""

    __slots__ = ("_buffer", "add")

    add: Callable[[str], int]
    """Append a piece. It is `StringIO.write` itself, without a method around it, because each token calls it."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Begin with an empty buffer, and let `add` write to it."""
        self._buffer = StringIO()
        self.add = self._buffer.write

    @property
    def length(self) -> int:
        """Number of characters."""
        return self._buffer.tell()

    def value(self) -> str:
        """Return all of the text."""
        return self._buffer.getvalue()

    def text_from(self, start: int) -> str:
        """Return the text from character `start` to the end, without building the whole text."""
        if start >= self._buffer.tell():
            return ""
        self._buffer.seek(max(0, start))
        return self._buffer.read()  # reading leaves the position at the end, where `add` writes

    def take(self) -> str:
        """Return all of the text and empty the buffer."""
        text = self.value()
        self._reset()
        return text


def is_nested_deeper(value: Any, max_levels: int) -> bool:
    """Whether objects and lists are nested deeper than a number of levels.

    It does not recurse, because the sender chooses the depth.
    """
    level: list[Any] = [value]
    for _ in range(max_levels):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
        if not level:
            return False
    return True


# --- text that UTF-8 cannot encode -----------------------------------------------------------------------------

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_JSON_DEPTH = 200
"""Levels of nesting. More than any real value has, and less than Python's stack allows."""

_encode = msgspec.json.Encoder().encode

S = TypeVar("S")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def json_safe(value: S) -> S:
    """Return the struct itself, or a copy in which values that JSON cannot represent are replaced."""
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
