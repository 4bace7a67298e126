"""Types of a chunk of the stream, or of a whole response, which is read as one large chunk; and the reader of calls.

The chunks *inside* a content list stay plain values: there are many types, and unknown ones are passed on whole.
Function calls come mostly whole, and sometimes in fragments, which the reader assigns to calls.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...emit import Emitter
from ..lenient_json import lenient_struct_decoder
from ..tool_calls import FragmentedCall, Logprobs, ToolCall
from ..tool_schema import arguments_text


class Delta(msgspec.Struct, gc=False):
    """`choices[].delta` of a stream, `choices[].message` of a whole response."""

    role: str | None = None
    content: Any = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    messages: list[Delta] | None = None
    """Sent in place of `message` if the provider ran tools of its own."""
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    # Errors: in an object, or at the top level (`object` is then "error").
    error: Any = None
    message: Any = None
    detail: Any = None


read_chunk = lenient_struct_decoder(Chunk)


class ToolCallReader:
    """Emits calls from fragments. Index and id identify a call; either may be missing."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._calls: list[FragmentedCall] = []
        self._latest_by_index: dict[int, FragmentedCall] = {}

    @property
    def has_calls(self) -> bool:
        """Whether the model called a function."""
        return bool(self._calls)

    def add_fragment(self, fragment: ToolCall) -> None:
        function = fragment.function
        if function is None:
            return
        # Later fragments repeat an empty name.
        name, args = function.name or None, function.arguments
        id = fragment.id if fragment.id != "null" else None  # the default of Mistral's own clients
        call = self._call_of(fragment.index or 0, id or None, name)
        call.add(name, args if isinstance(args, dict) and not call.has_name else arguments_text(args))

    def flush(self) -> None:
        """Emit calls that have arguments and no name."""
        for call in self._calls:
            if call.has_arguments():
                call.end_nameless()

    def _call_of(self, index: int, id: str | None, name: str | None) -> FragmentedCall:
        call = self._latest_by_index.get(index)
        if call is None or call.is_followed_by(id, name):
            call = self._latest_by_index[index] = FragmentedCall(self._emit, ("call", len(self._calls)), id)
            self._calls.append(call)
        elif call.id is None:
            call.id = id
        return call
