"""Helpers of the tests of Bedrock: they write messages and compare decoded events."""

from __future__ import annotations

import json
from base64 import b64encode
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
from tests.event_stream_messages import eventstream_message

ROW = builtin_profiles()["bedrock"]
CLAUDE = "us.anthropic.claude-sonnet-4-20250514-v1:0"
NOVA = "us.amazon.nova-micro-v1:0"


def row_of(model: str = CLAUDE) -> Profile:
    return ROW.for_model(model)


def origin(model: str = CLAUDE) -> Origin:
    return Origin("bedrock", "bedrock", model)


# --- messages of the provider --------------------------------------------------------------------------------------

Message = tuple[str, dict[str, Any]]


def event(name: str, **value: Any) -> Message:
    return name, value


def begin(index: int, **start: Any) -> Message:
    return "contentBlockStart", {"contentBlockIndex": index, "start": start}


def delta(index: int, **piece: Any) -> Message:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": piece, "p": "abcdef"}


def text(index: int, *pieces: str) -> list[Message]:
    return [delta(index, text=piece) for piece in pieces] + [stop(index)]


def thought(index: int, *pieces: str, signature: str | None = None) -> list[Message]:
    """Return the messages of Claude's reasoning: text, an empty text, the signature."""
    deltas = [delta(index, reasoningContent={"text": piece}) for piece in pieces]
    if signature is not None:
        deltas += [delta(index, reasoningContent={"text": ""}), delta(index, reasoningContent={"signature": signature})]
    return [*deltas, stop(index)]


def redacted(index: int, *blobs: bytes) -> list[Message]:
    return [delta(index, reasoningContent={"redactedContent": b64(blob)}) for blob in blobs] + [stop(index)]


def tool(index: int, name: str, *pieces: str, id: str = "tooluse_1", **more: Any) -> list[Message]:
    start = begin(index, toolUse={"toolUseId": id, "name": name, **more})
    return [start, *(delta(index, toolUse={"input": piece}) for piece in pieces), stop(index)]


def stop(index: int) -> Message:
    return "contentBlockStop", {"contentBlockIndex": index}


def message_end(reason: str = "end_turn", usage: dict[str, Any] | None = None, **more: Any) -> list[Message]:
    """Return the last messages: the stop reason and the usage."""
    counts = {"inputTokens": 10, "outputTokens": 20, "totalTokens": 30} if usage is None else usage
    return [("messageStop", {"stopReason": reason, **more}), ("metadata", {"usage": counts, "metrics": {}})]


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def frame(name: str, value: Any) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return eventstream_message(payload, headers)


def stream(*messages: Message | list[Message] | bytes) -> bytes:
    """Encode messages as a stream; bytes are inserted unchanged."""
    out = [frame("messageStart", {"role": "assistant"})]
    for entry in messages:
        if isinstance(entry, bytes):
            out.append(entry)
        else:
            out += [frame(*message) for message in (entry if isinstance(entry, list) else [entry])]
    return b"".join(out)


def exception(name: str, value: Any = None) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return eventstream_message(json.dumps(value if value is not None else {}).encode(), headers)


def body(*content: dict[str, Any], reason: str = "end_turn", usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    """Return the body of a complete answer."""
    counts = {"inputTokens": 10, "outputTokens": 20, "totalTokens": 30} if usage is None else usage
    message = {"role": "assistant", "content": list(content)}
    return json.dumps({"output": {"message": message}, "stopReason": reason, "usage": counts, **more}).encode()


# --- decoding ------------------------------------------------------------------------------------------------------


def events_of(
    data: bytes | Sequence[bytes],
    model: str = CLAUDE,
    *,
    row: Profile | None = None,
    cause: Cause = "eof",
    error: ErrorInfo | None = None,
) -> list[ModelEvent]:
    """Decode these reads and return the events."""
    reader = WIRES["bedrock"].decoder(row or row_of(model), origin(model))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(data: bytes | Sequence[bytes], model: str = CLAUDE, **ending: Any) -> Fold:
    """Decode and fold; raise if the events are illegal or the turn is left open."""
    result = fold(list(events_of(data, model, **ending)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(data: bytes | Sequence[bytes], model: str = CLAUDE, **ending: Any) -> ModelResponse:
    """Return the response of a turn that must not fail."""
    result = folded(data, model, **ending)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def failed(data: bytes | Sequence[bytes], model: str = CLAUDE, **ending: Any) -> tuple[ErrorInfo, ModelResponse]:
    """Return the error and the response of a turn that must fail."""
    result = folded(data, model, **ending)
    assert result.error is not None
    assert result.response is not None
    assert result.response.finish_reason == "error"
    return result.error, result.response


def part_contents(response: ModelResponse) -> list[tuple[str, Any]]:
    """Return (kind, content or arguments) of every part, in order."""
    return [
        (part.part_kind, getattr(part, "args", None) if hasattr(part, "args") else getattr(part, "content", None))
        for part in response.parts
    ]


def completeness(response: ModelResponse) -> list[bool | None]:
    """Return `complete` of every part; None for parts that do not have it."""
    return [getattr(part, "complete", None) for part in response.parts]
