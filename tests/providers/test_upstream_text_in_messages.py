"""No message of ours contains text of an upstream.

A provider's error may quote the prompt or the reasoning, and `ErrorInfo.message` reaches readers who may see neither.
So everything that an upstream can write is marked here: every string and name of made-up answers of every wire, of
recorded ones, status lines, headers and bodies; and the mark is in no message, in no log, and no sentence is a code.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import ErrorEvent, ModelEvent
from pellucid.framing.eventstream import EventStreamDecoder, HeaderValue
from pellucid.local.request import explain_error
from pellucid.models.model import Model
from pellucid.parts import ModelRequest, Origin, UserPromptPart
from pellucid.providers.errors import error_from_response, error_from_value
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.stream_decoder import StreamDecoder
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from pellucid.upstream import Limits, UpstreamClient
from tests.cases import Cases
from tests.event_stream_messages import eventstream_message
from tests.examples import by_circle, many
from tests.recordings import recordings
from tests.scripted_runs import turn_of

MARK = "zqMarkqz"
ROWS = builtin_profiles()
ROW_OF: dict[str, Profile] = {row.wire: row for row in reversed(list(ROWS.values()))}

_MARKED_TEXTS = [
    MARK,
    f"you said: {MARK}",
    f"{MARK}\n{MARK} ",
    f"'{MARK}'",
    f"{MARK}Exception",
    f"ns#{MARK}",
    MARK * 30,
]


def decoder(wire: str) -> StreamDecoder:
    row = ROW_OF[wire]
    return WIRES[wire].decoder(row, Origin(row.name, wire, "m"))


EVERY = [*WIRES]


def errors_of(wire: str, reads: list[bytes]) -> list[ErrorInfo]:
    reader = decoder(wire)
    events: list[ModelEvent] = [event for data in reads for event in reader.feed(data)]
    return [event.error for event in events + reader.end() if isinstance(event, ErrorEvent)]


def check(error: ErrorInfo) -> None:
    assert MARK.lower() not in error.message.lower(), error.message
    for word in (error.code, error.param):
        assert word is None or (len(word) <= 200 and not re.search(r"\s", word)), word


# --- responses of upstreams in every form --------------------------------------------------------------------------

_CHUNK = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
_FAULT = {"message": "no", "type": "server_error", "code": "bad", "param": "a.b", "status": "UNAVAILABLE"}

SHAPES: list[Any] = [
    {"error": _FAULT},
    {"error": "no"},
    [{"error": _FAULT | {"code": 429}}],
    {"type": "error", "error": _FAULT, "request_id": "r"},
    {"type": "error", "code": "bad", "message": "no", "param": "p"},
    {"event_type": "error", "error": {"code": "busy", "message": "later"}},
    {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
    {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]},
    {"detail": "Not Found"},
    {"errors": [{"message": "one"}, {"message": "two"}]},
    {"base_resp": {"status_code": 1004, "status_msg": "no"}, "choices": None},
    {"choices": [], "x_groq": {"id": "r", "error": "over capacity"}},
    {"error": {"message": "x", "metadata": {"raw": "behind", "provider_name": "p"}, "code": "context_length_exceeded"}},
    {"message": "no", "originalStatusCode": 429, "originalMessage": "slow down"},
    {"__type": "com.amazon#UnknownOperationException", "message": "no"},
    {"Output": {"__type": "x#Y"}, "Version": "1.0"},
    _CHUNK,
    {**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "error", "native_finish_reason": "boom"}]},
    {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "network_error"}]},
    {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "message", "content": 5, "id": "msg_2"},
    {"type": "message-start", "id": "i"},
    {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "fell over", "usage": {}}},
    {"message": {"content": [{"type": "text", "text": "a"}]}, "finish_reason": "TIMEOUT"},
    {"message": {"content": "a"}, "done": True, "done_reason": "stop", "model": "m", "error": "no"},
    {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP", "index": 0}], "modelVersion": "m"},
    {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "call: f(", "index": 0}]},
    {"candidates": [{"finishReason": "language", "finishMessage": "which?", "index": 0}]},
    {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}},
    {"event_type": "interaction.created", "interaction": {"id": "i", "object": "interaction", "status": "failed"}},
    {"event_type": "interaction.completed", "interaction": {"id": "i", "object": "interaction", "status": "failed"}},
    {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress"}},
    {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": _FAULT, "output": []}},
    {"type": "response.completed", "response": {"id": "r", "status": "odd", "output": []}},
    {"id": "r", "object": "response", "status": "queued", "output": []},
    {"id": "r", "object": "response", "status": "failed", "output": [{"type": "message", "content": []}]},
    {"output": {"message": {"content": [{"text": "a"}]}}, "stopReason": "malformed_model_output"},
    {"contentBlockIndex": 0, "delta": {"text": "a"}},
    {"stopReason": "malformed_tool_use"},
    "a text",
    ["a", "list"],
    5,
    None,
]

_KINDS = ["contentBlockDelta", "messageStart", "messageStop", "chunk", "throttlingException", "odd"]


class QuotingUpstream:
    """An upstream whose responses contain the mark, which must not appear in our messages."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.share = self.dice.choice([0.1, 0.3, 0.6, 1.0])
        """How many of its strings are marked."""

    def text(self, text: str) -> str:
        return self.dice.choice(_MARKED_TEXTS) if self.dice.random() < self.share else text

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(entry) for entry in value]
        if isinstance(value, dict):
            marked = {self.name(name): self.value(entry) for name, entry in value.items()}
            return marked | ({MARK: MARK} if self.dice.random() < 0.2 else {})
        return self.dice.choice(_MARKED_TEXTS) if self.dice.random() < self.share / 8 else value

    def name(self, name: str) -> str:
        return self.text(name) if self.dice.random() < 0.1 else name

    def shape(self) -> Any:
        return self.value(self.dice.choice(SHAPES))

    def piece(self) -> bytes:
        """Return a value as JSON, or bytes that are not JSON."""
        if self.dice.random() < 0.1:
            return self.dice.choice(
                [
                    f"<html><title>{MARK}</title><h1>{MARK}</h1>".encode(),
                    f"{MARK}: upstream connect error".encode(),
                    f'{{"{MARK}": '.encode(),
                    b"\xff\xfe" + MARK.encode(),
                ]
            )
        return json.dumps(self.shape()).encode()

    def stream(self) -> bytes:
        """Return a response in any framing."""
        pieces = [self.piece() for _ in range(self.dice.randrange(1, 5))]
        match self.dice.randrange(6):
            case 0:
                data = pieces[0]
            case 1:
                data = b"[" + b",\n".join(pieces) + self.dice.choice([b"]", b""])
            case 2:
                data = b"\n".join(pieces) + b"\n"
            case 3:
                data = b"".join(map(self.message, pieces))
            case _:
                data = b"".join(map(self.event, pieces))
        if self.dice.random() < 0.3:
            at = self.dice.randrange(len(data) + 1)
            data = data[:at] + self.dice.choice([MARK.encode(), b"\n\n", b"", b"\x00"]) + data[at:]
        return data[: self.dice.randrange(1, len(data) + 1)] if self.dice.random() < 0.2 else data

    def event(self, piece: bytes) -> bytes:
        name = self.dice.choice([b"", b"", b"event: error\n", f"event: {MARK}\n".encode()])
        return name + b"data: " + piece.replace(b"\n", b" ") + b"\n\n"

    def message(self, piece: bytes) -> bytes:
        """Return a message of an event stream: an event, an exception, or an error in its headers."""
        if self.dice.random() < 0.3:
            piece = json.dumps({"bytes": b64encode(piece).decode()}).encode()
        kind = self.text(self.dice.choice(_KINDS))
        headers: dict[str, HeaderValue] = self.dice.choice(
            [
                {":event-type": kind, ":message-type": "event"},
                {":exception-type": kind, ":message-type": "exception"},
                {":message-type": "error", ":error-code": kind, ":error-message": self.text("broken")},
                {":message-type": "exception"},
                {":message-type": "event", ":event-type": f"{MARK}Exception"},
            ]
        )
        if self.dice.random() < 0.05:
            return _message_with_duplicate_header(MARK.encode())
        return eventstream_message(piece, {**headers, MARK: MARK} if self.dice.random() < 0.2 else headers)

    def reads(self, data: bytes) -> list[bytes]:
        edge = self.dice.randrange(len(data) + 1)
        return self.dice.choice([[data], [data[:edge], data[edge:]]])


