"""What is read of one event of the stream.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Blocks and messages
stay plain dictionaries: there are few of them, and what this version does not know of them must go back verbatim.
An event that does not fit is read once more, field by field, leaving out only what does not fit.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..loose import REFUSED, loose_json


class Delta(msgspec.Struct, gc=False):
    """`delta` of `content_block_delta` and of `message_delta`; which fields are there depends on its type."""

    type: str | None = None
    thinking: str | None = None
    text: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    container: dict[str, Any] | None = None


class Frame(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    input_transformations: list[Any] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Frame).decode


def read_frame(data: bytes) -> Frame | None:
    """The event, or None when `data` is not a JSON object at all."""
    try:
        return _decode(data)
    except REFUSED:
        pass
    try:
        value = loose_json(data)
    except ValueError:
        return None
    return _fitting(value, Frame) if isinstance(value, dict) else None


def _fitting(value: dict[str, Any], to: type[Any]) -> Any:
    """`value` as `to`, without the fields whose values do not fit."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(to):
        raw = value.get(field.name)
        if field.name == "delta":
            if isinstance(raw, dict):
                found["delta"] = _fitting(raw, Delta)
            continue
        try:
            found[field.name] = msgspec.convert(raw, field.type)
        except msgspec.ValidationError:
            continue
    return to(**found)
