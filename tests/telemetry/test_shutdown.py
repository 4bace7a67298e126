"""Shutdown of `pellucid serve`: readiness fails first, then new requests are refused with an error, and open runs are
completed; a run that does not end in time ends with an error that names the shutdown."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import ErrorInfo
from pellucid.local.model_index import Model
from pellucid.local.supervisor import Engine
from pellucid.protocols.openresponses.verify import verify
from pellucid.runs.detached_runs import DetachedRuns
from tests.cli.in_process import ServeThread
from tests.scripted import Call, Gateway, Upstream, delta
from tests.scripted.gateway import events_of
from tests.waiting import eventually, wait_until

HOUR = 3600.0
"""In seconds: no test waits for it."""


def config(upstream: Upstream, log: str = "json", **server: object) -> str:
    lines = "\n".join(f"{name} = {value}" for name, value in server.items())
    return f'[server]\n{lines}\n[telemetry]\nlog = "{log}"\n[providers.vllm]\nbase_url = "{upstream.url}"'


class Tap:
    """Model that writes one word, and the rest when the test releases it."""

    def __init__(self, upstream: Upstream) -> None:
        self.open = threading.Event()
        self.model = upstream.plays(self._play)

    async def _play(self, call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="first, "))
        await eventually(self.open.is_set)
        await call.event(delta(content="last"))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()


def ready(gateway: Gateway) -> int | None:
    """Return the status of `/ready`, or None.

    A connection without a request is closed when the server begins to stop; its client has to connect again.
    """
    try:
        return gateway.request("GET", "/ready").status
    except (ConnectionError, HTTPException):
        return None


def lines_of(stderr: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]


def test_streams_are_completed_and_new_requests_are_refused(serve: ServeThread, upstream: Upstream) -> None:
    tap = Tap(upstream)
    with serve(config=config(upstream, shutdown_seconds=HOUR)) as serving:
        gateway = Gateway(serving.port)
        streams = [gateway.open(tap.model, store=False) for _ in range(20)]
        for stream in streams:
            stream.until("first, ")
        serving.stop()
        wait_until(lambda: ready(gateway) == 503)
        assert gateway.request("GET", "/ready").json == {"status": "stopping"}
        assert gateway.request("GET", "/health").status == 200
        refused = gateway.ask(tap.model)
        assert (refused.status, refused.error["code"]) == (503, "stopping")
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        chat = gateway.request("POST", "/v1/chat/completions", b'{"model":"m","messages":[]}')
        assert (chat.status, chat.json["error"]["code"]) == (503, "stopping")
        serving.until(b"stopping: waiting for 20 requests, for at most 3600 s; a second signal ends them at once")
        tap.open.set()
        whole = [stream.rest() for stream in streams]
        for stream in streams:
            stream.leave()
        status, stderr = serving.end()
    assert status == 0
    for body in whole:
        assert verify(body) == []
        assert events_of(body)[-1]["type"] == "response.completed"
    runs = [line for line in lines_of(stderr) if "run" in line]
    assert [(line["run"], line["status"]) for line in runs] == [("completed", 200)] * 20
    assert "stopping: all have ended after" in stderr


class Clock:
    """A clock that the test can advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def test_readiness_fails_before_requests_are_refused(
    process_state: pytest.MonkeyPatch, serve: ServeThread, upstream: Upstream
) -> None:
    """Until the load balancer has seen that the server is not ready, requests arrive and are served."""
    tap, clock = Tap(upstream), Clock()
    tap.open.set()
    process_state.setattr("pellucid.cli.http_server.time", clock)
    with serve(config=config(upstream, "text", drain_seconds=HOUR, shutdown_seconds=HOUR)) as serving:
        gateway = Gateway(serving.port)
        serving.stop()
        wait_until(lambda: gateway.request("GET", "/ready").status == 503)
        assert gateway.ask(tap.model).json["status"] == "completed"
        clock.ahead = HOUR
        status, stderr = serving.end()
    assert status == 0
    assert f"model={tap.model}" in stderr


def test_a_run_that_does_not_end_in_time_reports_the_shutdown(
    process_state: pytest.MonkeyPatch, serve: ServeThread, upstream: Upstream
) -> None:
    tap = Tap(upstream)
    close, waits = DetachedRuns.aclose, list[float]()

    async def aclose(runs: DetachedRuns, patience: float, why: ErrorInfo) -> None:
        waits.append(patience)
        await close(runs, patience, why)

    process_state.setattr(DetachedRuns, "aclose", aclose)
    with serve(config=config(upstream, shutdown_seconds=0.5)) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(tap.model) as stream:
            stream.until("first, ")
            background = gateway.post({"model": tap.model, "input": "x", "background": True})
            assert background.status == 200
            serving.stop()
            body = stream.rest()
        status, stderr = serving.end()
    assert status == 0
    assert waits == [0.0], "streams and runs in the background wait at the same time"
    assert "stopping: waiting for 1 request and 1 background run, for at most 0.5 s" in stderr
    assert "stopping: ending 1 request and 1 background run after" in stderr
    assert verify(body) == []
    last = events_of(body)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "stopping"
    runs = [line for line in lines_of(stderr) if "run" in line]
    assert {(line["message"], line["run"], line["run_error"]) for line in runs} == {
        ("request", "failed", "unavailable"),
        ("run", "failed", "unavailable"),
    }


def test_the_gateway_serves_while_the_weights_are_fetched(
    process_state: pytest.MonkeyPatch, serve: ServeThread
) -> None:
    async def fetch_forever(model: Model, path: Path | None = None) -> Path:
        forever: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        return await forever

    process_state.setattr("pellucid.local.fetch.cached_path", lambda model: None)
    process_state.setattr("pellucid.local.model_index.is_engine_installed", lambda: True)
    process_state.setattr("pellucid.cli.local.fetch_with_bar", fetch_forever)
    with serve(config="") as serving:
        gateway = Gateway(serving.port)
        detail = "the embedded model is being downloaded"
        assert gateway.request("GET", "/ready").json == {"status": "loading", "detail": detail}
        assert gateway.request("GET", "/").status == 200
        with gateway.open("local") as stream:
            stream.until("response.queued")
            serving.stop()
            last = events_of(stream.rest())[-1]
            assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "stopping")
        status, _ = serving.end()
    assert status == 0


def test_a_request_that_waits_for_the_engine_to_load_ends_at_once(
    process_state: pytest.MonkeyPatch, serve: ServeThread, tmp_path: Path
) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    model = Model.from_path(tmp_path / "mine.gguf")

    async def engine_that_loads_forever(config: object) -> Engine:
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        return Engine(model, tmp_path / "mine.gguf", log=tmp_path / "engine.log", command=command)

    process_state.setattr("pellucid.cli.local.local_engine", engine_that_loads_forever)
    with serve("--local-model", "./mine.gguf", config=f"[server]\nshutdown_seconds = {HOUR}") as serving:
        gateway = Gateway(serving.port)
        assert gateway.request("GET", "/ready").json == {"status": "loading", "detail": "the embedded model is loading"}
        with gateway.open("local") as stream:
            stream.until("response.queued")
            background = gateway.post({"input": "x", "background": True})
            assert background.status == 200
            serving.stop()
            last = events_of(stream.rest())[-1]
            assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "stopping")
        status, _ = serving.end()
    assert status == 0
