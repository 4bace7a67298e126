"""Decode the lines of an Ollama answer into model events.

A line holds a piece of reasoning, a piece of text, or whole calls; reasoning comes first. The line with `done: true` is
the last; without it the answer is truncated. An error is a line of its own, in an answer with a success status. A whole
response is one line.

Without `think`, older models leave their tags in the content; the profile says which tags.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...parts import FilePart, FinishReason, Origin, Usage
from ..errors import error_from_value
from ..frame_template import DATE, SkipRule, varying_value
from ..lenient_json import decode_lenient_json, lenient_struct_decoder
from ..media import image_type_of
from ..profile import Profile
from ..stream_decoder import LineFrames, WireReader
from ..tagged_text import TaggedText
from ..tool_calls import Function


class ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    """Older servers send none."""
    function: Function | None = None


class Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[ToolCall] | None = None


class Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: Message | None = None
    # `/api/generate` sends the same two texts without a message.
    response: str | None = None
    thinking: str | None = None
    logprobs: list[dict[str, Any]] | None = None
    done: bool = False
    done_reason: str | None = None
    error: Any = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    # Durations in nanoseconds.
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None


read_line = lenient_struct_decoder(Line)


FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}

_LOADING_REASONS = ("load", "unload")
"""Done reasons that report loading or unloading of the model. An answer may still follow."""

_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")

_THINKING = "thinking"


class OllamaReader(WireReader):
    wire = "Ollama chat"
    code = "not_ollama"
    frame_type = Line
    ignored_fields = ("created_at", "message.role", "context")
    varying_values = (varying_value(b"created_at", DATE),)

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form, LineFrames())
        self._tagged_text = TaggedText(self.emit, profile)
        self._call_count = 0

    def read_frame(self, data: bytes, name: str) -> None:
        line = read_line(data)
        if line is None:
            self.reject(data)
            return
        message = line.message
        if message is None and (line.response is not None or line.thinking is not None):
            message = Message(line.response, line.thinking)
        if message is not None or line.done:
            self.is_recognized = True
            if line.model and self.emit.model_name is None:
                self.emit.start(model_name=line.model)
        if message is not None:
            self._read_message(message, line.logprobs)
        if line.done:
            self._read_last_line(line)
        if line.error:
            self.fail(error_from_value(decode_lenient_json(data)))

    def _add_thinking(self, text: str) -> None:
        self._tagged_text.pause()
        self.emit.thinking(_THINKING, text)
        self.skip_rule = SkipRule()

    def flush(self) -> None:
        self._tagged_text.end()

    def _read_message(self, message: Message, logprobs: list[dict[str, Any]] | None) -> None:
        if message.thinking:
            self._add_thinking(message.thinking)
        if message.content:
            self._tagged_text.feed(message.content, logprobs)
            self.skip_rule = self._tagged_text.skip_rule
        if message.images or message.tool_calls:
            self.skip_rule = None
        if message.images:
            self._tagged_text.pause()
            for data in message.images:
                self.emit.whole_part(
                    FilePart(
                        data, image_type_of(data) or "application/octet-stream", provider_name=self.emit.origin.provider
                    )
                )
        if message.tool_calls:
            self._tagged_text.pause()
            for call in message.tool_calls:
                self._emit_call(call)

    def _emit_call(self, call: ToolCall) -> None:
        function = call.function
        if function is None:
            return
        self._call_count += 1
        args = function.arguments
        self.emit.tool_call(
            ("call", self._call_count),
            args if isinstance(args, dict | str) else {},
            name=function.name or "",
            call_id=call.id or None,
        )

    def _read_last_line(self, line: Line) -> None:
        self.finished = True
        reason = line.done_reason
        self.done = reason not in _LOADING_REASONS
        known = FINISH_REASONS.get(reason or "stop")
        # A turn that ends with calls has the reason "stop", too.
        self.emit.finish("tool_call" if self._call_count and known == "stop" else known, reason)
        # The count of a cached prompt is omitted, and so unknown.
        self.emit.usage = Usage(input_tokens=line.prompt_eval_count, output_tokens=line.eval_count)
        durations = {name: getattr(line, name) for name in _DURATIONS if getattr(line, name) is not None}
        self.emit.provider_details |= durations
