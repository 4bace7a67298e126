"""What is read of a chunk, or of a whole response: a whole response is one large chunk.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Fields that
servers fill with several types are typed loosely. A chunk that does not fit even so is read once more, field by
field, leaving out only what does not fit (`lenient`): a decoder is total.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    extra_content: dict[str, Any] | None = None


class Delta(msgspec.Struct):
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


class Logprobs(msgspec.Struct):
    content: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct):
    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    base_resp: dict[str, Any] | None = None
    x_groq: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk | None:
    """The chunk, or None when `data` is not a JSON object at all."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        value = msgspec.json.decode(data)
        return _lenient(value, Chunk) if isinstance(value, dict) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _lenient(value: dict[str, Any], to: type[Any]) -> Any:
    """`value` as `to`, without the fields whose values do not fit."""
    fitting: dict[str, Any] = {}
    for field in msgspec.structs.fields(to):
        if field.encode_name not in value:
            continue
        raw = value[field.encode_name]
        nested = _NESTED.get((to, field.encode_name))
        if nested is not None and isinstance(raw, dict):
            fitting[field.name] = _lenient(raw, nested)
        elif nested is not None and isinstance(raw, list):
            fitting[field.name] = [_lenient(entry, nested) for entry in raw if isinstance(entry, dict)]
        else:
            try:
                fitting[field.name] = msgspec.convert(raw, field.type)
            except msgspec.ValidationError:
                continue
    return to(**fitting)


_NESTED: dict[tuple[type[Any], str], type[Any]] = {
    (Chunk, "choices"): Choice,
    (Choice, "delta"): Delta,
    (Choice, "message"): Delta,
    (Choice, "logprobs"): Logprobs,
    (Delta, "tool_calls"): ToolCall,
    (Delta, "function_call"): Function,
    (ToolCall, "function"): Function,
}
