"""The JSON Schema of a Python type, and the conversion of JSON values to the type.

msgspec reads annotations: builtins, dataclasses, TypedDicts, NamedTuples, enums, Literals, Structs, unions, dates,
`Annotated[…, Meta(…)]`. A pydantic model inside any of these validates itself. Conversion is lenient: models write "3"
where 3 is meant.

What only pydantic can read, it reads, where it is installed: unions with its models, `Annotated[…, Field(…)]`, paths,
and its own types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import inspect as msgspec_inspect

from ..errors import RequestError

_DEFINITIONS = "$defs"


class TypeAdapter(NamedTuple):
    """The JSON Schema and the validation of one type."""

    schema: dict[str, Any]
    """The JSON Schema, an object with all its definitions inside."""
    validate: Callable[[Any], Any]
    """Converts JSON values to the type. Raises `ValueError` that says what is wrong, and where."""


class Argument(NamedTuple):
    """A parameter of a function."""

    name: str
    type: Any
    default: Any = inspect.Parameter.empty
    description: str | None = None


def type_adapter(type_: Any) -> TypeAdapter:
    """Return the adapter of a type. Raises `RequestError` for a type without a JSON Schema."""
    return _first_adapter(
        _is_annotated_for_pydantic(type_), partial(_msgspec_adapter, type_), partial(_pydantic_adapter, type_)
    )


def arguments_adapter(name: str, arguments: Sequence[Argument]) -> TypeAdapter:
    """Return the adapter of a function's arguments: `validate` returns a dictionary with all of them.

    Args:
        name: The name of the function.
        arguments: The parameters.

    Raises:
        RequestError: A parameter cannot be described by a JSON Schema.
    """
    is_for_pydantic = any(_is_annotated_for_pydantic(argument.type, argument.default) for argument in arguments)
    return _first_adapter(
        is_for_pydantic, partial(_msgspec_arguments, name, arguments), partial(_pydantic_arguments, name, arguments)
    )


def _first_adapter(
    is_for_pydantic: bool,
    read: Callable[[], TypeAdapter],
    read_by_pydantic: Callable[[], TypeAdapter | None],
) -> TypeAdapter:
    """Return the adapter of msgspec; pydantic's if the types are annotated for it, or if msgspec cannot read them."""
    if is_for_pydantic and (adapter := read_by_pydantic()) is not None:
        return adapter
    try:
        return read()
    except RequestError:
        if is_for_pydantic or (adapter := read_by_pydantic()) is None:
            raise
        return adapter


def _by_parameter(adapter: TypeAdapter, fields: Mapping[str, str]) -> TypeAdapter:
    """Return the adapter of arguments from that of an object, whose `fields` have them: field by parameter."""
    schema = {key: value for key, value in adapter.schema.items() if key != "title"}

    def validate(value: Any) -> dict[str, Any]:
        validated = adapter.validate(value)
        return {parameter: getattr(validated, field) for parameter, field in fields.items()}

    return TypeAdapter(schema | {"additionalProperties": False}, validate)


