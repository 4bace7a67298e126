"""What is read of a chunk, or of a whole response: a whole response is one large chunk.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Fields that
servers fill with several types are typed loosely.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..fitting import struct_reader


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    extra_content: dict[str, Any] | None = None


class Delta(msgspec.Struct, gc=False):
    """`choices[].delta` of a stream, `choices[].message` of a whole response."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    reasoning_opaque: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    annotations: list[dict[str, Any]] | None = None
    executed_tools: list[dict[str, Any]] | None = None


class Logprobs(msgspec.Struct, gc=False):
    content: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    base_resp: dict[str, Any] | None = None
    x_groq: dict[str, Any] | None = None
    # Error objects that stand alone, as some servers send them.
    message: Any = None
    detail: Any = None


read_chunk = struct_reader(Chunk)
"""The chunk, or None when the bytes are not a JSON object at all."""
