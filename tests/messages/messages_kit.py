"""Shared by the Messages tests: drivers of the encoder, the official client's accumulation, and parsing of a returned
message."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from anthropic._models import construct_type
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent

from pellucid.events import Event
from pellucid.framing import SSEDecoder
from pellucid.parts import ModelMessage, ModelRequest, ModelResponsePart
from pellucid.protocols.messages import Encoder, parse_request
from tests.chat_completions.chat_completions_kit import SERVER_TOOLS

ID = 'msg_%s"1'
MODEL = "m%d"
USER = {"role": "user", "content": "Why?"}


def make_encoder(**kwargs: Any) -> Encoder:
    return Encoder(ID, MODEL, server_tools=SERVER_TOOLS, **kwargs)


def encode(batches: list[list[Event]], **kwargs: Any) -> bytes:
    """The complete stream of these batches."""
    encoder = make_encoder(**kwargs)
    return encoder.start() + b"".join(encoder.feed(batch, 1) for batch in batches)


def message_of(batches: list[list[Event]], **kwargs: Any) -> dict[str, Any]:
    """The message, as a request without streaming receives it."""
    encoder = make_encoder(**kwargs)
    encoder.start()
    for batch in batches:
        encoder.feed(batch, 1)
    message: dict[str, Any] = json.loads(msgspec.json.encode(encoder.message))
    return message


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, without pings."""
    frames = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    return [json.loads(frame.data) for frame in frames if frame.event != "ping"]


def accumulate(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the official client accumulates from the events."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        typed: Any = construct_type(type_=RawMessageStreamEvent, value=event)
        snapshot = accumulate_event(event=typed, current_snapshot=snapshot, json_bufs=buffers)
    message: dict[str, Any] = normalize(snapshot.model_dump(mode="json", warnings=False))
    return message


def normalize(value: Any) -> Any:
    """A value without fields that are null, and without the mark of an estimate."""
    if isinstance(value, list):
        return [normalize(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {name: normalize(inner) for name, inner in value.items() if inner is not None and name != "estimated"}


def parts_of(messages: list[ModelMessage]) -> list[ModelResponsePart]:
    return [part for message in messages if not isinstance(message, ModelRequest) for part in message.parts]


def parts_sent_back(message: dict[str, Any]) -> list[ModelResponsePart]:
    """The parts of the next request when the client sends the content back unchanged."""
    assistant = {"role": "assistant", "content": message["content"]}
    body = {"model": "m", "max_tokens": 9, "messages": [USER, assistant, USER]}
    return parts_of(parse_request(json.dumps(body).encode()).messages)
