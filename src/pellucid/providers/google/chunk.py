"""What is read of a `GenerateContentResponse`: a chunk of a stream, or a whole body.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Names are camelCase
on Google's wire; gateways and dumps of the SDK write snake_case, for all of it or for some: both are read. A chunk
that does not fit is read once more, without what does not fit (`fitting`).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..fitting import fit
from ..loose import REFUSED, loose_json

Object = dict[str, Any]


class Part(msgspec.Struct, gc=False, rename="camel"):
    """One part. Of its fields but `thought` and the signature, one is set; if none is, it is of a kind unknown here."""

    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: Object | None = None
    inline_data: Object | None = None
    executable_code: Object | None = None
    code_execution_result: Object | None = None
    tool_call: Object | None = None
    tool_response: Object | None = None


class Content(msgspec.Struct, gc=False, rename="camel"):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    index: int = 0
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: Object | None = None
    url_context_metadata: Object | None = None
    citation_metadata: Object | None = None
    safety_ratings: list[Object] | None = None
    logprobs_result: Object | None = None
    avg_logprobs: float | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Object | None = None
    prompt_feedback: Object | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk | None:
    """The chunk, or None when `data` is not a JSON object at all."""
    if _SNAKE(data) is None:
        try:
            return _decode(data)
        except REFUSED:
            pass
    value = _read_object(data)
    try:
        return fit(camel(value), Chunk) if value is not None else None
    except RecursionError:
        return None


def _read_object(data: bytes) -> Object | None:
    """The JSON object; Google wraps errors in a list of one."""
    try:
        value = loose_json(data)
    except ValueError:
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else None


def native_part(data: bytes, candidate: int, position: int) -> Object:
    """A part exactly as it came, for what has no place in `Part`.

    `candidate` and `position` count what was read: entries that are no objects are left out there and here.
    """
    native = _objects(_read_object(data), "candidates")[candidate]
    return _objects(native["content"], "parts")[position]


def _objects(value: Any, name: str) -> list[Object]:
    entries = value[name]
    return [entry for entry in (entries if isinstance(entries, list) else [entries]) if isinstance(entry, dict)]


# --- both cases --------------------------------------------------------------------------------------------------

_UNTOUCHED = ("args", "response", "functionResponse", "function_response")
"""What is the tools' own, not Google's."""


def camel(value: Any) -> Any:
    """`value` with the names of its fields in camelCase, all the way down."""
    if isinstance(value, list):
        return [camel(entry) for entry in value]
    if isinstance(value, dict):
        return {_camel(name): entry if name in _UNTOUCHED else camel(entry) for name, entry in value.items()}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest) if first and rest else name


def snake(name: str) -> str:
    """`promptTokenCount` as `prompt_token_count`."""
    return _CAPITAL.sub(r"_\1", name).lower()


_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")

_SNAKE = re.compile(rb'_[a-z_]+"\s*:').search
"""Whether a name in snake_case stands in the bytes. It may be one of a function's arguments: that costs time alone."""
