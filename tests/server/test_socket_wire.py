"""WebSockets on the wire: clients that disconnect, do not read, send too much or invalid data, or are refused."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from tests.examples import by_circle
from tests.scripted import Call, Upstream, delta, event, say, serve
from tests.scripted.gateway import Served
from tests.server.sockets_kit import Socket, opened
from tests.waiting import LIMIT_SECONDS

RecordProperty = Callable[[str, object], None]
THINKS = say("Let me see.", "It is 42.")


async def thinks_for_ever(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.wait_for_disconnect()


async def talks_for_ever(call: Call) -> None:
    piece = event(delta(content="x" * 1000)) * 20
    await call.head()
    while True:
        await call.data(piece)


@pytest.fixture
def socket(gateway: Served, upstream: Upstream) -> Iterator[Socket]:
    with opened(gateway, upstream.plays(THINKS)) as made:
        yield made


def close_code_of(socket: Socket) -> int | None:
    while True:
        try:
            socket.message()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else None


# --- disconnecting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "break"])
def test_a_disconnect_closes_the_upstream_at_once(gateway: Served, upstream: Upstream, how: str) -> None:
    with opened(gateway, upstream.plays(thinks_for_ever)) as socket:
        socket.send()
        socket.until("response.reasoning.delta")
        if how == "close":
            socket.connection.close()
        else:
            socket.connection.socket.shutdown(sockets.SHUT_RDWR)
        [call] = upstream.calls(socket.model)
        assert call.connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()


def test_a_disconnect_before_the_first_event_closes_the_upstream(gateway: Served, upstream: Upstream) -> None:
    async def never(call: Call) -> None:
        await call.wait_for_disconnect()

    with opened(gateway, upstream.plays(never)) as socket:
        socket.send()
        [call] = upstream.calls(socket.model, 1)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()


def raw_socket(gateway: Served, receive_buffer: int = 4096) -> sockets.socket:
    """Open a WebSocket without a client library."""
    made = sockets.socket()
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, receive_buffer)
    made.settimeout(LIMIT_SECONDS)
    made.connect(("127.0.0.1", gateway.port))
    made.sendall(
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += made.recv(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    return made


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def create_message(model: str, **more: Any) -> bytes:
    return json.dumps({"type": "response.create", "model": model, "input": "Why?", "store": False, **more}).encode()


def test_a_client_that_does_not_read_is_disconnected(upstream: Upstream) -> None:
    config = {"server": {"unread_seconds": 1}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway:
        model = upstream.plays(talks_for_ever)
        with raw_socket(gateway) as client:
            client.sendall(frame(Opcode.TEXT, create_message(model)))
            [call] = upstream.calls(model, 1)
            assert call.connection.closed.wait(LIMIT_SECONDS)
        # The gateway read no more than it could forward.
        assert call.connection.written < 32_000_000  # what the kernel's buffers hold
        gateway.idle()


def test_a_slow_client_gets_everything(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(say(text="word " * 3000))
    with raw_socket(gateway) as client:
        client.sendall(frame(Opcode.TEXT, create_message(model)))
        seen = b""
        while b'"response.completed"' not in seen[-20_000:]:
            piece = client.recv(16_384)
            assert piece
            seen += piece
            time.sleep(0.0005)
    assert seen.count(b'"response.output_text.delta"') == 3001


# --- frames ----------------------------------------------------------------------------------------------------------


def test_a_fragmented_message_is_one_message(gateway: Served, socket: Socket) -> None:
    text = create_message(socket.model).decode()
    socket.connection.send([text[at : at + 7] for at in range(0, len(text), 7)])
    assert socket.turn().text == "It is 42. "


def test_a_message_over_the_body_limit_closes_the_socket(gateway: Served, upstream: Upstream) -> None:
    for pieces in (["x" * 300_000], ["x" * 10_000] * 30):
        with opened(gateway, "any") as socket:
            with suppress(ConnectionClosed):
                socket.connection.send(pieces)
            assert close_code_of(socket) == 1009


class ResetConnection:
    """Middleware: the server learns only by writing that the client of a socket has left."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_until_reset(message: Any) -> None:
            if message["type"] == "websocket.send":
                raise ConnectionResetError
            await send(message)

        await self._app(scope, receive, send_until_reset if scope["type"] == "websocket" else send)


