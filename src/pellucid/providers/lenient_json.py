r"""Lenient decoding of JSON, as values and as structs, so that a decoder accepts any input.

Strict JSON is decoded by msgspec. Input that it rejects is decoded again by rules that real servers need: `NaN` and
`Infinity` (log-probabilities), lone surrogates (`\ud83d`, half of a character that a server cut in two), bytes that are
not UTF-8, control characters in strings, numbers of more than 64 bits. Characters that cannot be encoded become U+FFFD;
the rest of the value stays.

A struct is decoded by msgspec first, which is fast. A value that it rejects is converted field by field: a value of an
unexpected type is left out (in a list, the entry), and everything else stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for bytes that are not strict JSON or not of the expected type."""


def decode_lenient_json(data: bytes) -> Any:
    """Decode a JSON value.

    Raises:
        ValueError: The data is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        pass
    try:
        return _replace_surrogates(json.loads(data.decode("utf-8", "replace"), strict=False, parse_int=_parse_integer))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _parse_integer(digits: str) -> int | float:
    """Parse an integer; one that may exceed 64 bits becomes a float, because encoders reject it."""
    return int(digits) if len(digits) <= 18 else float(digits)


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which no encoder accepts, in a value."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(entry) for entry in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(entry) for name, entry in value.items()}
    return value


S = TypeVar("S", bound=msgspec.Struct)


def decode_lenient_object(data: bytes, *, allow_list: bool = False) -> dict[str, Any] | None:
    """Decode a JSON object.

    Args:
        data: The bytes.
        allow_list: Whether a list with one object is accepted as that object; Google wraps its errors so.

    Returns:
        The object; None if there is none.
    """
    try:
        value = decode_lenient_json(data)
    except ValueError:
        return None
    if allow_list and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else None


def lenient_struct_decoder(struct_type: type[S], *, allow_list: bool = True) -> Callable[[bytes], S | None]:
    """Return a function that decodes bytes as a struct; its result is None if they are not a JSON object.

    Args:
        struct_type: The struct; all its fields must have defaults.
        allow_list: See `decode_lenient_object`.
    """
    decode = msgspec.json.Decoder(struct_type).decode

    def decode_leniently(data: bytes) -> S | None:
        try:
            return decode(data)
        except DECODE_ERRORS:
            pass
        value = decode_lenient_object(data, allow_list=allow_list)
        return None if value is None else convert_leniently(value, struct_type)

    return decode_leniently


def convert_leniently(value: dict[str, Any], struct_type: type[S]) -> S:
    """Convert an object to a struct, leaving out fields whose values do not fit.

    Args:
        value: The object.
        struct_type: The struct; all its fields must have defaults.
    """
    values: dict[str, Any] = {}
    for name, key, type_, struct, list_struct in field_plan(struct_type):
        raw = value.get(key)
        if raw is None:
            continue
        entries = [entry for entry in raw if isinstance(entry, dict)] if isinstance(raw, list) else [raw]
        if struct is not None:
            if isinstance(raw, dict):
                values[name] = convert_leniently(raw, struct)
        elif list_struct is not None:
            values[name] = [convert_leniently(entry, list_struct) for entry in entries if isinstance(entry, dict)]
        else:
            for candidate in (raw, entries):
                try:
                    values[name] = _convert(candidate, type_)
                    break
                except (msgspec.ValidationError, msgspec.EncodeError, RecursionError):
                    continue
    return struct_type(**values)


def _convert(value: Any, type_: Any) -> Any:
    return msgspec.Raw(msgspec.json.encode(value)) if type_ is msgspec.Raw else msgspec.convert(value, type_)


class StructField(NamedTuple):
    """A field of a struct."""

    name: str
    wire_name: str
    """The field's name on the wire."""
    type: Any
    struct: type[msgspec.Struct] | None
    """The struct that the field holds, if any."""
    list_struct: type[msgspec.Struct] | None
    """The struct of which the field holds a list, if any."""


@cache
def field_plan(struct_type: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """Return the fields of a struct."""
    fields = []
    for field in msgspec.structs.fields(struct_type):
        options = get_args(field.type) or (field.type,)
        struct = next((option for option in options if _is_struct(option)), None)
        list_items = [get_args(option)[0] for option in options if get_origin(option) is list]
        list_struct = next((option for option in list_items if _is_struct(option)), None)
        fields.append(StructField(field.name, field.encode_name, field.type, struct, list_struct))
    return tuple(fields)


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def int_of(raw: dict[str, Any], name: str) -> int | None:
    """Return the member `name` if it is an integer; otherwise None."""
    value = raw.get(name)
    return value if type(value) is int else None


def text_of(raw: dict[str, Any], name: str) -> str | None:
    """Return the member `name` if it is a text that is not empty; otherwise None."""
    value = raw.get(name)
    return value if isinstance(value, str) and value else None


def dict_of(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the member `name` if it is an object; otherwise an empty object."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def camel_case(name: str) -> str:
    """Convert a name: `prompt_token_count` to `promptTokenCount`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest) if first and rest else name
