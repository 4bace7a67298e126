"""The client protocol of `examples/`, which is not part of the package, is served like the package's own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.scripted import Upstream, say
from tests.service_ports import candidate_ports
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_protocol.py"


def post(url: str, body: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{url}/v1/plain", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def gateway(upstream: Upstream) -> Iterator[str]:
    port = next(candidate_ports())
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return True
        return False

    with subprocess.Popen([sys.executable, EXAMPLE, upstream.url, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(is_up)
            yield url
        finally:
            process.terminate()


def test_a_protocol_from_outside_the_package_is_served(gateway: str, upstream: Upstream) -> None:
    model = upstream.plays(say("Let me see.", "42."))
    status, body = post(gateway, b'{"prompt": "?", "model": "%s"}' % model.encode())
    assert status == 200
    frames = [frame.split("\n") for frame in body.decode().strip().split("\n\n")]
    events = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]
    assert "".join(data["text"] for name, data in events if name == "think").strip() == "Let me see."
    assert "".join(data["text"] for name, data in events if name == "text").strip() == "42."
    assert events[-1] == ("done", {})
    assert post(gateway, b"{}") == (400, b'{"error":"the body cannot be read: Object missing required field `prompt`"}')
    with urllib.request.urlopen(f"{gateway}/openapi.json", timeout=30) as document:
        assert b'"/v1/plain"' in document.read()
