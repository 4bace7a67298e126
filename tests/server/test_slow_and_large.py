"""Requests whose head or body is too large or too slow get an error, and the connection is closed."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.examples import by_circle
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.waiting import LIMIT_SECONDS, wait_until


def limited(upstream: Upstream, request_seconds: float) -> AbstractContextManager[Served]:
    return serve(
        {
            "server": {"request_seconds": request_seconds, "max_body_bytes": 1_000_000},
            "providers": {"vllm": {"base_url": upstream.url}},
        }
    )


@pytest.fixture(scope="module")
def hurried(upstream: Upstream) -> Iterator[Served]:
    """A gateway with a short time limit, for requests that are too slow."""
    with limited(upstream, 0.4) as running:
        yield running


@pytest.fixture(scope="module")
def patient(upstream: Upstream) -> Iterator[Served]:
    """A gateway with a long time limit, for all other requests on a machine that may be slow."""
    with limited(upstream, 60) as running:
        yield running


def connect(gateway: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=LIMIT_SECONDS)


def read_error(sock: socket.socket) -> tuple[int, dict[str, str]]:
    response = http.client.HTTPResponse(sock)
    response.begin()
    error = json.loads(response.read())["error"]
    assert sock.recv(1) == b"", "the connection is closed"
    return response.status, error


HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"


def test_an_endless_head_closes_the_connection(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD)
    with pytest.raises((ConnectionError, TimeoutError)):
        sock.sendall((b"X-More: " + b"x" * 10_000 + b"\r\n") * 2000)
    hurried.idle()


def test_a_head_that_is_too_large_is_refused_with_431(patient: Served) -> None:
    sock = connect(patient)
    # The response to a first request shows that the start of the head was read; the rest is counted from there.
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD)
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert json.loads(response.read()) == {"status": "ok"}
    for _ in range(7):
        sock.sendall(b"X-More: " + b"x" * 9_990 + b"\r\n")
    status, error = read_error(sock)
    assert (status, error["code"]) == (431, "head_too_large")


def test_a_slow_head_is_refused_with_408(hurried: Served) -> None:
    sock = connect(hurried)
    for byte in HEAD[:5]:
        sock.sendall(bytes([byte]))
        time.sleep(0.01)  # so that each is a read of its own
    status, error = read_error(sock)
    assert (status, error["code"]) == (408, "head_too_slow")


def test_a_silent_connection_is_closed(hurried: Served) -> None:
    assert connect(hurried).recv(1) == b""


def test_a_slow_body_is_refused_with_408(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    status, error = read_error(sock)
    assert (status, error["code"]) == (408, "body_too_slow")


def test_a_body_that_is_too_large_is_refused_with_413(patient: Served) -> None:
    sock = connect(patient)
    sock.sendall(HEAD + b"Content-Length: 1000001\r\n\r\n")
    status, error = read_error(sock)
    assert (status, error["code"]) == (413, "body_too_large")


def test_bytes_that_are_not_http_are_refused(patient: Served) -> None:
    sock = connect(patient)
    sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    status, error = read_error(sock)
    assert (status, error["code"]) == (400, "not_http")


def test_keep_alive_is_not_limited_by_the_head_timeout(upstream: Upstream) -> None:
    """Only the head is limited: a large body, a slow response and a pause do not count."""
    body = json.dumps({"model": upstream.plays(say("Hm.", "Yes.")), "input": "x" * 500_000})
    with limited(upstream, 1.0) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
        sockets = []
        for pause in (1.2, 0):
            connection.request("POST", "/v1/responses", body)
            response = connection.getresponse()
            assert response.status == 200
            response.read()
            sockets.append(connection.sock)
            time.sleep(pause)
        assert sockets[0] is sockets[1] is not None
        connection.close()


def test_endless_trailers_close_the_connection(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
    with pytest.raises((ConnectionError, TimeoutError)):
        sock.sendall(b"X-A: y\r\n" * 3_000_000)
    hurried.idle()


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_an_optional_upgrade_is_ignored(patient: Served, upstream: Upstream, offer: str, pieces: int) -> None:
    """Java's client and `curl --http2` send every request like this. The body must never be read as another request."""
    body = json.dumps({"model": upstream.plays(say("Hm.", "Yes.")), "input": "GET /smuggled HTTP/1.1\r\n\r\n"}).encode()
    head = (
        HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAMAAABkAAQ\r\n" % offer.encode()
    )
    request = head + b"Content-Length: %d\r\n\r\n" % len(body)
    sock = connect(patient)
    if pieces == 1:
        sock.sendall(request + body)
    else:
        sock.sendall(request)
        time.sleep(0.05)  # so that the body is a read of its own
        sock.sendall(body)
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert response.status == 200
    assert json.loads(response.read())["status"] == "completed"
    # The connection serves the next request.
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert json.loads(response.read()) == {"status": "ok"}


def test_connect_is_refused(patient: Served) -> None:
    sock = connect(patient)
    sock.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
    assert read_error(sock)[0] == 400


def test_many_pipelined_requests_are_all_answered(patient: Served) -> None:
    sock = connect(patient)
    count = by_circle(1500, 5000)  # more than the recursion limit
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
    seen = b""
    while seen.count(b'{"status":"ok"}') < count:
        piece = sock.recv(1 << 20)
        assert piece, seen.count(b'{"status":"ok"}')
        seen += piece


@pytest.mark.parametrize("behind", [b"GE", b"\x00 garbage \r\n\r\n"])
def test_bytes_after_a_request_do_not_affect_its_response(hurried: Served, upstream: Upstream, behind: bytes) -> None:
    async def slow(call: Call) -> None:
        await call.head()
        for word in ("One", "Two", "Three"):
            await asyncio.sleep(0.2)  # in total longer than a head may take
            await call.event(delta(content=word))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    body = json.dumps({"model": upstream.plays(slow), "input": "x", "stream": True}).encode()
    sock = connect(hurried)
    sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b%b" % (len(body), body, behind))
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert response.read().endswith(b"data: [DONE]\n\n")
    assert sock.recv(1) == b""


def test_a_client_that_never_reads_is_disconnected_and_its_buffers_are_freed(upstream: Upstream) -> None:
    """The response is complete and only waits to be read."""
    config = {"server": {"unread_seconds": 0.4}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as running:
        body = json.dumps(
            {"model": upstream.plays(say()), "input": "x", "instructions": "y" * 8_000_000, "stream": True}
        )
        socks = []
        for _ in range(3):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", running.port))
            sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body.encode()))
            socks.append(sock)
        running.idle()
        wait_until(lambda: not running.connections, "no client holds a connection")
        for sock in socks:
            sock.close()
