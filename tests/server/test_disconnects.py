"""Clients that disconnect or stop reading: the upstream connection is closed at once, and memory does not grow."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripted import Call, Script, Upstream, delta, event, serve
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, wait_until

RecordProperty = Callable[[str, object], None]
"""Measurements are written to the report (`--junit-xml`), and are not asserted."""

REQUEST = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


async def thinks_for_ever(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.wait_for_disconnect()


async def talks_for_ever(call: Call) -> None:
    piece = event(delta(content="x" * 10_000)) * 2
    await call.head()
    while True:
        await call.data(piece)


async def never_answers(call: Call) -> None:
    await call.wait_for_disconnect()


async def refuses_slowly(call: Call) -> None:
    await call.head(400, "text/plain")
    await call.data(b"no")
    await call.wait_for_disconnect()


def test_a_disconnect_closes_the_upstream(gateway: Served, upstream: Upstream, record_property: RecordProperty) -> None:
    took = []
    for _ in range(20):
        model = upstream.plays(thinks_for_ever)
        stream = gateway.open(model)
        stream.until("Hm. ")
        [call] = upstream.calls(model)
        left = time.monotonic()
        stream.leave()
        assert call.connection.closed.wait(LIMIT_SECONDS)
        took.append(call.connection.closed_at - left)
    record_property("milliseconds until the upstream was left (median)", sorted(took)[10] * 1000)
    gateway.idle()


@pytest.mark.parametrize("script", [never_answers, refuses_slowly], ids=["before the head", "in an error's body"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_before_the_response_closes_the_upstream(
    gateway: Served, upstream: Upstream, stream: bool, script: Script
) -> None:
    model = upstream.plays(script)
    with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
        body = b'{"model":"%b","input":"x","stream":%b}' % (model.encode(), str(stream).lower().encode())
        sock.sendall(REQUEST % (len(body), body))
        [call] = upstream.calls(model, at_least=1)
        if script is refuses_slowly:
            time.sleep(0.05)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()


def test_a_disconnect_between_two_attempts_ends_the_request(upstream: Upstream) -> None:
    async def not_now(call: Call) -> None:
        await call.answer(503, b"{}", Retry_After="30")

    model = upstream.plays(not_now)
    limits = {"retry_wait": 60}
    with serve({"providers": {"vllm": {"base_url": upstream.url, "limits": limits}}}) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            body = b'{"model":"%b","input":"x"}' % model.encode()
            sock.sendall(REQUEST % (len(body), body))
            upstream.calls(model, at_least=1)
        gateway.idle()
    assert len(upstream.calls(model)) == 1


def test_a_disconnect_without_streaming_closes_the_upstream(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(thinks_for_ever)
    with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
        body = b'{"model":"%b","input":"x"}' % model.encode()
        sock.sendall(REQUEST % (len(body), body))
        [call] = upstream.calls(model, at_least=1)
    assert call.connection.closed.wait(LIMIT_SECONDS)


def resident_bytes() -> int:
    """Return the resident memory of this process, in which the gateway runs, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def bytes_written_when_stalled(call: Call, seconds: float = 0.6) -> int:
    """Wait until the upstream has written nothing for `seconds`, and return how many bytes it wrote."""
    written, since = -1, 0.0

    def is_still() -> bool:
        nonlocal written, since
        if call.connection.written != written:  # the kernel's buffers grow gradually
            written, since = call.connection.written, time.monotonic()
        return time.monotonic() - since >= seconds

    wait_until(is_still, "the upstream stops writing")
    return written


def test_a_client_that_stops_reading_pauses_the_upstream(
    gateway: Served, upstream: Upstream, record_property: RecordProperty
) -> None:
    model = upstream.plays(talks_for_ever)
    with gateway.open(model, receive_buffer=16384) as stream:
        stream.until("delta")
        [call] = upstream.calls(model)
        written = bytes_written_when_stalled(call)
        memory = resident_bytes()
        record_property("bytes until the upstream's writes stall", written)
        assert written < 32_000_000  # what the kernel's buffers hold
        assert resident_bytes() - memory < 2_000_000
        # The upstream continues when the client reads again.
        for _ in range(200):
            stream.until("delta")
            stream.seen = b""
            stream.response.read1(200_000)
        wait_until(lambda: call.connection.written > written, "the upstream goes on")
    assert call.connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()


def test_a_client_that_does_not_read_is_disconnected_after_a_timeout(upstream: Upstream) -> None:
    model = upstream.plays(talks_for_ever)
    config = {"server": {"unread_seconds": 0.5}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway, gateway.open(model, receive_buffer=16384) as stream:
        stream.until("delta")
        [call] = upstream.calls(model)
        assert call.connection.closed.wait(LIMIT_SECONDS)
        gateway.idle()


def test_a_slow_client_does_not_cause_an_idle_timeout_of_the_upstream(upstream: Upstream) -> None:
    """The upstream's idle timeout must not run while the gateway does not read."""

    async def script(call: Call) -> None:
        await call.head()
        for _ in range(200):
            await call.data(piece)
        await call.event(delta("stop", content="end"))
        await call.event(b"[DONE]")
        await call.end()

    piece = event(delta(content="x" * 10_000)) * 2
    model = upstream.plays(script)
    config = {"providers": {"vllm": {"base_url": upstream.url, "limits": {"idle": 2, "turn_characters": 10**9}}}}
    with serve(config) as gateway, gateway.open(model, receive_buffer=16384) as stream:
        [call] = upstream.calls(model)
        bytes_written_when_stalled(call, seconds=3)
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        assert b"event: response.completed" in stream.rest()


def test_unread_data_of_a_slow_client_is_not_lost_when_the_upstream_breaks_off(upstream: Upstream) -> None:
    """Everything that was received is delivered, also what was buffered when the connection ended."""
    sent: list[int] = []
    closed = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        while not sent or call.connection.written < 3_000_000:
            await call.event(delta(content=f"<{len(sent)}>".ljust(10_000)))
            sent.append(call.connection.written)
        await call.raw(b"1000\r\nda")
        call.close()
        closed.set()

    model = upstream.plays(script)
    config = {"limits": {"turn_characters": 10**9}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway:
        with gateway.open(model, receive_buffer=16384) as stream:
            stream.until("delta")
            while not closed.is_set():
                stream.response.read1(65536)
                time.sleep(0.001)
            time.sleep(0.2)
            end = stream.rest()
        assert b"event: response.failed" in end
        assert f"<{len(sent) - 1}>".encode() in end


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02])
def test_a_disconnect_at_any_moment_leaves_nothing_open(gateway: Served, upstream: Upstream, moment: float) -> None:
    """This includes the moment in which the response ends."""

    async def script(call: Call) -> None:
        await call.head()
        for _ in range(10):
            await call.event(delta(content="x"))
            await asyncio.sleep(0.001)
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    model = upstream.plays(script)
    for n in range(15):
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            body = b'{"model":"%b","input":"x","stream":%b}' % (model.encode(), (b"false", b"true")[n % 2])
            sock.sendall(REQUEST % (len(body), body))
            time.sleep(moment)
    gateway.idle()
    assert gateway.ask(model).json["status"] == "completed"
