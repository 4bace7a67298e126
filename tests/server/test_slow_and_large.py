"""A request that is too large or too slow, head or body: answered in the error form, and the connection is let go."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served, serve


@pytest.fixture(scope="module")
def hurried(upstream: Upstream) -> Iterator[Served]:
    config = {
        "server": {"request_seconds": 0.4, "max_body_bytes": 1_000_000},
        "providers": {"vllm": {"base_url": upstream.url}},
    }
    with serve(config) as running:
        yield running


def connect(gateway: Served) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    sock.settimeout(10)
    return sock


def answered(sock: socket.socket) -> tuple[int, dict[str, str]]:
    response = http.client.HTTPResponse(sock)
    response.begin()
    error = json.loads(response.read())["error"]
    assert sock.recv(1) == b"", "the connection is closed"
    return response.status, error


HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: gateway\r\n"


def test_a_head_that_never_ends(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD)
    with pytest.raises((ConnectionError, TimeoutError)):
        sock.sendall((b"X-More: " + b"x" * 10_000 + b"\r\n") * 2000)
    hurried.idle()


def test_a_head_that_is_too_large_is_told_so(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD)
    time.sleep(0.05)
    for _ in range(7):
        sock.sendall(b"X-More: " + b"x" * 9_990 + b"\r\n")
        time.sleep(0.02)
    status, error = answered(sock)
    assert (status, error["code"]) == (431, "head_too_large")


def test_a_head_a_byte_at_a_time(hurried: Served) -> None:
    sock = connect(hurried)
    for byte in HEAD[:5]:
        sock.sendall(bytes([byte]))
        time.sleep(0.05)
    status, error = answered(sock)
    assert (status, error["code"]) == (408, "head_too_slow")


def test_who_says_nothing_is_not_waited_for(hurried: Served) -> None:
    assert connect(hurried).recv(1) == b""


def test_a_body_that_does_not_come(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    status, error = answered(sock)
    assert (status, error["code"]) == (408, "body_too_slow")


def test_a_body_that_is_too_large(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD + b"Content-Length: 1000001\r\n\r\n")
    status, error = answered(sock)
    assert (status, error["code"]) == (413, "body_too_large")


def test_what_is_not_http(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    status, error = answered(sock)
    assert (status, error["code"]) == (400, "not_http")


def test_a_connection_is_kept_between_requests_longer_than_a_head_may_take(hurried: Served, upstream: Upstream) -> None:
    """The limit is the head's; a large body, an answer that takes its time and a pause do not count."""
    connection = http.client.HTTPConnection("127.0.0.1", hurried.port, timeout=10)
    body = json.dumps({"model": upstream.plays(say("Hm.", "Yes.")), "input": "x" * 500_000})
    for _ in range(2):
        connection.request("POST", "/v1/responses", body)
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        sock = connection.sock
        time.sleep(0.6)
    assert connection.sock is sock
    connection.close()


def test_trailers_without_end(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
    with pytest.raises((ConnectionError, TimeoutError)):
        sock.sendall(b"X-A: y\r\n" * 3_000_000)
    hurried.idle()


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_an_upgrade_that_is_only_an_offer_is_ignored(
    hurried: Served, upstream: Upstream, offer: str, pieces: int
) -> None:
    """Java's client and `curl --http2` send every request so; its body is a body, and never another request."""
    body = json.dumps({"model": upstream.plays(say("Hm.", "Yes.")), "input": "GET /smuggled HTTP/1.1\r\n\r\n"}).encode()
    head = (
        HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAMAAABkAAQ\r\n" % offer.encode()
    )
    request = head + b"Content-Length: %d\r\n\r\n" % len(body)
    sock = connect(hurried)
    if pieces == 1:
        sock.sendall(request + body)
    else:
        sock.sendall(request)
        time.sleep(0.1)
        sock.sendall(body)
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert response.status == 200
    assert json.loads(response.read())["status"] == "completed"
    # And the connection goes on with the next request.
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n")
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert json.loads(response.read()) == {"status": "ok"}


def test_a_tunnel_is_not_opened(hurried: Served) -> None:
    sock = connect(hurried)
    sock.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
    assert answered(sock)[0] == 400


def test_many_requests_at_once_are_all_answered(hurried: Served) -> None:
    sock = connect(hurried)
    count = 5000
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n" * count)
    seen = b""
    while seen.count(b'{"status":"ok"}') < count:
        piece = sock.recv(1 << 20)
        assert piece, seen.count(b'{"status":"ok"}')
        seen += piece


@pytest.mark.parametrize("behind", [b"GE", b"\x00 garbage \r\n\r\n"])
def test_what_follows_a_request_does_not_harm_its_answer(hurried: Served, upstream: Upstream, behind: bytes) -> None:
    async def slow(call: Call) -> None:
        await call.head()
        for word in ("One", "Two", "Three"):
            await asyncio.sleep(0.3)
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


def test_a_client_that_never_reads_is_let_go_buffers_and_all(upstream: Upstream) -> None:
    """Also when its answer is over, and only waits to be read."""
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
        deadline = time.monotonic() + 5
        while running.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running.connections == 0
        for sock in socks:
            sock.close()
