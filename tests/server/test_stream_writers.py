"""Writers of streams: the connection of our own server, or `send` under any other server and behind middleware.

Each writer writes the same stream. While a client does not read, the upstream waits, and memory does not grow.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import pytest

from pellucid.asgi.streaming import ASGIWriter
from pellucid.protocols.openresponses.verify import verify
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.server.uvicorn_adapter import CONNECTION_EXTENSION, DirectWriter, direct_writer
from tests.scripted import Call, Gateway, Upstream, delta, say
from tests.scripted.gateway import serve
from tests.server.sockets_kit import opened
from tests.waiting import LIMIT_SECONDS, wait_until


class Middleware:
    """Middleware of an application, which wraps `send` in a function of its own."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def passes(message: Any) -> None:
            await send(message)

        await self._app(scope, receive, passes)


def nothing_around(app: Any) -> Any:
    return app


def config_of(upstream: Upstream) -> dict[str, Any]:
    limits = {"turn_characters": 10**9}  # `floods` sends more than kernels buffer
    providers = {"vllm": {"base_url": upstream.url, "limits": limits}}
    return {"providers": providers, "storage": {"url": "sqlite://"}}


@contextmanager
def under_uvicorn(upstream: Upstream, wrap: Callable[[Any], Any] = nothing_around) -> Iterator[Gateway]:
    with serve(config_of(upstream), wrap=wrap) as gateway:
        yield gateway


def is_ready(gateway: Gateway) -> bool:
    try:
        return gateway.request("GET", "/ready").status == 200
    except ConnectionRefusedError:
        return False


@contextmanager
def under_hypercorn(upstream: Upstream) -> Iterator[Gateway]:
    """Run the gateway under another ASGI server."""
    settings = hypercorn.config.Config()
    settings.bind = ["127.0.0.1:0"]
    settings.errorlog = None
    sockets = settings.create_sockets()
    port = sockets.insecure_sockets[0].getsockname()[1]
    settings.create_sockets = lambda: sockets  # type: ignore[method-assign]
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    app: Any = create_app(check_config(config_of(upstream), {}))
    running = hypercorn.asyncio.serve(app, settings, shutdown_trigger=stop.wait)
    thread = threading.Thread(target=lambda: loop.run_until_complete(running), name="hypercorn")
    thread.start()
    try:
        gateway = Gateway(port)
        wait_until(lambda: is_ready(gateway) or not thread.is_alive(), "the gateway listens, or has failed to start")
        assert thread.is_alive()
        yield gateway
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
        loop.close()


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """Record the types of the writers that are used, in order."""
    used: list[type] = []

    def noted(kind: type[ASGIWriter] | type[DirectWriter]) -> None:
        start = kind.start

        def noting(self: Any, source: Any) -> None:
            used.append(type(self))
            start(self, source)

        monkeypatch.setattr(kind, "start", noting)

    noted(ASGIWriter)
    noted(DirectWriter)
    return used


WAYS: dict[str, tuple[Callable[[Upstream], Any], type]] = {
    "uvicorn": (under_uvicorn, DirectWriter),
    "middleware": (lambda upstream: under_uvicorn(upstream, Middleware), ASGIWriter),
    "hypercorn": (under_hypercorn, ASGIWriter),
}


def alike(body: bytes) -> bytes:
    """Remove what differs from one response to the next."""
    return re.sub(rb'"(created_at|completed_at)": ?\d+', b"", re.sub(rb"(?<=_)[0-9a-f]{32}", b"", body))


def test_every_writer_writes_the_same_stream(upstream: Upstream, writers: list[type]) -> None:
    name, bodies = upstream.plays(say("Let me see. " * 50, "It is 42. " * 50)), list[bytes]()
    for way, kind in WAYS.values():
        with way(upstream) as gateway:
            reply = gateway.ask(name, stream=True)
            assert reply.status == 200
            assert verify(reply.body) == []
            bodies.append(alike(reply.body))
            assert writers.pop() is kind
            # A response that is not streamed has no writer; the next stream on a connection has its own.
            assert gateway.ask(name).status == 200
            assert writers == []
    assert bodies[1:] == bodies[:-1]


def test_every_server_writes_the_same_socket_messages(upstream: Upstream) -> None:
    name, streams = upstream.plays(say("Let me see. " * 50, "It is 42. " * 50)), list[bytes]()
    for way in (under_uvicorn, under_hypercorn):
        with way(upstream) as gateway, opened(gateway, name) as socket:
            socket.send(store=False)
            streams.append(alike(json.dumps(socket.until("response.completed")).encode()))
    assert streams[0] == streams[1]