def _message_with_duplicate_header(name: bytes) -> bytes:
    """Return a message that has two headers of the same name."""
    head = (bytes([len(name)]) + name + b"\x00") * 2
    lengths = pack(">II", 16 + len(head), len(head))
    whole = lengths + pack(">I", crc32(lengths)) + head
    return whole + pack(">I", crc32(whole))


@pytest.mark.parametrize("wire", EVERY)
@many
@given(st.integers(0, 2**60))
def test_no_message_quotes_a_response(wire: str, seed: int) -> None:
    quoting_upstream = QuotingUpstream(seed)
    for error in errors_of(wire, quoting_upstream.reads(quoting_upstream.stream())):
        check(error)


@pytest.mark.parametrize("wire", EVERY)
def test_upstream_text_is_part_of_the_full_message(wire: str) -> None:
    """Many of these errors quote the mark in `full_message`, so the other tests are not vacuous."""
    upstreams = [QuotingUpstream(seed) for seed in range(600)]
    errors = [error for one in upstreams for error in errors_of(wire, one.reads(one.stream()))]
    quoting = [error for error in errors if MARK in (error.upstream_message or "")]
    assert len(quoting) > 100
    assert all(error.full_message == f"{error.message}: {error.upstream_message}" for error in quoting)
    assert len({error.message for error in quoting}) >= 3