def test_a_client_that_leaves_before_its_error_is_no_fault(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}, wrap=ResetConnection) as gateway:
        with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses") as client:
            for _ in range(3):
                client.send("[]")
                assert client.ping().wait(LIMIT_SECONDS)  # the message was read, and its error could not be sent
        gateway.idle()
        gc.collect()  # asyncio reports what a task raised when the task is deleted
        assert caplog.records == []


def test_invalid_utf8_closes_the_socket_and_is_not_logged(gateway: Served, caplog: pytest.LogCaptureFixture) -> None:
    with opened(gateway, "any") as socket:
        socket.connection.send([b"\xff\xfeSECRET"], text=True)
        assert close_code_of(socket) == 1007
    assert not caplog.records


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x81\x05hello",  # not masked
        b"\xf1\x80aaaa",  # reserved bits
        frame(Opcode.CONT, b"x"),  # continues nothing
        b"\x83\x80aaaa",  # no such kind
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["not masked", "reserved bits", "a continuation of nothing", "no such kind", "a request"],
)
def test_an_invalid_frame_closes_the_socket(gateway: Served, nonsense: bytes) -> None:
    with raw_socket(gateway) as client:
        client.sendall(nonsense)
        seen = b""
        while piece := client.recv(1000):
            seen += piece
        assert seen[:4] == b"\x88" + seen[1:2] + (1002).to_bytes(2, "big")


def test_a_ping_is_answered_even_during_a_response(gateway: Served, upstream: Upstream) -> None:
    with opened(gateway, upstream.plays(thinks_for_ever)) as socket:
        assert socket.connection.ping().wait(LIMIT_SECONDS)
        socket.send()
        socket.until("response.reasoning.delta")
        assert socket.connection.ping().wait(LIMIT_SECONDS)


# --- the handshake ---------------------------------------------------------------------------------------------------


