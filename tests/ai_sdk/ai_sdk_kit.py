"""Helpers of the AI SDK tests: runs encoded to bytes, a reader of the bytes that behaves like the package's own, and
request messages."""

from __future__ import annotations

import json
from typing import Any

from pellucid.events import Event
from pellucid.framing import SSEDecoder
from pellucid.parts import ModelMessage, ModelRequest, ModelRequestPart, ModelResponsePart
from pellucid.protocols.ai_sdk import Encoder, parse_request
from tests.chat_completions.chat_completions_kit import causes, run_of, turns
from tests.chat_completions.chat_completions_kit import emit_step as saying
from tests.chat_completions.chat_completions_kit import replace_lone_surrogates as shown
from tests.chat_completions.chat_completions_kit import step_lists as says

__all__ = ["MODEL", "causes", "chunks_of", "encoded", "given_back", "message_of", "run_of", "saying", "says", "shown"]
__all__ += ["parts_of", "requests_of", "turns"]

MODEL = "m%d"
ID = 'msg_%s"1'
USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}
ON = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And?"}]}


def an_encoder(**kwargs: Any) -> Encoder:
    return Encoder(ID, MODEL, **kwargs)


def encoded(batches: list[list[Event]], **kwargs: Any) -> bytes:
    """Encode the batches to a whole stream."""
    encoder = an_encoder(**kwargs)
    return encoder.start() + b"".join(encoder.feed(batch, 1) for batch in batches)


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream, without the `[DONE]` at its end."""
    *frames, last = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    assert last.data == b"[DONE]"
    assert stream.endswith(b"data: [DONE]\n\n")
    return [json.loads(frame.data) for frame in frames]


def given_back(message: dict[str, Any]) -> list[ModelMessage]:
    """Parse the message as the next request of its page, which returns it unchanged."""
    return parse_request(json.dumps({"messages": [USER, message, ON]}).encode()).messages[1:-1]


def parts_of(messages: list[ModelMessage]) -> list[ModelResponsePart]:
    return [part for message in messages if not isinstance(message, ModelRequest) for part in message.parts]


def requests_of(messages: list[ModelMessage]) -> list[ModelRequestPart]:
    return [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]


# --- the message that a page makes of the chunks -------------------------------------------------------------------


def message_of(chunks: list[dict[str, Any]], last: dict[str, Any] | None = None) -> dict[str, Any]:
    """Build the message as `processUIMessageStream` of the package's version 7 does (a test compares the two)."""
    message: dict[str, Any] = last or {"id": "", "role": "assistant", "parts": []}
    parts: list[dict[str, Any]] = message["parts"]
    open_: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        kind, about = chunk["type"], chunk.get("providerMetadata")
        what, _, when = kind.partition("-")
        if metadata := chunk.get("messageMetadata"):
            message["metadata"] = {**message.get("metadata", {}), **metadata}
        if kind == "start":
            message["id"] = chunk["messageId"]
        elif kind == "start-step":
            parts.append({"type": "step-start"})
        elif what in ("text", "reasoning"):
            if when == "start":
                named = {"id": chunk["id"]} if what == "reasoning" else {}
                open_[chunk["id"]] = {"type": what, **named, "text": "", "state": "streaming"}
                parts.append(open_[chunk["id"]])
            part = open_[chunk["id"]]
            if about is not None:
                part["providerMetadata"] = about
            if when == "delta":
                part["text"] += chunk["delta"]
            elif when == "end":
                part["state"] = "done"
        elif what == "tool":
            _tool(chunk, parts)
        elif kind.startswith(("data-", "source-", "file")):
            parts.append(chunk)
    return message


def _tool(chunk: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    id, kind = chunk["toolCallId"], chunk["type"]
    part = next((one for one in parts if one.get("toolCallId") == id), None)
    if part is None:
        part = {"type": "dynamic-tool", "toolName": chunk["toolName"], "toolCallId": id}
        if chunk.get("providerExecuted"):
            part["providerExecuted"] = True
        parts.append(part)
    part.pop("rawInput", None)
    match kind:
        case "tool-input-start":
            part["state"] = "input-streaming"
        case "tool-input-delta":
            part["state"] = "input-streaming"
            part["rawInput"] = ""
        case "tool-input-available":
            part |= {"state": "input-available", "input": chunk["input"]}
        case "tool-input-error":
            part |= {"state": "output-error", "input": chunk["input"], "errorText": chunk["errorText"]}
        case "tool-output-available":
            part.pop("errorText", None)
            part |= {"state": "output-available", "output": chunk["output"]}
        case "tool-output-error":
            part |= {"state": "output-error", "errorText": chunk["errorText"]}
    if (about := chunk.get("providerMetadata")) is not None:
        name = "resultProviderMetadata" if part["state"].startswith("output") else "callProviderMetadata"
        part[name] = about
