"""`/ready` is true: it fails while requests cannot be served, and states the reason without an address."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from pellucid.errors import ErrorInfo, PellucidError
from pellucid.server import readiness
from pellucid.server.readiness import NotReady, Readiness
from tests.local.test_supervisor import Make
from tests.local.test_supervisor import make as make_engine
from tests.scripted import Gateway, Upstream, say
from tests.scripted.commands import serve_command_in
from tests.scripted.gateway import serve
from tests.server.test_deployments import answers_with, deployed_config
from tests.service_redis import redis_service
from tests.waiting import wait_until

make = make_engine


class Checks:
    """Two dependencies, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self.missing: NotReady | None = None
        self.fails = False
        self.hangs = False
        self.readiness = Readiness({"the first fails": self.first, "the second fails": self.second}, lambda: self.now)

    async def first(self) -> NotReady | None:
        self.count += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise PellucidError(ErrorInfo("unavailable", "db.internal:5432 does not answer"))
        return self.missing

    async def second(self) -> None:
        pass


def test_a_result_is_shared_for_a_second() -> None:
    async def run() -> None:
        checks = Checks()
        assert await asyncio.gather(*(checks.readiness.check() for _ in range(100))) == [[]] * 100
        checks.missing = NotReady("loading", "it is loading")
        assert await checks.readiness.check() == []
        assert checks.count == 1
        checks.now = 1.0
        assert await checks.readiness.check() == [checks.missing]
        assert checks.count == 2

    asyncio.run(run())


def test_a_check_that_fails_or_is_late_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is the gateway's own sentence; the log has each change once."""
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 0.01)

    async def run() -> None:
        checks = Checks()
        for fault in ("fails", "hangs"):
            setattr(checks, fault, True)
            for _ in range(2):
                checks.now += 1
                assert await checks.readiness.check() == [NotReady("unavailable", "the first fails")]
            setattr(checks, fault, False)
            checks.now += 1
            assert await checks.readiness.check() == []

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["not ready: the first fails", "ready"] * 2


def test_all_reasons_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    missing = [NotReady("loading", "it is loading"), NotReady("unavailable", "it is away")]

    async def run() -> None:
        async def check(reason: NotReady) -> NotReady:
            return reason

        readiness = Readiness({one.reason: partial(check, one) for one in missing})
        assert await readiness.check() == missing

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "not ready: it is loading; it is away")
    ]


def status_of(gateway: Gateway) -> tuple[int, str | None]:
    """Return the status of `/ready`, and the reason."""
    reply = gateway.request("GET", "/ready")
    return reply.status, reply.json.get("detail")


def becomes(gateway: Gateway, status: int, reason: str | None = None) -> None:
    """Wait until `/ready` has this status and reason: results are shared for a second."""
    wait_until(lambda: status_of(gateway) == (status, reason), f"/ready is {status}, {reason}")


STORE = "the store cannot be read or written"


@contextmanager
def file_size_limit(pid: int, size: int) -> Iterator[None]:
    """Limit the size of the files that a process can write, as a full disk does."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_store_that_cannot_be_written_refuses_before_work(upstream: Upstream, tmp_path: Path) -> None:
    model = upstream.plays(say("Hm.", "It is 42."))
    config = f'[providers.vllm]\nbase_url = "{upstream.url}"\n[storage]\nurl = "sqlite:///{tmp_path}/kept.sqlite"'
    with serve_command_in(tmp_path)(config=config) as process:
        gateway = Gateway(process.port)
        assert gateway.ask(model).json["status"] == "completed"
        with file_size_limit(process.process.pid, 0):
            # The first write that fails: nothing was known before.
            assert gateway.ask(model, background=True).error["code"] == "storage_unavailable"
            becomes(gateway, 503, STORE)
            count = len(upstream.calls(model))
            for more in ({}, {"stream": True}, {"background": True}):
                refused = gateway.ask(model, **more)
                assert (refused.status, refused.error["code"]) == (503, "storage_unavailable")
                assert refused.headers["retry-after"] == "1"
            assert len(upstream.calls(model)) == count, "no model was called in vain"
            assert gateway.ask(model, store=False).json["status"] == "completed"
        becomes(gateway, 200)
        assert gateway.ask(model).json["status"] == "completed"


def test_a_full_disk_is_noticed_before_a_write_fails(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = upstream.plays(say("Hm.", "It is 42."))
    providers = {"vllm": {"base_url": upstream.url, "models": [model]}}
    path = tmp_path / "kept.sqlite"
    with serve({"providers": providers, "storage": {"url": f"sqlite:///{path}"}}) as gateway:
        assert status_of(gateway) == (200, None)
        monkeypatch.setattr("pellucid.storage.sqlite._is_nearly_full", lambda path: True)
        # The disk looks full. A lock stands for it: what is written then decides.
        locking = sqlite3.connect(path, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        becomes(gateway, 503, STORE)
        locking.execute("ROLLBACK")
        locking.close()
        becomes(gateway, 200)
        assert gateway.ask(model).json["status"] == "completed"


def test_no_deployment_of_the_default_model_is_available(upstream: Upstream) -> None:
    failing, answering = upstream.plays(answers_with(503)), upstream.plays(say("Hm.", "It is 42."))
    config = deployed_config(upstream, failing, upstream.plays(answers_with(503)))
    config["models"]["other"] = {"provider": "vllm", "model": answering}
    with serve(config) as gateway:
        assert status_of(gateway) == (200, None)
        assert gateway.ask("m").status == 503
        becomes(gateway, 503, "no deployment of the default model is available")
        assert gateway.ask("other").json["status"] == "completed"
    config["models"]["m"]["fallbacks"] = {"down": ["other"]}
    with serve(config) as gateway:
        assert gateway.ask("m").json["status"] == "completed"
        assert status_of(gateway) == (200, None)


@pytest.mark.needs("redis")
def test_a_relay_that_is_down(upstream: Upstream) -> None:
    providers = {"vllm": {"base_url": upstream.url}}
    with redis_service() as redis, serve({"providers": providers, "relay": {"url": redis.url}}) as gateway:
        assert status_of(gateway) == (200, None)
        redis.stop()
        becomes(gateway, 503, "the relay does not answer")
        redis.start()
        becomes(gateway, 200)


@pytest.mark.anyio
async def test_an_engine_that_is_stopped_does_not_answer(make: Make) -> None:
    """The kernel accepts connections for a process that is stopped."""
    body = """
    import http.server, threading
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"event": "ready", "port": server.server_port}), flush=True)
    sys.stdin.read()
    """
    async with make(textwrap.dedent(body)) as engine:
        await engine.wait_ready()
        await engine.check()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        check = asyncio.create_task(engine.check())
        done, _ = await asyncio.wait([check], timeout=0.1)
        assert not done
        os.kill(engine.pid, signal.SIGCONT)
        await check