@settings(max_examples=by_circle(125, 3_000))
@given(st.integers(0, 2**60))
def test_no_message_quotes_a_body(seed: int) -> None:
    quoting_upstream = QuotingUpstream(seed)
    status = quoting_upstream.dice.choice(
        [400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529, 599]
    )
    check(error_from_response(status, quoting_upstream.piece(), quoting_upstream.dice.choice([None, "gpt-99"])))
    check(error_from_value(quoting_upstream.shape()))
    check(explain_error(status, quoting_upstream.shape()))
    fault = {name: quoting_upstream.text("x") for name in ("type", "message", "n_ctx", "n_prompt_tokens")}
    check(explain_error(status, {"error": fault | {"type": "exceed_context_size_error"}}))


# --- recorded responses --------------------------------------------------------------------------------------------

_STRING = re.compile(rb'"[^"\\\x00-\x1f]{2,200}"')


def _mutated(data: bytes, quoting_upstream: QuotingUpstream) -> bytes:
    """Return a recording with some strings marked, an error inserted, or its end removed."""
    dice = quoting_upstream.dice
    share = dice.choice([0.02, 0.2, 0.8])
    if data[:1] == b"\x00":
        messages = EventStreamDecoder().feed(data)
        pieces = [(dict(message.headers), _marked(message.payload, dice, share)) for message in messages]
        if dice.random() < 0.5:
            pieces.insert(
                dice.randrange(len(pieces) + 1), ({":exception-type": f"{MARK}Exception"}, quoting_upstream.piece())
            )
        data = b"".join(eventstream_message(payload, headers) for headers, payload in pieces)
    else:
        data = _marked(data, dice, share)
        if dice.random() < 0.5:
            edges = [match.end() for match in re.finditer(rb"\n\r?\n|\n", data)] or [0]
            at = dice.choice(edges)
            data = data[:at] + quoting_upstream.event(quoting_upstream.piece()) + data[at:]
    return data[: dice.randrange(1, len(data))] if dice.random() < 0.3 else data


def _marked(data: bytes, dice: random.Random, share: float) -> bytes:
    loud = json.dumps(f"they said: {MARK}").encode()
    return _STRING.sub(lambda match: loud if dice.random() < share else match[0], data)


def test_no_message_quotes_a_recorded_response() -> None:
    with Cases() as case:
        for recording in recordings():
            row = recording.row
            for seed in range(by_circle(3, 25)):
                reader = WIRES[row.wire].decoder(row, Origin(row.name, row.wire, "m"))
                with case(f"{recording.name}, seed {seed}"):
                    for event in reader.feed(_mutated(recording.body, QuotingUpstream(seed))) + reader.end():
                        if isinstance(event, ErrorEvent):
                            check(event.error)


# --- responses over a connection -----------------------------------------------------------------------------------


def _http_response(status: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body) if length is None else length}", "", ""]
    return "\r\n".join(lines).encode() + body


_QUOTES = json.dumps(
    {"error": {"message": f"you said {MARK}", "code": f"{MARK} {MARK}", "param": f"a {MARK}"}}
).encode()

