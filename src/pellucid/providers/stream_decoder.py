"""Decoder of one response, from bytes to a legal turn, for the wires that share this structure.

A wire supplies a `WireReader`, which understands its frames, with a framing (`EventFrames`, `LineFrames`). This module
decides what the end of the bytes means:

* A request for a stream may be answered with a body, or with an HTML page: the first bytes show it.
* A last event or line without its end counts if it is complete JSON.
* The error of a response that is not of this wire is `not_…`; of an empty one, `empty_stream`; of one that stopped
  before its end, `stream_truncated`. Content that arrived before the error stays.
* A finish reason that means failure is a failure, also without an error object.
* A turn that reaches one of its limits ends there (`Emitter.cut`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from ..accumulator import is_text_only
from ..emit import CutReason, Emitter, TurnLimit, TurnLimits
from ..errors import ErrorInfo, FrameTooLarge
from ..events import Cause, ModelEvent, PartDeltaEvent
from ..framing import NDJSONDecoder, SSEDecoder
from ..framing.sse import DEFAULT_MAX_BYTES, SSE
from ..parts import Form, OpaquePart, Origin, TextPartDelta, ThinkingPartDelta
from .errors import error_from_value, quote_start, turn_failed_error
from .frame_template import MAX_TRIES, FrameTemplate, SkipRule, Template, VaryingValue
from .lenient_json import decode_lenient_json
from .unread_fields import UnreadFields, count_members

Frame: TypeAlias = SSE
"""A frame has a name (usually empty) and its bytes, whatever the framing."""

FrameType: TypeAlias = type[msgspec.Struct] | None


class WireReader:
    """Base class of the state of one response: reads a wire's frames and writes events.

    Args:
        origin: The origin of the turn.
        form: The form of reasoning whose form the wire does not report.
        frames: Cuts the bytes into frames; by default, into server-sent events.
    """

    wire: ClassVar[str]
    """The wire's name in messages."""
    code: ClassVar[str]
    """The error code of a response that is not of this wire."""
    varying_values: ClassVar[tuple[VaryingValue, ...]] = ()
    """Values that are not read in a frame with more text, and that may differ in each frame."""
    ignored_fields: ClassVar[tuple[str, ...]] = ()
    """Paths of fields that the wire knows and does not need (see `unread_fields`)."""
    frame_type: FrameType = None
    """The struct with the fields of a frame that are read; None if it is not read by one."""

    def __init__(self, origin: Origin, form: Form = "raw", frames: Frames | None = None) -> None:
        self.frames: Frames = frames or EventFrames()
        self.emit = Emitter(origin)
        self.emit.thinking_form = form
        self.offered_tools: frozenset[str] = frozenset()
        """The names of the functions that the request offered."""
        self.is_recognized = False
        """Whether any data of this wire was received."""
        self.finished = False
        """Whether the wire reported why the model stopped."""
        self.done = False
        """Whether the wire reported that no more data will follow."""
        self.skip_rule: SkipRule | None = None
        """How frames like the current one may be skipped. It is None before each frame is read. `read_frame` sets it if
        everything that it used of the frame is the same in all such frames, except one text, which it emitted
        unchanged."""
        self.last_skipped = b""
        """The last frame of which only the text was read, or the read that consisted of it."""

    def read_frame(self, data: bytes, name: str) -> None:
        """Read one frame. It never raises, whatever the frame holds.

        Args:
            data: The frame's bytes.
            name: The frame's name; usually empty.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Write what was held back, before an error or the end."""

    def end_normally(self) -> None:
        """Write what the response left out, after it ended without an error."""

    def fail(self, error: ErrorInfo) -> None:
        """Write what was held back, then the error."""
        self.flush()
        self.emit.fail(error)

    def emit_opaque(self, kind: str, native: Any, id: str | None = None) -> None:
        """Emit a block of an unknown type as it came."""
        self.emit.whole_part(OpaquePart(kind, native, id=id, provider_name=self.emit.origin.provider))

    def fail_unreadable(self, data: bytes, name: str) -> None:
        """Read a frame that is not a JSON object: an error as text, or data that is not of this wire."""
        if name == "error":
            self.fail(error_from_value(data.decode("utf-8", "replace")))
        elif data.strip():
            self.reject(data)

    def reject(self, data: bytes) -> None:
        """Fail because the data is not of this wire."""
        message = f"the provider did not answer in {self.wire} JSON"
        self.fail(ErrorInfo("model_error", message, code=self.code, upstream_message=quote_start(data)))


MIN_LEARNING_BYTES = 16_384
"""From this size on, a read may hold enough frames that learning a template from the first ones pays. A smaller read is
decoded as one batch of events, so that its last event is known at its beginning."""

