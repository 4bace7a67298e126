"""Bytes of a Messages answer to events: a stream event by event, or a whole message.

The rules:

* `message_start` opens, `message_stop` ends; in between, blocks start, grow and stop, each under its index. A block's
  index may be taken again once it has stopped; a start under an index that is open ends what was open there.
* `message_start` may hold whole blocks already.
* Another message that begins before this one is over was spliced in by somebody between: what came is kept, cut off,
  and the answer has failed. The same message beginning again is nothing.
* `ping` and events this version does not know are nothing; blocks that it does not know are kept (see `blocks`).
* Counts are cumulative, and the output's is only known once the message says how it ended. `input_tokens` on this wire
  leaves out what came from the cache or went into it; here it is all input, as on every other wire. `details` keeps the
  provider's own numbers under their own names.
* A refusal is told in words: the provider's explanation, or, where there is none, that the model declined.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import ErrorInfo
from ...parts import FinishReason, Form, Origin, Usage
from ..answer import AnswerDecoder, EventFrames, Reader
from ..faults import fault_of_value
from ..fitting import dict_of, int_of, loose_json
from ..frame_template import Unread
from ..profile import Profile
from .blocks import Block, Context, Delta, Frame, block, read_frame

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

_GUESSED = {"thinking_delta": "thinking", "signature_delta": "thinking", "text_delta": "text"}
"""What a delta is of, where the block's start did not come."""


_PADDING = Unread(re.compile(rb"\}( *)\}\Z"), re.compile(rb" *").match)
"""The provider pads its events with blanks, before the last bracket."""


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(MessageReader(origin, row.form), EventFrames())


class MessageReader(Reader):
    """One message, whichever way it is framed."""

    wire = "Anthropic Messages"
    code = "not_anthropic_messages"
    unread = (_PADDING,)

    def __init__(self, origin: Origin, form: Form) -> None:
        super().__init__(origin)
        self._context = Context(self.emit, form)
        self._open: dict[int, Block] = {}
        """The blocks under way, by index, in the order in which they began."""
        self._last: int = 0
        self._blocks = 0
        self._id: str | None = None
        self._usage: dict[str, Any] = {}

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, name: str) -> None:
        if self.done:
            return
        frame = read_frame(data)
        if frame is None:
            if data.strip():
                self._fault(data) if name == "error" else self.refuse(data)
            return
        kind = frame.type or name
        if kind == "content_block_delta":
            self.heard = True
            if frame.delta is not None:
                opened = self._block(frame.index, frame.delta)
                opened.delta(frame.delta, data)
                self.skip_rule = opened.skip_rule(frame.delta)
        elif kind == "content_block_start":
            self.heard = True
            if frame.content_block is not None:
                self._start(frame.index, frame.content_block)
        elif kind == "content_block_stop":
            self.heard = True
            self._stop(self._last if frame.index is None else frame.index)
        elif kind == "message_start":
            self._message_start(frame.message or {})
        elif kind == "message_delta":
            self._message_delta(frame)
        elif kind == "message_stop":
            self.heard = self.done = True
        elif kind == "message":
            self._whole(data)
        elif kind == "error" or frame.error:
            self._fault(data)
        elif frame.type is None and not self.heard:
            self.refuse(data)

    def _fault(self, data: bytes) -> None:
        """An error in the stream, or in place of a message: nothing follows it."""
        try:
            value = loose_json(data)
        except ValueError:
            value = data.decode("utf-8", "replace")
        self.fail(fault_of_value(value))
        self.done = True

    # --- the message -----------------------------------------------------------------------------------------

    def _message_start(self, message: dict[str, Any]) -> None:
        id = _text(message, "id")
        if self.heard:
            if self.finished or id == self._id:
                return
            self.fail(_spliced(self._id, id))
            self.done = True
            return
        self.heard = True
        self._begin(message)
        for native in _blocks(message):
            self._at_once(native)

    def _begin(self, message: dict[str, Any]) -> None:
        self._id = _text(message, "id")
        self.emit.start(self._id, _text(message, "model"))
        self._note(message, _dict(message, "usage") or {})
        # Of the output, a message that only begins knows nothing yet.
        self.emit.usage = _read_usage({name: value for name, value in self._usage.items() if name != "output_tokens"})

    def _message_delta(self, frame: Frame) -> None:
        self.heard = True
        delta, transformed = frame.delta or Delta(), frame.input_transformations
        about = {
            "stop_reason": delta.stop_reason,
            "stop_sequence": delta.stop_sequence,
            "stop_details": delta.stop_details,
            "container": delta.container,
            "context_management": frame.context_management,
            "input_transformations": transformed if isinstance(transformed, list) else None,
        }
        self._note(about, frame.usage or {})
        self._finish(about)

    def _whole(self, data: bytes) -> None:
        """A message in one piece."""
        message = loose_json(data)
        if self.heard or not isinstance(message, dict):
            return
        if not isinstance(message.get("content"), list | str):
            self.refuse(data)
            return
        self.heard = self.done = True
        self._begin(message)
        for native in _blocks(message):
            self._at_once(native)
        self._finish(message)

    def _note(self, message: dict[str, Any], usage: dict[str, Any]) -> None:
        """What stands beside the blocks."""
        self._usage = _merge_usage(self._usage, usage)
        details = self.emit.provider_details
        for name in ("stop_sequence", "stop_details", "input_transformations"):
            if message.get(name):
                details[name] = message[name]
        container, managed = _dict(message, "container"), _dict(message, "context_management")
        if container and container.get("id"):
            details["container_id"] = container["id"]
        if managed and managed.get("applied_edits"):
            details["context_management"] = managed

    def _finish(self, message: dict[str, Any]) -> None:
        self.emit.usage = _read_usage(self._usage)
        reason = message.get("stop_reason")
        if not isinstance(reason, str) or not reason:
            return
        self.finished = True
        self.emit.finish(FINISH_REASONS.get(reason), reason)
        if reason == "refusal":
            self._stop_all()
            self.emit.refusal("refusal", _refusal(_dict(message, "stop_details") or {}))

    # --- blocks ----------------------------------------------------------------------------------------------

    def _start(self, index: int | None, native: dict[str, Any]) -> None:
        index = self._blocks if index is None else index
        self._stop(index)
        self._open[index] = opened = self._new(native)
        self._last = index
        opened.start()

    def _at_once(self, native: dict[str, Any]) -> None:
        whole = self._new(native)
        whole.start()
        whole.stop()

    def _new(self, native: dict[str, Any]) -> Block:
        self._blocks += 1
        return block(self._context, ("block", self._blocks), native)

    def _block(self, index: int | None, delta: Delta) -> Block:
        """The block that a delta is of."""
        opened = self._open.get(self._last if index is None else index)
        if opened is None:
            kind = _GUESSED.get(delta.type or "", "tool_use" if delta.partial_json else "")
            self._start(index, {"type": kind} if kind else {"type": delta.type or "unknown"})
            opened = self._open[self._last]
        return opened

    def _stop(self, index: int) -> None:
        opened = self._open.pop(index, None)
        if opened is not None:
            opened.stop()

    def _stop_all(self) -> None:
        for index in list(self._open):
            self._stop(index)

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        opened, self._open = self._open, {}
        for one in opened.values():
            one.cut()

    def settle(self) -> None:
        if not self.finished:
            # A server that ends without a reason: what the model did says it.
            self.emit.finish("tool_call" if self._context.calls else "stop")
            self.emit.usage = _read_usage(self._usage)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [native for native in content if isinstance(native, dict)] if isinstance(content, list) else []


