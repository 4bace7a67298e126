"""The embedded model through the gateway: the real engine, with the tiny model."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pellucid.local.fetch import fetch
from pellucid.local.model_index import find_model
from pellucid.local.supervisor import Engine
from pellucid.models.embedded import EmbeddedModel
from pellucid.protocols.openresponses.verify import verify
from pellucid.upstream import UpstreamClient
from tests.scripted import Reply
from tests.scripted.gateway import Served, events_of, serve
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.needs("engine")


class Home:
    """A gateway with the tiny model."""

    def __init__(self, gateway: Served, engine: Engine) -> None:
        self.gateway = gateway
        self.engine = engine

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.gateway.request("GET", "/ready").status == 200, "the engine is ready", within=100)

    def holds(self, running: int, waiting: int, within: float = LIMIT_SECONDS) -> None:
        """Wait until the engine has this many running and waiting requests."""
        queue = self.engine.queue
        what = f"{running} hold the engine, {waiting} wait"
        wait_until(lambda: (queue.running, queue.waiting) == (running, waiting), what, within)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    # Without the hub: a machine without access to it would wait for it whenever the cache is empty.
    model = msgspec.structs.replace(find_model("smollm2-135m"), hub="")
    weights: Path = asyncio.run(fetch(model))
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    engine = Engine(model, weights, log=log, first_pause_seconds=0.1)
    transport = UpstreamClient()
    config = {"local": {"model": "smollm2-135m"}}
    with serve(config, EmbeddedModel(engine, transport), transport) as gateway:
        running = Home(gateway, engine)
        assert gateway.request("GET", "/ready").status == 503
        running.wait_until_ready()
        yield running


LONG: dict[str, Any] = {"input": "Tell a long story.", "max_output_tokens": 1000}


def kinds(reply: Reply) -> list[str]:
    """Return the types of events, without consecutive duplicates."""
    types = [event["type"] for event in reply.events]
    return [kind for n, kind in enumerate(types) if n == 0 or types[n - 1] != kind]


def test_the_model_thinks_and_then_answers(home: Home) -> None:
    reply = home.gateway.ask(None, stream=True, max_output_tokens=300, temperature=0)
    assert reply.status == 200
    assert verify(reply.body) == []
    types = kinds(reply)
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types.index("response.reasoning.delta") < types.index("response.output_text.delta")
    assert reply.events[-1]["response"]["model"] == "smollm2-135m"
    assert reply.events[-1]["response"]["usage"]["output_tokens"] > 0


def test_a_response_without_streaming(home: Home) -> None:
    response = home.gateway.ask("local", max_output_tokens=120).json
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_can_be_disabled(home: Home, stream: bool) -> None:
    reply = home.gateway.ask(None, stream=stream, reasoning={"effort": "none"}, max_output_tokens=20)
    response = reply.events[-1]["response"] if stream else reply.json
    assert [item["type"] for item in response["output"]] == ["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_image_is_refused(home: Home, stream: bool) -> None:
    content = [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]
    reply = home.gateway.post({"input": [{"role": "user", "content": content}], "stream": stream})
    assert reply.status == 400
    assert reply.error["code"] == "unsupported_by_embedded_model"
    assert "accepts only text, not an image;" in reply.error["message"]
    assert reply.error["param"] is None, "a field of the engine's wire is not named"


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_refused(home: Home, stream: bool) -> None:
    reply = home.gateway.post({"input": "word " * 20_000, "stream": stream}, timeout=100)
    assert reply.status == 413
    assert reply.error["code"] == "context_length_exceeded"
    assert "too long for the embedded model" in reply.error["message"]
    home.holds(0, 0)


def test_a_waiting_request_receives_a_queued_event(home: Home) -> None:
    with home.gateway.open("local", **LONG) as first:
        first.until("response.reasoning.delta")
        with home.gateway.open("local", max_output_tokens=40) as second:
            second.until("event: response.queued")
            assert b"response.in_progress" not in second.seen
            first.leave()
            second.until("event: response.in_progress")
            reply = Reply(200, {}, second.rest())
    assert verify(reply.body) == []
    assert kinds(reply)[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds(reply)[-1] in ("response.completed", "response.incomplete")


def test_an_engine_that_is_stopped_is_not_ready(home: Home) -> None:
    """It is ready while it generates, because its health is answered then, too."""
    with home.gateway.open("local", **LONG) as stream:
        stream.until("response.reasoning.delta")
        assert home.gateway.request("GET", "/ready").status == 200
        assert home.engine.pid is not None
        os.kill(home.engine.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: home.gateway.request("GET", "/ready").status == 503, "it is not ready")
            reason = home.gateway.request("GET", "/ready").json
            assert reason == {"status": "unavailable", "detail": "the embedded model does not answer"}
        finally:
            os.kill(home.engine.pid, signal.SIGCONT)
        home.wait_until_ready()
    home.holds(0, 0)


def test_a_disconnect_frees_the_engine(home: Home) -> None:
    with home.gateway.open("local", **LONG) as stream:
        stream.until("response.reasoning.delta")
        home.holds(1, 0)
    home.holds(0, 0, within=5)


def test_a_disconnect_while_queued_frees_the_place(home: Home) -> None:
    with home.gateway.open("local", **LONG) as first:
        first.until("response.reasoning.delta")
        with home.gateway.open("local") as second:
            second.until("event: response.queued")
            home.holds(1, 1)
        home.holds(1, 0, within=5)
    home.holds(0, 0, within=5)


def test_concurrent_requests_are_served_in_turn(home: Home) -> None:
    replies: list[Reply] = []

    def ask() -> None:
        replies.append(home.gateway.ask("local", stream=True, max_output_tokens=16, timeout=100))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(verify(reply.body) == [] for reply in replies)
    assert sum("response.queued" in kinds(reply) for reply in replies) >= 4
    home.holds(0, 0)


def test_an_engine_that_dies_ends_its_stream_and_is_restarted(home: Home) -> None:
    assert home.engine.pid is not None
    with home.gateway.open("local", **LONG) as stream, home.gateway.open("local", max_output_tokens=40) as waits:
        stream.until("response.reasoning.delta")
        waits.until("event: response.queued")
        os.kill(home.engine.pid, signal.SIGKILL)
        events = stream.events
        assert verify(stream.seen) == []
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        # The restarted engine serves the waiting request and a new one.
        now = home.gateway.ask("local", stream=True, max_output_tokens=40, timeout=100)
        for body in (now.body, waits.rest()):
            assert events_of(body)[-1]["type"] in ("response.completed", "response.incomplete"), body[-600:]
    home.wait_until_ready()
    assert home.engine.restarts == 1
    home.holds(0, 0)
