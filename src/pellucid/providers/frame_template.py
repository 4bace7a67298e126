"""Frames that differ in nothing but one text.

While a model writes, one frame is like the one before it: the same JSON around another token. Once a frame has been
read and its only event was one more delta of text, the next is compared with what stood around that text, byte by byte;
if only the text is new, it means the same, and is not parsed. Often a whole read of the socket is one such frame. Any
other frame is read in full, and what follows it is compared with nothing older.

This is sound because the text is one JSON string between bytes that have been understood: whatever a server puts there,
it can only be a string, and all else is what it was. Some servers also number, date, count or pad their frames: a wire
names the values that may differ because it does not read them (`Unread`), each of a form so narrow that it can only be
one value. What a wire reads late, at the end, it finds in the last frame that was skipped (`Reader.last_skipped`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from .lenient_json import DECODE_ERRORS

_decode = msgspec.json.Decoder(str).decode
_decode_all = msgspec.json.Decoder(list[str]).decode

_PLAIN = re.compile(r"[ !#-%(-.0-;=?-\[\]-~]+").fullmatch
"""Text that is written in one way only, because no writer escapes it."""

_STRING = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', re.DOTALL).match

_BRACES = re.compile(rb"[{}]").search

_QUOTE = ord('"')

MAX_TRIES = 8
"""How often in a row a template may be learned in vain: some servers number or date every frame."""

_Value: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]
_Step: TypeAlias = tuple[_Value, bytes, int]
Search: TypeAlias = Callable[[str], object]
"""Finds something in a text; None if it is not there."""

NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
DATE = rb'"[0-9][0-9T:.Z+-]{9,40}"'
WORD = rb'"[0-9A-Za-z]*"'


def never_matches(text: str) -> None:
    """The `Search` for what is in no text."""


class SkipRule(NamedTuple):
    """How frames are skipped that differ from one in its text alone: their texts are emitted, and nothing else of them
    is read."""

    needs_reading: Search = never_matches
    """Finds what makes a text more than text: then the frame is read in full."""
    on_skip: Callable[[str], object] | None = None
    """Takes the texts that were emitted, if an account is kept of them elsewhere, too."""


class VaryingValue(NamedTuple):
    """A value that may be another one in every frame."""

    pattern: re.Pattern[bytes]
    """Finds it: its first group."""
    match_form: _Value
    """The form that it has, each time."""


def varying_value(names: bytes, form: bytes) -> VaryingValue:
    """The value of members with these names (a regular expression), wherever they stand.

    In JSON, such bytes are a member's name and nothing else: within a string, quotes are escaped.
    """
    return VaryingValue(re.compile(rb'"(?:%b)"\s*:\s*(%b)' % (names, form)), re.compile(form).match)


class Template:
    """What stood around a text: bytes that are the same each time, and values that need not be."""

    __slots__ = ("_head", "_head_length", "_needs_reading", "_steps", "_tail", "_tail_length")

    def __init__(
        self, head: bytes, tail: bytes, steps: tuple[_Step, ...] = (), needs_reading: Search = never_matches
    ) -> None:
        """`needs_reading`: see `SkipRule`."""
        self._head, self._head_length = head, len(head)
        self._tail, self._tail_length = tail, len(tail)
        self._steps = steps
        """Between head and tail: each value, the bytes after it and how many they are, but for the last, which the
        tail follows. The text is a value too; if it is the only one, there are no steps."""
        self._needs_reading = None if needs_reading is never_matches else needs_reading

    def wrapped(self, before: bytes, after: bytes) -> Template:
        """The same in a larger piece of bytes."""
        return Template(before + self._head, self._tail + after, self._steps, self._needs_reading or never_matches)

    def text_of(self, data: bytes) -> str | None:
        """The text, if nothing else is new in `data`, it is not empty, and it needs no reading."""
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        start, end = self._head_length, len(data) - self._tail_length
        if self._steps:
            at, tail = start, end
            for value, following, length in self._steps:
                value_match = value(data, at)
                if value_match is None:
                    return None
                if value is _STRING:
                    start, end = value_match.span()
                at = value_match.end()
                if length:
                    if not data.startswith(following, at):
                        return None
                    at += length
            if at != tail:
                return None
        if end - start < 2 or data[start] != _QUOTE or data[end - 1] != _QUOTE:
            return None  # white space around it would be JSON too, and could end a frame
        try:
            text = _decode(data[start:end])
        except DECODE_ERRORS:
            return None
        if self._needs_reading is not None and self._needs_reading(text):
            return None
        return text or None

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes] | None:
        """The texts of all that is like it at the beginning of `data`; the last of these; what follows. None if it
        takes a look at each of them to say so."""
        head, tail = self._head, self._tail
        if self._steps or not tail.endswith(b"\n") or not data.startswith(head):
            return None
        strings = data[self._head_length :].split(tail + head)
        last, tail_separator, rest = strings[-1].partition(tail)
        if tail_separator:
            strings[-1] = last
        else:
            rest = head + strings.pop()
        # A line's end is in no string of JSON: what is whole in the list was whole before.
        array = b",\n".join(strings)
        if array.count(b"\n") >= len(strings) or b"\r" in array:
            return None
        try:
            texts = _decode_all(b"[%b]" % array)
        except DECODE_ERRORS:
            return None
        if not all(texts) or len(texts) != len(strings) or not texts:
            return None
        if self._needs_reading is not None and self._needs_reading("".join(texts)):
            return None
        return texts, head + strings[-1] + tail, rest


def _template_around(head: bytes, tail: bytes, values: tuple[VaryingValue, ...], needs_reading: Search) -> Template:
    """What stands around a text between `head` and `tail`."""
    first, before = _split_at_values(head, values)
    after_text, after = _split_at_values(tail, values)
    if not before and not after:
        return Template(head, tail, needs_reading=needs_reading)
    steps: list[_Step] = [*before, (_STRING, after_text, len(after_text)), *after]
    value, last, _ = steps.pop()
    return Template(first, last, (*steps, (value, b"", 0)), needs_reading)


def _split_at_values(data: bytes, values: tuple[VaryingValue, ...]) -> tuple[bytes, list[_Step]]:
    """`data` up to its first value; then each value, and what follows it up to the next."""
    spans = sorted(
        [(*match.span(1), match_form) for pattern, match_form in values for match in pattern.finditer(data)],
        key=_span_of,
    )
    ends = [start for start, _, _ in spans] + [len(data)]
    return data[: ends[0]], [
        (match_form, data[end:to], to - end) for (_, end, match_form), to in zip(spans, ends[1:], strict=True)
    ]


def _span_of(entry: tuple[int, int, _Value]) -> tuple[int, int]:
    return entry[:2]


class FrameTemplate:
    """The template of the last frame that was read in full, and of the read that it was."""

    __slots__ = ("_name", "_separator", "_trailer_length", "_varying_values", "frame", "read", "tries")

    def __init__(self, varying_values: tuple[VaryingValue, ...] = ()) -> None:
        self._varying_values = varying_values
        self._name = ""
        self.frame: Template | None = None
        self.read: Template | None = None
        """Of a read that is one such frame and nothing else; only while no frame is under way."""
        self._separator = b""
        """What stands between two such frames, and how much of it belongs to the first."""
        self._trailer_length = 0
        self.tries = MAX_TRIES
        """How often one may still be learned in vain; with none left, it is not worth looking."""

    def learn(self, name: str, frame: bytes, text: str, needs_reading: Search = never_matches) -> None:
        """All that `frame` brought is `text`, which is one of its strings."""
        if not _PLAIN(text) or b"\\u00" in frame:
            return  # it could be written in another way, and stand elsewhere as it is
        string = b'"%b"' % text.encode()
        head, matched, tail = frame.partition(string)
        if not matched or string in tail or not head.rstrip().endswith(b":"):
            return  # which of them it was is not known, or it is a member's name
        self.tries -= 1
        self._name, self.frame, self.read = (
            name,
            _template_around(head, tail, self._varying_values, needs_reading),
            None,
        )

    def learn_read(self, read: bytes, name: str, frame: bytes) -> None:
        """`read` was `frame` and nothing else, and so was what is like it."""
        if self.frame is None or self._name != name:
            return
        before, matched, after = read.partition(frame)
        # Nothing that could be taken for JSON stands beside it, such as a comment.
        if matched and frame not in after and not _BRACES(before + after):
            self.read = self.frame.wrapped(before, after)
            self._separator, self._trailer_length = after + before, len(after)

    def split(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """The texts of all reads at the beginning of `data` that are like the last; the last of them; what follows.

        A read may be cut anywhere: so one that holds many frames is cut between them, and is many reads.
        """
        texts, last, template, at = list[str](), b"", self.read, 0
        if template is not None and (result := template.texts_of(data)) is not None:
            self.tries = MAX_TRIES
            return result
        while template is not None and at < len(data):
            end = data.find(self._separator, at + 1)  # its own beginning is none
            read = data[at : end + self._trailer_length] if end >= 0 else data[at:]
            text = template.text_of(read)
            if text is None:
                break
            self.tries = MAX_TRIES
            texts.append(text)
            last = read
            at += len(read)
        return texts, last, data[at:]

    def text_of(self, name: str, frame: bytes) -> str | None:
        """The text of a frame that is like the one learned from."""
        text = self.frame.text_of(frame) if self.frame is not None and self._name == name else None
        if text is not None:
            self.tries = MAX_TRIES
        return text

    def forget(self) -> None:
        """From now on frames mean something else."""
        self.frame = self.read = None
