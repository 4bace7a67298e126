"""Bytes of an answer to events: a stream message by message, or a whole body.

A stream's last word is `metadata`, which comes after `messageStop` and holds the usage. An answer is whole with
`messageStop`; one that ends before it broke off.

Token counts, and why a turn ended. Reasoning is counted with the output, and not apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ErrorInfo
from ...framing.eventstream import DEFAULT_LIMIT, EventStreamDecoder, EventStreamMessage, HeaderValue
from ...framing.sse import SSE
from ...parts import FinishReason, Origin, Usage
from ..answer import AnswerDecoder, Body, Frame, Reader
from ..fitting import dict_of, int_of, loose_json, loose_object
from ..profile import Profile
from .blocks import Blocks
from .chunk import dicts_of, index_of, read_delta, text_of
from .wrong import TRUNCATED, fault_of_body, fault_of_message, gave_up, not_this_wire

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}


def read_usage(raw: dict[str, Any]) -> Usage:
    """`inputTokens` leaves out what was read from a cache or written to one; the total of the input does not."""
    fresh, output = int_of(raw, "inputTokens"), int_of(raw, "outputTokens")
    read, written = int_of(raw, "cacheReadInputTokens"), int_of(raw, "cacheWriteInputTokens")
    details = {name: value for name in raw if name not in _STANDARD and (value := int_of(raw, name)) is not None}
    for entry in dicts_of(raw.get("cacheDetails")):
        count = int_of(entry, "inputTokens")
        if count is not None:
            details[f"cacheDetails.{entry.get('ttl')}"] = count
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        details=details,
    )


# Counts that have a field of their own, the total of them, and second names of the same.
_STANDARD = frozenset(
    {
        "inputTokens",
        "outputTokens",
        "totalTokens",
        "cacheReadInputTokens",
        "cacheWriteInputTokens",
        "cacheReadInputTokenCount",
        "cacheWriteInputTokenCount",
    }
)


BODY, FAULT, UNKNOWN = "", "fault", "unknown"
"""Frames that are no known event: a whole answer, what went wrong (`MessageFrames.fault`), another event."""

_EVENTS = frozenset(
    {"contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop", "metadata"}
)


def decoder(row: Profile, origin: Origin, content_type: str = "application/vnd.amazon.eventstream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte, whatever the header says."""
    frames = MessageFrames()
    return AnswerDecoder(_Reader(row, origin, frames), frames)


class MessageFrames:
    """Messages, or a whole body. No message is so long that its first byte could begin a text."""

    idle = False
    """Every message has a checksum of its own: none is the last one with another text."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._messages = EventStreamDecoder(limit)
        self._body = Body(limit)
        self._whole: bool | None = None
        self._any = False
        self.fault: ErrorInfo | None = None
        """What went wrong first."""
        self._headers: Mapping[str, HeaderValue] | None = None
        self._name = UNKNOWN
        """What the headers of the last event called it: thousands share them."""

    def cut(self, data: bytes) -> int:
        return -1

    def feed(self, data: bytes) -> list[Frame]:
        if self._whole is None and data:
            self._whole = data[0] >= 8
        if self._whole:
            self._body.add(data)
            return []
        frames = []
        for message in self._messages.feed(data):
            self._any = True
            fault = None if message.headers is self._headers else self._look(message)
            frames.append(_frame(SSE, (self._name, message.payload)) if fault is None else self._wrong(fault))
        if self._messages.error is not None and self.fault is None:
            frames.append(self._wrong(self._messages.error))
        return frames

    def end(self) -> list[Frame]:
        if self._whole:
            return self._body.end()
        # The beginning of a message is of this wire, too.
        return [self._wrong(TRUNCATED)] if self._messages.rest and not self._any else []

    def _look(self, message: EventStreamMessage) -> ErrorInfo | None:
        """What a message with other headers than the last says went wrong; if it is an event, its name is noted."""
        fault = fault_of_message(message)
        if fault is None:
            self._headers, name = message.headers, message.headers.get(":event-type")
            self._name = name if isinstance(name, str) and name in _EVENTS else UNKNOWN
        return fault

    def _wrong(self, fault: ErrorInfo) -> Frame:
        self.fault = self.fault or fault
        return SSE(FAULT, b"{}")


_frame = tuple.__new__
"""`SSE(…)` without the Python function that a named tuple has for its constructor."""


class _Reader(Reader):
    """The state of one answer, whichever way it is framed."""

    wire = "Converse"
    code = "not_converse"

    def __init__(self, row: Profile, origin: Origin, frames: MessageFrames) -> None:
        super().__init__(origin)
        self._frames = frames
        self._blocks = Blocks(self.emit, row)
        self._counted = False

    def frame(self, data: bytes, name: str) -> None:
        if name == BODY:
            self._body(data)
        elif name == FAULT and self._frames.fault is not None:
            self.fail(self._frames.fault)
        else:
            self._event(data, name)

    def refuse(self, data: bytes) -> None:
        self.fail(not_this_wire(data))

    # --- a stream ------------------------------------------------------------------------------------------------

    def _event(self, payload: bytes, name: str) -> None:
        if name == "contentBlockDelta":
            piece = read_delta(payload)
            if piece is not None:
                self.heard = True
                self._blocks.delta(piece.content_block_index, piece.delta)
                return
        value = loose_object(payload)
        if value is None:
            self.refuse(payload)
            return
        match name:
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

    def _body(self, data: bytes) -> None:
        value = loose_json(data)
        if not isinstance(value, dict) or not isinstance(value.get("output"), dict):
            self.fail(fault_of_body(value) or not_this_wire(data))
            return
        self.heard = True
        self.emit.start()
        for index, block in enumerate(dicts_of(dict_of(value["output"], "message").get("content"))):
            self._blocks.whole(index, block)
        self._stop(value)
        self._metadata(value)

    # --- both ----------------------------------------------------------------------------------------------------

    def _stop(self, value: dict[str, Any]) -> None:
        reason = text_of(value, "stopReason")
        self.finished = True
        self.done = self._counted
        self.emit.finish(FINISH_REASONS.get(reason or ""), reason)
        self._keep(value, "additionalModelResponseFields")

    def _metadata(self, value: dict[str, Any]) -> None:
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._counted = True
            self.done = self.finished
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

    # --- the end -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell what was kept quiet."""
        self._blocks.end()

    def settle(self) -> None:
        if self.emit.finish_reason == "error":
            # A model's own mistake comes without a word of explanation; with one, this is ignored.
            self.fail(gave_up(self.emit.native_finish_reason))
