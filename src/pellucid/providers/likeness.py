"""Frames that differ in nothing but their text.

While a model writes, one frame is like the one before it: the same JSON around another token. Once a frame has been
understood as "one more piece of text, and nothing else", the next is compared with what stood around that text, byte
by byte; if only the text is new, it means the same, and need not be taken apart again. Mostly even a whole read of the
socket is one such frame. Anything else is read in full, and what comes after it is compared with nothing older.

This is sound because the text is one JSON string between bytes that have been understood: whatever a server puts there,
it can be nothing but a string, and all else is what it was. Some servers also number, date, count or pad their frames:
a wire names the values that may differ because it does not read them (`Unread`), each of a form so narrow that it can
be nothing but one value. What it reads late, at the end, it finds in the last frame that was passed over (`missed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from .loose import REFUSED

_decode = msgspec.json.Decoder(str).decode

_PLAIN = re.compile(r"[ !#-%(-.0-;=?-\[\]-~]+").fullmatch
"""Text that nobody escapes, and so is written in one way only."""

_STRING = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', re.DOTALL).match

_BRACES = re.compile(rb"[{}]").search

_QUOTE = ord('"')

TRIES = 8
"""How often in a row a frame may be learned in vain: some servers number or date every frame."""

_Value: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]
_Step: TypeAlias = tuple[_Value, bytes, int]

NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
DATE = rb'"[0-9][0-9T:.Z+-]{9,40}"'
WORD = rb'"[0-9A-Za-z]*"'


class Unread(NamedTuple):
    """A value that may be another one in every frame."""

    where: re.Pattern[bytes]
    """Finds it: its first group."""
    value: _Value
    """The form that it has, each time."""


def unread(names: bytes, form: bytes) -> Unread:
    """The value of members with these names (a regular expression), wherever they stand.

    In JSON, such bytes are a member's name and nothing else: within a string, quotes are escaped.
    """
    return Unread(re.compile(rb'"(?:%b)"\s*:\s*(%b)' % (names, form)), re.compile(form).match)


class Around:
    """What stood around a text: bytes that are the same each time, and values that need not be."""

    __slots__ = ("_head", "_head_length", "_steps", "_tail", "_tail_length")

    def __init__(self, head: bytes, tail: bytes, steps: tuple[_Step, ...] = ()) -> None:
        self._head, self._head_length = head, len(head)
        self._tail, self._tail_length = tail, len(tail)
        self._steps = steps
        """Between head and tail: each value, the bytes after it and how many they are, but for the last, which the
        tail follows. The text is a value too; if it is the only one, there are no steps."""

    def within(self, before: bytes, after: bytes) -> Around:
        """The same in a larger piece of bytes."""
        return Around(before + self._head, self._tail + after, self._steps)

    def text_of(self, data: bytes) -> str | None:
        """The text, if nothing else is new in `data` and it is not empty."""
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        start, end = self._head_length, len(data) - self._tail_length
        if self._steps:
            at, tail = start, end
            for value, following, length in self._steps:
                found = value(data, at)
                if found is None:
                    return None
                if value is _STRING:
                    start, end = found.span()
                at = found.end()
                if length:
                    if not data.startswith(following, at):
                        return None
                    at += length
            if at != tail:
                return None
        if end - start < 2 or data[start] != _QUOTE or data[end - 1] != _QUOTE:
            return None  # white space around it would be JSON too, and could end a frame
        try:
            return _decode(data[start:end]) or None
        except REFUSED:
            return None


def _around(head: bytes, tail: bytes, values: tuple[Unread, ...]) -> Around:
    """What stands around a text between `head` and `tail`."""
    first, before = _cut(head, values)
    after_text, after = _cut(tail, values)
    if not before and not after:
        return Around(head, tail)
    steps: list[_Step] = [*before, (_STRING, after_text, len(after_text)), *after]
    value, last, _ = steps.pop()
    return Around(first, last, (*steps, (value, b"", 0)))


def _cut(data: bytes, values: tuple[Unread, ...]) -> tuple[bytes, list[_Step]]:
    """`data` up to its first value; then each value, and what follows it up to the next."""
    found = sorted([(*match.span(1), value) for where, value in values for match in where.finditer(data)], key=_span)
    ends = [start for start, _, _ in found] + [len(data)]
    return data[: ends[0]], [
        (value, data[end:to], to - end) for (_, end, value), to in zip(found, ends[1:], strict=True)
    ]


def _span(found: tuple[int, int, _Value]) -> tuple[int, int]:
    return found[:2]


class Likeness:
    """`learn` from a frame that was understood; `frame` and `read` know what is like it."""

    __slots__ = ("_between", "_kept", "_unread", "frame", "missed", "name", "read", "say", "tries")

    def __init__(self, unread: tuple[Unread, ...] = ()) -> None:
        self._unread = unread
        self.say: Callable[[str], None]
        """What takes the text of a frame that is like the last. There is none before something was learned."""
        self.frame: Around | None = None
        self.name = ""
        self.read: Around | None = None
        """The same for a read that is one such frame and nothing else; only while no frame is under way."""
        self._between = b""
        """What stands between two such frames, and how much of it belongs to the first."""
        self._kept = 0
        self.tries = TRIES
        """How often it may still be learned in vain; with none left, it is not worth looking."""
        self.missed: bytes | None = None
        """The last frame, or the read that it was, of which only the text was looked at."""

    def learn(self, name: str, frame: bytes, text: str, say: Callable[[str], None]) -> None:
        """All that `frame` brought is `text`, which went to `say`."""
        if not _PLAIN(text):
            return
        string = b'"%b"' % text.encode()
        head, found, tail = frame.partition(string)
        if not found or string in tail or not head.rstrip().endswith(b":"):
            return  # which of them it was is not known, or it is a member's name
        self.tries -= 1
        self.say = say
        self.name, self.frame, self.read = name, _around(head, tail, self._unread), None

    def learn_read(self, read: bytes, name: str, frame: bytes) -> None:
        """`read` was `frame` and nothing else, and so was what is like it."""
        if self.frame is None or self.name != name:
            return
        before, found, after = read.partition(frame)
        # Nothing that could be taken for JSON stands beside it, such as a comment.
        if found and frame not in after and not _BRACES(before + after):
            self.read = self.frame.within(before, after)
            self._between, self._kept = after + before, len(after)

    def skip(self, data: bytes) -> bytes:
        """Takes the texts of all reads at the beginning of `data` that are like the last; gives what follows them.

        A read may be cut anywhere: so one that holds many frames is cut between them, and is many reads.
        """
        around, at = self.read, 0
        while around is not None and at < len(data):
            end = data.find(self._between, at + 1)  # its own beginning is none
            read = data[at : end + self._kept] if end >= 0 else data[at:]
            text = around.text_of(read)
            if text is None:
                return data[at:]
            self.missed, self.tries = read, TRIES
            self.say(text)
            at += len(read)
        return data[at:]

    def text_of(self, name: str, frame: bytes) -> str | None:
        """The text of a frame that is like the one learned from."""
        text = self.frame.text_of(frame) if self.frame is not None and self.name == name else None
        if text is not None:
            self.tries = TRIES
        return text

    def forget(self) -> None:
        """From now on frames mean something else."""
        self.frame = self.read = None
