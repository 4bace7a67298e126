"""Decode a Converse answer, as an event stream or as a whole body, into model events.

The last message of a stream is `metadata`, which follows `messageStop` and holds the usage. An answer is complete with
`messageStop`; a stream that ends before it is truncated.

The wire counts reasoning tokens as output tokens, and does not report them separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ErrorInfo
from ...framing.eventstream import DEFAULT_MAX_PAYLOAD_BYTES, EventStreamDecoder, EventStreamMessage, HeaderValue
from ...framing.sse import SSE
from ...parts import FinishReason, Origin, Usage
from ..lenient_json import decode_lenient_json, decode_lenient_object, dict_of, int_of, objects_in, text_of
from ..profile import Profile
from ..stream_decoder import BodyBuffer, Frame, WireReader
from .blocks import Blocks
from .chunk import index_of, read_delta
from .errors import TRUNCATED, error_from_body, error_from_message, unreadable_output_error, wrong_format_error

END_TURN = "end_turn"
"""The reason of a turn that the model ended by itself."""

FINISH_REASONS: dict[str, FinishReason] = {
    END_TURN: "stop",
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
    """Read token counts. `inputTokens` does not include cache reads and writes; `Usage.input_tokens` does."""
    uncached, output = int_of(raw, "inputTokens"), int_of(raw, "outputTokens")
    cache_read, cache_written = int_of(raw, "cacheReadInputTokens"), int_of(raw, "cacheWriteInputTokens")
    details = {name: value for name in raw if name not in _STANDARD_COUNTS and (value := int_of(raw, name)) is not None}
    for entry in objects_in(raw.get("cacheDetails")):
        count = int_of(entry, "inputTokens")
        if count is not None:
            details[f"cacheDetails.{entry.get('ttl')}"] = count
    return Usage(
        input_tokens=None if uncached is None else uncached + (cache_read or 0) + (cache_written or 0),
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        details=details,
    )


# Counts that have a field of their own in `Usage`, their total, and aliases of them.
_STANDARD_COUNTS = frozenset(
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
"""Names of frames that are no known event: a whole answer, an error (`ConverseFrames.error`), an unknown event."""

_EVENT_NAMES = frozenset(
    {"contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop", "metadata"}
)


class ConverseFrames:
    """Framing of event stream messages, or of a whole body.

    A message begins with its length; no message is so long that its first byte could be the first byte of a text.
    """

    idle = False
    """Always false: each message has a checksum, so that no message differs from the last one in its text alone."""

    def __init__(self) -> None:
        self._messages = EventStreamDecoder()
        self._body = BodyBuffer(DEFAULT_MAX_PAYLOAD_BYTES)
        self._is_body: bool | None = None
        self._has_messages = False
        self.error: ErrorInfo | None = None
        """The first error."""
        self._headers: Mapping[str, HeaderValue] | None = None
        self._name = UNKNOWN
        """Name of the last event in its headers. Thousands of messages share one headers object."""

    def first_frame_end(self, data: bytes) -> int:
        return -1

    def feed(self, data: bytes) -> list[Frame]:
        if self._is_body is None and data:
            self._is_body = data[0] >= 8
        if self._is_body:
            self._body.add(data)
            return []
        frames = []
        for message in self._messages.feed(data):
            self._has_messages = True
            fault = None if message.headers is self._headers else self._read_headers(message)
            frames.append(_new_frame(SSE, (self._name, message.payload)) if fault is None else self._error_frame(fault))
        if self._messages.error is not None and self.error is None:
            frames.append(self._error_frame(self._messages.error))
        return frames

    def end(self) -> list[Frame]:
        if self._is_body:
            return self._body.end()
        # An incomplete first message shows that the answer is of this wire.
        return [self._error_frame(TRUNCATED)] if self._messages.has_partial and not self._has_messages else []

    def _read_headers(self, message: EventStreamMessage) -> ErrorInfo | None:
        """Return the error of a message whose headers differ from the last one's. Store the name of an event."""
        fault = error_from_message(message)
        if fault is None:
            self._headers, name = message.headers, message.headers.get(":event-type")
            self._name = name if isinstance(name, str) and name in _EVENT_NAMES else UNKNOWN
        return fault

    def _error_frame(self, fault: ErrorInfo) -> Frame:
        self.error = self.error or fault
        return SSE(FAULT, b"{}")


