"""One answer, from bytes to a legal turn: what most decoders do alike.

A wire brings a `Reader`, which understands its frames, and names how frames are cut (`EventFrames`, `LineFrames`).
What it means that the bytes end is decided here:

* A request for a stream may be answered with a body, or with a page of HTML: the first bytes show it.
* A last event or line that lacks its end counts if it is whole JSON.
* An answer that never was one of this wire is `not_…`; one without a word is `empty_stream`; one that stopped before
  it said that it was over is `stream_truncated`. What came is kept.
* A finish reason that means failure is a failure, also without a word of explanation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Protocol, TypeAlias

from ..emit import Emitter
from ..errors import ErrorInfo, FrameTooLarge
from ..events import Cause, ModelEvent, PartDeltaEvent
from ..framing import NDJSONDecoder, SSEDecoder
from ..framing.sse import DEFAULT_LIMIT, SSE
from ..parts import Origin, TextPartDelta, ThinkingPartDelta
from .faults import beginning, turn_failed
from .fitting import loose_json
from .frame_template import TRIES, FrameTemplate, SkipRule, Template, Unread

Frame: TypeAlias = SSE
"""A frame has a name (mostly none) and its bytes, whatever the framing."""


class Reader:
    """The state of one answer: what a wire makes of its frames."""

    wire: ClassVar[str]
    """What people call it, for messages."""
    code: ClassVar[str]
    """The code of an answer that is not of this wire."""
    unread: ClassVar[tuple[Unread, ...]] = ()
    """What is not read of a frame that is one more piece of text, and may be something else in each."""

    def __init__(self, origin: Origin) -> None:
        self.emit = Emitter(origin)
        self.heard = False
        """Whether anything of this wire came."""
        self.finished = False
        """Whether the wire said why the model stopped."""
        self.done = False
        """Whether the wire said that nothing more will come."""
        self.skip_rule: SkipRule | None = None
        """How frames like this one may be skipped. None before each is read: `frame` sets it where all that it noted
        of the frame, but for one text, which it emitted as it came, is what such frames have in common."""
        self.last_skipped = b""
        """The last frame, or the read that it was, of which only the text was read."""

    def frame(self, data: bytes, name: str) -> None:
        """Read one frame. Never raises, whatever is in it."""
        raise NotImplementedError

    def flush(self) -> None:
        """Let go of what was held back, before an error or the end."""

    def settle(self) -> None:
        """The answer ended in good order: say what it left unsaid."""

    def fail(self, error: ErrorInfo) -> None:
        self.flush()
        self.emit.fail(error)

    def refuse(self, data: bytes) -> None:
        """What came is not of this wire."""
        message = f"the upstream did not answer in {self.wire} JSON"
        self.fail(ErrorInfo("model_error", message, code=self.code, said=beginning(data)))


MANY_BYTES = 16_384
"""A read of so many bytes may hold enough frames that it pays to learn from the first of them. A smaller one is
one batch of events, so that what comes last in it can be known at its beginning."""

MAX_CUTS = 8
"""So many frames of a read are read one by one, in the hope of text alone; then the rest of it is read at once."""

MAX_PARTIAL = 16_384
"""So many bytes of a frame are kept until it is whole, before its pieces are read as they come."""


class AnswerDecoder:
    """`feed(bytes)`, then `end(cause)`: any bytes, cut anywhere, give one legal, closed turn."""

    def __init__(self, reader: Reader, frames: Frames) -> None:
        self._reader = reader
        self._frames = frames
        self._template = FrameTemplate(reader.unread)
        self._on_skip: Callable[[str], object] | None = None
        """See `SkipRule`."""
        self._idle = False
        """Whether no frame is under way, so that the next read can be taken for itself."""
        self._is_lone = False
        """Whether the last frame that was read in full brought one event."""
        self._partial = b""
        """The beginning of a frame whose end has not come: it is looked at when it is whole."""
        self._ended = False
        self.done = False
        """Whether the wire said that nothing more will come."""
        self.text_template: Template | None = None
        """Of a read that is one more delta of the open part and nothing else; None if that is not known just now."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        reader, emit = self._reader, self._reader.emit
        template = self.text_template
        if self._partial:
            data, self._partial = self._partial + data, b""
        if template is not None and (text := template.text_of(data)) is not None:
            self._template.tries = TRIES
            reader.last_skipped = data
            emit.more(text)
            if self._on_skip is not None:
                self._on_skip(text)
            events = emit.events
            emit.events = []
            return events
        events = list[ModelEvent]()
        while data:
            if self.text_template is not None:
                texts, last, data = self._template.split(data)
                for text in texts:
                    emit.more(text)
                    self._skip(text, last)
            more, data = self.feed_until_text(data)
            events += more
        return events

    def feed_until_text(self, data: bytes) -> tuple[list[ModelEvent], bytes]:
        """Feed the first frame at least, and no more than it takes to know `text_template`: the events, and the bytes
        that were not taken, for `texts_of` or `feed`."""
        template, frames = self._template, self._frames
        if self._partial:
            data, self._partial = self._partial + data, b""
        least = 0 if template.frame is not None else MANY_BYTES
        cuts, end = MAX_CUTS if template.tries and len(data) >= least else 0, frames.cut(data)
        while cuts and 0 < end < len(data):
            self._read(data[:end])
            cuts, data = cuts - 1, data[end:]
            if self._idle and template.read is not None:
                if len(data) >= least:
                    break
                cuts = 0  # what is left is read at once
            end = frames.cut(data)
        else:
            if end == 0 and self._idle and template.frame is not None and len(data) <= MAX_PARTIAL:
                self._partial = data
            elif data:
                self._read(data)
            data = b""
        self.done = self._reader.done
        self.text_template = template.read if self._idle else None
        return self._reader.emit.take(), data

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """The texts of the deltas like `text_template` that a read begins with, the last such frame, and the bytes that
        were not taken: they bring something else. A frame that is not whole is kept until it is, if it is no larger
        than `MAX_PARTIAL`."""
        texts, last, rest = self._template.split(self._partial + data)
        self._partial = b""
        if 0 < len(rest) <= MAX_PARTIAL and self._frames.cut(rest) == 0:
            self._partial, rest = rest, b""
        return texts, last, rest

    @property
    def holds_partial(self) -> bool:
        """Whether the next read goes on with a frame that has begun."""
        return bool(self._partial)

    def add_text(self, text: str, last: bytes) -> None:
        """Take the text of reads like `text_template` that were not fed, and whose deltas are on their way already.
        `last` is the latest of them."""
        self._template.tries = TRIES
        self._reader.emit.add_text(text)
        self._skip(text, last)

    def _skip(self, text: str, last: bytes) -> None:
        self._reader.last_skipped = last
        if self._on_skip is not None:
            self._on_skip(text)

    def _read(self, data: bytes) -> None:
        reader, template = self._reader, self._template
        emit = reader.emit
        frames: list[Frame] = []
        try:
            frames = self._frames.feed(data)
            for name, frame in frames:
                text = template.text_of(name, frame)
                if text is not None:
                    emit.more(text)
                    self._skip(text, frame)
                    continue
                template.forget()
                if frame == b"[DONE]" or reader.done:
                    reader.done = True  # and nothing counts that follows it
                    continue
                before, holds = len(emit.events), emit.holds
                reader.skip_rule = None
                reader.frame(frame, name)
                # A second one in a row is likely to be followed by more; to learn takes longer than to read.
                was_lone, self._is_lone = self._is_lone, len(emit.events) == before + 1 and emit.holds == holds
                if was_lone and self._is_lone and template.tries and not reader.done:
                    self._learn(name, frame)
        except FrameTooLarge as error:
            reader.fail(error.info)
        was_idle, self._idle = self._idle, self._frames.idle
        if was_idle and self._idle and len(frames) == 1 and template.read is None:
            template.learn_read(data, *frames[0])

    def _learn(self, name: str, frame: bytes) -> None:
        """If all that the frame brought is more text, the next one may be like it."""
        text, rule = _text_of(self._reader.emit.events[-1]), self._reader.skip_rule
        if text and rule is not None:
            self._template.learn(name, frame, text, rule.needs_reading)
            self._on_skip = rule.on_skip

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if not self._ended:
            self._ended = True
            partial, self._partial = self._partial, b""
            if partial:
                self._read(partial)
            if cause == "eof" and not reader.emit.failed:
                self._last_words()
            reader.flush()
        return reader.emit.end(cause, error)

    def _last_words(self) -> None:
        reader, rest = self._reader, b""
        try:
            for name, frame in self._frames.end():
                if frame == b"[DONE]":
                    reader.done = True
                elif _is_json(frame):
                    reader.frame(frame, name)
                rest = frame
        except FrameTooLarge as error:
            reader.fail(error.info)
        if reader.emit.failed:
            return
        if not reader.heard and rest.strip():
            reader.refuse(rest)
        elif not (reader.finished or reader.done):
            reader.fail(_truncated(reader.wire) if reader.heard else _empty(reader.wire))
        else:
            reader.flush()
            reader.settle()
            if reader.emit.finish_reason == "error":
                reader.fail(turn_failed(reader.emit.native_finish_reason))


