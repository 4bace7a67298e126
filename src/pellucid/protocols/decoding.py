"""A body's bytes as the type that it should have. What is wrong is said with its path, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ..errors import RequestError
from ..settings import SETTINGS, ModelSettings
from ..text import BRIEF, brief, is_nested_deeper, meant, misfit

MAX_DEPTH = 100
"""How deeply a JSON Schema in a request may be nested."""

_MISSING = re.compile("Object missing required field `(.*)`")
_UNKNOWN = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
_SENT = re.compile(f"(value '|field `)(.{{{BRIEF}}}).+(['`])", re.DOTALL)
"""What msgspec says ends with what was sent, at any length."""
_STEP = re.compile(r"\w+|\[.*?\]")

T = TypeVar("T")


def read_json(data: bytes | str) -> dict[str, Any]:
    """A body as a JSON object. Raises `RequestError`."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise RequestError("the body must be a JSON object", code="invalid_type")
    return raw


def decode(data: bytes | dict[str, Any], into: type[T]) -> T:
    """A body, or the JSON that was read of it. Raises `RequestError`."""
    return convert(data if isinstance(data, dict) else read_json(data), into)


def convert(raw: dict[str, Any], into: type[T]) -> T:
    """The same for JSON that was read. Raises `RequestError`."""
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        raise _told(str(error), into, raw) from None


def _told(text: str, into: type[Any], raw: Any) -> RequestError:
    """What msgspec says is wrong, in the form of an API's error."""
    (what, path), code = misfit(text), "invalid_value"
    missing = _MISSING.fullmatch(what)
    if missing:
        path, what, code = f"{path}.{missing.group(1)}".lstrip("."), "it is required", "missing"
    unknown = _UNKNOWN.fullmatch(what) if not path else None
    if unknown:
        path = brief(unknown.group(1))
        right = meant(path, (field.encode_name for field in msgspec.structs.fields(into)))
        what, code = f"there is no such field; {right}", "unknown_field"
    what = _SENT.sub(r"\1\2…\3", what)
    words = _words(into, path, raw) if what.startswith("Invalid") else []
    right = f"; it must be one of {', '.join(map(repr, words))}" if words else ""
    at = path if path or unknown else None  # a field's name may be empty
    return RequestError(f"{what}{right}" if at is None else f"{at}: {what}{right}", code=code, param=at)


def not_too_deep(schema: dict[str, Any] | None, at: str) -> None:
    """What is nested too deeply could be read here and yet not be written again. Raises `RequestError`."""
    if schema is not None and is_nested_deeper(schema, MAX_DEPTH):
        raise RequestError(f"{at}: nested deeper than {MAX_DEPTH} levels", code="invalid_value", param=at)


def settings_in(body: msgspec.Struct, fields: Mapping[str, str], others: Mapping[str, Any]) -> ModelSettings:
    """The settings that a request asks for, in the order of their table.

    A field that has the name of a setting, or the name that `fields` has for it, is that setting; `others` are those
    that the protocol says in another way. What is null was not said.
    """
    asked = {
        name: others[name] if name in others else getattr(body, fields.get(name, name), None)
        for name, row in SETTINGS.items()
        if row.is_asked_for
    }
    return msgspec.convert({name: value for name, value in asked.items() if value is not None}, ModelSettings)


def echo_of(body: msgspec.Struct, fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a response that show settings as its request said them; what it did not say is left out."""
    echoed = [fields.get(row.name, row.name) for row in SETTINGS.values() if row.is_echoed]
    return {field: value for field in echoed if (value := getattr(body, field)) is not None}


def _words(into: type[Any], path: str, raw: Any) -> list[str]:
    """The words that may stand at `path`, where only certain ones may: what the types say, of those that `raw` is."""
    types = [inspect.type_info(into)]
    for step in _STEP.findall(path):
        named = [one for one in types if isinstance(one, inspect.StructType) and _is_tagged(one, raw)]
        types = [inner for one in named or types for inner in _inside(one, step)]
        raw = _at(raw, step)
    return [str(word) for one in types if isinstance(one, inspect.LiteralType) for word in one.values]


def _is_tagged(one: inspect.StructType, raw: Any) -> bool:
    return one.tag_field is not None and isinstance(raw, dict) and raw.get(one.tag_field) == one.tag


def _at(raw: Any, step: str) -> Any:
    index = step.strip("[]")
    if isinstance(raw, list) and index.isdigit() and int(index) < len(raw):
        return raw[int(index)]
    return raw.get(step) if isinstance(raw, dict) else None


def _inside(outer: inspect.Type, step: str) -> list[inspect.Type]:
    """What is at `[…]` or at a field of that name."""
    found: list[inspect.Type] = []
    match outer:
        case inspect.ListType() if step.startswith("["):
            found = [outer.item_type]
        case inspect.DictType() if step.startswith("["):
            found = [outer.value_type]
        case inspect.StructType() if step == outer.tag_field:
            found = [inspect.LiteralType((outer.tag,))]
        case inspect.StructType():
            found = [field.type for field in outer.fields if field.encode_name == step]
    return [one for inner in found for one in _alternatives(inner)]


def _alternatives(one: inspect.Type) -> list[inspect.Type]:
    if isinstance(one, inspect.UnionType):
        return [inner for alternative in one.types for inner in _alternatives(alternative)]
    return _alternatives(one.type) if isinstance(one, inspect.Metadata) else [one]