_new_frame = tuple.__new__
"""Construct an `SSE` without the Python-level constructor of a named tuple, for speed."""


class ConverseReader(WireReader):
    """Reader of one answer, streamed or whole."""

    wire = "Converse"
    code = "not_converse"

    def __init__(self, profile: Profile, origin: Origin) -> None:
        self._frames = ConverseFrames()
        super().__init__(origin, frames=self._frames)
        self._blocks = Blocks(self.emit, profile)
        self._has_usage = False

    def read_frame(self, data: bytes, name: str) -> None:
        if name == BODY:
            self._read_body(data)
        elif name == FAULT and self._frames.error is not None:
            self.fail(self._frames.error)
        else:
            self._read_event(data, name)

    def reject(self, data: bytes) -> None:
        self.fail(wrong_format_error(data))

    # --- a stream ------------------------------------------------------------------------------------------------

    def _read_event(self, payload: bytes, name: str) -> None:
        if name == "contentBlockDelta":
            piece = read_delta(payload)
            if piece is not None:
                self.is_recognized = True
                self._blocks.add_delta(piece.content_block_index, piece.delta)
                return
        value = decode_lenient_object(payload)
        if value is None:
            self.reject(payload)
            return
        match name:
            case "contentBlockDelta":
                self._blocks.add_piece(index_of(value), dict_of(value, "delta"))
            case "contentBlockStart":
                self._blocks.start(index_of(value), dict_of(value, "start"))
            case "contentBlockStop":
                self._blocks.stop(index_of(value))
            case "messageStart":
                self.emit.start()
            case "messageStop":
                self._read_stop(value)
            case "metadata":
                self._read_metadata(value)
        self.is_recognized = True

    # --- a body --------------------------------------------------------------------------------------------------

    def _read_body(self, data: bytes) -> None:
        value = decode_lenient_json(data)
        if not isinstance(value, dict) or not isinstance(value.get("output"), dict):
            self.fail(error_from_body(value) or wrong_format_error(data))
            return
        self.is_recognized = True
        self.emit.start()
        blocks = objects_in(dict_of(value["output"], "message").get("content"))
        last_index = len(blocks) - 1 if value.get("stopReason") == END_TURN else -1
        for index, block in enumerate(blocks):
            self._blocks.add_whole_block(index, block, ends_turn=index == last_index)
        self._read_stop(value)
        self._read_metadata(value)

    # --- streams and bodies --------------------------------------------------------------------------------------

    def _read_stop(self, value: dict[str, Any]) -> None:
        reason = text_of(value, "stopReason")
        self.finished = True
        self.done = self._has_usage
        if reason == END_TURN:
            self._blocks.end_turn()
        self.emit.finish(FINISH_REASONS.get(reason or ""), reason)
        self._store_details(value, "additionalModelResponseFields")

    def _read_metadata(self, value: dict[str, Any]) -> None:
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._has_usage = True
            self.done = self.finished
            self.emit.usage = read_usage(usage)
        self._store_details(value, "trace")
        # A prompt router reports which model it chose.
        invoked_model = text_of(dict_of(dict_of(value, "trace"), "promptRouter"), "invokedModelId")
        if invoked_model is not None:
            self.emit.start(model_name=invoked_model)

    def _store_details(self, value: dict[str, Any], name: str) -> None:
        """Store an additional field of the answer: the guardrail's trace, or fields of the model's maker."""
        if value.get(name):
            self.emit.provider_details[name] = value[name]

    # --- the end -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Emit what was held back."""
        self._blocks.end()

    def end_normally(self) -> None:
        if self.emit.finish_reason == "error":
            # Unreadable model output is reported without an explanation. If there was one, this error is ignored.
            self.fail(unreadable_output_error(self.emit.native_finish_reason))
