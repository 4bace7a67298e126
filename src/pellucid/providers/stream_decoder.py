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
from ..framing.sse import DEFAULT_MAX_BYTES, SSE
from ..parts import Origin, TextPartDelta, ThinkingPartDelta
from .errors import quote_start, turn_failed_error
from .frame_template import MAX_TRIES, FrameTemplate, SkipRule, Template, VaryingValue
from .lenient_json import decode_lenient_json

Frame: TypeAlias = SSE
"""A frame has a name (mostly none) and its bytes, whatever the framing."""


class WireReader:
    """The state of one answer: what a wire makes of its frames."""

    wire: ClassVar[str]
    """What people call it, for messages."""
    code: ClassVar[str]
    """The code of an answer that is not of this wire."""
    varying_values: ClassVar[tuple[VaryingValue, ...]] = ()
    """What is not read of a frame that is one more piece of text, and may be something else in each."""

    def __init__(self, origin: Origin) -> None:
        self.emit = Emitter(origin)
        self.is_recognized = False
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

    def read_frame(self, data: bytes, name: str) -> None:
        """Read one frame. Never raises, whatever is in it."""
        raise NotImplementedError

    def flush(self) -> None:
        """Let go of what was held back, before an error or the end."""

    def end_normally(self) -> None:
        """The answer ended in good order: say what it left unsaid."""

    def fail(self, error: ErrorInfo) -> None:
        self.flush()
        self.emit.fail(error)

    def reject(self, data: bytes) -> None:
        """What came is not of this wire."""
        message = f"the upstream did not answer in {self.wire} JSON"
        self.fail(ErrorInfo("model_error", message, code=self.code, upstream_message=quote_start(data)))


MIN_LEARNING_BYTES = 16_384
"""A read of so many bytes may hold enough frames that it pays to learn from the first of them. A smaller one is
one batch of events, so that what comes last in it can be known at its beginning."""

MAX_SINGLE_FRAMES = 8
"""So many frames of a read are read one by one, in the hope of text alone; then the rest of it is read at once."""

MAX_PARTIAL_BYTES = 16_384
"""So many bytes of a frame are kept until it is whole, before its pieces are read as they come."""


class StreamDecoder:
    """`feed(bytes)`, then `end(cause)`: any bytes, cut anywhere, give one legal, closed turn."""

    def __init__(self, reader: WireReader, frames: Frames) -> None:
        self._reader = reader
        self._frames = frames
        self._template = FrameTemplate(reader.varying_values)
        self._on_skip: Callable[[str], object] | None = None
        """See `SkipRule`."""
        self._is_idle = False
        """Whether no frame is under way, so that the next read can be taken for itself."""
        self._is_lone = False
        """Whether the last frame that was read in full brought one event."""
        self._partial = b""
        """The beginning of a frame whose end has not come: it is looked at when it is whole."""
        self._has_ended = False
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
            self._template.tries = MAX_TRIES
            reader.last_skipped = data
            emit.append_text_delta(text)
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
                    emit.append_text_delta(text)
                    self._record_skip(text, last)
            new_events, data = self.feed_until_text(data)
            events += new_events
        return events

    def feed_until_text(self, data: bytes) -> tuple[list[ModelEvent], bytes]:
        """Feed the first frame at least, and no more than it takes to know `text_template`: the events, and the bytes
        that were not taken, for `texts_of` or `feed`."""
        template, frames = self._template, self._frames
        if self._partial:
            data, self._partial = self._partial + data, b""
        min_bytes = 0 if template.frame is not None else MIN_LEARNING_BYTES
        frames_left, end = (
            MAX_SINGLE_FRAMES if template.tries and len(data) >= min_bytes else 0,
            frames.first_frame_end(data),
        )
        while frames_left and 0 < end < len(data):
            self._read(data[:end])
            frames_left, data = frames_left - 1, data[end:]
            if self._is_idle and template.read is not None:
                if len(data) >= min_bytes:
                    break
                frames_left = 0  # what is left is read at once
            end = frames.first_frame_end(data)
        else:
            if end == 0 and self._is_idle and template.frame is not None and len(data) <= MAX_PARTIAL_BYTES:
                self._partial = data
            elif data:
                self._read(data)
            data = b""
        self.done = self._reader.done
        self.text_template = template.read if self._is_idle else None
        return self._reader.emit.take(), data

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """The texts of the deltas like `text_template` that a read begins with, the last such frame, and the bytes that
        were not taken: they bring something else. A frame that is not whole is kept until it is, if it is no larger
        than `MAX_PARTIAL_BYTES`."""
        texts, last, rest = self._template.split(self._partial + data)
        self._partial = b""
        if 0 < len(rest) <= MAX_PARTIAL_BYTES and self._frames.first_frame_end(rest) == 0:
            self._partial, rest = rest, b""
        return texts, last, rest

    @property
    def holds_partial(self) -> bool:
        """Whether the next read goes on with a frame that has begun."""
        return bool(self._partial)

    def add_text(self, text: str, last: bytes) -> None:
        """Take the text of reads like `text_template` that were not fed, and whose deltas are on their way already.
        `last` is the latest of them."""
        self._template.tries = MAX_TRIES
        self._reader.emit.add_text(text)
        self._record_skip(text, last)

    def _record_skip(self, text: str, last: bytes) -> None:
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
                    emit.append_text_delta(text)
                    self._record_skip(text, frame)
                    continue
                template.forget()
                if frame == b"[DONE]" or reader.done:
                    reader.done = True  # and nothing counts that follows it
                    continue
                before, holds = len(emit.events), emit.hold_count
                reader.skip_rule = None
                reader.read_frame(frame, name)
                # A second one in a row is likely to be followed by more; to learn takes longer than to read.
                was_lone, self._is_lone = self._is_lone, len(emit.events) == before + 1 and emit.hold_count == holds
                if was_lone and self._is_lone and template.tries and not reader.done:
                    self._learn(name, frame)
        except FrameTooLarge as error:
            reader.fail(error.info)
        was_idle, self._is_idle = self._is_idle, self._frames.idle
        if was_idle and self._is_idle and len(frames) == 1 and template.read is None:
            template.learn_read(data, *frames[0])

    def _learn(self, name: str, frame: bytes) -> None:
        """If all that the frame brought is more text, the next one may be like it."""
        text, rule = _text_of(self._reader.emit.events[-1]), self._reader.skip_rule
        if text and rule is not None:
            self._template.learn(name, frame, text, rule.needs_reading)
            self._on_skip = rule.on_skip

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if not self._has_ended:
            self._has_ended = True
            partial, self._partial = self._partial, b""
            if partial:
                self._read(partial)
            if cause == "eof" and not reader.emit.failed:
                self._finish()
            reader.flush()
        return reader.emit.end(cause, error)

    def _finish(self) -> None:
        reader, rest = self._reader, b""
        try:
            for name, frame in self._frames.end():
                if frame == b"[DONE]":
                    reader.done = True
                elif _is_json(frame):
                    reader.read_frame(frame, name)
                rest = frame
        except FrameTooLarge as error:
            reader.fail(error.info)
        if reader.emit.failed:
            return
        if not reader.is_recognized and rest.strip():
            reader.reject(rest)
        elif not (reader.finished or reader.done):
            reader.fail(_truncated_error(reader.wire) if reader.is_recognized else _empty_error(reader.wire))
        else:
            reader.flush()
            reader.end_normally()
            if reader.emit.finish_reason == "error":
                reader.fail(turn_failed_error(reader.emit.native_finish_reason))


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
        decode_lenient_json(data)
    except ValueError:
        return False
    return True


