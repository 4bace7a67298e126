"""Helpers for tests of the Responses wire: building events, decoding bytes, comparing parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pellucid.errors import ErrorInfo
from pellucid.events import Cause, ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import ModelRequest, ModelResponse, Origin, ThinkingPart, UserPromptPart
from pellucid.providers.openai_responses.encode import encode
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall

ROWS = {name: row for name, row in builtin_profiles().items() if row.wire == "openai_responses"}

OPENAI = "openai-responses"


# --- encoding frames as a server does ----------------------------------------------------------------------------


def wire_event(type_: str, output_index: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return an event; `type_` lacks the prefix `response.`."""
    name = type_ if type_ == "error" else f"response.{type_}"
    return {"type": name} | ({} if output_index is None else {"output_index": output_index}) | fields


def added(index: int, type_: str, **fields: Any) -> dict[str, Any]:
    return wire_event("output_item.added", index, item={"type": type_, "status": "in_progress", **fields})


def done(index: int, type_: str, **fields: Any) -> dict[str, Any]:
    return wire_event("output_item.done", index, item={"type": type_, "status": "completed", **fields})


def summary(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "summary_text", "text": text} for text in texts]


def raw(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning_text", "text": text} for text in texts]


def output_text(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **fields}


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "status": "completed", "content": list(content), **fields}


def thought(index: int, *texts: str, id: str = "rs", encrypted: str | None = None) -> list[dict[str, Any]]:
    """Return all events of a reasoning item with summaries, as OpenAI sends them."""
    out = [added(index, "reasoning", id=id, summary=[], encrypted_content=encrypted and "not yet whole")]
    for place, text in enumerate(texts):
        at: dict[str, Any] = {"output_index": index, "summary_index": place, "item_id": id}
        out += [
            wire_event("reasoning_summary_part.added", part=summary("")[0], **at),
            *(wire_event("reasoning_summary_text.delta", delta=piece, obfuscation="x", **at) for piece in pieces(text)),
            wire_event("reasoning_summary_text.done", text=text, **at),
            wire_event("reasoning_summary_part.done", part=summary(text)[0], **at),
        ]
    return [*out, done(index, "reasoning", id=id, summary=summary(*texts), encrypted_content=encrypted)]


def answer(index: int, text: str, *, id: str = "msg", **fields: Any) -> list[dict[str, Any]]:
    """Return all events of a message with one text."""
    at: dict[str, Any] = {"output_index": index, "content_index": 0, "item_id": id}
    return [
        added(index, "message", id=id, role="assistant", content=[], **fields),
        wire_event("content_part.added", part=output_text(""), **at),
        *(wire_event("output_text.delta", delta=piece, logprobs=[], **at) for piece in pieces(text)),
        wire_event("output_text.done", text=text, **at),
        wire_event("content_part.done", part=output_text(text), **at),
        wire_event("output_item.done", index, item=message(output_text(text), id=id, **fields)),
    ]


def function_call(index: int, name: str, args: str, *, id: str = "fc", call_id: str = "c1") -> list[dict[str, Any]]:
    """Return all events of a function call."""
    item = {"id": id, "call_id": call_id, "name": name}
    return [
        added(index, "function_call", arguments="", **item),
        *(wire_event("function_call_arguments.delta", index, delta=piece, item_id=id) for piece in pieces(args)),
        wire_event("function_call_arguments.done", index, arguments=args, item_id=id),
        done(index, "function_call", arguments=args, **item),
    ]


def pieces(text: str) -> list[str]:
    return [text[:2], text[2:]] if len(text) > 2 else [text]


def created() -> dict[str, Any]:
    return wire_event("created", response={"id": "resp_1", "model": "m-1", "status": "in_progress", "output": []})


def response_end(type_: str = "completed", **fields: Any) -> dict[str, Any]:
    return wire_event(type_, response={"id": "resp_1", "model": "m-1", "status": type_, "output": [], **fields})


def sse(*events: dict[str, Any] | list[dict[str, Any]] | str, named: bool = True) -> bytes:
    """Return a stream of these events (or lists of events). A string is a line of its own."""
    out = []
    for entry in events:
        for event in entry if isinstance(entry, list) else [entry]:
            if isinstance(event, str):
                out.append(f"{event}\n\n")
            else:
                out.append((f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n")
    return "".join(out).encode()


def stream(*events: dict[str, Any] | list[dict[str, Any]] | str) -> bytes:
    """Return a stream of these events with its first and last event."""
    return sse(created(), *events, response_end())


def body(*output: dict[str, Any], **fields: Any) -> bytes:
    whole = {"id": "resp_1", "object": "response", "model": "m-1", "status": "completed", "output": list(output)}
    return json.dumps(whole | fields).encode()


# --- decoding ----------------------------------------------------------------------------------------------------


def origin(row: Profile | str = OPENAI, model: str = "m") -> Origin:
    return Origin(row if isinstance(row, str) else row.name, "openai_responses", model)


def events_of(
    data: bytes | Sequence[bytes],
    row: Profile | str = OPENAI,
    *,
    cause: Cause = "eof",
    error: ErrorInfo | None = None,
) -> list[ModelEvent]:
    """Decode these reads, and return the events."""
    profile = ROWS[row] if isinstance(row, str) else row
    reader = WIRES["openai_responses"].decoder(profile, origin(profile))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(data: bytes | Sequence[bytes], row: Profile | str = OPENAI, **ending: Any) -> Fold:
    """Decode and fold: raises if the events are not valid, fails if the turn is left open."""
    result = fold(list(events_of(data, row, **ending)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(data: bytes | Sequence[bytes], row: Profile | str = OPENAI, **ending: Any) -> ModelResponse:
    """Decode a response that must not contain an error."""
    result = folded(data, row, **ending)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def kinds_and_texts(response: ModelResponse | None) -> list[tuple[str, Any]]:
    """Return the parts as pairs of kind and text, in order."""
    assert response is not None
    return [
        (part.part_kind, getattr(part, "args", None) if hasattr(part, "args") else getattr(part, "content", None))
        for part in response.parts
    ]


def thoughts(response: ModelResponse) -> list[ThinkingPart]:
    return [part for part in response.parts if isinstance(part, ThinkingPart)]


def sent(*messages: Any, row: str = OPENAI, target: Origin | None = None, **settings: Any) -> list[dict[str, Any]]:
    """Return the input of the request after these messages, without the first question."""
    call = ModelCall("m", [ModelRequest([UserPromptPart("q")]), *messages], settings=settings)  # type: ignore[arg-type]
    items: list[dict[str, Any]] = encode(call, ROWS[row], target or origin(row))["input"]
    assert items[0] == {"role": "user", "content": "q"}
    return items[1:]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = sorted({min(max(place, 0), len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]
