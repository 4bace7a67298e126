"""Helpers of the tests of the Anthropic wire: they write frames and compare decoded events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pellucid.errors import ErrorInfo
from pellucid.events import Cause, ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import ModelResponse, Origin
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from tests.cutting import cut as cut
from tests.cutting import merged as merged

ROWS = {name: row for name, row in builtin_profiles().items() if row.wire == "anthropic"}


# --- frames of the provider --------------------------------------------------------------------------------------


def sse(*frames: dict[str, Any] | str) -> bytes:
    """Encode frames as a stream of server-sent events. A string is written as a line."""
    lines = [
        frame if isinstance(frame, str) else f"event: {frame.get('type', 'x')}\ndata: {json.dumps(frame)}"
        for frame in frames
    ]
    return "".join(f"{line}\n\n" for line in lines).encode()


def start(id: str = "msg_1", content: Sequence[dict[str, Any]] = (), **usage: int) -> dict[str, Any]:
    message = {
        "id": id, "type": "message", "role": "assistant", "model": "claude", "content": list(content),
        "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def block_start(index: int, type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": type, **fields}}


def block_delta(index: int, type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{type}_delta", **fields}}


def block_stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def thinking(index: int, *texts: str, signature: str | None = "sig") -> list[dict[str, Any]]:
    """Return the frames of a complete thinking block."""
    return [
        block_start(index, "thinking", thinking="", signature=""),
        *(block_delta(index, "thinking", thinking=text) for text in texts),
        *([block_delta(index, "signature", signature=signature)] if signature is not None else []),
        block_stop(index),
    ]


def text(index: int, *texts: str) -> list[dict[str, Any]]:
    deltas = (block_delta(index, "text", text=text) for text in texts)
    return [block_start(index, "text", text=""), *deltas, block_stop(index)]


def tool(index: int, id: str, *pieces: str, name: str = "f", type: str = "tool_use") -> list[dict[str, Any]]:
    deltas = (block_delta(index, "input_json", partial_json=piece) for piece in pieces)
    return [block_start(index, type, id=id, name=name, input={}), *deltas, block_stop(index)]


def message_end(
    reason: str | None = "end_turn", *, delta: dict[str, Any] | None = None, **usage: Any
) -> list[dict[str, Any]]:
    about = {"stop_reason": reason, "stop_sequence": None, **(delta or {})}
    return [
        {"type": "message_delta", "delta": about, "usage": {"output_tokens": 20, **usage}},
        {"type": "message_stop"},
    ]


def body(*content: dict[str, Any], reason: str | None = "end_turn", **fields: Any) -> bytes:
    """Return the body of a complete message."""
    message = start(content=content)["message"] | {"stop_reason": reason} | fields
    return json.dumps(message).encode()


PING = {"type": "ping"}


# --- decoding ----------------------------------------------------------------------------------------------------


def origin(row: Profile | str = "anthropic", model: str = "claude") -> Origin:
    return Origin(row if isinstance(row, str) else row.name, "anthropic", model)


def events_of(
    data: bytes | Sequence[bytes],
    row: Profile | str = "anthropic",
    *,
    cause: Cause = "eof",
    error: ErrorInfo | None = None,
) -> list[ModelEvent]:
    """Decode these reads and return the events."""
    profile = ROWS[row] if isinstance(row, str) else row
    reader = WIRES["anthropic"].decoder(profile, origin(profile))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(data: bytes | Sequence[bytes], row: Profile | str = "anthropic", **ending: Any) -> Fold:
    """Decode and fold; raise if the events are illegal or the turn is left open."""
    result = fold(list(events_of(data, row, **ending)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(data: bytes | Sequence[bytes], row: Profile | str = "anthropic", **ending: Any) -> ModelResponse:
    """Return the response of a turn that must not fail."""
    result = folded(data, row, **ending)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def part_contents(response: ModelResponse) -> list[tuple[str, Any]]:
    """Return (kind, content or arguments) of every part, in order."""
    return [
        (part.part_kind, getattr(part, "args", None) if hasattr(part, "args") else getattr(part, "content", None))
        for part in response.parts
    ]
