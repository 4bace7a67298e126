"""Templates of frames that differ in one text only: the fast path for streamed text.

While a model writes, each frame is like the one before it: the same JSON around another token. After a frame was read
and its only event was one more text delta, the next frame is compared, byte by byte, with the bytes around that text.
If only the text is new, the frame means the same, and is not parsed. Often a whole read of the socket is one such
frame. Any other frame is read in full, and the template is forgotten.

This is sound because the text is one JSON string between known bytes. Whatever a server puts there can only be a
string, and everything else is unchanged. Some servers also number, date, count or pad their frames. A wire names the
values that may differ because it does not read them (`VaryingValue`), each with a form so narrow that it can only be
one value. A value that a wire reads only at the end is taken from the last skipped frame (`WireReader.last_skipped`).
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
"""Matches text that has only one JSON encoding, because no encoder escapes it."""

_STRING = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', re.DOTALL).match

_BRACES = re.compile(rb"[{}]").search

_QUOTE = ord('"')

MAX_TRIES = 8
"""How often in a profile a template may be learned without being used: some servers number or date every frame."""

_Value: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]
_Step: TypeAlias = tuple[_Value, bytes, int]
Search: TypeAlias = Callable[[str], object]
"""A search in a text; None if it finds nothing."""

NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
DATE = rb'"[0-9][0-9T:.Z+-]{9,40}"'
WORD = rb'"[0-9A-Za-z]*"'


def never_matches(text: str) -> None:
    """A `Search` that finds nothing in any text."""


class SkipRule(NamedTuple):
    """How to skip frames that differ from a known one in their text only: the text is emitted, the rest is not read."""

    needs_reading: Search = never_matches
    """Finds anything in a text that requires the frame to be read in full."""
    on_skip: Callable[[str], object] | None = None
    """Called with each emitted text, for state outside the emitter."""


class VaryingValue(NamedTuple):
    """A value that may differ in every frame."""

    pattern: re.Pattern[bytes]
    """Finds the value as its first group."""
    match_form: _Value
    """Matches the value's form at a position."""


def varying_value(names: bytes, form: bytes) -> VaryingValue:
    """Return the varying value of members with these names, at any place.

    In JSON, a quoted name followed by a colon is a member's name and nothing else: inside a string, quotes are escaped.

    Args:
        names: The names, as a regular expression.
        form: The value's form, as a regular expression.
    """
    return VaryingValue(re.compile(rb'"(?:%b)"\s*:\s*(%b)' % (names, form)), re.compile(form).match)


class Template:
    """The bytes around a text: fixed bytes, and values that may vary."""

    __slots__ = ("_head", "_head_length", "_needs_reading", "_steps", "_tail", "_tail_length")

    def __init__(
        self, head: bytes, tail: bytes, steps: tuple[_Step, ...] = (), needs_reading: Search = never_matches
    ) -> None:
        """Create a template.

        Args:
            head: The fixed bytes before the first value.
            tail: The fixed bytes after the last value.
            steps: The values between them; empty if the text is the only value.
            needs_reading: See `SkipRule`.
        """
        self._head, self._head_length = head, len(head)
        self._tail, self._tail_length = tail, len(tail)
        self._steps = steps
        """Between head and tail: each value, the bytes after it and their number. The last value is followed by the
        tail. The text is a value too; if it is the only one, there are no steps."""
        self._needs_reading = None if needs_reading is never_matches else needs_reading

    def wrapped(self, before: bytes, after: bytes) -> Template:
        """Return the template extended by fixed bytes on both sides."""
        return Template(before + self._head, self._tail + after, self._steps, self._needs_reading or never_matches)

    def text_of(self, data: bytes) -> str | None:
        """Return the text of data that matches the template; None if it does not, or the text is empty or needs
        reading."""
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        start, end = self._head_length, len(data) - self._tail_length
        if self._steps:
            offset, tail = start, end
            for value, following, length in self._steps:
                value_match = value(data, offset)
                if value_match is None:
                    return None
                if value is _STRING:
                    start, end = value_match.span()
                offset = value_match.end()
                if length:
                    if not data.startswith(following, offset):
                        return None
                    offset += length
            if offset != tail:
                return None
        if end - start < 2 or data[start] != _QUOTE or data[end - 1] != _QUOTE:
            return None  # white space around the string would also be JSON, and could end a frame
        try:
            text = _decode(data[start:end])
        except DECODE_ERRORS:
            return None
        if self._needs_reading is not None and self._needs_reading(text):
            return None
        return text or None

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes] | None:
        """Read all matches at the beginning of `data` at once.

        Returns:
            The texts, the bytes of the last match, and the remaining bytes; None if the matches must be read one by
            one.
        """
        head, tail = self._head, self._tail
        if self._steps or not tail.endswith(b"\n") or not data.startswith(head):
            return None
        strings = data[self._head_length :].split(tail + head)
        last, tail_separator, rest = strings[-1].partition(tail)
        if tail_separator:
            strings[-1] = last
        else:
            rest = head + strings.pop()
        # A JSON string has no line breaks: each string that is complete in the list was complete in the data.
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
    """Make the template of a text between `head` and `tail`."""
    first, before = _split_at_values(head, values)
    after_text, after = _split_at_values(tail, values)
    if not before and not after:
        return Template(head, tail, needs_reading=needs_reading)
    steps: list[_Step] = [*before, (_STRING, after_text, len(after_text)), *after]
    value, last, _ = steps.pop()
    return Template(first, last, (*steps, (value, b"", 0)), needs_reading)