def inline_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the root of the schema by its definition, and collect all other definitions next to it."""
    definitions: dict[str, Any] = {}
    _collect_definitions(schema, definitions)
    reference = schema.get("$ref")
    if isinstance(reference, str) and set(schema) <= {"$ref", _DEFINITIONS}:
        name = reference.rpartition("/")[2]
        schema = dict(definitions[name])
        if f'"#/$defs/{name}"' not in msgspec.json.encode([schema, definitions]).decode():
            del definitions[name]
    schema.pop(_DEFINITIONS, None)
    return schema | ({_DEFINITIONS: definitions} if definitions else {})


def _collect_definitions(value: Any, definitions: dict[str, Any]) -> None:
    """Move definitions, which pydantic puts inside its models, to one place."""
    if isinstance(value, dict):
        for name, definition in value.pop(_DEFINITIONS, {}).items():
            _collect_definitions(definition, definitions)
            if definitions.setdefault(name, definition) != definition:
                raise RequestError(f"there are two types with the name {name}: a JSON Schema can hold one", code="name")
        for inner in value.values():
            _collect_definitions(inner, definitions)
    elif isinstance(value, list):
        for inner in value:
            _collect_definitions(inner, definitions)


# --- msgspec -----------------------------------------------------------------------------------------------------


def _msgspec_adapter(type_: Any) -> TypeAdapter:
    try:
        schema = msgspec.json.schema(type_, schema_hook=_pydantic_schema)
    except (TypeError, NotImplementedError) as error:
        raise RequestError(
            f"{getattr(type_, '__name__', type_)!s} cannot be described by a JSON Schema: {error}",
            kind="unsupported",
        ) from error
    _add_time_formats(msgspec_inspect.type_info(type_), schema, schema.get(_DEFINITIONS, {}), set())

    def validate(value: Any) -> Any:
        try:
            return msgspec.convert(value, type_, strict=False, dec_hook=_validate_pydantic)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error

    return TypeAdapter(inline_root(schema), validate)


def _msgspec_arguments(name: str, arguments: Sequence[Argument]) -> TypeAdapter:
    fields: list[Any] = []
    for argument in arguments:
        type_ = argument.type
        if argument.description is not None:
            type_ = Annotated[type_, msgspec.Meta(description=argument.description)]
        is_required = argument.default is inspect.Parameter.empty
        fields.append((argument.name, type_) if is_required else (argument.name, type_, _default(argument.default)))
    struct = msgspec.defstruct(
        name if name.isidentifier() else "Arguments", fields, kw_only=True, forbid_unknown_fields=True
    )
    return _by_parameter(_msgspec_adapter(struct), {argument.name: argument.name for argument in arguments})


def _default(value: Any) -> Any:
    """Return the default of a field. msgspec needs a factory for mutable defaults."""
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=lambda: value)
    return value


def _add_time_formats(info: Any, schema: Any, definitions: dict[str, Any], seen: set[Any]) -> None:
    """Add the format to the schema of each `datetime` and `time`.

    msgspec adds it only to those that must have a time zone; without it, a model does not know that it is a time.

    Args:
        info: What `msgspec.inspect` says about the type.
        schema: The schema of the type.
        definitions: The definitions to which the schema refers.
        seen: The classes whose schemas have their formats.
    """
    while isinstance(info, msgspec_inspect.Metadata):
        info = info.type
    if not isinstance(schema, dict):
        return
    pairs: list[tuple[Any, Any]] = []
    if isinstance(info, msgspec_inspect.DateTimeType):
        schema.setdefault("format", "date-time")
    elif isinstance(info, msgspec_inspect.TimeType):
        schema["format"] = "time"
    elif isinstance(info, msgspec_inspect.UnionType):
        # msgspec puts structs behind the other types, and None last.
        members = sorted(info.types, key=_union_rank)
        pairs += zip(members, _options(schema), strict=False)
    elif isinstance(info, msgspec_inspect.CollectionType):
        pairs.append((info.item_type, schema.get("items")))
    elif isinstance(info, msgspec_inspect.TupleType):
        pairs += zip(info.item_types, schema.get("prefixItems", []), strict=False)
    elif isinstance(info, msgspec_inspect.DictType):
        pairs.append((info.value_type, schema.get("additionalProperties")))
    elif hasattr(info, "fields") and info.cls not in seen:
        seen.add(info.cls)
        object_schema = definitions.get(str(schema.get("$ref")).rpartition("/")[2], schema)
        properties, items = object_schema.get("properties", {}), object_schema.get("prefixItems", [])
        pairs += [(field.type, properties.get(getattr(field, "encode_name", field.name))) for field in info.fields]
        pairs += zip([field.type for field in info.fields], items, strict=False)
    for inner_info, inner_schema in pairs:
        _add_time_formats(inner_info, inner_schema, definitions, seen)


def _union_rank(info: Any) -> int:
    while isinstance(info, msgspec_inspect.Metadata):
        info = info.type
    if isinstance(info, msgspec_inspect.StructType) and not info.array_like:
        return 1
    return 2 if isinstance(info, msgspec_inspect.NoneType) else 0


def _options(schema: dict[str, Any]) -> list[Any]:
    """Return the options of a union; those of several structs are options of one option."""
    return [
        inner
        for option in schema.get("anyOf", [])
        for inner in (option["anyOf"] if "discriminator" in option else [option])
    ]


# --- pydantic ----------------------------------------------------------------------------------------------------


def _is_pydantic(type_: Any) -> bool:
    return inspect.isclass(type_) and hasattr(type_, "model_validate") and hasattr(type_, "model_json_schema")


def _pydantic_schema(type_: Any) -> dict[str, Any]:
    if not _is_pydantic(type_):
        raise NotImplementedError("JSON cannot hold this type")
    schema: dict[str, Any] = type_.model_json_schema()
    return schema


def _validate_pydantic(type_: Any, value: Any) -> Any:
    if _is_pydantic(type_):
        return type_.model_validate(value)
    raise NotImplementedError


def _is_annotated_for_pydantic(type_: Any, default: Any = None) -> bool:
    """Check that annotations, or the default, are for pydantic: `Field(…)`, `Gt(…)`, a validator."""
    marks = (default, *getattr(type_, "__metadata__", ()))
    if any(type(mark).__module__.partition(".")[0] in ("pydantic", "annotated_types") for mark in marks):
        return True
    return any(_is_annotated_for_pydantic(inner) for inner in get_args(type_) if not isinstance(inner, str))


def _pydantic_adapter(type_: Any) -> TypeAdapter | None:
    """Return the adapter of a type that pydantic reads; None if it cannot, or is not installed."""
    try:
        import pydantic
    except ImportError:
        return None
    try:
        adapter: Any = pydantic.TypeAdapter(type_)
        schema = adapter.json_schema()
    except pydantic.errors.PydanticUserError:
        return None

    def validate(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            raise ValueError(_pydantic_message(error)) from error

    return TypeAdapter(inline_root(schema), validate)


def _pydantic_arguments(name: str, arguments: Sequence[Argument]) -> TypeAdapter | None:
    """Return the adapter of arguments that pydantic reads; None if it cannot, or is not installed."""
    try:
        import pydantic
    except ImportError:
        return None
    fields: dict[str, Any] = {}
    for index, argument in enumerate(arguments):
        field: dict[str, Any] = {"alias": argument.name}
        if argument.description is not None and not _has_description(argument):
            field["description"] = argument.description
        type_ = argument.type
        type_ = Annotated[type_, pydantic.Field(**field)]
        is_required = argument.default is inspect.Parameter.empty
        # Any name is allowed for a parameter, but not for a field.
        fields[f"argument_{index}"] = (type_, ... if is_required else argument.default)
    try:
        model: Any = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    except pydantic.errors.PydanticUserError:
        return None
    if (adapter := _pydantic_adapter(model)) is None:
        return None
    for property_schema in adapter.schema.get("properties", {}).values():
        property_schema.pop("title", None)
    return _by_parameter(adapter, {argument.name: f"argument_{index}" for index, argument in enumerate(arguments)})


def _has_description(argument: Argument) -> bool:
    marks = (argument.default, *getattr(argument.type, "__metadata__", ()))
    return any(getattr(mark, "description", None) for mark in marks)


def _pydantic_message(error: Any) -> str:
    """Return the text of a `pydantic.ValidationError`, without its links."""
    return "; ".join(
        f"{entry['msg']} - at `{'.'.join(map(str, entry['loc']))}`" if entry["loc"] else entry["msg"]
        for entry in error.errors(include_url=False, include_context=False, include_input=False)
    )