RAW_RESPONSES: dict[str, bytes] = {
    **{
        str(status): _http_response(f"{status} {MARK}", _QUOTES, f"X-{MARK}: {MARK}", f"Retry-After: {MARK}")
        for status in (400, 401, 402, 403, 404, 408, 409, 413, 418, 429, 500, 502, 503, 504, 529)
    },
    "a redirect": _http_response(f"307 {MARK}", _QUOTES, f"Location: https://{MARK}.example/{MARK}"),
    "not modified": _http_response(f"304 {MARK}", b"", f"ETag: {MARK}"),
    "no content": f"HTTP/1.1 204 {MARK}\r\nX: {MARK}\r\n\r\n".encode(),
    "reset content": f"HTTP/1.1 205 {MARK}\r\nContent-Length: 0\r\n\r\n".encode(),
    "a page": _http_response(f"200 {MARK}", f"<html><title>{MARK}</title>".encode(), f"Content-Type: text/{MARK}"),
    "an error in the stream": _http_response("200 OK", b"data: " + _QUOTES + b"\n\n"),
    "nothing": _http_response(f"200 {MARK}"),
    "broken off": _http_response("200 OK", f"data: {MARK}".encode(), length=1000),
    "not HTTP": f"{MARK} says hello\r\n\r\n".encode(),
    "a status that is none": f"HTTP/1.1 {MARK}\r\n\r\n".encode(),
    "a broken header": f"HTTP/1.1 200 OK\r\n{MARK}\r\n\r\n".encode(),
    "a broken length": f"HTTP/1.1 200 OK\r\nContent-Length: {MARK}\r\n\r\n".encode(),
    "broken chunks": f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{MARK}\r\n".encode(),
    "an encoding that is none": _http_response("200 OK", MARK.encode(), "Content-Encoding: gzip"),
}


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """Run a server that sends these bytes in response to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def errors_of_request(url: str, row: str, **how: Any) -> list[ErrorInfo]:
    """Call a model at this URL, and return its errors."""
    transport = UpstreamClient(Limits(retries=0))
    try:
        model = Model("gpt-99", ROWS[row], transport, base_url=url, api_key="k", **how)
        turn = await model.open(ModelCall("x", [ModelRequest([UserPromptPart("Why?")])]))
        return [event.error for event in await turn_of(turn) if isinstance(event, ErrorEvent)]
    except ModelError as error:
        return [error.info]
    finally:
        await transport.aclose()


def error_of(answer: bytes, row: str = "openai") -> ErrorInfo:
    async def request() -> list[ErrorInfo]:
        async with raw_server(answer) as url:
            return await errors_of_request(url, row)

    [error] = asyncio.run(request())
    return error


@pytest.mark.parametrize("row", ["openai", "anthropic", "google", "ollama-native"])
def test_no_message_quotes_data_of_a_connection(row: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Cases() as case:
        for name, answer in RAW_RESPONSES.items():
            caplog.clear()
            with case(name):
                error = error_of(answer, row)
                check(error)
                assert MARK not in caplog.text
                if name.isdecimal():
                    assert f"you said {MARK}" in error.full_message
                    assert (error.code, error.param) == (None, None)


@pytest.mark.parametrize("status", ["204 No Content", "205 Reset Content"])
def test_a_status_without_content_is_an_error(status: str) -> None:
    code = int(status[:3])
    error = error_of(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    assert (error.kind, error.code, error.status, error.upstream_message) == (
        "model_error",
        "not_an_answer",
        code,
        None,
    )
    assert error.message == (
        f"the provider answered {code}, a status without content; base_url must be the address of a model API"
    )


def test_a_redirect_does_not_name_its_location() -> None:
    error = error_of(_http_response("308 Moved", b"", "Location: https://elsewhere.example/v1"))
    assert (error.code, error.upstream_message) == ("redirect", None)
    assert error.message == "the provider answered 308, a redirect; base_url must be the address that it leads to"


def test_an_unknown_model_is_named() -> None:
    error = error_of(_http_response("404 Not Found", b'{"error": {"message": "The model `gpt-99` does not exist"}}'))
    assert (error.kind, error.code) == ("not_found", "model_not_found")
    assert error.full_message == (
        "the provider knows no model 'gpt-99' (status 404): The model `gpt-99` does not exist"
    )


# --- the form of our messages --------------------------------------------------------------------------------------


def _messages() -> Iterator[tuple[str, str | None]]:
    for wire in EVERY:
        for seed in range(by_circle(50, 400)):
            quoting_upstream = QuotingUpstream(seed)
            yield from (
                (error.message, error.upstream_message) for error in errors_of(wire, [quoting_upstream.stream()])
            )
    for shape in SHAPES:
        for status in (None, 400, 401, 402, 403, 404, 408, 413, 418, 429, 500, 502, 503, 504):
            info = error_from_value(shape, status)
            yield info.message, info.upstream_message


def test_our_messages_can_be_followed_by_upstream_text() -> None:
    """A message ends neither in punctuation nor in a word that requires another one, because a colon may follow."""
    ends: Callable[[str], Any] = re.compile(r"[.:;,!?\s]\Z|\b(with|by|that|says|is|None)\Z").search
    for message, upstream_message in _messages():
        assert message
        assert not ends(message), message
        assert "None" not in message, message
        assert upstream_message is None or upstream_message.strip(), message
