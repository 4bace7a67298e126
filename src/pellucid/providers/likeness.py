"""Frames that differ in nothing but their text.

While a model writes, one frame is like the one before it: the same JSON around another token. Once a frame has been
understood as "one more piece of text, and nothing else", the next is compared with what stood around that text, byte
by byte; if only the text is new, it means the same, and need not be taken apart again. Mostly even a whole read of the
socket is one such frame. Anything else is read in full.

This is sound because the text is one JSON string between bytes that have been understood: whatever a server puts there,
it can be nothing but a string, and all else is what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from .loose import REFUSED

_decode = msgspec.json.Decoder(str).decode

_PLAIN = re.compile(r"[ !#-%(-.0-;=?-\[\]-~]+").fullmatch
"""Text that nobody escapes, and so is written in one way only."""

_TRIES = 8
"""How often in a row a frame may be learned in vain: some servers number or date every frame."""


class Around:
    """What stood around a text."""

    __slots__ = ("_head", "_head_length", "_tail", "_tail_length")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head, self._head_length = head, len(head)
        self._tail, self._tail_length = tail, len(tail)

    def within(self, before: bytes, after: bytes) -> Around:
        """The same in a larger piece of bytes."""
        return Around(before + self._head, self._tail + after)

    def text_of(self, data: bytes) -> str | None:
        """The text, if nothing else is new in `data`."""
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        try:
            return _decode(data[self._head_length : len(data) - self._tail_length])
        except REFUSED:
            return None


class Likeness:
    """`learn` from a frame that was understood; `frame` and `read` know what is like it."""

    __slots__ = ("frame", "name", "read", "say", "tries")

    def __init__(self) -> None:
        self.say: Callable[[str], None]
        """What takes the text of a frame that is like the last. There is none before something was learned."""
        self.frame: Around | None = None
        self.name = ""
        self.read: Around | None = None
        """The same for a read that is one such frame and nothing else; only while no frame is under way."""
        self.tries = _TRIES
        """How often it may still be learned in vain; with none left, it is not worth looking."""

    def learn(self, name: str, frame: bytes, text: str, say: Callable[[str], None]) -> None:
        """All that `frame` brought is `text`, which went to `say`."""
        if not _PLAIN(text):
            return
        string = b'"%b"' % text.encode()
        head, found, tail = frame.partition(string)
        if not found or string in tail:
            return  # which of them it was is not known
        self.tries -= 1
        self.say = say
        self.name, self.frame, self.read = name, Around(head, tail), None

    def learn_read(self, read: bytes, name: str, frame: bytes) -> None:
        """`read` was `frame` and nothing else, and so was what is like it."""
        before, found, after = read.partition(frame)
        if self.frame is not None and self.name == name and found:
            self.read = self.frame.within(before, after)

    def text_of(self, name: str, frame: bytes) -> str | None:
        """The text of a frame that is like the one learned from."""
        text = self.frame.text_of(frame) if self.frame is not None and self.name == name else None
        if text is not None:
            self.tries = _TRIES
        return text

    def forget(self) -> None:
        """From now on frames mean something else."""
        self.frame = self.read = None
