"""JSON as a struct, without what does not fit: a decoder is total.

The strict way is msgspec's and fast. A value that it refuses is read once more, loosely and field by field: what has
an unexpected type is left out (of a list, its entries), everything else is kept.

JSON as servers really send it.

Strict JSON is read by msgspec. What it refuses is read once more, by rules that real servers need: `NaN` and
`Infinity` (log-probabilities), lone surrogates (`\ud83d`, half of a character that a server cut in two), bytes that
are not UTF-8, control characters in strings, numbers that fit into nothing. What cannot be shown becomes U+FFFD; the
rest of the value is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not strict JSON, or not of the type asked for."""


def decode_lenient_json(data: bytes) -> Any:
    """The JSON value in `data`. Raises ValueError if there is none."""
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        pass
    try:
        return _replace_surrogates(json.loads(data.decode("utf-8", "replace"), strict=False, parse_int=_parse_integer))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _parse_integer(digits: str) -> int | float:
    """Within 64 bits: encoders refuse larger ones."""
    return int(digits) if len(digits) <= 18 else float(digits)


def _replace_surrogates(value: Any) -> Any:
    """`value` without lone surrogates, which no encoder accepts."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(entry) for entry in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(entry) for name, entry in value.items()}
    return value


S = TypeVar("S", bound=msgspec.Struct)


def decode_lenient_object(data: bytes, *, allow_list: bool = False) -> dict[str, Any] | None:
    """The JSON object in `data`, or, if it may be `listed`, that is all there is in a list: Google wraps its errors so.
    None if there is none."""
    try:
        value = decode_lenient_json(data)
    except ValueError:
        return None
    if allow_list and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else None


def lenient_struct_decoder(struct_type: type[S], *, allow_list: bool = True) -> Callable[[bytes], S | None]:
    """A function from bytes to `to`; None for what is not a JSON object (see `decode_lenient_object`) at all."""
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
    """`value` as `to`, without the fields whose values do not fit. All fields of `to` must have defaults."""
    values: dict[str, Any] = {}
    for name, key, type_, struct, list_struct in _field_plan(struct_type):
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


class _Field(NamedTuple):
    name: str
    wire_name: str
    """What the wire calls it."""
    type: Any
    struct: type[msgspec.Struct] | None
    """The struct it holds, if it holds one."""
    list_struct: type[msgspec.Struct] | None
    """The struct of which it holds a list."""


@cache
def _field_plan(struct_type: type[msgspec.Struct]) -> tuple[_Field, ...]:
    fields = []
    for field in msgspec.structs.fields(struct_type):
        options = get_args(field.type) or (field.type,)
        struct = next((option for option in options if _is_struct(option)), None)
        list_items = [get_args(option)[0] for option in options if get_origin(option) is list]
        list_struct = next((option for option in list_items if _is_struct(option)), None)
        fields.append(_Field(field.name, field.encode_name, field.type, struct, list_struct))
    return tuple(fields)


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def int_of(raw: dict[str, Any], name: str) -> int | None:
    """The member `name`, if it is an integer."""
    value = raw.get(name)
    return value if type(value) is int else None


def dict_of(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """The member `name`, if it is an object; else an empty one."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}
