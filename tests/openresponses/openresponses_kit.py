"""Shared by the OpenResponses tests: the two documents that every event must fit, and drivers of the encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import msgspec

from pellucid.events import Event, ModelEvent
from pellucid.framing import SSEDecoder
from pellucid.parts import Origin
from pellucid.protocols.openresponses import Dialect, Encoder, Request, parse_request
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from tests.schemas import openapi_document, published_schema

NOW = 1_700_000_000
ORIGIN = Origin("p", "w", "m")
ALIASES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


# --- the documents -----------------------------------------------------------------------------------------------


def published_document() -> dict[str, Any] | None:
    """The specification's OpenAPI document, or None where it is not available."""
    path = published_schema()
    return json.loads(path.read_bytes()) if path else None


def inline_references(schema: Any, components: dict[str, Any]) -> Any:
    """The schema with its references replaced (neither document has a cycle in its responses)."""
    if isinstance(schema, list):
        return [inline_references(one, components) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return inline_references(components[schema["$ref"].rpartition("/")[2]], components)
    return {key: inline_references(value, components) for key, value in schema.items()}


def _one_of(validator: Any, choices: list[Any], value: Any, schema: Any) -> Iterator[Any]:
    """`oneOf` resolved by the discriminator: the choice whose `type` is the value's."""
    tag = value.get("type") if isinstance(value, dict) else None
    named = [one for one in choices if tag in one.get("properties", {}).get("type", {}).get("enum", ())]
    if len(named) == 1:
        yield from validator.descend(value, named[0])
    else:
        yield from jsonschema.Draft202012Validator.VALIDATORS["oneOf"](validator, choices, value, schema)


Validator: type[jsonschema.protocols.Validator] = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"oneOf": _one_of, "anyOf": _one_of}
)


class Schema:
    """The schemas of a document by name, and its events by type."""

    def __init__(self, doc: dict[str, Any]) -> None:
        self.components = doc["components"]["schemas"]
        self.events: dict[str, dict[str, Any]] = {}
        for schema in self.components.values():
            type_names = schema.get("properties", {}).get("type", {}).get("enum", ())
            # The document describes all protocols: frames of the chat have sequence numbers, too.
            ours = len(type_names) == 1 and (type_names[0] == "error" or type_names[0].startswith("response."))
            if ours and "sequence_number" in schema["properties"]:
                self.events[type_names[0]] = inline_references(schema, self.components)
        self._validators: dict[str, Any] = {}

    def errors(self, name: str, value: Any) -> list[str]:
        """The errors of `value` as the event or component `name`."""
        if name not in self._validators:
            schema = (
                self.events[name] if name in self.events else inline_references(self.components[name], self.components)
            )
            self._validators[name] = Validator(schema)
        return [f"{name}{error.json_path[1:]}: {error.message}" for error in self._validators[name].iter_errors(value)]


@cache
def schemas() -> tuple[Schema, ...]:
    """Our schemas, and the published ones if they are available."""
    theirs = published_document()
    return (Schema(openapi_document()), *([Schema(theirs)] if theirs is not None else []))


def check_events(events: list[dict[str, Any]]) -> None:
    """Check every event against both documents. The published one does not have OpenAI's event names."""
    for schema in schemas():
        for event in events:
            assert schema.errors(event["type"], event) == []


# --- drivers -------------------------------------------------------------------------------------------------------


def request(**body: Any) -> Request:
    return parse_request(json.dumps({"input": "Hi", **body}).encode())


def make_encoder(dialect: Dialect = "openresponses", *, obfuscate: bool = False, **body: Any) -> Encoder:
    return Encoder(request(**body).response("resp_1", "m", NOW), dialect, obfuscate=obfuscate)


def encode(batches: list[list[Event]], dialect: Dialect = "openresponses", **kwargs: Any) -> bytes:
    """The complete stream of these batches."""
    encoder = make_encoder(dialect, **kwargs)
    return encoder.start() + b"".join(encoder.feed(batch, NOW + 1) for batch in batches)


