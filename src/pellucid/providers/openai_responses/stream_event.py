"""Struct of a stream event, and token counts.

One struct serves all event types: it has the fields that the decoder uses. An event that does not fit is decoded again
without the fields that do not fit (`lenient_json`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...parts import Usage
from ..lenient_json import DECODE_ERRORS, decode_lenient_object, dict_of, int_of, lenient_struct_decoder

_EMPTY = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    """The fields of all event types that the decoder uses."""

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
    # Of a call that is over: its complete data.
    name: str | None = None
    arguments: Any = None
    input: Any = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    response: msgspec.Raw = _EMPTY
    """Large, and mostly a copy of the request: decoded only in the events that end the response."""
    # Errors, flat or nested.
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


class ResponseHead(msgspec.Struct, gc=False):
    """The id and the model of a response."""

    id: str | None = None
    model: str | None = None


read_event = lenient_struct_decoder(Event, allow_list=False)
"""Decode an event; None if the bytes are not a JSON object."""
_decode_response_head = msgspec.json.Decoder(ResponseHead).decode


def read_response_head(raw: msgspec.Raw) -> ResponseHead:
    """Decode the id and the model of a response. Values that are not text are ignored."""
    try:
        return _decode_response_head(raw)
    except DECODE_ERRORS:
        value = read_response(raw)
        fields = {name: value.get(name) for name in ("id", "model")}
        return ResponseHead(**{name: text for name, text in fields.items() if isinstance(text, str)})


def read_response(raw: msgspec.Raw) -> dict[str, Any]:
    """Decode a whole response; empty if it is not an object."""
    return decode_lenient_object(bytes(raw)) or {}


# Counts that have a field in `Usage`; other counts keep their names in `details`.
_STANDARD_COUNTS = frozenset({"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"})


def read_usage(raw: dict[str, Any], reasoning_counted: Literal["inside", "outside", "by_total"] = "inside") -> Usage:
    """Read token counts.

    Args:
        raw: The `usage` object.
        reasoning_counted: Whether the output count includes reasoning; `by_total`: whichever matches the total.
    """
    input_tokens, output_tokens, total = (
        int_of(raw, name) for name in ("input_tokens", "output_tokens", "total_tokens")
    )
    input_details, output_details = dict_of(raw, "input_tokens_details"), dict_of(raw, "output_tokens_details")
    reasoning_count = int_of(output_details, "reasoning_tokens")
    if output_tokens is not None and reasoning_count:
        is_outside = (
            reasoning_counted == "by_total"
            and input_tokens is not None
            and total == input_tokens + output_tokens + reasoning_count
        )
        if reasoning_counted == "outside" or is_outside:
            output_tokens += reasoning_count
    details = {
        name: value
        for counts in (raw, input_details, output_details)
        for name, value in counts.items()
        if type(value) is int and name not in _STANDARD_COUNTS
    }
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        output_reasoning_tokens=reasoning_count,
        cache_read_tokens=int_of(input_details, "cached_tokens"),
        cache_write_tokens=int_of(input_details, "cache_write_tokens"),
        input_audio_tokens=int_of(input_details, "audio_tokens"),
        output_audio_tokens=int_of(output_details, "audio_tokens"),
        details=details,
    )