def _split_at_values(data: bytes, values: tuple[VaryingValue, ...]) -> tuple[bytes, list[_Step]]:
    """Split fixed bytes at varying values: the bytes before the first value, then each value and the bytes after it."""
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
    """The template of the last frame that was read in full, and of the read that consisted of it.

    Args:
        varying_values: The values that may differ in every frame.
    """

    __slots__ = ("_name", "_separator", "_trailer_length", "_varying_values", "frame", "read", "tries")

    def __init__(self, varying_values: tuple[VaryingValue, ...] = ()) -> None:
        self._varying_values = varying_values
        self._name = ""
        self.frame: Template | None = None
        self.read: Template | None = None
        """The template of a read that is one such frame and nothing else. Valid only while no frame is incomplete."""
        self._separator = b""
        """The bytes between two such frames; `_trailer_length` of them belong to the first frame."""
        self._trailer_length = 0
        self.tries = MAX_TRIES
        """How often a template may still be learned without being used. At 0, learning stops."""

    def learn(self, name: str, frame: bytes, text: str, needs_reading: Search = never_matches) -> None:
        """Learn the template of a frame whose only content is `text`, which is one of its strings."""
        if not _PLAIN(text) or b"\\u00" in frame:
            return  # it could be encoded in another way here, and occur unchanged elsewhere
        string = b'"%b"' % text.encode()
        head, matched, tail = frame.partition(string)
        if not matched or string in tail or not head.rstrip().endswith(b":"):
            return  # the string is ambiguous, or it is a member's name
        self.tries -= 1
        self._name, self.frame, self.read = (
            name,
            _template_around(head, tail, self._varying_values, needs_reading),
            None,
        )

    def learn_read(self, read: bytes, name: str, frame: bytes) -> None:
        """Learn the template of a read that consisted of one frame."""
        if self.frame is None or self._name != name:
            return
        before, matched, after = read.partition(frame)
        # The bytes around the frame must not look like JSON, as a comment may.
        if matched and frame not in after and not _BRACES(before + after):
            self.read = self.frame.wrapped(before, after)
            self._separator, self._trailer_length = after + before, len(after)

    def split(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """Read all frames at the beginning of `data` that match the template of a read.

        A read with many frames is treated as many reads with one frame each.

        Returns:
            The texts, the last matching read, and the remaining bytes.
        """
        texts, last, template, offset = list[str](), b"", self.read, 0
        if template is not None and (result := template.texts_of(data)) is not None:
            self.tries = MAX_TRIES
            return result
        while template is not None and offset < len(data):
            end = data.find(self._separator, offset + 1)  # not at its own beginning
            read = data[offset : end + self._trailer_length] if end >= 0 else data[offset:]
            text = template.text_of(read)
            if text is None:
                break
            self.tries = MAX_TRIES
            texts.append(text)
            last = read
            offset += len(read)
        return texts, last, data[offset:]

    def text_of(self, name: str, frame: bytes) -> str | None:
        """Return the text of a frame that matches the template; None if it does not."""
        text = self.frame.text_of(frame) if self.frame is not None and self._name == name else None
        if text is not None:
            self.tries = MAX_TRIES
        return text

    def forget(self) -> None:
        """Forget the templates, because another kind of frame came."""
        self.frame = self.read = None
