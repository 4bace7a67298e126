"""Decoding of request bodies into typed structs. Errors name the path of the problem and the valid choices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ..errors import ErrorKind, RequestError
from ..settings import SETTINGS, ModelSettings
from ..unicode import MAX_QUOTED_CHARS, describe_validation_error, did_you_mean, is_nested_deeper, truncate

MAX_DEPTH = 100
"""The maximum nesting depth of a JSON Schema in a request."""

_MISSING_FIELD = re.compile("Object missing required field `(.*)`")
_UNKNOWN_FIELD = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
_QUOTED_INPUT = re.compile(f"(value '|field `)(.{{{MAX_QUOTED_CHARS}}}).+(['`])", re.DOTALL)
"""The end of a message of msgspec that quotes input, which may have any length."""
_PATH_STEP = re.compile(r"\w+|\[.*?\]")

_ESCAPES = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")
"""Escapes in JSON: a backslash, a surrogate pair, or (group 1) half of a pair."""

T = TypeVar("T")


class PlainRequest(msgspec.Struct, frozen=True):
    """Base of parsed requests, with the answers of a protocol that has no field for these things."""

    @property
    def warnings(self) -> Sequence[str]:
        """Empty: nothing of the request is left out."""
        return ()

    @property
    def client_tools(self) -> frozenset[str]:
        """Empty: the client has no functions of its own."""
        return frozenset()

    @property
    def wants_summaries(self) -> bool:
        """False: summaries are not requested in addition to the raw text.

        Where the view permits only summaries, there are summaries all the same.
        """
        return False

    @property
    def max_tool_calls(self) -> int | None:
        """None: the client sets no limit."""
        return None


class BodyRequest(PlainRequest, frozen=True):
    """Base of parsed requests whose body names the model.

    It also says whether a stream is wanted, unless the protocol has streams only: then `stream` is overridden.
    """

    body: Any

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        model: str | None = self.body.model
        return model

    @property
    def stream(self) -> bool:
        """Whether the client wants a stream."""
        return bool(self.body.stream)


MAX_COMMAS = 250_000
"""The maximum number of values in a body, counted by the commas between them. A value takes a hundred times the memory
of its shortest text, and a decoder that has begun cannot be interrupted."""


def read_json(data: bytes | str) -> dict[str, Any]:
    """Decode a body as a JSON object. Raises `RequestError`."""
    if len(data) > MAX_COMMAS and _has_too_many_commas(data):
        raise RequestError(
            f"the body has more than {MAX_COMMAS} values; send a part of it, or text in longer pieces",
            kind="too_large",
            code="too_many_values",
        )
    try:
        raw = msgspec.json.decode(data)
    except RecursionError:
        raise RequestError("the body is nested too deeply", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = str(error)
        if "truncated" in problem or "surrogate" in problem:
            # msgspec reports half of a pair at the end of a text as truncated input.
            text = data if isinstance(data, str) else data.decode("latin-1")
            half = next((escape[1] for escape in _ESCAPES.finditer(text) if escape[1]), None)
            problem = f"{half} is half of a surrogate pair, which is no character" if half is not None else problem
        raise RequestError(f"the body is not valid JSON: {problem}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise RequestError("the body must be a JSON object", code="invalid_type")
    return raw


def _has_too_many_commas(data: bytes | str) -> bool:
    """Return whether there are more than `MAX_COMMAS` commas outside of texts: some milliseconds a megabyte.

    Texts and names are counted as well, since `{"a":{"b":"c"}}` has three of them and no comma: a body that has commas
    enough to be counted, and more than two texts for each value that is permitted, has too many values, too.
    """
    body = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if body.count(b",") <= MAX_COMMAS:
        return False
    body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if body.count(b'"') > 4 * MAX_COMMAS + 4:
        return True
    return b"".join(body.split(b'"')[::2]).count(b",") > MAX_COMMAS


MAX_ITEMS, MAX_TOOLS = 20_000, 2_000
"""The default limits of one request: its items or messages, with their parts; its tools. A conversation that fills a
context of a million tokens has some thousand items, and coding agents with many MCP servers some hundred tools."""


def check_size(raw: Mapping[str, Any], max_items: int, max_tools: int) -> int:
    """Check that a request has not too many items, messages or tools, before anything is made of them.

    Lists directly within an item count with their members: the parts of a message, the tools of a namespace.

    Args:
        raw: The JSON object of the request.
        max_items: The maximum for each list of the request.
        max_tools: The maximum for its tools.

    Returns:
        The number of all together.

    Raises:
        RequestError: There are too many.
    """
    total = 0
    for name, value in raw.items():
        if type(value) is not list:
            continue
        count = len(value)
        for item in value:
            if type(item) is dict:
                count += sum([len(inner) for inner in item.values() if type(inner) is list])
        limit = max_tools if name == "tools" else max_items
        if count > limit:
            advice = (
                "offer fewer tools"
                if name == "tools"
                else "continue a stored response or a conversation, or compact the conversation"
            )
            raise invalid(
                name,
                f"it has {count} entries, with those of their lists, and the limit of this server is {limit}; {advice}",
                "too_many_tools" if name == "tools" else "too_many_items",
                kind="too_large",
            )
        total += count
    return total


def decode(data: bytes | dict[str, Any], into: type[T]) -> T:
    """Decode a body, or the JSON object that was already read from it, into a type. Raises `RequestError`."""
    return convert(data if isinstance(data, dict) else read_json(data), into)


def convert(raw: dict[str, Any], into: type[T], base_path: str = "") -> T:
    """Convert a decoded JSON object, at `base_path` in the request, into a type. Raises `RequestError`."""
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        raise _request_error(str(error), into, raw, base_path) from None


def _request_error(validation_message: str, into: type[Any], raw: Any, base_path: str) -> RequestError:
    """Return msgspec's validation error as an error of the API."""
    (problem, path), code = describe_validation_error(validation_message), "invalid_value"
    missing = _MISSING_FIELD.fullmatch(problem)
    if missing:
        path, problem, code = f"{path}.{missing.group(1)}".lstrip("."), "it is required", "missing"
    unknown = _UNKNOWN_FIELD.fullmatch(problem) if not path else None
    if unknown:
        path = truncate(unknown.group(1))
        hint = did_you_mean(path, (field.encode_name for field in msgspec.structs.fields(into)))
        problem, code = f"there is no such field; {hint}", "unknown_field"
    problem = _QUOTED_INPUT.sub(r"\1\2…\3", problem)
    choices = _allowed_values(into, path, raw) if problem.startswith("Invalid") else []
    hint = f"; it must be one of {', '.join(map(repr, choices))}" if choices else ""
    if path or unknown or base_path:  # the name of an unknown field may be empty
        return invalid(".".join(filter(None, (base_path, path))), f"{problem}{hint}", code)
    return RequestError(f"{problem}{hint}", code=code)


