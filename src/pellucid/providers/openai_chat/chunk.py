"""What is read of a chunk, or of a whole response: a whole response is one large chunk.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Fields that
servers fill with several types are typed loosely. A chunk that does not fit even so is read once more, field by
field, leaving out only what does not fit: a decoder is total.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..loose import REFUSED, loose_json


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


_decode = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk | None:
    """The chunk, or None when `data` is not a JSON object at all."""
    try:
        return _decode(data)
    except REFUSED:
        pass
    try:
        value = loose_json(data)
    except ValueError:
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # Google wraps its errors so
    fitting: Chunk | None = _lenient(value, Chunk) if isinstance(value, dict) else None
    return fitting


def _lenient(value: dict[str, Any], to: type[Any]) -> Any:
    """`value` as `to`, without the fields whose values do not fit."""
    fitting: dict[str, Any] = {}
    for field in msgspec.structs.fields(to):
        raw = value.get(field.name)
        one, many = _ONE.get((to, field.name)), _MANY.get((to, field.name))
        entries = [entry for entry in (raw if isinstance(raw, list) else [raw]) if isinstance(entry, dict)]
        if one is not None:
            if isinstance(raw, dict):
                fitting[field.name] = _lenient(raw, one)
        elif many is not None:
            if entries or isinstance(raw, list):
                fitting[field.name] = [_lenient(entry, many) for entry in entries]
        else:
            for candidate in (raw, entries):
                try:
                    fitting[field.name] = msgspec.convert(candidate, field.type)
                    break
                except msgspec.ValidationError:
                    continue
    return to(**{name: entry for name, entry in fitting.items() if entry is not None})


# Fields that hold one struct, and fields that hold a list of them.
_ONE: dict[tuple[type[Any], str], type[Any]] = {
    (Choice, "delta"): Delta,
    (Choice, "message"): Delta,
    (Choice, "logprobs"): Logprobs,
    (Delta, "function_call"): Function,
    (ToolCall, "function"): Function,
}
_MANY: dict[tuple[type[Any], str], type[Any]] = {
    (Chunk, "choices"): Choice,
    (Delta, "tool_calls"): ToolCall,
}
