"""Encodes events as the chat's stream.

Each frame is one event. Frames are numbered from 0 (`id: N`), so that a reader can resume after any of them.

* `message_started`: the message opens
* `reasoning_segment_meta`: a reasoning segment opens; again, when its tokens are known
* `reasoning_part_started`, `reasoning_part_delta` …, `reasoning_part_completed`: its parts, one after the other
* `text_delta` …: the text of the answer
* `tool_call_started`, `tool_call_update` …, `tool_result`: a call; the same for `web_search_call` and
  `code_interpreter_call`
* `message_error` or `message_cancelled`: if the run ended so
* `message_final`: the canonical event, once, last

The content is decided by `answer_builder`; this module writes it. Deltas of text are written from templates, all other
frames from the types. An encoder is pure, and the division of events into batches changes nothing except the times,
which are those of the batches. A stream that is encoded again is therefore the same, and `after` leaves out the frames
that its reader already has. Every text can be encoded: what UTF-8 cannot hold (half a surrogate pair, for example from
a Python program) is replaced by U+FFFD.

`build_answer` and `build_question` make canonical events without a stream, from a stored answer and a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from ...events import Event, PartDeltaEvent, SideEvent
from ...unicode import json_safe, replace_surrogates
from ..encoding import PING, QUEUED, to_json
from . import frames as f
from . import types as t
from .answer_builder import AnswerBuilder, OpenText
from .attachments import StoredAttachment, attachment_infos
from .types import question_id

_FRAME_END = b"}\n\n"


class Encoder:
    """Encodes one answer's stream.

    `start` and `feed` return bytes to send. `event` is the canonical event in its present state.

    Args:
        start_frame: The event that starts the answer.
        after: The number of the last frame that the reader has. Frames up to it are not sent again.
        live: Whether the run is going on. A wait for its model is then shown, in a comment, which has no number and no
            place in the message.
    """

    ping = PING

    def __init__(self, start_frame: f.MessageStarted, *, after: int = -1, live: bool = False) -> None:
        self._start_frame = start_frame
        self._builder = AnswerBuilder(start_frame, self._write)
        self._after = after
        self._live = live
        self._number = 0
        self._out: list[bytes] = []
        self._delta_prefix: bytes | None = None
        """The bytes in front of the text in a delta of the open text; None if no text is open."""
        self._delta_suffix = _FRAME_END

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream. A comment says if the request is `queued`."""
        self._write(self._start_frame)
        opening = self.feed([], 0)
        return QUEUED + opening if queued and opening else opening

    def feed(self, events: Sequence[Event], now: int) -> bytes:
        """Encode the events of one batch (see `protocols.Encoder`)."""
        builder, prefix = self._builder, self._delta_prefix
        for event in events:
            # Nearly all events are deltas.
            if type(event) is PartDeltaEvent:
                if prefix is None:
                    if not builder.wants_delta:
                        continue
                    builder.handle_delta(event.delta, now)
                    if builder.open_text is None:
                        continue
                    prefix = self._open_deltas(builder.open_text)
                text: str | None = event.delta.content_delta  # type: ignore[union-attr]  # calls write no text
                if text:
                    number = self._number
                    self._number = number + 1
                    if number > self._after:
                        try:
                            data = to_json(text)
                        except UnicodeEncodeError:
                            data = to_json(replace_surrogates(text))
                        self._out.append(b"id: %d%b%b%b" % (number, prefix, data, self._delta_suffix))
            else:
                builder.handle_event(event, now)
                if builder.open_text is None:
                    prefix = None
        self._delta_prefix = prefix
        output = b"".join(self._out)
        self._out.clear()
        return output or (QUEUED if self._live and _is_queue_wait(events) else b"")

    def text_encoder(self) -> None:
        """Return None: runs of the chat are read from a log, which has an event for each delta."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self._builder.ended

    @property
    def event(self) -> t.Answer:
        """The canonical event, which is complete once the run has ended."""
        return self._builder.answer

    def _open_deltas(self, open_text: OpenText) -> bytes:
        """Return the prefix of the deltas of this text, and set their suffix.

        The template is not a format string, because an id may contain a percent sign.
        """
        id, part = self._start_frame.event_id, open_text.part
        if part is None:
            self._delta_suffix = b',"output_index":%d}\n\n' % open_text.output_index
            return b'\nevent: text_delta\ndata: {"type":"text_delta","event_id":%b,"text_delta":' % to_json(id)
        self._delta_suffix = _FRAME_END
        return (
            b'\nevent: reasoning_part_delta\ndata: {"type":"reasoning_part_delta","event_id":%b,"segment_id":%b,'
            b'"summary_index":%d,"text_delta":' % (to_json(id), to_json(open_text.segment.id), part.summary_index)
        )

    def _write(self, frame: Any) -> None:
        number = self._number
        self._number = number + 1
        if number > self._after:
            name = f.FRAME_NAMES[type(frame)].encode()
            self._out.append(b"id: %d\nevent: %b\ndata: %b\n\n" % (number, name, _encode_frame(frame)))


def _is_queue_wait(events: Sequence[Event]) -> bool:
    """Check that these events say only that the request waits until the model is free."""
    return bool(events) and all(type(event) is SideEvent and event.namespace == "queue" for event in events)


def _encode_frame(frame: Any) -> bytes:
    try:
        return to_json(frame)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return to_json(json_safe(frame))


def build_answer(start_frame: f.MessageStarted, batches: Iterable[tuple[int, Sequence[Event]]] = ()) -> t.Answer:
    """Return the event with which a stream of these batches would end.

    Args:
        start_frame: The event that starts the answer.
        batches: Pairs of a batch's time, in milliseconds since 1970, and its redacted events.
    """
    builder = AnswerBuilder(start_frame)
    for now, events in batches:
        builder.feed(events, now)
    return builder.answer


def build_question(
    event_id: str,
    conversation_id: str,
    text: str,
    created_at: int,
    versions: Sequence[str] = (),
    attachments: Sequence[StoredAttachment] = (),
) -> t.Question:
    """Return the canonical event of the question whose answer is `event_id`.

    Args:
        event_id: The id of the answer's event.
        conversation_id: The id of the chat.
        text: The question.
        created_at: The time of the question, in milliseconds since 1970.
        versions: The ids of the answers to this question and to the questions that were asked in its place.
        attachments: What is stored of its attachments, but not their content.
    """
    id = question_id(event_id)
    return t.Question(
        id=id,
        conversation_id=conversation_id,
        created_at=created_at,
        segments=[t.TextSegment(id=f"{id}_text", text=replace_surrogates(text))],
        versions=list(versions) if len(versions) > 1 else UNSET,
        attachments=attachment_infos(event_id, attachments) or UNSET,
    )
