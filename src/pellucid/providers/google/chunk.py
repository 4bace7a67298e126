"""Types of a `GenerateContentResponse` (a chunk of a stream, or a whole body), its token counts, and partial calls.

Only the fields that are used are decoded; msgspec skips the others without building objects. Names are camelCase on
Google's wire; gateways and dumps of the SDK write some or all names in snake_case: both are read. A chunk that does
not match the types is read once more, without the values that do not match (`lenient_json`).

Token counts: Gemini does not include reasoning tokens in the answer's count, nor the input of its own tools in the
prompt's count.

Partial calls: the arguments of a function call may come in pieces (Vertex, `streamFunctionCallArguments`). Each piece
sets one value at a JSON path: `{"jsonPath": "$.items[0].name", "stringValue": "ap", "willContinue": true}`. The next
piece under the same path is appended to a string that continues. The first fragment without `willContinue` ends the
call; some servers omit that fragment, so any other part ends it, too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...parts import Usage, json_text
from ..lenient_json import (
    DECODE_ERRORS,
    camel_case,
    convert_leniently,
    decode_lenient_object,
    dict_of,
    int_of,
    objects_in,
)

Object = dict[str, Any]


class Part(msgspec.Struct, gc=False, rename="camel"):
    """One part. One field besides `thought` and the signature is set; if none is, the kind of the part is unknown."""

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
    """Decode a chunk; None if `data` is not a JSON object."""
    if _has_snake_case_name(data) is None:
        try:
            return _decode(data)
        except DECODE_ERRORS:
            pass
    value = decode_lenient_object(data, allow_list=True)
    try:
        return convert_leniently(to_camel_case(value), Chunk) if value is not None else None
    except RecursionError:
        return None


def native_part(data: bytes, candidate_index: int, part_index: int) -> Object | None:
    """Return a part exactly as it came, for kinds that `Part` does not have.

    The indexes count only entries that are objects, as `read_chunk` does.

    Returns:
        The part; None if the chunk is nested more deeply than JSON can be decoded. (`read_chunk` skips such fields.)
    """
    chunk = decode_lenient_object(data, allow_list=True)
    if chunk is None:
        return None
    native = _objects(chunk, "candidates")[candidate_index]
    return _objects(native["content"], "parts")[part_index]


def _objects(value: Any, name: str) -> list[Object]:
    entries = value[name]
    return [entry for entry in (entries if isinstance(entries, list) else [entries]) if isinstance(entry, dict)]


# --- camelCase and snake_case ------------------------------------------------------------------------------------

_VERBATIM_FIELDS = ("args", "response", "functionResponse", "function_response")
"""Fields whose contents belong to tools. Their names are not converted."""


def to_camel_case(value: Any) -> Any:
    """Return `value` with all field names in camelCase, recursively."""
    if isinstance(value, list):
        return [to_camel_case(entry) for entry in value]
    if isinstance(value, dict):
        return {
            camel_case(name): entry if name in _VERBATIM_FIELDS else to_camel_case(entry)
            for name, entry in value.items()
        }
    return value


def to_snake_case(name: str) -> str:
    """Convert a name: `promptTokenCount` to `prompt_token_count`."""
    return _CAPITAL.sub(r"_\1", name).lower()


_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")

_has_snake_case_name = re.compile(rb'_[a-z_]+"\s*:').search
"""Find a snake_case name in the bytes. A function's argument may match, too; then only the reading is slower."""


_TOTALS = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read `usageMetadata`. `details` holds the other counts: `thoughts_tokens`, by modality `text_prompt_tokens` …"""
    prompt, answer, thoughts = (int_of(raw, name) for name in (*_TOTALS[:2], "thoughtsTokenCount"))
    tool_prompt = int_of(raw, "toolUsePromptTokenCount")
    details: dict[str, int] = {}
    for name, value in raw.items():
        if isinstance(value, list) and name.endswith("TokensDetails"):
            subject = to_snake_case(name.removesuffix("TokensDetails"))
            details |= {f"{modality}_{subject}_tokens": count for modality, count in _modality_counts(value).items()}
        elif name.endswith("TokenCount") and name not in _TOTALS and int_of(raw, name):
            details[f"{to_snake_case(name.removesuffix('TokenCount'))}_tokens"] = value
    return Usage(
        input_tokens=_sum(prompt, tool_prompt),
        output_tokens=_sum(answer, thoughts),
        output_reasoning_tokens=thoughts,
        cache_read_tokens=int_of(raw, "cachedContentTokenCount"),
        input_audio_tokens=details.get("audio_prompt_tokens"),
        output_audio_tokens=details.get("audio_candidates_tokens"),
        details=details,
    )


def _modality_counts(entries: list[Any]) -> dict[str, int]:
    """Return the counts by modality (`text`, `image`, `audio` …)."""
    counts: dict[str, int] = {}
    for entry in objects_in(entries):
        if isinstance(entry.get("modality"), str) and int_of(entry, "tokenCount"):
            counts[entry["modality"].lower()] = entry["tokenCount"]
    return counts


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_PATH_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")

_VALUE_FIELDS = ("stringValue", "numberValue", "boolValue")


def signature_details(signature: str | None) -> Object | None:
    """Return the details of a part that store its signature under Google's name."""
    return {"thought_signature": signature} if signature else None


class PartialCall:
    """A function call whose arguments arrive in pieces.

    Add fragments until `is_complete`, then read `args`; or `truncated_args` if the answer broke off.
    """

    def __init__(self, call: dict[str, Any], signature: str | None) -> None:
        self.name: str = call["name"]
        self.id: str | None = call["id"] if isinstance(call.get("id"), str) else None
        self.signature = signature
        self.args: dict[str, Any] = dict(dict_of(call, "args"))
        self._open_path: str | None = None
        self.is_complete = False
        self.add_fragment(call)

    def add_fragment(self, fragment: dict[str, Any]) -> None:
        for piece in objects_in(fragment.get("partialArgs")):
            if isinstance(piece.get("jsonPath"), str):
                self._set_value(piece)
        self.is_complete = not fragment.get("willContinue")

    def truncated_args(self) -> str:
        """Return the arguments so far as incomplete JSON text, so that a truncated call does not look complete."""
        return json_text(self.args)[:-1]

    def _set_value(self, piece: dict[str, Any]) -> None:
        path = piece["jsonPath"]
        value = next((piece[name] for name in _VALUE_FIELDS if name in piece), None)
        steps: list[str | int] = [
            int(number[:9]) if number else name or single_quoted or double_quoted
            for name, number, single_quoted, double_quoted in _PATH_STEP.findall(path)
        ]
        if steps:
            _set_at_path(self.args, steps, value, self._open_path == path)
        self._open_path = path if piece.get("willContinue") else None


def _set_at_path(container: Any, steps: list[str | int], value: Any, append: bool) -> None:
    """Set `value` at the end of the path. Missing objects and lists are created; a list grows by one element each."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(container, list) and isinstance(step, int):
            if step >= len(container):
                container.append(None)
                step = len(container) - 1
        elif not isinstance(container, dict) or not isinstance(step, str):
            return  # a path that contradicts an earlier one
        previous = container.get(step) if isinstance(container, dict) else container[step]
        if following is None:
            container[step] = (
                previous + value if append and isinstance(previous, str) and isinstance(value, str) else value
            )
        elif not isinstance(previous, dict | list):
            container[step] = [] if isinstance(following, int) else {}
        container = container[step]
