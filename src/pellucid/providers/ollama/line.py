"""What is read of a line, or of a whole response, which is one line."""

from __future__ import annotations

from typing import Any

import msgspec

from ..fitting import struct_reader


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None
    """The object itself."""


class ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    """Older servers give none."""
    function: Function | None = None


class Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[ToolCall] | None = None


class Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: Message | None = None
    # `/api/generate` has the same two texts without a message.
    response: str | None = None
    thinking: str | None = None
    logprobs: list[dict[str, Any]] | None = None
    done: bool = False
    done_reason: str | None = None
    error: Any = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    # Nanoseconds.
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None


read_line = struct_reader(Line)
