"""Decode a Messages answer, as a stream of events or as a whole message, into model events.

Rules:

* `message_start` opens the message and `message_stop` ends it. Between them, blocks start, grow and stop, each under
  its index. An index may be used again after its block has stopped. A start under an open index ends the open block.
* `message_start` may already hold whole blocks.
* A second message that begins before the first has ended was inserted by a proxy: the content so far is stored as
  truncated, and the answer fails. A repeated start of the same message is ignored.
* `ping` and unknown events are ignored; unknown blocks are stored (see `blocks`).
* Token counts are cumulative. The output count is final only when the message reports its stop reason. On this wire
  `input_tokens` does not include tokens that were read from or written to the cache; in `Usage` it is all input, as on
  every other wire. `details` holds the provider's own counts under their own names.
* A refusal is emitted as text: the provider's explanation, or a sentence that the model declined.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import ErrorInfo
from ...parts import FinishReason, Origin, Usage
from ..errors import error_from_value
from ..frame_template import VaryingValue
from ..lenient_json import decode_lenient_json, dict_of, int_of, objects_in, text_of
from ..profile import Profile
from ..stream_decoder import FrameType, WireReader
from ..token_counts import merge_counts
from .blocks import AnswerContext, Block, Delta, Frame, open_block, read_frame

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "compaction": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_call",
    "refusal": "content_filter",
    "pause_turn": "pause",
}

_BLOCK_TYPE_OF_DELTA = {"thinking_delta": "thinking", "signature_delta": "thinking", "text_delta": "text"}
"""Type of a delta, and the type of its block if the block's start is missing."""


_PADDING = VaryingValue(re.compile(rb"\}( *)\}\Z"), re.compile(rb" *").match)
"""The provider pads its events with spaces before the last brace."""


class MessageReader(WireReader):
    """Reader of one message, streamed or whole."""

    wire = "Anthropic Messages"
    code = "not_anthropic_messages"
    frame_type: FrameType = Frame
    varying_values = (_PADDING,)

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form)
        self._context = AnswerContext(self.emit)
        self._open_blocks: dict[int, Block] = {}
        """Open blocks by index, in the order in which they started."""
        self._last_index: int = 0
        self._block_count = 0
        self._message_id: str | None = None
        self._usage: dict[str, Any] = {}

    # --- frames ----------------------------------------------------------------------------------------------

    def read_frame(self, data: bytes, name: str) -> None:
        if self.done:
            return
        frame = read_frame(data)
        if frame is None:
            if data.strip():
                self._read_error(data) if name == "error" else self.reject(data)
            return
        kind = frame.type or name
        if kind == "content_block_delta":
            self.is_recognized = True
            if frame.delta is not None:
                block = self._block_of(frame.index, frame.delta)
                block.add_delta(frame.delta, data)
                self.skip_rule = block.skip_rule(frame.delta)
        elif kind == "content_block_start":
            self.is_recognized = True
            if frame.content_block is not None:
                self._start_block(frame.index, frame.content_block)
        elif kind == "content_block_stop":
            self.is_recognized = True
            self._stop_block(self._last_index if frame.index is None else frame.index)
        elif kind == "message_start":
            self._start_message(frame.message or {})
        elif kind == "message_delta":
            self._read_message_delta(frame)
        elif kind == "message_stop":
            self.is_recognized = self.done = True
        elif kind == "message":
            self._read_whole_message(data)
        elif kind == "error" or frame.error:
            self._read_error(data)
        elif frame.type is None and not self.is_recognized:
            self.reject(data)

    def _read_error(self, data: bytes) -> None:
        """Read an error in the stream, or in place of a message. It ends the answer."""
        try:
            value = decode_lenient_json(data)
        except ValueError:
            value = data.decode("utf-8", "replace")
        self.fail(error_from_value(value))
        self.done = True

    # --- the message -----------------------------------------------------------------------------------------

    def _start_message(self, message: dict[str, Any]) -> None:
        id = text_of(message, "id")
        if self.is_recognized:
            if self.finished or id == self._message_id:
                return
            self.fail(_spliced_stream_error(self._message_id, id))
            self.done = True
            return
        self.is_recognized = True
        self._begin_message(message)

    def _begin_message(self, message: dict[str, Any]) -> None:
        self._message_id = text_of(message, "id")
        self.emit.start(self._message_id, text_of(message, "model"))
        self._record_metadata(message, dict_of(message, "usage"))
        # The output count is not known yet when a message begins.
        self.emit.usage = _read_usage({name: value for name, value in self._usage.items() if name != "output_tokens"})
        for native in _native_blocks(message):
            self._add_whole_block(native)

    def _read_message_delta(self, frame: Frame) -> None:
        self.is_recognized = True
        delta, transformations = frame.delta or Delta(), frame.input_transformations
        metadata = {
            "stop_reason": delta.stop_reason,
            "stop_sequence": delta.stop_sequence,
            "stop_details": delta.stop_details,
            "container": delta.container,
            "context_management": frame.context_management,
            "input_transformations": transformations if isinstance(transformations, list) else None,
        }
        self._record_metadata(metadata, frame.usage or {})
        self._finish_message(metadata)

    def _read_whole_message(self, data: bytes) -> None:
        """Read a message that was not streamed."""
        self.frame_type = None
        message = decode_lenient_json(data)
        if self.is_recognized or not isinstance(message, dict):
            return
        if not isinstance(message.get("content"), list | str):
            self.reject(data)
            return
        self.is_recognized = self.done = True
        self._begin_message(message)
        self._finish_message(message)

    def _record_metadata(self, message: dict[str, Any], usage: dict[str, Any]) -> None:
        """Record usage and the other fields of a message that are not blocks."""
        self._usage = merge_counts(self._usage, usage)
        details = self.emit.provider_details
        for name in ("stop_sequence", "stop_details", "input_transformations"):
            if message.get(name):
                details[name] = message[name]
        container_id, context_management = dict_of(message, "container").get("id"), message.get("context_management")
        if container_id:
            details["container_id"] = container_id
        if dict_of(message, "context_management").get("applied_edits"):
            details["context_management"] = context_management

    def _finish_message(self, message: dict[str, Any]) -> None:
        self.emit.usage = _read_usage(self._usage)
        reason = message.get("stop_reason")
        if not isinstance(reason, str) or not reason:
            return
        self.finished = True
        self.emit.finish(FINISH_REASONS.get(reason), reason)
        if reason == "refusal":
            self._stop_all_blocks()
            self.emit.refusal("refusal", _refusal_text(dict_of(message, "stop_details")))

    # --- blocks ----------------------------------------------------------------------------------------------

    def _start_block(self, index: int | None, native: dict[str, Any]) -> None:
        index = self._block_count if index is None else index
        self._stop_block(index)
        self._open_blocks[index] = block = self._new_block(native)
        self._last_index = index
        block.start()

    def _add_whole_block(self, native: dict[str, Any]) -> None:
        block = self._new_block(native)
        block.start()
        block.stop()

    def _new_block(self, native: dict[str, Any]) -> Block:
        self._block_count += 1
        return open_block(self._context, ("block", self._block_count), native)

    def _block_of(self, index: int | None, delta: Delta) -> Block:
        """Return the block that a delta extends. A missing block is started."""
        block = self._open_blocks.get(self._last_index if index is None else index)
        if block is None:
            kind = _BLOCK_TYPE_OF_DELTA.get(delta.type or "", "tool_use" if delta.partial_json else "")
            self._start_block(index, {"type": kind} if kind else {"type": delta.type or "unknown"})
            block = self._open_blocks[self._last_index]
        return block

    def _stop_block(self, index: int) -> None:
        block = self._open_blocks.pop(index, None)
        if block is not None:
            block.stop()

    def _stop_all_blocks(self) -> None:
        for index in list(self._open_blocks):
            self._stop_block(index)

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        open_blocks, self._open_blocks = self._open_blocks, {}
        for block in open_blocks.values():
            block.end_truncated()

    def end_normally(self) -> None:
        if not self.finished:
            # Some servers send no stop reason: it follows from whether the model called a function.
            self.emit.finish("tool_call" if self._context.has_tool_calls else "stop")
            self.emit.usage = _read_usage(self._usage)