def _refusal(details: dict[str, Any]) -> str:
    explanation, category = _text(details, "explanation"), _text(details, "category")
    return explanation or f"The model declined to answer{f' ({category})' if category else ''}."


def _spliced(first: str | None, second: str | None) -> ErrorInfo:
    return ErrorInfo(
        "model_error",
        "another message began in the stream before the first was over; what came of the first is kept",
        code="spliced_stream",
        said=f"{first}, then {second}",
    )


def _text(message: dict[str, Any], name: str) -> str | None:
    value = message.get(name)
    return value if isinstance(value, str) and value else None


def _dict(message: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = message.get(name)
    return value if isinstance(value, dict) else None


# --- token counts --------------------------------------------------------------------------------------------------


def _merge_usage(known: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """The counts so far, with what a later event says; what it leaves out or nulls stays."""
    return {**known, **{name: value for name, value in news.items() if value is not None}}


def _read_usage(raw: dict[str, Any]) -> Usage:
    fresh, output = int_of(raw, "input_tokens"), int_of(raw, "output_tokens")
    written, read = int_of(raw, "cache_creation_input_tokens"), int_of(raw, "cache_read_input_tokens")
    details = {name: value for name in raw if (value := int_of(raw, name)) is not None}
    # How the cache writes divide up, how often which tool of the provider ran, how much of the output was thought.
    for nested in ("cache_creation", "server_tool_use", "output_tokens_details"):
        inner = raw.get(nested)
        if isinstance(inner, dict):
            details |= {name: value for name in inner if (value := int_of(inner, name))}
    return Usage(
        input_tokens=None if fresh is None else fresh + (written or 0) + (read or 0),
        output_tokens=output,
        output_reasoning_tokens=int_of(dict_of(raw, "output_tokens_details"), "thinking_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        details=details | _iterations(raw.get("iterations")),
    )


def _iterations(raw: Any) -> dict[str, int]:
    """How often the model was sampled, and what others (an advisor, a compaction) took that is not in the totals."""
    counts: dict[str, int] = {}
    for entry in raw if isinstance(raw, list) else []:
        if not isinstance(entry, dict):
            continue
        kind = str(entry.get("type") or "message").removesuffix("_message")
        counts[f"{kind}_iterations"] = counts.get(f"{kind}_iterations", 0) + 1
        # A fallback's sampling is in the totals, like the model's own.
        if kind not in ("message", "fallback"):
            for name in ("input_tokens", "output_tokens"):
                counts[f"{kind}_{name}"] = counts.get(f"{kind}_{name}", 0) + (int_of(entry, name) or 0)
    return counts
