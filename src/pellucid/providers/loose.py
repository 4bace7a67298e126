"""JSON as servers really send it.

Strict JSON is read by msgspec. What it refuses is read once more, by rules that real servers need: `NaN` and
`Infinity` (log-probabilities), lone surrogates (`\\ud83d`, half of a character that a server cut in two), bytes that
are not UTF-8, control characters in strings, numbers that fit into nothing. What cannot be shown becomes U+FFFD; the
rest of the value is kept.
"""

from __future__ import annotations

import json
from typing import Any

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
