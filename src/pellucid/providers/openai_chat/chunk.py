"""Structs of a chunk, or of a whole response, which is one large chunk; and token counts.

Only the fields that this wire uses are decoded; msgspec skips the others. Fields to which servers give several types
are typed loosely. Dialects of this wire put token counts in many places.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec

from ...parts import Usage
from ..lenient_json import dict_of, int_of, lenient_struct_decoder
from ..token_counts import ReasoningCounted, counted_output
from ..tool_calls import Function, Logprobs, ToolCall


class ChatToolCall(ToolCall, gc=False):
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
    tool_calls: list[ChatToolCall] | None = None
    function_call: Function | None = None
    annotations: list[dict[str, Any]] | None = None
    executed_tools: list[dict[str, Any]] | None = None
    images: list[dict[str, Any]] | None = None


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


class ChunkReader(NamedTuple):
    """Reads chunks whose messages have certain fields of reasoning."""

    decode: Callable[[bytes], Chunk | None]
    """Decodes a chunk; returns None if the bytes are not a JSON object."""
    type: type[Chunk]
    reasoning_attributes: tuple[str, ...]
    """The attributes of a delta that hold the fields, in order."""


@lru_cache(maxsize=64)
def chunk_reader(reasoning_fields: tuple[str, ...]) -> ChunkReader:
    """Return the reader of chunks whose messages have these fields of reasoning."""
    known = frozenset(Delta.__struct_fields__)
    attributes = {name: name if name in known else f"field_{index}" for index, name in enumerate(reasoning_fields)}
    others = {attribute: name for name, attribute in attributes.items() if attribute != name}
    chunk: type[Chunk] = Chunk
    if others:
        delta = msgspec.defstruct(
            "Delta", [(name, Any, None) for name in others], bases=(Delta,), rename=others, gc=False
        )
        message = (delta | None, None)
        choice = msgspec.defstruct("Choice", [("delta", *message), ("message", *message)], bases=(Choice,), gc=False)
        choices = (list[choice] | None, None)  # type: ignore[valid-type]
        chunk = cast("type[Chunk]", msgspec.defstruct("Chunk", [("choices", *choices)], bases=(Chunk,), gc=False))
    return ChunkReader(lenient_struct_decoder(chunk), chunk, tuple(attributes.values()))


def read_usage(raw: dict[str, Any], reasoning_counted: ReasoningCounted = "inside") -> Usage:
    """Read token counts.

    Args:
        raw: The `usage` object.
        reasoning_counted: Whether the completion count includes reasoning; `by_total`: whichever matches the total.

    Returns:
        The counts. `details` has the provider's other counts, by the provider's names.
    """
    prompt, completion, total = (int_of(raw, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    of_prompt, of_completion = dict_of(raw, "prompt_tokens_details"), dict_of(raw, "completion_tokens_details")
    reasoning_count = _first_known(int_of(of_completion, "reasoning_tokens"), int_of(raw, "reasoning_tokens"))
    details = {
        name: value
        for name, value in (*raw.items(), *of_completion.items())
        if name not in _STANDARD_COUNTS and type(value) is int
    }
    return Usage(
        input_tokens=prompt,
        output_tokens=counted_output(completion, reasoning_count, prompt, total, reasoning_counted),
        output_reasoning_tokens=reasoning_count,
        cache_read_tokens=_first_known(
            int_of(of_prompt, "cached_tokens"), int_of(raw, "cached_tokens"), int_of(raw, "prompt_cache_hit_tokens")
        ),
        cache_write_tokens=int_of(of_prompt, "cache_write_tokens"),
        input_audio_tokens=int_of(of_prompt, "audio_tokens"),
        output_audio_tokens=int_of(of_completion, "audio_tokens"),
        details=details,
    )


# Counts that have a field in `Usage`; other counts keep their names in `details`.
_STANDARD_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"})


def _first_known(*values: int | None) -> int | None:
    for value in values:
        if value is not None:
            return value
    return None