def _native_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects_in(content)


def _refusal_text(details: dict[str, Any]) -> str:
    explanation, category = text_of(details, "explanation"), text_of(details, "category")
    return explanation or f"The model declined to answer{f' ({category})' if category else ''}."


def _spliced_stream_error(first: str | None, second: str | None) -> ErrorInfo:
    return ErrorInfo(
        "model_error",
        "another message began in the stream before the first had ended; the content of the first is kept",
        code="spliced_stream",
        upstream_message=f"{first}, then {second}",
    )


# --- token counts --------------------------------------------------------------------------------------------------


def _read_usage(raw: dict[str, Any]) -> Usage:
    uncached, output = int_of(raw, "input_tokens"), int_of(raw, "output_tokens")
    cache_written, cache_read = int_of(raw, "cache_creation_input_tokens"), int_of(raw, "cache_read_input_tokens")
    details = {name: value for name in raw if (value := int_of(raw, name)) is not None}
    # Cache writes by lifetime, uses of each provider tool, and reasoning tokens of the output.
    for nested in ("cache_creation", "server_tool_use", "output_tokens_details"):
        inner = dict_of(raw, nested)
        details |= {name: value for name in inner if (value := int_of(inner, name))}
    return Usage(
        input_tokens=None if uncached is None else uncached + (cache_written or 0) + (cache_read or 0),
        output_tokens=output,
        output_reasoning_tokens=int_of(dict_of(raw, "output_tokens_details"), "thinking_tokens"),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        details=details | _iteration_counts(raw.get("iterations")),
    )


def _iteration_counts(raw: Any) -> dict[str, int]:
    """Count the samplings, and the tokens of other models (advisor, compaction) that the totals do not include."""
    counts: dict[str, int] = {}
    for entry in objects_in(raw):
        kind = str(entry.get("type") or "message").removesuffix("_message")
        counts[f"{kind}_iterations"] = counts.get(f"{kind}_iterations", 0) + 1
        # The totals include a fallback's sampling, like the model's own.
        if kind not in ("message", "fallback"):
            for name in ("input_tokens", "output_tokens"):
                counts[f"{kind}_{name}"] = counts.get(f"{kind}_{name}", 0) + (int_of(entry, name) or 0)
    return counts