def _truncated_error(wire: str) -> ErrorInfo:
    message = f"the upstream's stream broke off: it did not say, as {wire} does, that it was over"
    return ErrorInfo("model_error", message, code="stream_truncated")


def _empty_error(wire: str) -> ErrorInfo:
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

    def first_frame_end(self, data: bytes) -> int:
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

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blank = b""
        self._events: SSEDecoder | None = None
        self._body: Body | None = None

    @property
    def idle(self) -> bool:
        return self._events is not None and self._events.idle

    def first_frame_end(self, data: bytes) -> int:
        match = _BLANK_LINE(data)
        return match.end() if match is not None else 0

    def feed(self, data: bytes) -> list[Frame]:
        if self._body is None:
            data = self._blank + data
            body = data.removeprefix(_BOM).lstrip()
            if (not body or _BOM.startswith(data)) and len(data) < 1024:
                self._blank = data
                return []
            if body[:1] not in (b"{", b"[", b"<"):
                self._events = SSEDecoder(self._max_bytes)
                self.feed = self._events.feed  # type: ignore[method-assign]  # from now on without this detour
                return self._events.feed(data)
            self._body, data = Body(self._max_bytes), body
        self._body.add(data)
        return []

    def end(self) -> list[Frame]:
        if self._body is not None:
            return self._body.end()
        return self._events.feed(b"\n\n") if self._events is not None and self._events.has_partial else []


class LineFrames:
    """Lines of JSON; or all of it, if its first line is no JSON: a body that somebody made readable, or a page."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lines: NDJSONDecoder | None = None
        self._body = Body(max_bytes)
        """Everything, until the first line is whole; and from then on, if that was no JSON."""
        self._is_body = False

    @property
    def idle(self) -> bool:
        return self._lines is not None and self._lines.idle

    def first_frame_end(self, data: bytes) -> int:
        return data.find(b"\n") + 1

    def feed(self, data: bytes) -> list[Frame]:
        if self._lines is None:
            self._body.add(data)
            if self._is_body or b"\n" not in data:
                return []
            data = self._body.take().lstrip()
            line, newline, _ = data.partition(b"\n")
            if not (newline and _is_json(line)):
                self._is_body = bool(newline)
                self._body.add(data)
                return []
            self._lines = NDJSONDecoder(self._max_bytes)
        return [SSE("", line) for line in self._lines.feed(data)]

    def end(self) -> list[Frame]:
        return self._body.end() if self._lines is None else [SSE("", line) for line in self._lines.end()]


class Body:
    """All of the bytes, as one frame."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._max_bytes:
            self._pieces = []
            raise FrameTooLarge("the response body", self._max_bytes)
        self._pieces.append(data)

    def take(self) -> bytes:
        whole = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole

    def end(self) -> list[Frame]:
        body = self.take()
        return [SSE("", body)] if body.strip() else []
