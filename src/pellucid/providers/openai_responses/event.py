"""What is read of one event of the stream.

One type for all of them: the fields that mean something here, whatever event they stand in. Events that do not fit
are read once more, without what does not fit (`fitting`).

Token counts as Responses reports them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...parts import Usage
from ..fitting import REFUSED, dict_of, int_of, loose_object, struct_reader

_NOTHING = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    output_index: int | None = None
    item_id: Any = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    logprobs: Any = None
    annotation: Any = None
    # Of a call: all of it, when it is over.
    name: str | None = None
    arguments: Any = None
    input: Any = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    response: msgspec.Raw = _NOTHING
    """Large, and mostly the request over again: decoded only where it ends the answer."""
    # Errors, flat or nested.
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


class Head(msgspec.Struct, gc=False):
    """Of a response, who it is."""

    id: str | None = None
    model: str | None = None


read_event = struct_reader(Event, listed=False)
"""The event, or None for what is not a JSON object at all."""
_decode_head = msgspec.json.Decoder(Head).decode


def read_head(raw: msgspec.Raw) -> Head:
    """The id and the model of a response. Whatever is not text is nothing."""
    try:
        return _decode_head(raw)
    except REFUSED:
        value = read_response(raw)
        named = {name: value.get(name) for name in ("id", "model")}
        return Head(**{name: text for name, text in named.items() if isinstance(text, str)})


def read_response(raw: msgspec.Raw) -> dict[str, Any]:
    """The whole response; empty if it is not an object."""
    return loose_object(bytes(raw)) or {}


# Counts that have a field of their own; the others keep their own names in `details`.
_STANDARD = frozenset({"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"})


def read_usage(raw: dict[str, Any], counted: Literal["inside", "outside", "by_total"] = "inside") -> Usage:
    """`counted`: whether the output's count includes reasoning; `by_total`: whichever agrees with the total."""
    given, made, total = (int_of(raw, name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    of_input, of_output = dict_of(raw, "input_tokens_details"), dict_of(raw, "output_tokens_details")
    reasoning = int_of(of_output, "reasoning_tokens")
    if made is not None and reasoning:
        beside = counted == "by_total" and given is not None and total == given + made + reasoning
        if counted == "outside" or beside:
            made += reasoning
    details = {
        name: value
        for where in (raw, of_input, of_output)
        for name, value in where.items()
        if type(value) is int and name not in _STANDARD
    }
    return Usage(
        input_tokens=given,
        output_tokens=made,
        output_reasoning_tokens=reasoning,
        cache_read_tokens=int_of(of_input, "cached_tokens"),
        cache_write_tokens=int_of(of_input, "cache_write_tokens"),
        input_audio_tokens=int_of(of_input, "audio_tokens"),
        output_audio_tokens=int_of(of_output, "audio_tokens"),
        details=details,
    )
