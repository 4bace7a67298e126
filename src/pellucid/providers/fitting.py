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

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not strict JSON, or not of the type asked for."""


def loose_json(data: bytes) -> Any:
    """The JSON value in `data`. Raises ValueError if there is none."""
    try:
        return msgspec.json.decode(data)
    except REFUSED:
        pass
    try:
        return _whole(json.loads(data.decode("utf-8", "replace"), strict=False, parse_int=_integer))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _integer(digits: str) -> int | float:
    """Within 64 bits: encoders refuse larger ones."""
    return int(digits) if len(digits) <= 18 else float(digits)


def _whole(value: Any) -> Any:
    """`value` without lone surrogates, which no encoder accepts."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(entry) for entry in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(entry) for name, entry in value.items()}
    return value


S = TypeVar("S", bound=msgspec.Struct)


def loose_object(data: bytes, *, listed: bool = False) -> dict[str, Any] | None:
    """The JSON object in `data`, or, if it may be `listed`, that is all there is in a list: Google wraps its errors so.
    None if there is none."""
    try:
        value = loose_json(data)
    except ValueError:
        return None
    if listed and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else None


def struct_reader(to: type[S], *, listed: bool = True) -> Callable[[bytes], S | None]:
    """A function from bytes to `to`; None for what is not a JSON object (see `loose_object`) at all."""
    decode = msgspec.json.Decoder(to).decode

    def read(data: bytes) -> S | None:
        try:
            return decode(data)
        except REFUSED:
            pass
        value = loose_object(data, listed=listed)
        return None if value is None else fit(value, to)

    return read


def fit(value: dict[str, Any], to: type[S]) -> S:
    """`value` as `to`, without the fields whose values do not fit. All fields of `to` must have defaults."""
    fitting: dict[str, Any] = {}
    for name, key, type_, one, many in _plan(to):
        raw = value.get(key)
        if raw is None:
            continue
        entries = [entry for entry in raw if isinstance(entry, dict)] if isinstance(raw, list) else [raw]
        if one is not None:
            if isinstance(raw, dict):
                fitting[name] = fit(raw, one)
        elif many is not None:
            fitting[name] = [fit(entry, many) for entry in entries if isinstance(entry, dict)]
        else:
            for candidate in (raw, entries):
                try:
                    fitting[name] = _convert(candidate, type_)
                    break
                except (msgspec.ValidationError, msgspec.EncodeError, RecursionError):
                    continue
    return to(**fitting)


def _convert(value: Any, type_: Any) -> Any:
    return msgspec.Raw(msgspec.json.encode(value)) if type_ is msgspec.Raw else msgspec.convert(value, type_)


class _Field(NamedTuple):
    name: str
    key: str
    """What the wire calls it."""
    type: Any
    one: type[msgspec.Struct] | None
    """The struct it holds, if it holds one."""
    many: type[msgspec.Struct] | None
    """The struct of which it holds a list."""


@cache
def _plan(to: type[msgspec.Struct]) -> tuple[_Field, ...]:
    fields = []
    for field in msgspec.structs.fields(to):
        options = get_args(field.type) or (field.type,)
        one = next((option for option in options if _is_struct(option)), None)
        inside = [get_args(option)[0] for option in options if get_origin(option) is list]
        many = next((option for option in inside if _is_struct(option)), None)
        fields.append(_Field(field.name, field.encode_name, field.type, one, many))
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