MAX_SINGLE_FRAMES = 8
"""How many frames of a read are decoded one by one to learn a template, before the rest is decoded at once."""

MAX_FRAME_OBJECTS = 200_000
"""Objects and arrays in one frame, at most: decoding more would occupy the event loop for too long."""
_LARGE_FRAME_BYTES = 1 << 20
"""Frames of more bytes are checked for `MAX_FRAME_OBJECTS`."""

MAX_PARTIAL_BYTES = 16_384
"""How many bytes of an incomplete frame are kept until it is complete. A larger one is decoded in pieces."""


class StreamDecoder:
    """Decoder of one response: `feed(bytes)`, then `end(cause)`.

    Any bytes, cut anywhere, give one legal, closed turn. It never raises; a second `end` returns nothing.
    """

    def __init__(self, reader: WireReader) -> None:
        self._reader = reader
        self._frames = reader.frames
        self._template = FrameTemplate(reader.varying_values)
        self._on_skip: Callable[[str], object] | None = None
        """Called with each skipped text; see `SkipRule`."""
        self._is_idle = False
        """Whether no frame is incomplete, so that the next read can be decoded by itself."""
        self._is_lone = False
        """Whether the last frame that was read in full gave one event."""
        self._partial = b""
        """The beginning of an incomplete frame, which is read when it is complete."""
        self._has_ended = False
        self._unread = UnreadFields(reader.ignored_fields)
        self.done = False
        """Whether the wire reported that no more data will follow, so that the connection's end need not be awaited."""
        self.text_template: Template | None = None
        """The template of a read that is one more delta of the open part and nothing else; None if unknown."""

    @property
    def unread_fields(self) -> Counter[str]:
        """How many of the frames that were examined had each field that nothing reads, by its path."""
        return self._unread.counts

    def examine_all_frames(self) -> None:
        """Count unread fields in all frames, which takes more time. Call it before `feed`."""
        self._unread.has_limits = False
        self._template.tries = 0

    def set_limits(self, limits: TurnLimits) -> None:
        """Set the most that the turn may contain. Call it before `feed`."""
        self._reader.emit.limits = limits

    def set_offered_tools(self, names: Iterable[str]) -> None:
        """Set the functions that the request offered. Call it before `feed`."""
        self._reader.offered_tools = frozenset(names)

    @property
    def reached_limit(self) -> CutReason | None:
        """The limit at which the turn was cut."""
        return self._reader.emit.reached_limit

    def exceeded_limit(self) -> TurnLimit | None:
        """Return the limit that the content so far exceeds, if any."""
        return self._reader.emit.exceeded_limit()

    def cut(self, limit: CutReason) -> list[ModelEvent]:
        """End the turn because it has reached a limit, and return the remaining events."""
        self._reader.emit.cut(limit)
        return self.end("cancelled")

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode the bytes of one read."""
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
        """Decode at least the first frame, and no more than are needed to know `text_template`.

        Returns:
            The events, and the remaining bytes, for `texts_of` or `feed`.
        """
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
                frames_left = 0  # the rest is decoded at once
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
        """Read the deltas at the beginning of a read that match `text_template`.

        An incomplete frame at the end is kept, if it has at most `MAX_PARTIAL_BYTES`.

        Returns:
            The texts, the last such frame, and the remaining bytes, which have other content.
        """
        texts, last, rest = self._template.split(self._partial + data)
        self._partial = b""
        if 0 < len(rest) <= MAX_PARTIAL_BYTES and self._frames.first_frame_end(rest) == 0:
            self._partial, rest = rest, b""
        return texts, last, rest

    @property
    def holds_partial(self) -> bool:
        """Whether the next read continues an incomplete frame."""
        return bool(self._partial)

    def add_text(self, text: str, last: bytes) -> None:
        """Record the text of reads that matched `text_template` and whose deltas were delivered without `feed`.

        Args:
            text: The texts, joined.
            last: The last of these reads.
        """
        self._template.tries = MAX_TRIES
        self._reader.emit.add_text(text)
        self._record_skip(text, last)

    def _record_skip(self, text: str, last: bytes) -> None:
        self._reader.last_skipped = last
        if self._on_skip is not None:
            self._on_skip(text)

    def _read(self, data: bytes) -> None:
        reader, template, member_counts = self._reader, self._template, self._unread.member_counts
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
                if frame == b"[DONE]" or reader.done or emit.reached_limit is not None:
                    reader.done = True  # frames after it are ignored
                    continue
                if len(frame) > _LARGE_FRAME_BYTES:
                    _check_objects(frame)
                before, holds = len(emit.events), emit.hold_count
                reader.skip_rule = None
                reader.read_frame(frame, name)
                if reader.frame_type is not None:
                    is_silent = len(emit.events) == before
                    if is_silent or count_members(frame) not in member_counts:
                        self._unread.examine(frame, reader.frame_type, is_silent=is_silent)
                # The second such frame in a profile is likely to be followed by more. Learning costs more than reading.
                was_lone, self._is_lone = self._is_lone, len(emit.events) == before + 1 and emit.hold_count == holds
                if was_lone and self._is_lone and template.tries and not reader.done:
                    self._learn(name, frame)
        except FrameTooLarge as error:
            reader.fail(error.info)
        if emit.reached_limit is not None:
            reader.done = True
        was_idle, self._is_idle = self._is_idle, self._frames.idle
        if was_idle and self._is_idle and len(frames) == 1 and template.read is None:
            template.learn_read(data, *frames[0])

    def _learn(self, name: str, frame: bytes) -> None:
        """Learn a template from a frame whose only content is more text."""
        rule = self._reader.skip_rule
        if rule is not None and (text := _text_of(self._reader.emit.events[-1])):
            self._template.learn(name, frame, text, rule.needs_reading)
            self._on_skip = rule.on_skip

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        """End the turn and return the remaining events. Idempotent.

        Args:
            cause: Why the bytes end.
            error: The failure that ends them, if any.
        """
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
                    _check_objects(frame)
                    reader.read_frame(frame, name)
                    if reader.frame_type is not None:
                        self._unread.examine(frame, reader.frame_type, is_silent=False)
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
    """Return the text of an event that is a thinking or text delta with text only; otherwise empty."""
    delta = event.delta if type(event) is PartDeltaEvent else None
    if isinstance(delta, ThinkingPartDelta | TextPartDelta) and is_text_only(delta):
        return delta.content_delta or ""
    return ""


def _check_objects(frame: bytes) -> None:
    """Raise `FrameTooLarge` for a frame with too many objects and arrays."""
    if frame.count(b"{") + frame.count(b"[") > MAX_FRAME_OBJECTS:
        raise FrameTooLarge("a frame of the response", MAX_FRAME_OBJECTS, "objects")


def _is_json(data: bytes) -> bool:
    try:
        decode_lenient_json(data)
    except ValueError:
        return False
    return True


def _truncated_error(wire: str) -> ErrorInfo:
    message = f"the provider's stream broke off: it did not say, as {wire} does, that it was over"
    return ErrorInfo("model_error", message, code="stream_truncated")


def _empty_error(wire: str) -> ErrorInfo:
    message = f"the provider's answer ended without a single word of {wire}"
    return ErrorInfo("model_error", message, code="empty_stream")


# --- framing -----------------------------------------------------------------------------------------------------


_BOM = b"\xef\xbb\xbf"


class Frames(Protocol):
    """Cuts bytes into frames. The only exception that it raises is `FrameTooLarge`."""

    @property
    def idle(self) -> bool:
        """Whether no frame is incomplete."""
        ...

    def first_frame_end(self, data: bytes) -> int:
        """Return the end of the first frame in `data`, which must begin with a frame.

        Returns:
            The index of the end; 0 if the frame is incomplete, so that more data is awaited; -1 if the end cannot be
            found without decoding.
        """
        ...

    def feed(self, data: bytes) -> list[Frame]: ...

    def end(self) -> list[Frame]:
        """Return the last frame, if its end was not received. It may be incomplete."""
        ...


_BLANK_LINE = re.compile(rb"\n\r?\n|\r\r|\n\r\Z").search


class EventFrames:
    """Framing of server-sent events; or the whole body as one frame, if the data does not begin like a stream."""

    def __init__(self) -> None:
        self._blank = b""
        self._events: SSEDecoder | None = None
        self._body: BodyBuffer | None = None

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
                self._events = SSEDecoder(DEFAULT_MAX_BYTES)
                self.feed = self._events.feed  # type: ignore[method-assign]  # later calls skip this method
                return self._events.feed(data)
            self._body, data = BodyBuffer(DEFAULT_MAX_BYTES), body
        self._body.add(data)
        return []

    def end(self) -> list[Frame]:
        if self._body is not None:
            return self._body.end()
        return self._events.feed(b"\n\n") if self._events is not None and self._events.has_partial else []


class LineFrames:
    """Framing of lines of JSON; or the whole body as one frame, if its first line is not JSON (indented JSON, HTML)."""

    def __init__(self) -> None:
        self._lines: NDJSONDecoder | None = None
        self._body = BodyBuffer(DEFAULT_MAX_BYTES)
        """All data until the first line is complete; and all later data, if that line is not JSON."""
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
            self._lines = NDJSONDecoder()
        return [SSE("", line) for line in self._lines.feed(data)]

    def end(self) -> list[Frame]:
        return self._body.end() if self._lines is None else [SSE("", line) for line in self._lines.end()]


class BodyBuffer:
    """Collects all bytes as one frame."""

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
