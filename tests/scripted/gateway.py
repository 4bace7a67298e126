"""The gateway under uvicorn on a free port, served as `pellucid serve` does; and a client that shows all bytes."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import uvicorn
import uvloop
from msgspec.structs import replace
from opentelemetry.trace import TracerProvider

from pellucid.models import ChatModel
from pellucid.server import create_app
from pellucid.server.app import uvicorn_settings
from pellucid.server.config import Config, check_config
from pellucid.server.services import LocalModelService
from pellucid.upstream import UpstreamClient
from tests.waiting import HOUR_SECONDS, LIMIT_SECONDS, wait_until

Section = TypeVar("Section", bound=msgspec.Struct)


class Reply(msgspec.Struct):
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which must be the only content of the body."""
        error: dict[str, Any]
        [(name, error)] = self.json.items()
        assert name == "error"
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    @property
    def events(self) -> list[dict[str, Any]]:
        return events_of(self.body)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream, without comments (sent in a silence) and the `[DONE]` at its end."""
    events = []
    for block in body.decode().split("\n\n"):
        if block and not block.startswith(":") and block != "data: [DONE]":
            name, data = block.split("\n")
            value = json.loads(data.removeprefix("data: "))
            assert name == f"event: {value['type']}"
            events.append(value)
    return events


class Stream:
    """A response that the test reads in steps."""

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self.socket = sock
        self.response = response
        self.status = response.status
        self.seen = b""

    def until(self, text: str | bytes) -> bytes:
        """Read until `text` is received; return all data so far."""
        wanted = text.encode() if isinstance(text, str) else text
        while wanted not in self.seen:
            piece = self.response.read1(65536)
            assert piece, f"the stream ended without {text!r}: {self.seen[-500:]!r}"
            self.seen += piece
        return self.seen

    def rest(self) -> bytes:
        """Read to the end; return all data."""
        while piece := self.response.read1(65536):
            self.seen += piece
        return self.seen

    @property
    def events(self) -> list[dict[str, Any]]:
        return events_of(self.rest())

    def leave(self) -> None:
        self.response.close()
        self.socket.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Gateway:
    """A running gateway, as a client sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = LIMIT_SECONDS,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, named, response.read())
        finally:
            connection.close()

    def post(self, body: Any, headers: dict[str, str] | None = None, timeout: float = LIMIT_SECONDS) -> Reply:
        """POST /v1/responses; `body` is raw bytes, or a value to encode as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(
            "POST", "/v1/responses", data, {"Content-Type": "application/json", **(headers or {})}, timeout
        )

    def ask(self, model: str | None, stream: bool = False, **more: Any) -> Reply:
        named = {} if model is None else {"model": model}
        return self.post({"input": "Why?", "stream": stream, **named, **more})

    def open(self, model: str, receive_buffer: int | None = None, **more: Any) -> Stream:
        """Start a streamed response."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(LIMIT_SECONDS)
        sock.connect(("127.0.0.1", self.port))
        body = json.dumps({"model": model, "input": "Why?", "stream": True, **more}).encode()
        sock.sendall(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        response = http.client.HTTPResponse(sock)
        response.begin()
        return Stream(sock, response)


class Served(Gateway):
    """A gateway in this process, on its own thread."""

    def __init__(self, port: int, server: uvicorn.Server, thread: threading.Thread) -> None:
        super().__init__(port)
        self.server = server
        self.thread = thread

    @property
    def busy(self) -> int:
        """The number of requests in progress."""
        return len(self.server.server_state.tasks)

    @property
    def connections(self) -> int:
        """The number of open client connections."""
        return len(self.server.server_state.connections)

    def idle(self) -> None:
        """Wait until no request is in progress."""
        wait_until(lambda: not self.busy, "no request is under way")


def with_long_timers(config: Config) -> Config:
    """Return the configuration with an hour for each timer that closes a connection and that the test does not set."""
    limits = _set_to_an_hour(config.limits, "first_byte", "idle")
    providers = {
        name: replace(one, limits=one.limits and _set_to_an_hour(one.limits, "first_byte", "idle"))
        for name, one in config.providers.items()
    }
    server = _set_to_an_hour(config.server, "request_seconds", "unread_seconds")
    relay = _set_to_an_hour(config.relay, "lease_seconds")
    return replace(config, limits=limits, providers=providers, server=server, relay=relay)


def _set_to_an_hour(section: Section, *timers: str) -> Section:
    usual = {field.name: field.default for field in msgspec.structs.fields(section)}
    unset = [timer for timer in timers if getattr(section, timer) == usual[timer]]
    return replace(section, **dict.fromkeys(unset, HOUR_SECONDS))


@contextmanager
def serve(
    config: Config | dict[str, Any],
    local: LocalModelService | None = None,
    transport: UpstreamClient | None = None,
    more: Iterable[ChatModel] = (),
    tracers: TracerProvider | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
    *,
    writes_titles: bool = False,
) -> Iterator[Served]:
    """Run the gateway on a free port in this process, until the end of the block; `wrap` may add middleware.

    Its timers are long (`with_long_timers`), and it sends no pings to WebSockets: if an upstream is closed, the test
    caused it, however long the test waits. No model writes titles, unless `writes_titles`
    is set or the configuration names one.
    """
    config = with_long_timers(check_config(config, {}) if isinstance(config, dict) else config)
    config = replace(config, server=replace(config.server, port=0))
    if not writes_titles and config.chat.title_model is None:  # a title would take an answer that the test scripted
        config = replace(config, chat=replace(config.chat, title_model="none"))
    if config.storage.url is None:
        config = replace(config, storage=replace(config.storage, url="sqlite://"))
    app = wrap(create_app(config, local, transport, more, tracers))
    how = {**uvicorn_settings(config), "ws_ping_interval": HOUR_SECONDS}
    server = uvicorn.Server(uvicorn.Config(app, **how))
    thread = threading.Thread(target=lambda: uvloop.run(server.serve()), name="gateway")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the gateway listens, or has failed to start")
        assert thread.is_alive()
        yield Served(server.servers[0].sockets[0].getsockname()[1], server, thread)
    finally:
        server.should_exit = True
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
