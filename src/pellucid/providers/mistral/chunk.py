"""What is read of a chunk, or of a whole response: a whole response is one large chunk.

The chunks *inside* a content list stay plain values: their types are many, and unknown ones ride through whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..fitting import struct_reader


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None
    """JSON text, or the object itself."""


class ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    """`"null"` where there is none: the default of Mistral's own clients."""
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """`choices[].delta` of a stream, `choices[].message` of a whole response."""

    role: str | None = None
    content: Any = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Logprobs(msgspec.Struct, gc=False):
    content: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    messages: list[Delta] | None = None
    """In place of `message`, where the provider ran tools of its own in between."""
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    # Errors: in an object, or standing alone (`object` is then "error").
    error: Any = None
    message: Any = None
    detail: Any = None


read_chunk = struct_reader(Chunk)
