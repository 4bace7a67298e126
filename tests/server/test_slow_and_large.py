"""A request that is too large or too slow, head or body: answered in the error form, and the connection is let go."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from scripted import Upstream, say
from scripted.gateway import Served, serve


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
