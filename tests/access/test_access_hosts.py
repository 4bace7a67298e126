"""Host and Origin on the wire, where no key is required: every form in which a request can name its host."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve
from tests.waiting import LIMIT_SECONDS

UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}) as running:
        yield running


def exchange(gateway: Served, *heads: bytes) -> list[tuple[int, str]]:
    """Send requests at once over one connection; return the status and the code of the error of each response."""
    answers: list[tuple[int, str]] = []
    with socket.create_connection(("127.0.0.1", gateway.port), LIMIT_SECONDS) as sock:
        sock.sendall(b"".join(head + b"\r\n" for head in heads))
        stream = sock.makefile("rb")
        for _ in heads:
            response = http.client.HTTPResponse(_Borrowed(stream))  # type: ignore[arg-type]
            response.begin()
            body = response.read() if response.status != 101 else b""
            error = json.loads(body).get("error", {}) if body.startswith(b"{") else {}
            answers.append((response.status, error.get("code", "")))
    return answers


class _Borrowed:
    """What `HTTPResponse` needs of a socket. Several responses are read from one file."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> _Borrowed:
        return self

    def __getattr__(self, name: str) -> object:
        return (lambda: None) if name == "close" else getattr(self._stream, name)


def get(*headers: bytes, target: bytes = b"/v1/models", version: bytes = b"1.1") -> bytes:
    return b"GET %b HTTP/%b\r\n" % (target, version) + b"".join(header + b"\r\n" for header in headers)


OWN = [
    get(b"Host: localhost"),
    get(b"Host: localhost:99"),
    get(b"Host: LOCALHOST"),
    get(b"Host:  localhost \t"),
    get(b"Host: localhost."),
    get(b"Host: [::1]:80"),
    get(b"Host: 192.168.1.4"),
    get(b"Host: localhost", version=b"1.0"),
    get(b"Host: localhost", b"X-Forwarded-Host: evil.test"),
    # The host of a target in absolute form replaces the header (RFC 9112, 3.2.2).
    get(b"Host: evil.test", target=b"http://localhost/v1/models"),
    get(target=b"http://127.0.0.1:80/v1/models?a=//evil.test"),
    get(b"Host: localhost:80", b"Origin: http://localhost:80"),
]


@pytest.mark.parametrize("head", OWN)
def test_a_request_for_this_machine_is_served(gateway: Served, head: bytes) -> None:
    assert exchange(gateway, head) == [(200, "")]


FOREIGN_HOST = [
    get(b"Host: evil.test"),
    get(b"Host: evil.test."),
    get(b"Host: EVIL.TEST:80"),
    get(b"Host: localhost@evil.test"),
    get(b"Host: evil.test@localhost"),
    get(b"Host: localhost, evil.test"),
    get(b"Host: localhost evil.test"),
    get(b"Host: localhost#evil.test"),
    get(b"Host: evil.test", version=b"1.0"),
    get(b"Host: evil.test", b"X-Forwarded-Host: localhost", b"Forwarded: host=localhost"),
    get(b"Host: localhost", target=b"http://evil.test/v1/models"),
    get(b"Host: localhost", target=b"https://localhost@evil.test/v1/models"),
    get(b"Host: evil.test", target=b"//health"),
    get(b"Host: evil.test", target=b"/health/../metrics"),
    b"OPTIONS * HTTP/1.1\r\nHost: evil.test\r\n",
    get(b"Host: evil.test", target=b"/v1/responses") + UPGRADE,
    get(b"Host: evil.test", b"Origin: http://evil.test", target=b"/spaces/review/ws") + UPGRADE,
    get(b"Host: localhost", target=b"http://evil.test/v1/responses") + UPGRADE,
]


@pytest.mark.parametrize("head", FOREIGN_HOST)
def test_a_request_for_another_name_is_refused(gateway: Served, head: bytes) -> None:
    assert exchange(gateway, head) == [(403, "foreign_host")]


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_request_has_one_host(gateway: Served, version: bytes) -> None:
    for head in (
        get(version=version),
        get(b"Host:", version=version),
        get(b"Host: ", version=version),
        get(b"Host: localhost", b"Host: evil.test", version=version),
        get(b"Host: localhost", b"Host: localhost", version=version),
        get(b"Host: localhost", b"Host: evil.test", target=b"/v1/responses") + UPGRADE,
    ):
        assert exchange(gateway, head) == [(400, "invalid_host")]
    assert exchange(gateway, get(target=b"/health", version=b"1.0")) == [(200, "")]


def test_each_request_of_a_connection_is_checked(gateway: Served) -> None:
    own, evil = get(b"Host: localhost"), get(b"Host: evil.test")
    answers = exchange(gateway, own, evil, get(b"Host: localhost", target=b"/nowhere"), evil, own)
    assert [status for status, _ in answers] == [200, 403, 404, 403, 200]


@pytest.mark.parametrize(
    "origin", [b"null", b"https://evil.test", b"http://localhost:81", b"http://localhost.evil.test"]
)
def test_a_page_of_another_origin_is_refused_everywhere(gateway: Served, origin: bytes) -> None:
    headers = (b"Host: localhost:80", b"Origin: " + origin)
    for target in (b"/", b"/metrics", b"/v1/models", b"/openapi.json", b"/spaces", b"/api/session", b"/nowhere"):
        assert exchange(gateway, get(*headers, target=target)) == [(403, "foreign_origin")], target
    for target in (b"/v1/responses", b"/spaces/review/ws", b"/ws?space=review"):
        assert exchange(gateway, get(*headers, target=target) + UPGRADE) == [(403, "foreign_origin")], target
    assert exchange(gateway, get(*headers, target=b"/health")) == [(200, "")]


def test_the_errors_name_what_was_sent_and_the_setting(gateway: Served) -> None:
    def message(path: str, **headers: str) -> str:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        text: str = gateway.request("GET", path, headers=sent).json["error"]["message"]
        return text

    assert message("/metrics", Host="evil.test:80") == (
        "this request is for the host 'evil.test:80', which is not an IP address and not this machine's name; if it is "
        "yours, add 'evil.test' to access.hosts, or require keys"
    )
    assert message("/v1/models", Origin="https://evil.test") == (
        "this request comes from a web page of the origin 'https://evil.test'; other origins must be in "
        "access.cors.origins"
    )
    assert "access.cors.origins" in message("/api/conversations", Sec_Fetch_Site="cross-site")