def test_requests_on_one_connection_are_answered_in_order(upstream: Upstream, writers: list[type]) -> None:
    name = upstream.plays(say("Let me see. ", "It is 42. "))
    body = json.dumps({"model": name, "input": "Why?", "stream": True})
    with under_uvicorn(upstream) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
        for _ in range(3):
            connection.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
            assert verify(connection.getresponse().read()) == []
        connection.close()
    assert writers == [DirectWriter] * 3


async def floods(call: Call) -> None:
    await call.head()
    for n in itertools.count():
        await call.event(delta(reasoning_content=f"{n} " + "x" * 4000))


def bytes_written_when_stalled(call: Call) -> int:
    """Wait until the upstream has written nothing for half a second, and return how many bytes it wrote."""
    written, since = call.connection.written, time.monotonic()
    deadline = since + LIMIT_SECONDS
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline, "the gateway does not stop reading"
        time.sleep(0.01)
        if call.connection.written != written:  # the kernel's buffers grow gradually
            written, since = call.connection.written, time.monotonic()
    return written


@pytest.mark.parametrize("way", WAYS)
def test_while_a_client_does_not_read_the_upstream_waits(upstream: Upstream, way: str) -> None:
    """An upstream that floods pauses, and continues when the client reads."""
    name = upstream.plays(floods)
    with WAYS[way][0](upstream) as gateway:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with gateway.open(name, receive_buffer=16384) as stream:
            [call] = upstream.calls(name, 1)
            written = bytes_written_when_stalled(call)
            assert written < 32_000_000  # what the kernel's buffers hold
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB
            while call.connection.written < written + 2_000_000:
                assert stream.response.read1(65536)
        # The disconnect ends the run.
        assert call.connection.closed.wait(LIMIT_SECONDS)


def test_a_connection_lost_while_it_is_paused_ends_the_run(upstream: Upstream) -> None:
    for way, _ in WAYS.values():
        name = upstream.plays(floods)
        with way(upstream) as gateway:
            stream = gateway.open(name, receive_buffer=16384)
            [call] = upstream.calls(name, 1)
            bytes_written_when_stalled(call)
            stream.leave()
            assert call.connection.closed.wait(LIMIT_SECONDS)


def test_a_direct_writer_requires_the_server_s_own_send() -> None:
    """Only the bound method of uvicorn's own cycle, for the same connection, selects the direct writer."""

    class Sends:
        async def send(self, message: Any) -> None: ...

    scope = {"type": "http", "extensions": {CONNECTION_EXTENSION: object()}}
    assert direct_writer(scope, Sends().send) is None
    assert direct_writer({"type": "http"}, Sends().send) is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_disconnect_is_noticed_while_another_request_waits(upstream: Upstream, stream: bool) -> None:
    async def silent(call: Call) -> None:
        await call.head()
        await call.wait_for_disconnect()

    with under_uvicorn(upstream) as gateway:
        name = upstream.plays(silent)
        body = json.dumps({"model": name, "input": "q", "stream": stream, "store": False}).encode()
        head = (
            "POST /v1/responses HTTP/1.1\r\nHost: [::]\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall((head % len(body)).encode() + body + b"GET /ready HTTP/1.1\r\nHost: [::]\r\n\r\n")
            [call] = upstream.calls(name, 1)
        assert call.connection.closed.wait(LIMIT_SECONDS)


def test_an_upgrade_after_a_request_waits_for_its_response(upstream: Upstream) -> None:
    with under_uvicorn(upstream) as gateway:
        body = json.dumps({"model": upstream.plays(say()), "input": "q", "stream": True}).encode()
        head = (
            "POST /v1/responses HTTP/1.1\r\nHost: [::]\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        upgrade = (
            b"GET /v1/responses HTTP/1.1\r\nHost: [::]\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=LIMIT_SECONDS) as client:
            client.sendall((head % len(body)).encode() + body + upgrade)
            came = b""
            while piece := client.recv(65536):
                came += piece
        first, second = re.findall(rb"^HTTP/1.1 (\d+)", came, re.MULTILINE)
        assert (first, second) == (b"200", b"405")
        assert came.index(b"response.completed") < came.index(b"HTTP/1.1 405")
