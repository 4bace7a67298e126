"""Helpers for tests of Chat Completions: building chunks, decoding bytes, comparing events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pellucid.errors import ErrorInfo
from pellucid.events import Cause, ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import (
    BuiltinToolCallPart,
    ModelResponse,
    ModelResponsePart,
    Origin,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES

ROWS = {name: row for name, row in builtin_profiles().items() if row.wire == "openai_chat"}


# --- encoding frames as a server does ----------------------------------------------------------------------------


def sse(*frames: Any, done: bool = True) -> bytes:
    """Return a stream of these chunks. A string is a line of its own: a comment, or anything else."""
    lines = [frame if isinstance(frame, str) else f"data: {json.dumps(frame)}" for frame in frames]
    return "".join(f"{line}\n\n" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def chunk(finish: str | None = None, *, choice: dict[str, Any] | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk with this delta."""
    one = {"index": 0, "delta": delta, "finish_reason": finish, **(choice or {})}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [one]}


def body(finish: str | None = "stop", *, usage: dict[str, Any] | None = None, **message: Any) -> bytes:
    """Return a body with this message."""
    one = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [one]}
    return json.dumps(whole | ({"usage": usage} if usage else {})).encode()


def call(args: Any = None, *, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a fragment of a tool call, without fields that are None."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return {**fields, "function": function}


# --- decoding ----------------------------------------------------------------------------------------------------


def origin(row: Profile | str, model: str = "m") -> Origin:
    return Origin(row if isinstance(row, str) else row.name, "openai_chat", model)


def events_of(
    row: Profile | str,
    data: bytes | Sequence[bytes],
    *,
    cause: Cause = "eof",
    error: ErrorInfo | None = None,
) -> list[ModelEvent]:
    """Decode these reads, and return the events."""
    profile = ROWS[row] if isinstance(row, str) else row
    reader = WIRES["openai_chat"].decoder(profile, origin(profile))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(row: Profile | str, data: bytes | Sequence[bytes], **ending: Any) -> Fold:
    """Decode and fold: raises if the events are not valid, fails if the turn is left open."""
    result = fold(list(events_of(row, data, **ending)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(row: Profile | str, data: bytes | Sequence[bytes], **ending: Any) -> ModelResponse:
    """Decode a response that must not contain an error."""
    result = folded(row, data, **ending)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def kinds_and_texts(response: ModelResponse) -> list[tuple[str, Any]]:
    """Return the parts as pairs of kind and text, in order."""
    return [
        (part.part_kind, getattr(part, "args", None) if hasattr(part, "args") else getattr(part, "content", None))
        for part in response.parts
    ]


def thoughts(response: ModelResponse) -> list[ThinkingPart]:
    return [part for part in response.parts if isinstance(part, ThinkingPart)]


def is_complete(part: ModelResponsePart) -> bool:
    """Return whether a streamed part is complete."""
    assert isinstance(part, ThinkingPart | TextPart | RefusalPart | ToolCallPart | BuiltinToolCallPart)
    return part.complete