def invalid(
    path: str, problem: str, code: str = "invalid_value", *, kind: ErrorKind = "invalid_request"
) -> RequestError:
    """Return the error for the value at this path of a request."""
    return RequestError(f"{path}: {problem}", kind=kind, code=code, param=path)


def check_depth(schema: dict[str, Any] | None, path: str) -> None:
    """Raise `RequestError` if a schema is nested too deeply.

    Such a schema could be read here, but might not be encodable again.
    """
    if schema is not None and is_nested_deeper(schema, MAX_DEPTH):
        raise invalid(path, f"nested deeper than {MAX_DEPTH} levels")


def requested_settings(
    body: msgspec.Struct, field_names: Mapping[str, str], overrides: Mapping[str, Any]
) -> ModelSettings:
    """Return the model settings of a request, in the order of the settings table.

    Args:
        body: The body of the request. A field whose value is null counts as absent.
        field_names: Names of fields for settings that have another name in this protocol.
        overrides: Values of settings that the protocol expresses in another way. They go before the fields.
    """
    requested = {
        name: overrides[name] if name in overrides else getattr(body, field_names.get(name, name), None)
        for name, row in SETTINGS.items()
        if row.is_client_settable
    }
    return msgspec.convert({name: value for name, value in requested.items() if value is not None}, ModelSettings)


def echoed_settings(
    body: msgspec.Struct, response_type: type[msgspec.Struct], field_names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields of a response that repeat settings of its request; absent settings are left out.

    Args:
        body: The body of the request.
        response_type: The type of the response. A setting is echoed if both have a field for it.
        field_names: Names of fields for settings that have another name in this protocol.
    """
    echoed = _echoed_fields(type(body), response_type, tuple(field_names.items()))
    return {field: value for field in echoed if (value := getattr(body, field)) is not None}


@cache
def _echoed_fields(
    body_type: type[msgspec.Struct], response_type: type[msgspec.Struct], field_names: tuple[tuple[str, str], ...]
) -> list[str]:
    fields = {dict(field_names).get(name, name) for name in SETTINGS}
    return [
        field for field in body_type.__struct_fields__ if field in fields and field in response_type.__struct_fields__
    ]


def _allowed_values(into: type[Any], path: str, raw: Any) -> list[str]:
    """Return the values that are allowed at `path`, if its type is a literal. Tagged unions are resolved with `raw`."""
    types = [inspect.type_info(into)]
    for step in _PATH_STEP.findall(path):
        tagged = [one for one in types if isinstance(one, inspect.StructType) and _matches_tag(one, raw)]
        types = [inner for one in tagged or types for inner in _types_at(one, step)]
        raw = _value_at(raw, step)
    return [str(value) for one in types if isinstance(one, inspect.LiteralType) for value in one.values]


def _matches_tag(one: inspect.StructType, raw: Any) -> bool:
    return one.tag_field is not None and isinstance(raw, dict) and raw.get(one.tag_field) == one.tag


def _value_at(raw: Any, step: str) -> Any:
    index = step.strip("[]")
    if isinstance(raw, list) and index.isdigit() and int(index) < len(raw):
        return raw[int(index)]
    return raw.get(step) if isinstance(raw, dict) else None


def _types_at(outer: inspect.Type, step: str) -> list[inspect.Type]:
    """Return the types at `[…]`, or at a field of that name."""
    types: list[inspect.Type] = []
    match outer:
        case inspect.ListType() if step.startswith("["):
            types = [outer.item_type]
        case inspect.DictType() if step.startswith("["):
            types = [outer.value_type]
        case inspect.StructType() if step == outer.tag_field:
            types = [inspect.LiteralType((outer.tag,))]
        case inspect.StructType():
            types = [field.type for field in outer.fields if field.encode_name == step]
    return [one for inner in types for one in _union_members(inner)]


def _union_members(one: inspect.Type) -> list[inspect.Type]:
    if isinstance(one, inspect.UnionType):
        return [inner for alternative in one.types for inner in _union_members(alternative)]
    return _union_members(one.type) if isinstance(one, inspect.Metadata) else [one]