def handshake_refusal(gateway: Served, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    with (
        pytest.raises(InvalidStatus) as error,
        connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", additional_headers=headers),
    ):
        pass
    response = error.value.response
    named = {name.lower(): value for name, value in response.headers.raw_items()}
    return response.status_code, json.loads(response.body or b"{}")["error"], named


def test_a_foreign_origin_is_refused(gateway: Served) -> None:
    status, error, _ = handshake_refusal(gateway, Origin="https://elsewhere.example")
    assert (status, error["code"]) == (403, "foreign_origin")


KEY = "a-key-for-sockets-0123456789abcdef"


@pytest.fixture
def guarded(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("PELLUCID_TEST_SOCKET_KEY", KEY)
    policies = {"few": {"requests_per_minute": 2, "models": ["few-*", "model-*"], "max_body_bytes": 2000, "streams": 1}}
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "access": {
            "key_env": "PELLUCID_TEST_SOCKET_KEY",
            "key_policy": "few",
            "policies": policies,
            "cors": {"origins": ["https://app.example"]},
        },
    }
    from pellucid.server.config import check_config

    with serve(check_config(config, {"PELLUCID_TEST_SOCKET_KEY": KEY})) as running:
        yield running


def test_a_handshake_without_a_key_is_refused_with_401(guarded: Served) -> None:
    status, error, headers = handshake_refusal(guarded)
    assert (status, error["code"]) == (401, "missing_credentials")
    assert headers["www-authenticate"].startswith("Bearer")
    assert headers["x-request-id"]
    assert handshake_refusal(guarded, Authorization="Bearer wrong")[0] == 401


def test_an_allowed_origin_may_connect_with_a_key(guarded: Served, upstream: Upstream) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Origin": "https://app.example"}
    with opened(guarded, upstream.plays(THINKS), additional_headers=headers) as socket:
        assert socket.ask().text == "It is 42. "


def test_each_turn_is_counted_and_limited_like_a_request(guarded: Served, upstream: Upstream) -> None:
    with opened(guarded, upstream.plays(THINKS), additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        turn = socket.ask(model="forbidden")
        assert turn.error is not None
        assert turn.error["status"] in (403, 404)
        turn = socket.ask(input="x" * 3000)
        assert turn.error is not None
        assert (turn.error["status"], turn.code) == (413, "body_too_large")
        assert socket.ask().text == "It is 42. "
        assert socket.ask().text == "It is 42. "
        turn = socket.ask()
        assert turn.error is not None
        assert (turn.error["status"], turn.code) == (429, "rate_limit_exceeded")


def test_other_paths_accept_no_socket(gateway: Served) -> None:
    with pytest.raises(InvalidStatus) as error, connect(f"ws://127.0.0.1:{gateway.port}/v1/elsewhere"):
        pass
    assert error.value.response.status_code in (403, 404)


def test_a_get_without_an_upgrade_is_refused(gateway: Served) -> None:
    assert gateway.request("GET", "/v1/responses").status == 405


# --- shutdown --------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_the_response_and_closes_sockets(upstream: Upstream) -> None:
    idle_is_closed = threading.Event()

    async def thinks_a_while(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        await asyncio.to_thread(idle_is_closed.wait, LIMIT_SECONDS)
        await call.event(delta(content="done"))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    config = {"server": {"shutdown_seconds": LIMIT_SECONDS}, "providers": {"vllm": {"base_url": upstream.url}}}
    with (
        serve(config) as gateway,
        opened(gateway) as idle,
        opened(gateway, upstream.plays(thinks_a_while)) as socket,
    ):
        socket.send()
        socket.until("response.reasoning.delta")
        socket.send()  # too late
        gateway.server.should_exit = True
        assert close_code_of(idle) == 1012, "an idle socket is closed at once"
        idle_is_closed.set()
        events = socket.until("response.completed")
        assert events[-1]["response"]["output"][-1]["content"][0]["text"] == "done"
        assert close_code_of(socket) == 1012
        gateway.thread.join(LIMIT_SECONDS)
        assert not gateway.thread.is_alive()


def test_shutdown_after_its_timeout_ends_the_response_as_failed(upstream: Upstream) -> None:
    config = {"server": {"shutdown_seconds": 0.2}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway, opened(gateway, upstream.plays(thinks_for_ever)) as socket:
        socket.send()
        socket.until("response.reasoning.delta")
        gateway.server.should_exit = True
        *_, error, failed = socket.until("response.failed")
        assert error["error"]["code"] == failed["response"]["error"]["code"] == "stopping"
        assert close_code_of(socket) == 1012


# --- many sockets ----------------------------------------------------------------------------------------------------


def resident_kib() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1])


def test_idle_sockets_use_little_memory(gateway: Served, record_property: RecordProperty) -> None:
    count = by_circle(300, 1000)
    raw_socket(gateway).close()
    before = resident_kib()
    clients = [raw_socket(gateway) for _ in range(count)]
    try:
        each = (resident_kib() - before) / count
        assert gateway.busy >= count
    finally:
        for client in clients:
            client.close()
    record_property("KiB for each socket that is open", each)
    assert each < 64
    gateway.idle()


def test_many_concurrent_sockets_are_served(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(THINKS)

    async def one() -> None:
        async with connect_async(f"ws://127.0.0.1:{gateway.port}/v1/responses") as connection:
            for _ in range(3):
                await connection.send(create_message(model).decode())
                while json.loads(await connection.recv())["type"] != "response.completed":
                    pass

    async def all_() -> None:
        await asyncio.gather(*(one() for _ in range(50)))

    asyncio.run(all_())
    gateway.idle()