def _text_of(event: ModelEvent) -> str:
    """The text, if the event is a delta of thought or text with nothing beside it."""
    delta = event.delta if type(event) is PartDeltaEvent else None
    if type(delta) is ThinkingPartDelta:
        return delta.content_delta or "" if delta == ThinkingPartDelta(delta.content_delta) else ""
    if type(delta) is TextPartDelta:
        return delta.content_delta if delta == TextPartDelta(delta.content_delta) else ""
    return ""


def _is_json(data: bytes) -> bool:
    try:
        loose_json(data)
    except ValueError:
        return False
    return True


def _truncated(wire: str) -> ErrorInfo:
    message = f"the upstream's stream broke off: it did not say, as {wire} does, that it was over"
    return ErrorInfo("model_error", message, code="stream_truncated")


def _empty(wire: str) -> ErrorInfo:
    message = f"the upstream's answer ended without a single word of {wire}"
    return ErrorInfo("model_error", message, code="empty_stream")


# --- how frames are cut ------------------------------------------------------------------------------------------


_BOM = b"\xef\xbb\xbf"


class Frames(Protocol):
    """Bytes to frames; raises only `FrameTooLarge`."""

    @property
    def idle(self) -> bool:
        """Whether no frame is under way."""
        ...

    def cut(self, data: bytes) -> int:
        """Where the first frame of `data` ends, if `data` begins one; 0 if it does not end there, -1 if that cannot be
        seen. A frame whose end is not there is waited for."""
        ...

    def feed(self, data: bytes) -> list[Frame]: ...

    def end(self) -> list[Frame]:
        """The last frame, if its end did not come; it may be broken off."""
        ...


