"""Bytes of an answer to events: a stream message by message, or a whole body.

A stream's last word is `metadata`, which comes after `messageStop` and holds the usage. An answer is whole with
`messageStop`; one that ends before it broke off.
"""

from __future__ import annotations

from typing import Any

from ...emit import Emitter
from ...errors import ErrorInfo, FrameTooLarge
from ...events import Cause, ModelEvent
from ...framing.eventstream import DEFAULT_LIMIT, EventStreamDecoder, EventStreamMessage
from ...parts import Origin
from ..loose import loose_json
from ..profiles import Profile
from .blocks import Blocks
from .chunk import dict_of, dicts_of, index_of, read_delta, read_object, text_of
from .usage import FINISH_REASONS, read_usage
from .wrong import EMPTY, TRUNCATED, fault_of_body, fault_of_message, gave_up, not_this_wire


def decoder(row: Profile, origin: Origin, content_type: str = "application/vnd.amazon.eventstream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte, whatever the header says."""
    return AnswerDecoder(row, origin)


class AnswerDecoder:
    """A stream or a body, as it turns out. No message is so long that its first byte could begin a text."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._how = (row, origin, limit)
        self._chosen: StreamDecoder | BodyDecoder | None = None

    @property
    def done(self) -> bool:
        return isinstance(self._chosen, StreamDecoder) and self._chosen.done

    def feed(self, data: bytes) -> list[ModelEvent]:
        if self._chosen is None:
            if not data:
                return []
            self._chosen = (StreamDecoder if data[0] < 8 else BodyDecoder)(*self._how)
        return self._chosen.feed(data)

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._chosen is None:
            self._chosen = StreamDecoder(*self._how)
        return self._chosen.end(cause, error)


class StreamDecoder:
    """An answer to ConverseStream. Any bytes, cut anywhere, give a legal turn."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._frames = EventStreamDecoder(limit)
        self._reader = _Reader(row, origin)

    @property
    def done(self) -> bool:
        """Whether the last word came."""
        return self._reader.finished and self._reader.counted

    def feed(self, data: bytes) -> list[ModelEvent]:
        reader = self._reader
        for message in self._frames.feed(data):
            reader.message(message)
        if self._frames.error is not None:
            reader.fail(self._frames.error)
        return reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if cause == "eof" and not reader.ended and not reader.finished:
            reader.fail(TRUNCATED if reader.heard or self._frames.rest else EMPTY)
        return reader.end(cause, error)


class BodyDecoder:
    """A whole JSON answer, to Converse."""

    done = False

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._reader = _Reader(row, origin)
        self._pieces: list[bytes] = []
        self._size = 0
        self._limit = limit

    def feed(self, data: bytes) -> list[ModelEvent]:
        self._size += len(data)
        if self._size <= self._limit:
            self._pieces.append(data)
        else:
            self._pieces = []
            self._reader.fail(FrameTooLarge("the response body", self._limit).info)
        return self._reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        body = b"".join(self._pieces)
        self._pieces = []
        if cause == "eof" and not reader.ended:
            if body.strip():
                reader.body(body)
            else:
                reader.fail(EMPTY)
        return reader.end(cause, error)


class _Reader:
    """The state of one answer, whichever way it is framed."""

    def __init__(self, row: Profile, origin: Origin) -> None:
        self.emit = Emitter(origin)
        self.heard = False
        """Whether anything came that is of this wire."""
        self.finished = False
        self.counted = False
        self.ended = False
        self._blocks = Blocks(self.emit, row)

    # --- a stream ------------------------------------------------------------------------------------------------

    def message(self, message: EventStreamMessage) -> None:
        headers, payload = message
        event = headers.get(":event-type")
        if event == "contentBlockDelta":
            self.heard = True
            piece = read_delta(payload)
            if piece is not None:
                self._blocks.delta(piece.content_block_index, piece.delta)
                return
        fault = fault_of_message(message)
        if fault is not None:
            self.fail(fault)
            return
        value = read_object(payload)
        if value is None:
            self.fail(not_this_wire(payload))
            return
        match event:
            case "contentBlockDelta":
                self._blocks.piece(index_of(value), dict_of(value, "delta"))
            case "contentBlockStart":
                self._blocks.start(index_of(value), dict_of(value, "start"))
            case "contentBlockStop":
                self._blocks.stop(index_of(value))
            case "messageStart":
                self.emit.start()
            case "messageStop":
                self._stop(value)
            case "metadata":
                self._metadata(value)
        self.heard = True

    # --- a body --------------------------------------------------------------------------------------------------

    def body(self, data: bytes) -> None:
        try:
            value = loose_json(data)
        except ValueError:
            self.fail(not_this_wire(data))
            return
        if not isinstance(value, dict) or not isinstance(value.get("output"), dict):
            self.fail(fault_of_body(value) or not_this_wire(data))
            return
        self.emit.start()
        for index, block in enumerate(dicts_of(dict_of(value["output"], "message").get("content"))):
            self._blocks.whole(index, block)
        self._stop(value)
        self._metadata(value)

    # --- both ----------------------------------------------------------------------------------------------------

    def _stop(self, value: dict[str, Any]) -> None:
        reason = text_of(value, "stopReason")
        self.finished = True
        self.emit.finish(FINISH_REASONS.get(reason or ""), reason)
        self._keep(value, "additionalModelResponseFields")

    def _metadata(self, value: dict[str, Any]) -> None:
        usage = value.get("usage")
        if isinstance(usage, dict):
            self.counted = True
            self.emit.usage = read_usage(usage)
        self._keep(value, "trace")
        # A prompt router says which model it chose.
        chosen = text_of(dict_of(dict_of(value, "trace"), "promptRouter"), "invokedModelId")
        if chosen is not None:
            self.emit.start(model_name=chosen)

    def _keep(self, value: dict[str, Any], name: str) -> None:
        """What was asked for beside the answer: a guardrail's trace, fields of the model's own."""
        if value.get(name):
            self.emit.provider_details[name] = value[name]

    def fail(self, error: ErrorInfo) -> None:
        """The answer broke: tell what was kept quiet, then say so."""
        self._blocks.end()
        self.emit.fail(error)

    def end(self, cause: Cause, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if not self.ended:
            self.ended = True
            self._blocks.end()
            if cause == "eof" and self.emit.finish_reason == "error":
                # A model's own mistake comes without a word of explanation; with one, this is ignored.
                self.emit.fail(gave_up(self.emit.native_finish_reason))
        return self.emit.end(cause, error)