def run_events(events: list[ModelEvent], seed: bytes = b"seed") -> list[Event]:
    """The events of one turn, from a run."""
    run = Run(ModelCall("m", []), Minter(seed))
    run.start()
    out, effects = run.feed(events)
    assert effects == []
    return out


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The stream's events, without `[DONE]`, which is checked."""
    *frames, last = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    assert last.data == b"[DONE]"
    assert stream.endswith(b"data: [DONE]\n\n")
    return [json.loads(frame.data) for frame in frames]


def event_types(events: list[dict[str, Any]]) -> list[str]:
    """The event types without `response.`; consecutive deltas of one type count once."""
    types = [event["type"].removeprefix("response.") for event in events]
    return [name for at, name in enumerate(types) if not (name.endswith(".delta") and types[at - 1 : at] == [name])]


# --- from a provider's bytes -----------------------------------------------------------------------------------------


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk in DeepSeek's format."""
    return {
        "id": "6f5c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "deepseek-reasoner",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


USAGE: dict[str, Any] = {
    "prompt_tokens": 9,
    "completion_tokens": 20,
    "total_tokens": 29,
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def reasoning_chunks(*pieces: str) -> list[dict[str, Any]]:
    return [chunk(content=None, reasoning_content=piece) for piece in pieces]


def text_chunks(*pieces: str) -> list[dict[str, Any]]:
    return [chunk(content=piece, reasoning_content=None) for piece in pieces]


def call_chunks(name: str, *pieces: str, id: str = "call_0", index: int = 0) -> list[dict[str, Any]]:
    first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    more = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [chunk(tool_calls=[call]) for call in (first, *more)]


def final_chunks(reason: str = "stop", usage: bool = True) -> list[dict[str, Any]]:
    return [chunk(reason, content=""), *([{"choices": [], "usage": USAGE}] if usage else [])]


def sse_frames(*chunks: dict[str, Any], done: bool = True) -> list[bytes]:
    """The SSE frames of the chunks, one for each read."""
    data = [b"data: %b\n\n" % json.dumps(one).encode() for one in chunks]
    return [*data, b"data: [DONE]\n\n"] if done else data


def model_batches(reads: list[bytes]) -> list[list[ModelEvent]]:
    row = builtin_profiles()["deepseek"]
    decoder = WIRES[row.wire].decoder(row, Origin("deepseek", row.wire, "deepseek-reasoner"))
    return [*(decoder.feed(data) for data in reads), decoder.end()]


def decoded_events(*chunks: dict[str, Any]) -> list[Event]:
    """The events of a run that got these chunks."""
    run = Run(ModelCall("m", []), Minter(b"seed"))
    run.start()
    return [event for batch in model_batches(sse_frames(*chunks)) for event in run.feed(batch)[0]]


class Answer:
    """The response of a client for a provider's answer: the bytes written, their events, and the resource."""

    def __init__(self, *chunks: dict[str, Any], done: bool = True, **body: Any) -> None:
        self.encoder = make_encoder(**body)
        run = Run(ModelCall("m", []), Minter(b"seed"))
        run.start()
        self.pieces = [self.encoder.start()]
        for batch in model_batches(sse_frames(*chunks, done=done)):
            self.pieces.append(self.encoder.feed(run.feed(batch)[0], NOW))
        self.stream = b"".join(self.pieces)
        self.events = events_of(self.stream)
        self.response: dict[str, Any] = self.events[-1]["response"]
        self.output: list[dict[str, Any]] = self.response["output"]
        self.response_without_stream: dict[str, Any] = json.loads(msgspec.json.encode(self.encoder.response))
        """The response of the same request without a stream."""
        check_events(self.events)

    def select(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == f"response.{name}"]

    @property
    def event_types(self) -> list[str]:
        return event_types(self.events)