_BLANK_LINE = re.compile(rb"\n\r?\n|\r\r|\n\r\Z").search


class EventFrames:
    """Server-sent events; or all of it, if it begins as no such stream does."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._blank = b""
        self._events: SSEDecoder | None = None
        self._body: Body | None = None

    @property
    def idle(self) -> bool:
        return self._events is not None and self._events.idle

    def cut(self, data: bytes) -> int:
        found = _BLANK_LINE(data)
        return found.end() if found is not None else 0

    def feed(self, data: bytes) -> list[Frame]:
        if self._body is None:
            data = self._blank + data
            body = data.removeprefix(_BOM).lstrip()
            if (not body or _BOM.startswith(data)) and len(data) < 1024:
                self._blank = data
                return []
            if body[:1] not in (b"{", b"[", b"<"):
                self._events = SSEDecoder(self._limit)
                self.feed = self._events.feed  # type: ignore[method-assign]  # from now on without this detour
                return self._events.feed(data)
            self._body, data = Body(self._limit), body
        self._body.add(data)
        return []

    def end(self) -> list[Frame]:
        if self._body is not None:
            return self._body.end()
        return self._events.feed(b"\n\n") if self._events is not None and self._events.rest else []


class LineFrames:
    """Lines of JSON; or all of it, if its first line is no JSON: a body that somebody made readable, or a page."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._lines: NDJSONDecoder | None = None
        self._body = Body(limit)
        """Everything, until the first line is whole; and from then on, if that was no JSON."""
        self._no_lines = False

    @property
    def idle(self) -> bool:
        return self._lines is not None and self._lines.idle

    def cut(self, data: bytes) -> int:
        return data.find(b"\n") + 1

    def feed(self, data: bytes) -> list[Frame]:
        if self._lines is None:
            self._body.add(data)
            if self._no_lines or b"\n" not in data:
                return []
            data = self._body.take().lstrip()
            line, newline, _ = data.partition(b"\n")
            if not (newline and _is_json(line)):
                self._no_lines = bool(newline)
                self._body.add(data)
                return []
            self._lines = NDJSONDecoder(self._limit)
        return [SSE("", line) for line in self._lines.feed(data)]

    def end(self) -> list[Frame]:
        return self._body.end() if self._lines is None else [SSE("", line) for line in self._lines.end()]


class Body:
    """All of the bytes, as one frame."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            self._pieces = []
            raise FrameTooLarge("the response body", self._limit)
        self._pieces.append(data)

    def take(self) -> bytes:
        whole = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole

    def end(self) -> list[Frame]:
        body = self.take()
        return [SSE("", body)] if body.strip() else []
