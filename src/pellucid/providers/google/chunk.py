"""What is read of a `GenerateContentResponse`: a chunk of a stream, or a whole body.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Names are camelCase
on Google's wire; gateways and dumps of the SDK write snake_case, for all of it or for some: both are read. A chunk
that does not fit is read once more, without what does not fit (`fitting`).

Token counts. Gemini counts thoughts beside the answer, and what its own tools read beside the prompt.

A function call whose arguments come in pieces (Vertex, `streamFunctionCallArguments`).

Each piece sets one value at a JSON path: `{"jsonPath": "$.items[0].name", "stringValue": "ap", "willContinue": true}`.
A string that will continue is added to by the next piece under the same path. The call is over with the first
fragment that does not say `willContinue`; servers leave that fragment out, so anything else ends it too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...parts import Usage, json_text
from ..fitting import REFUSED, fit, loose_object

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
    value = loose_object(data, listed=True)
    try:
        return fit(camel(value), Chunk) if value is not None else None
    except RecursionError:
        return None


def native_part(data: bytes, candidate: int, position: int) -> Object:
    """A part exactly as it came, for what has no place in `Part`.

    `candidate` and `position` count what was read: entries that are no objects are left out there and here.
    """
    native = _objects(loose_object(data, listed=True), "candidates")[candidate]
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


_TOTALS = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")


def read_usage(raw: dict[str, Any]) -> Usage:
    """`usageMetadata`. `details` keeps what else was counted: `thoughts_tokens`, by modality `text_prompt_tokens` …"""
    prompt, answer, thoughts = (_count(raw.get(name)) for name in (*_TOTALS[:2], "thoughtsTokenCount"))
    of_tools = _count(raw.get("toolUsePromptTokenCount"))
    details: dict[str, int] = {}
    for name, value in raw.items():
        if isinstance(value, list) and name.endswith("TokensDetails"):
            about = snake(name.removesuffix("TokensDetails"))
            details |= {f"{modality}_{about}_tokens": count for modality, count in _modalities(value).items()}
        elif name.endswith("TokenCount") and name not in _TOTALS and _count(value):
            details[f"{snake(name.removesuffix('TokenCount'))}_tokens"] = value
    return Usage(
        input_tokens=_sum(prompt, of_tools),
        output_tokens=_sum(answer, thoughts),
        output_reasoning_tokens=thoughts,
        cache_read_tokens=_count(raw.get("cachedContentTokenCount")),
        input_audio_tokens=details.get("audio_prompt_tokens"),
        output_audio_tokens=details.get("audio_candidates_tokens"),
        details=details,
    )


def _modalities(entries: list[Any]) -> dict[str, int]:
    """Counts by modality (`text`, `image`, `audio` …)."""
    counts: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("modality"), str) and _count(entry.get("tokenCount")):
            counts[entry["modality"].lower()] = entry["tokenCount"]
    return counts


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")

_VALUES = ("stringValue", "numberValue", "boolValue")


class PartialCall:
    """The call under way: `add` fragments, then read `args`; or `broken_off`, if nothing more will come."""

    def __init__(self, call: dict[str, Any], signature: str | None) -> None:
        self.name: str = call["name"]
        self.id: str | None = call["id"] if isinstance(call.get("id"), str) else None
        self.signature = signature
        self.args: dict[str, Any] = dict(call["args"]) if isinstance(call.get("args"), dict) else {}
        self._continues: str | None = None
        self.over = False
        self.add(call)

    def add(self, fragment: dict[str, Any]) -> None:
        pieces = fragment.get("partialArgs")
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict) and isinstance(piece.get("jsonPath"), str):
                self._set(piece)
        self.over = not fragment.get("willContinue")

    def broken_off(self) -> str:
        """The arguments so far, as the beginning of a JSON text: what was cut off is not to look whole."""
        return json_text(self.args)[:-1]

    def _set(self, piece: dict[str, Any]) -> None:
        path = piece["jsonPath"]
        value = next((piece[name] for name in _VALUES if name in piece), None)
        steps: list[str | int] = [
            int(number[:9]) if number else name or quoted or doubly
            for name, number, quoted, doubly in _STEP.findall(path)
        ]
        if steps:
            _put(self.args, steps, value, self._continues == path)
        self._continues = path if piece.get("willContinue") else None


def _put(where: Any, steps: list[str | int], value: Any, append: bool) -> None:
    """Set `value` at the end of the path, making objects and lists on the way. Lists grow by one at a time."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(where, list) and isinstance(step, int):
            if step >= len(where):
                where.append(None)
                step = len(where) - 1
        elif not isinstance(where, dict) or not isinstance(step, str):
            return  # a path that contradicts an earlier one
        old = where.get(step) if isinstance(where, dict) else where[step]
        if following is None:
            where[step] = old + value if append and isinstance(old, str) and isinstance(value, str) else value
        elif not isinstance(old, dict | list):
            where[step] = [] if isinstance(following, int) else {}
        where = where[step]
