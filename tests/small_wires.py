"""Helpers for tests of the wires `mistral`, `cohere` and `ollama`: building and splitting bytes, comparing events."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import Cause, ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import (
    CompactionPart,
    FilePart,
    ModelResponse,
    OpaquePart,
    Origin,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.cutting import cut, merged

ROWS = builtin_profiles()


# --- encoding frames as a server does ----------------------------------------------------------------------------


def sse(*frames: Any) -> bytes:
    """Return a stream of these. A string is a line of its own: `data: [DONE]`, a comment, or anything else."""
    lines = [frame if isinstance(frame, str) else f"data: {json.dumps(frame)}" for frame in frames]
    return "".join(f"{line}\n\n" for line in lines).encode()


def lines(*values: Any) -> bytes:
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


# --- decoding ----------------------------------------------------------------------------------------------------


def origin(row: str, model: str = "m") -> Origin:
    return Origin(row, ROWS[row].wire, model)


def events_of(
    row: str, data: bytes | Sequence[bytes], *, model: str = "m", cause: Cause = "eof", error: ErrorInfo | None = None
) -> list[ModelEvent]:
    """Decode these reads, and return the events."""
    profile = ROWS[row].for_model(model)
    reader = WIRES[profile.wire].decoder(profile, origin(row, model))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(row: str, data: bytes | Sequence[bytes], **how: Any) -> Fold:
    """Decode and fold: raises if the events are not valid, fails if the turn is left open."""
    result = fold(list(events_of(row, data, **how)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(row: str, data: bytes | Sequence[bytes], **how: Any) -> ModelResponse:
    """Decode a response that must not contain an error."""
    result = folded(row, data, **how)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def error_of(row: str, data: bytes | Sequence[bytes], **how: Any) -> tuple[ErrorInfo, ModelResponse]:
    """Decode a response that must contain an error; return the error and the parts."""
    result = folded(row, data, **how)
    assert result.error is not None
    assert result.response is not None
    assert result.response.finish_reason == "error"
    return result.error, result.response


def kinds_and_texts(response: ModelResponse) -> list[tuple[str, Any]]:
    """Return the parts as pairs of kind and text, in order."""
    names = ("args", "content", "native", "data")
    return [
        (part.part_kind, next(getattr(part, name) for name in names if hasattr(part, name))) for part in response.parts
    ]


# --- cutting it --------------------------------------------------------------------------------------------------


def check_cuts(row: str, data: bytes, *, model: str = "m", seed: str = "") -> None:
    """Check that a response split at any position (many, if it is large), or at every byte, gives the same events."""
    whole = merged(events_of(row, data, model=model))
    dice = random.Random(seed)
    small = len(data) <= 1_200
    places = range(len(data)) if small else (dice.randrange(len(data)) for _ in range(300_000 // len(data) + 60))
    for place in places:
        assert merged(events_of(row, cut(data, [place]), model=model)) == whole, f"cut at {place}"
    assert merged(events_of(row, [data[at : at + 1] for at in range(len(data))], model=model)) == whole, "byte by byte"


# --- breaking it -------------------------------------------------------------------------------------------------

_ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    "",
    "x",
    [],
    {},
    [None, "x", 3, {"type": 5}, {"type": "text"}],
    {"type": {}},
    "\ud83d",
]
odd = st.sampled_from(_ODD) | st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "thinking", "index", "content", "id"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def broken(draw: st.DrawFn, frames: Sequence[Any]) -> list[Any]:
    """Remove, duplicate or move some of these values, or change a value within them."""
    out = [json.loads(json.dumps(frame)) for frame in frames]
    for _ in range(draw(st.integers(0, 3))):
        if not out:
            break
        at = draw(st.integers(0, len(out) - 1))
        how = draw(st.sampled_from(["lose", "double", "move", "change", "change", "change"]))
        if how == "lose":
            del out[at]
        elif how == "double":
            out.insert(draw(st.integers(0, len(out))), json.loads(json.dumps(out[at])))
        elif how == "move":
            out.insert(draw(st.integers(0, len(out) - 1)), out.pop(at))
        else:
            out[at] = draw(_changed(out[at]))
    return out


@st.composite
def _changed(draw: st.DrawFn, value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or draw(st.integers(0, 3)) == 0:
        return json.loads(json.dumps(draw(odd)))
    key = draw(st.sampled_from(keys))
    value[key] = draw(_changed(value[key]))
    return value


@st.composite
def garbled(draw: st.DrawFn, data: bytes) -> bytes:
    """Remove, duplicate or replace some of these bytes, or truncate them."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        put = draw(
            st.sampled_from([b"", b"\n", b"\n\n", b"\r", b"{", b"}", b'"', b"\xff", b"null", b"<think>", b"\x00"])
        )
        data = data[:start] + put + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


def check_total(row: str, data: bytes, places: list[int], *, model: str = "m") -> None:
    """Check that any bytes give a valid, closed turn, and the same events however they are split."""
    whole = merged(events_of(row, data, model=model))
    folded(row, data, model=model)
    assert merged(events_of(row, cut(data, places), model=model)) == whole


# --- sending it back ---------------------------------------------------------------------------------------------

FOREIGN = Origin("elsewhere", "openai_chat", "other")
SECRET = "s3cret"


def assistant(row: str, response: ModelResponse, *, model: str = "m", **call: Any) -> dict[str, Any] | None:
    """Return the message that is sent for an earlier response, without its role; None if there is none."""
    profile = ROWS[row].for_model(model)
    body = WIRES[profile.wire].encode(ModelCall(model, [response], **call), profile, origin(row, model))
    if not body["messages"]:
        return None
    (message,) = body["messages"]
    assert message["role"] == "assistant"
    return {name: value for name, value in message.items() if name not in ("role", "prefix")}


details = st.dictionaries(
    st.sampled_from(["inserted", "closed", "citations", "subtype", "open", "close", "native"]),
    st.sampled_from([SECRET, True, [{"at": 0, "chunk": {"type": "text", "text": SECRET}}], [{"text": SECRET}]]),
)
secret = st.sampled_from([SECRET, None])
foreign_parts = st.lists(
    st.builds(
        ThinkingPart,
        st.sampled_from(["", "why"]),
        id=secret,
        signature=secret,
        provider_name=secret,
        provider_details=details,
    )
    | st.builds(TextPart, st.just("so"), id=secret, signature=secret, provider_name=secret, provider_details=details)
    | st.builds(
        ToolCallPart,
        st.just("f"),
        st.just("{}"),
        st.just("c1"),
        id=secret,
        signature=secret,
        provider_name=secret,
        provider_details=details,
    )
    | st.builds(OpaquePart, st.just("x"), st.just({"type": "x", "data": SECRET}), id=secret)
    | st.builds(FilePart, st.just("AAAA"), st.just("image/png"), signature=secret, provider_details=details)
    | st.builds(CompactionPart, st.just("before"), signature=secret, provider_details=details),
    max_size=4,
)
"""Parts of another model, with opaque data in every field."""
