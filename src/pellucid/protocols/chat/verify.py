"""Verifies that a stream is a legal answer of the chat, and names the rule that its first illegal frame violates.

    verify(stream)                                   # the violation as `rule: message (frame N)`; empty if legal
    verifier = Verifier(); verifier.feed(frame)      # frame by frame: None, or the first violation
    verifier.end()

`RULES` lists every rule. A stream is read from its beginning. A schema defines the type of each field; these rules are
those that no schema can express. Messages never quote the content of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec import UNSET

from ..encoding import PARAGRAPH_BREAK
from . import frames as f
from . import types as t

RULES: dict[str, str] = {
    "frame": "a frame is `id: N`, `event: NAME` and one line of JSON, whose type is NAME; N counts from 0",
    "fields": "it has the fields that its event needs, of the right kind, and no others",
    "start": "message_started comes first, and once",
    "same": "every event is about the message that has started",
    "end": "message_final comes last, once; only it may follow message_error and message_cancelled, and only "
    "message_error can replace it",
    "order": "sequence numbers and output indices go up as things open",
    "segment": "reasoning is announced before its parts, with its number; later events of a segment need its "
    "announcement",
    "part": "parts count 0, 1, 2 … in their segment, one is open at a time, and only its deltas come until it is "
    "completed",
    "delta": "no delta is empty",
    "text": "text belongs to the segment that opened last",
    "call": "a call is started once, its events have one name, and it has one result, or none and is incomplete",
    "final": "the event has the streamed content: the same segments, in the same order, with the same ids, texts and "
    "numbers, and a status that fits the end",
}


class Violation(NamedTuple):
    """A violation of a rule. `frame` is the number of frames before it."""

    frame: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message} (frame {self.frame})"


class _FrameError(Exception):
    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        self.message = message


def verify(stream: bytes) -> list[str]:
    """Return the violation of the first illegal frame, or that the stream is not at its end; empty if it is legal."""
    verifier = Verifier()
    *frames, rest = stream.split(b"\n\n")
    violation = None
    for frame in frames:
        violation = violation or verifier.feed(frame)
    if violation is None and rest:
        violation = Violation(verifier.frames, "frame", "the stream ends within a frame")
    violation = violation or verifier.end()
    return [] if violation is None else [str(violation)]


class _Segment:
    """The content that was streamed of a segment."""

    __slots__ = ("id", "index", "parts", "sequence", "text", "tokens")

    def __init__(self, id: str | None, index: int, sequence: int | None) -> None:
        self.id = id
        self.index = index
        self.sequence = sequence
        self.text: list[str] = []
        self.parts: list[tuple[int, list[str]]] = []
        self.tokens: Any = UNSET


class _Call:
    __slots__ = ("kind", "result", "sequence", "status")

    def __init__(self, kind: str, sequence: int) -> None:
        self.kind = kind
        self.sequence = sequence
        self.status = ""
        self.result: f.CallResult | None = None


class Verifier:
    """Verifies one stream. After the first violation it reports nothing more."""

    def __init__(self) -> None:
        self.frames = 0
        self._has_violation = False
        self._is_final = False
        self._event_id: str | None = None
        self._ending: t.Status | None = None
        self._sequence = -1
        self._index = -1
        self._segments: list[_Segment] = []
        self._last_segment: _Segment | None = None
        """The segment that opened last; None if a call opened last."""
        self._open_segment_id: str | None = None
        """The id of the segment that has an open part."""
        self._calls: dict[str, _Call] = {}

    def feed(self, frame: bytes) -> Violation | None:
        """Check the next frame, without the blank line that ends it. Comments are ignored."""
        if self._has_violation or frame.startswith(b":"):
            return None
        try:
            self._check_frame(_parse_frame(frame, self.frames))
        except _FrameError as error:
            self._has_violation = True
            return Violation(self.frames, error.rule, error.message)
        self.frames += 1
        return None

    def end(self) -> Violation | None:
        """Check that the stream may end here."""
        if self._has_violation or self._is_final or self._ending == "failed":
            return None
        return Violation(self.frames, "end", "the stream ends without message_final")

    def _check_frame(self, frame: Any) -> None:
        if self._is_final:
            _reject("end", "something follows message_final")
        if isinstance(frame, f.MessageStarted):
            if self.frames:
                _reject("start", "message_started comes again")
            self._event_id = frame.event_id
            return
        if self._event_id is None:
            _reject("start", "the stream does not begin with message_started")
        event_id = frame.event.id if isinstance(frame, f.MessageFinal) else frame.event_id
        if event_id != self._event_id:
            _reject("same", "an event of another message")
        if self._ending is not None and not isinstance(frame, f.MessageFinal):
            _reject("end", "something other than message_final follows the end")
        if self._open_segment_id is not None and not isinstance(frame, f.ReasoningPartDelta | f.ReasoningPartCompleted):
            _reject("part", "something comes before the open part is completed")
        _STEPS[type(frame)](self, frame)

    def _check_order(self, sequence: int | None, index: int | None) -> None:
        if sequence is not None:
            if sequence <= self._sequence:
                _reject("order", f"sequence number {sequence} after {self._sequence}")
            self._sequence = sequence
        if index is not None:
            if index <= self._index:
                _reject("order", f"output index {index} after {self._index}")
            self._index = index

    # --- reasoning ---------------------------------------------------------------------------------------------

    def _segment_meta(self, frame: f.ReasoningSegmentMeta) -> None:
        segment = self._find_segment(frame.segment_id)
        if segment is None:
            if frame.sequence_number is UNSET or frame.output_index is UNSET or frame.created_at is UNSET:
                _reject("segment", "a segment is announced without its place, number and time")
            self._check_order(frame.sequence_number, frame.output_index)
            self._add(_Segment(frame.segment_id, frame.output_index, frame.sequence_number))
        elif frame.sequence_number is not UNSET or frame.output_index is not UNSET:
            _reject("segment", "a segment is announced again")
        else:
            segment.tokens = frame.reasoning_tokens

    def _add(self, segment: _Segment) -> _Segment:
        self._segments.append(segment)
        self._last_segment = segment
        return segment

    def _find_segment(self, id: str) -> _Segment | None:
        return next((segment for segment in self._segments if segment.id == id), None)

    def _announced_segment(self, id: str) -> _Segment:
        segment = self._find_segment(id)
        if segment is None:
            _reject("segment", "something of a segment that was not announced")
        return segment

    def _part_started(self, frame: f.ReasoningPartStarted) -> None:
        segment = self._announced_segment(frame.segment_id)
        if segment is not self._last_segment:
            _reject("segment", "a part of a segment that is over")
        if frame.summary_index != len(segment.parts):
            _reject("part", f"part {frame.summary_index} of a segment that has {len(segment.parts)}")
        self._check_order(frame.sequence_number, None)
        segment.parts.append((frame.sequence_number, []))
        self._open_segment_id = segment.id

    def _open_part_deltas(self, frame: f.ReasoningPartDelta | f.ReasoningPartCompleted) -> list[str]:
        segment = self._announced_segment(frame.segment_id)
        if self._open_segment_id != segment.id or frame.summary_index != len(segment.parts) - 1:
            _reject("part", "something of a part that is not open")
        return segment.parts[-1][1]

    def _part_delta(self, frame: f.ReasoningPartDelta) -> None:
        self._open_part_deltas(frame).append(_non_empty(frame.text_delta))

    def _part_completed(self, frame: f.ReasoningPartCompleted) -> None:
        self._open_part_deltas(frame)
        self._open_segment_id = None

    # --- the answer and tools ----------------------------------------------------------------------------------

    def _text(self, frame: f.TextDelta) -> None:
        last = self._last_segment
        if last is None or last.index != frame.output_index:
            if frame.output_index <= self._index:
                _reject("text", f"text of segment {frame.output_index}, and {self._index} has opened")
            self._check_order(None, frame.output_index)
            last = self._add(_Segment(None, frame.output_index, None))
        elif last.id is not None:
            _reject("text", "text of a segment of reasoning")
        last.text.append(_non_empty(frame.text_delta))

    def _call_started(self, frame: f.CallStarted) -> None:
        if frame.call_id in self._calls:
            _reject("call", "a call is started again")
        self._check_order(frame.sequence_number, None)
        self._last_segment = None
        self._calls[frame.call_id] = _Call(_call_kind(frame), frame.sequence_number)

    def _open_call(self, frame: f.CallUpdate | f.CallResult) -> _Call:
        call = self._calls.get(frame.call_id)
        if call is None:
            _reject("call", "something of a call that was not started")
        if call.kind != _call_kind(frame):
            _reject("call", f"{_call_kind(frame)} of a call that is a {call.kind}")
        if call.result is not None or call.status == "incomplete":
            _reject("call", "something of a call that is over")
        return call

    def _call_updated(self, frame: f.CallUpdate) -> None:
        self._open_call(frame).status = frame.status

    def _call_result(self, frame: f.CallResult) -> None:
        if frame.error is not UNSET and frame.result is not None:
            _reject("call", "a result together with an error")
        self._open_call(frame).result = frame

    # --- the end -----------------------------------------------------------------------------------------------

    def _failed(self, frame: f.MessageError) -> None:
        self._ending = "failed"

    def _cancelled(self, frame: f.MessageCancelled) -> None:
        self._ending = "cancelled"

    def _final(self, frame: f.MessageFinal) -> None:
        self._is_final = True
        event = frame.event
        if event.status not in ((self._ending,) if self._ending else ("completed", "incomplete")):
            _reject("final", f"the status is {event.status}")
        if len({segment.id for segment in event.segments}) != len(event.segments):
            _reject("final", "two segments have one id")
        streamed = {segment.index: segment for segment in self._segments}
        calls = dict(self._calls)
        for index, segment in enumerate(event.segments):
            if isinstance(segment, t.ReasoningSegment | t.TextSegment | t.RefusalSegment):
                if not _matches_stream(segment, index, streamed.pop(index, None)):
                    _reject("final", f"segment {index} is not what was streamed")
            elif not isinstance(segment, t.FileSegment) and not _matches_call(
                segment, index, calls.pop(segment.call_id, None)
            ):
                _reject("final", f"the call in segment {index} is not what was streamed")
        if streamed or calls:
            _reject("final", "something that was streamed is not in it")
        spans = event.timeline or []
        if [span.segment_id for span in spans] != [segment.id for segment in event.segments]:
            _reject("final", "the timeline is not that of the segments")


def _parse_frame(frame: bytes, number: int) -> Any:
    lines = frame.split(b"\n")
    if len(lines) != 3 or b"\r" in frame:
        _reject("frame", "it is not three lines")
    id, event, data = lines
    if id != b"id: %d" % number:
        _reject("frame", f"its number is not {number}")
    try:
        raw = msgspec.json.decode(data.removeprefix(b"data: "))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = None
    if not data.startswith(b"data: ") or not isinstance(raw, dict):
        _reject("frame", "its data is no JSON object")
    kind = raw.get("type")
    if not isinstance(kind, str) or event != b"event: " + kind.encode():
        _reject("frame", "its event is not its type")
    try:
        return msgspec.convert(raw, f.Frame)
    except msgspec.ValidationError as error:
        _reject("fields", str(error).partition(":")[0])


def _non_empty(text: str) -> str:
    if not text:
        _reject("delta", "an empty delta")
    return text


def _matches_stream(
    segment: t.ReasoningSegment | t.TextSegment | t.RefusalSegment, index: int, streamed: _Segment | None
) -> bool:
    if streamed is None:
        return False
    if not isinstance(segment, t.ReasoningSegment):
        return streamed.id is None and segment.text == "".join(streamed.text)
    parts = [(part.sequence_number, part.text) for part in segment.parts]
    return (
        (streamed.id, streamed.sequence) == (segment.id, segment.sequence_number)
        and streamed.tokens == segment.reasoning_tokens
        and segment.output_index == index
        and segment.combined_text == PARAGRAPH_BREAK.join(part.text for part in segment.parts)
        and parts == [(number, "".join(text)) for number, text in streamed.parts]
        and [part.summary_index for part in segment.parts] == list(range(len(segment.parts)))
    )


def _matches_call(segment: t.ToolSegment, index: int, call: _Call | None) -> bool:
    if call is None or (call.sequence, index) != (segment.sequence_number, segment.output_index):
        return False
    if call.result is None:
        return (call.status, segment.status, segment.result) == ("incomplete", "incomplete", UNSET)
    if call.result.error is not UNSET:
        return (segment.status, segment.result, segment.error) == ("failed", UNSET, call.result.error)
    return segment.status == "completed" and segment.result == call.result.result


def _call_kind(frame: Any) -> str:
    """Return the common prefix of the names of a call's events."""
    name = f.FRAME_NAMES[type(frame)]
    return "tool_call" if name == "tool_result" else name.rpartition("_")[0]


def _reject(rule: str, message: str) -> NoReturn:
    raise _FrameError(rule, message)


_STEPS: dict[type[Any], Callable[[Verifier, Any], None]] = {
    f.ReasoningSegmentMeta: Verifier._segment_meta,
    f.ReasoningPartStarted: Verifier._part_started,
    f.ReasoningPartDelta: Verifier._part_delta,
    f.ReasoningPartCompleted: Verifier._part_completed,
    f.TextDelta: Verifier._text,
    **{kind: Verifier._call_started for kind in f.FRAME_NAMES if issubclass(kind, f.CallStarted)},
    **{kind: Verifier._call_updated for kind in f.FRAME_NAMES if issubclass(kind, f.CallUpdate)},
    **{kind: Verifier._call_result for kind in f.FRAME_NAMES if issubclass(kind, f.CallResult)},
    f.MessageError: Verifier._failed,
    f.MessageCancelled: Verifier._cancelled,
    f.MessageFinal: Verifier._final,
}
