"""Python types, as a model is told of them (JSON Schema) and as its JSON becomes one of them.

msgspec reads annotations: builtins, dataclasses, TypedDicts, NamedTuples, enums, Literals, Structs, unions, dates,
`Annotated[…, Meta(…)]`. A pydantic model inside any of these is asked itself, where pydantic is installed. Values are
read kindly: models write "3" where 3 is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ..errors import RequestError

_DEFINITIONS = "$defs"


class Shape(NamedTuple):
    """One type."""

    schema: dict[str, Any]
    """Its JSON Schema, an object with everything it refers to inside."""
    read: Callable[[Any], Any]
    """From JSON as Python values to the type. Raises `ValueError` saying what is wrong and where."""


def shape_of(type_: Any) -> Shape:
    """Raises `RequestError` for a type that has no JSON form."""
    try:
        schema = msgspec.json.schema(type_, schema_hook=_schema_of_foreign)
    except (TypeError, NotImplementedError) as error:
        raise RequestError(
            f"{getattr(type_, '__name__', type_)!s} cannot be told to a model as a JSON Schema: {error}",
            kind="unsupported",
        ) from error

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, type_, strict=False, dec_hook=_read_foreign)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error

    return Shape(_whole(schema), read)


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own first definition in place of a reference to it, and all others beside it."""
    definitions: dict[str, Any] = {}
    _gather(schema, definitions)
    reference = schema.get("$ref")
    if isinstance(reference, str) and set(schema) <= {"$ref", _DEFINITIONS}:
        name = reference.rpartition("/")[2]
        schema = dict(definitions[name])
        if f'"#/$defs/{name}"' not in msgspec.json.encode([schema, definitions]).decode():
            del definitions[name]
    schema.pop(_DEFINITIONS, None)
    return schema | ({_DEFINITIONS: definitions} if definitions else {})


def _gather(value: Any, into: dict[str, Any]) -> None:
    """Move definitions, which pydantic leaves where its model stands, to one place."""
    if isinstance(value, dict):
        for name, definition in value.pop(_DEFINITIONS, {}).items():
            _gather(definition, into)
            if into.setdefault(name, definition) != definition:
                raise RequestError(f"there are two types with the name {name}: a JSON Schema can hold one", code="name")
        for inner in value.values():
            _gather(inner, into)
    elif isinstance(value, list):
        for inner in value:
            _gather(inner, into)


def _is_pydantic(type_: Any) -> bool:
    return inspect.isclass(type_) and hasattr(type_, "model_validate") and hasattr(type_, "model_json_schema")


def _schema_of_foreign(type_: Any) -> dict[str, Any]:
    if not _is_pydantic(type_):
        raise NotImplementedError("it is no type that JSON can carry")
    schema: dict[str, Any] = type_.model_json_schema()
    return schema


def _read_foreign(type_: Any, value: Any) -> Any:
    if _is_pydantic(type_):
        return type_.model_validate(value)
    raise NotImplementedError
