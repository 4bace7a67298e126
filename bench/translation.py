"""Translate Chat Completions to Responses events with bare asyncio protocols: the minimum cost of it in Python.

    .venv/bin/python bench/translation.py --port 9200 --upstream-port 9100

Two `asyncio` protocols on uvloop, with httptools: a read of the upstream is parsed, translated and written in one call.
It has no checks, stages, limits, time-outs, back-pressure or end events, knows one route and one model, and keeps
nothing: a lower bound, not a server.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import httptools
import msgspec
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
BODY = b'{"model":"mock-r1","stream":true,"messages":[{"role":"user","content":"hi"}]}'
EVENT = (
    b'event: %b\ndata: {"type":"%b","sequence_number":%d,"item_id":"%b","output_index":%d,"content_index":0,'
    b'"delta":%b}\n\n'
)
REASONING = b"response.reasoning.delta"
TEXT = b"response.output_text.delta"


class Delta(msgspec.Struct):
    reasoning_content: str | None = None
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


decode = msgspec.json.Decoder(Chunk).decode
encode = msgspec.json.Encoder().encode


class Upstream(asyncio.Protocol):
    """One connection to the model server; used again when its answer is complete."""

    idle: list[Upstream] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.client: Client | None = None
        self.rest = b""
        self.sequence = 0
        self.out: list[bytes] = []
        self.complete = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpResponseParser(self)

    def start(self, client: Client) -> None:
        self.client, self.sequence, self.complete = client, 0, False
        self.parser = httptools.HttpResponseParser(self)
        self.transport.write(REQUEST % (len(BODY), BODY))

    def on_body(self, body: bytes) -> None:
        *frames, self.rest = (self.rest + body).split(b"\n\n")
        for frame in frames:
            data = frame[6:]
            if data == b"[DONE]":
                continue
            choices = decode(data).choices
            if not choices:
                continue
            delta = choices[0].delta
            if delta.reasoning_content:
                kind, item, at, text = REASONING, b"rs_1", 0, delta.reasoning_content
            elif delta.content:
                kind, item, at, text = TEXT, b"msg_1", 1, delta.content
            else:
                continue
            self.sequence += 1
            self.out.append(EVENT % (kind, kind, self.sequence, item, at, encode(text)))

    def on_message_complete(self) -> None:
        self.complete = True

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if self.client is None:
            return
        bytes_ = b"".join(self.out)
        self.out.clear()
        pieces = b"%x\r\n%b\r\n" % (len(bytes_), bytes_) if bytes_ else b""
        if self.complete:
            pieces += b"0\r\n\r\n"
            client, self.client = self.client, None
            client.upstream = None
            self.idle.append(self)
        else:
            client = self.client
        if pieces:
            client.transport.write(pieces)


class Client(asyncio.Protocol):
    """One connection of a client, whose requests come one after another."""

    upstream: Upstream | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(HEAD)
        if Upstream.idle:
            self.connected(Upstream.idle.pop())
        else:
            task = asyncio.ensure_future(asyncio.get_running_loop().create_connection(Upstream, "127.0.0.1", PORT))
            task.add_done_callback(lambda done: self.connected(done.result()[1]))

    def connected(self, upstream: Upstream) -> None:
        self.upstream = upstream
        upstream.start(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.upstream is not None:
            self.upstream.client = None
            self.upstream.transport.abort()


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--upstream-port", type=int, required=True)
    options = arguments.parse_args()
    PORT: int = options.upstream_port
    uvloop.run(main(options.port))
