"""`pellucid serve --workers N`: several processes, one gateway. No feature changes with their number."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pellucid.cli.main import main
from tests.replicas.replicas_kit import (
    LIMIT_SECONDS,
    Gate,
    Replica,
    config_of,
    get,
    is_over,
    last_event,
    replicas,
    start_background,
    text_of,
    wait_for_response,
    wait_until_leaving,
)
from tests.scripted import Gateway, Upstream, say
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Reply
from tests.service_redis import RedisService
from tests.waiting import wait_until

WORKERS = 3


def children(pid: int) -> dict[int, str]:
    """Return the child processes and their command lines."""
    commands = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            commands[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return commands


def workers_of(replica: Replica) -> list[int]:
    return [pid for pid, command in children(replica.process.pid).items() if " worker " in command]


@contextlib.contextmanager
def only_worker(replica: Replica, pid: int) -> Iterator[None]:
    """Stop the other workers meanwhile, so that new connections reach this one."""
    others = [other for other in workers_of(replica) if other != pid]
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGCONT)


class Worker(Gateway):
    """A persistent connection to one worker."""

    def __init__(self, replica: Replica, pid: int) -> None:
        super().__init__(replica.port)
        self.pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        with only_worker(replica, pid):
            assert self.request("GET", "/health").status == 200

    def request(self, method: str, path: str, *args: Any, **more: Any) -> Reply:
        body, headers = (*args, None, None)[:2]
        self._connection.request(method, path, body, more.get("headers") or headers or {})
        response = self._connection.getresponse()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())

    def close(self) -> None:
        self._connection.close()


def worker_config(upstream: Upstream, relay: str, store: str, more: str = "", **server: object) -> str:
    text = config_of(upstream, store, relay, workers=WORKERS, **server)
    # Long enough for a worker that is stopped for a moment.
    return text.replace("lease_seconds = 1.0", "lease_seconds = 3") + more


@pytest.fixture(scope="module")
def cluster(upstream: Upstream, relay: RedisService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A gateway with several workers on one SQLite file."""
    store = f"sqlite:///{tmp_path_factory.mktemp('kept')}/kept.sqlite"
    with replicas(worker_config(upstream, relay.url, store, "[telemetry]\nmetrics_open = true\n")) as [replica]:
        yield replica


@pytest.fixture
def workers(cluster: Replica) -> Iterator[list[Worker]]:
    wait_until(lambda: len(workers_of(cluster)) == WORKERS)
    workers = [Worker(cluster, pid) for pid in workers_of(cluster)]
    yield workers
    for one in workers:
        one.close()


@pytest.mark.needs("long", "redis")
def test_a_run_is_accessible_from_every_worker(workers: list[Worker], upstream: Upstream) -> None:
    """A run is begun on one worker, followed on another from any cursor, and cancelled on the third."""
    one, two, three = workers
    gate, endless = Gate(), Gate()
    id = start_background(one, upstream.plays(gate))
    wait_for_response(two, id, lambda response: response["status"] == "in_progress")
    with ThreadPoolExecutor() as pool:
        following = [pool.submit(get, worker, id, "?stream=true") for worker in (two, three)]
        time.sleep(0.2)  # they follow while it runs
        gate.open()
        bodies = [each.result().body for each in following]
    assert bodies[0] == bodies[1]
    assert last_event(bodies[0])["type"] == "response.completed"
    assert text_of(get(three, id).json) == gate.full_text
    for cursor in (0, 3, 7):
        query = f"?stream=true&starting_after={cursor}"
        assert get(one, id, query).body == get(three, id, query).body
    other = start_background(two, upstream.plays(endless))
    wait_for_response(one, other, lambda response: response["status"] == "in_progress")
    cancelled = three.request("POST", f"/v1/responses/{other}/cancel")
    assert cancelled.json["status"] == "cancelled"
    assert get(two, other).json["status"] == "cancelled"


@pytest.mark.needs("long", "redis")
def test_a_conversation_continues_on_any_worker(workers: list[Worker], upstream: Upstream) -> None:
    previous = None
    for worker in workers * 2:
        reply = worker.ask(upstream.plays(say()), previous_response_id=previous)
        assert reply.json["status"] == "completed"
        previous = reply.json["id"]


@pytest.mark.needs("long", "redis")
def test_metrics_cover_all_workers(cluster: Replica, workers: list[Worker], upstream: Upstream) -> None:
    def numbers(worker: Gateway, name: str) -> float:
        text = worker.request("GET", "/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))

    before = numbers(workers[0], "pellucid_upstream_turns_total")
    for worker in workers:
        assert worker.ask(upstream.plays(say())).status == 200
    assert {numbers(worker, "pellucid_upstream_turns_total") - before for worker in workers} == {WORKERS}
    gate = Gate()
    id = start_background(workers[0], upstream.plays(gate))
    wait_until(lambda: numbers(workers[2], "pellucid_open_runs") == 1)
    gate.open()
    wait_for_response(workers[1], id, is_over)
    wait_until(lambda: numbers(workers[2], "pellucid_open_runs") == 0)


@pytest.mark.needs("long", "redis")
def test_a_killed_worker_is_replaced(cluster: Replica, workers: list[Worker], upstream: Upstream) -> None:
    """The other workers continue; the streams of the killed one break, its background runs are ended."""
    gates = [Gate() for _ in range(12)]
    streams = []
    for place, gate in enumerate(gates):
        with only_worker(cluster, workers[place % 3].pid):
            streams.append(Gateway(cluster.port).open(upstream.plays(gate)))
    abandoned_gate, surviving_gate = Gate(), Gate()
    abandoned_id = start_background(workers[0], upstream.plays(abandoned_gate))
    goes_on = start_background(workers[1], upstream.plays(surviving_gate))
    for stream in streams:
        stream.until("thought 2. ")
    os.kill(workers[0].pid, signal.SIGKILL)
    for gate in (*gates, surviving_gate):
        gate.open()
    for place, stream in enumerate(streams):
        if place % 3:
            assert last_event(stream.rest())["type"] == "response.completed"
        else:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                stream.rest()
            assert b"response.completed" not in stream.seen
        stream.leave()
    assert text_of(wait_for_response(workers[1], goes_on, is_over)) == surviving_gate.full_text
    wait_until(lambda: len(workers_of(cluster)) == WORKERS)
    assert f"(process {workers[0].pid}) ended by signal 9; another one is started" in cluster.stderr_text
    # The new worker serves, and another worker ended the runs of the old one.
    new = Worker(cluster, next(pid for pid in workers_of(cluster) if pid not in [one.pid for one in workers]))
    ended = wait_for_response(new, abandoned_id, is_over)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "abandoned")
    assert new.ask(upstream.plays(say())).json["status"] == "completed"
    new.close()


@pytest.mark.needs("long", "redis")
def test_all_workers_write_to_one_file(cluster: Replica, workers: list[Worker], upstream: Upstream) -> None:
    model = upstream.plays(say())

    def ask(worker: Worker) -> list[str]:
        return [worker.ask(model).json["id"] for _ in range(40)]

    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        ids = [id for some in pool.map(ask, workers) for id in some]
    print(f"{len(ids)} responses kept by {WORKERS} workers in {time.monotonic() - began:.2f} s")
    assert all(get(workers[place % 3], id).json["status"] == "completed" for place, id in enumerate(ids))


@pytest.mark.needs("long", "redis")
def test_shutdown_lets_all_streams_end(upstream: Upstream, relay: RedisService, tmp_path: Path) -> None:
    gates = [Gate() for _ in range(WORKERS)]
    with replicas(worker_config(upstream, relay.url, f"sqlite:///{tmp_path}/kept.sqlite")) as [replica]:
        pids = workers_of(replica)
        streams = []
        for pid, gate in zip(pids, gates, strict=True):
            with only_worker(replica, pid):
                streams.append(Gateway(replica.port).open(upstream.plays(gate)))
        for stream in streams:
            stream.until("thought 2. ")
        replica.signal(signal.SIGTERM)
        wait_until_leaving(replica)
        for gate in gates:
            gate.open()
        for stream in streams:
            assert last_event(stream.rest())["type"] == "response.completed"
            stream.leave()
        assert replica.process.wait(LIMIT_SECONDS) == 0, replica.stderr_text
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert "Traceback" not in replica.stderr_text


@pytest.mark.needs("long", "redis")
def test_limits_are_shared_and_no_worker_outlives_the_supervisor(
    upstream: Upstream, relay: RedisService, tmp_path: Path
) -> None:
    more = '[access]\ndefault_policy = "few"\n[access.policies.few]\nrequests_per_minute = 5\n'
    model, gate = upstream.plays(say()), Gate()
    with replicas(worker_config(upstream, relay.url, f"sqlite:///{tmp_path}/kept.sqlite", more)) as [replica]:
        pids = workers_of(replica)
        workers = [Worker(replica, pid) for pid in pids]
        with Gateway(replica.port).open(upstream.plays(gate)) as stream:
            stream.until("thought 2. ")
            statuses = [worker.ask(model).status for worker in workers * 4]
            assert statuses == [200] * 4 + [429] * 8
            replica.kill()
            gate.open()
            assert last_event(stream.rest())["type"] == "response.completed"
        for one in workers:
            one.close()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def run_serve(folder: Path, config: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `pellucid serve` with a configuration with which it fails, and return its output."""
    file = folder / "pellucid.toml"
    file.write_text(config)
    command = [*PELLUCID, "serve", "--config", str(file), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, check=False)


def test_several_workers_need_a_relay_and_a_store(tmp_path: Path) -> None:
    file = tmp_path / "pellucid.toml"
    config = '[storage]\nurl = "sqlite://"\n[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\n'
    file.write_text(config)
    done = CliRunner().invoke(main, ["serve", "--config", str(file), "--workers", "2"])
    assert done.exit_code == 2
    assert "relay.url: for server.workers = 2" in done.stderr
    assert "redis://" in done.stderr
    assert "storage.url: for server.workers = 2" in done.stderr


@pytest.mark.needs("long", "redis")
@pytest.mark.parametrize("wrong", ["relay", "store", "port"])
def test_a_failed_start_is_reported_once(upstream: Upstream, relay: RedisService, tmp_path: Path, wrong: str) -> None:
    """No worker is restarted again and again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "no.sqlite").mkdir()
        port = taken.getsockname()[1] if wrong == "port" else 0
        done = run_serve(
            tmp_path,
            worker_config(
                upstream,
                "redis://127.0.0.1:9" if wrong == "relay" else relay.url,
                f"sqlite:///{tmp_path}/{'no' if wrong == 'store' else 'kept'}.sqlite",
                port=port,
            ),
        )
    assert done.returncode == (2 if wrong == "port" else 1), done.stderr
    message = {"relay": "does not answer", "store": "no.sqlite cannot be opened", "port": "cannot listen on"}[wrong]
    assert done.stderr.count(message) == 1, done.stderr
    assert "listens" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("long", "redis")
@pytest.mark.needs("engine")
def test_workers_share_one_engine(relay: RedisService, tmp_path: Path) -> None:
    config = f"""
[server]
workers = 2
[storage]
url = "sqlite:///{tmp_path}/kept.sqlite"
[relay]
url = "{relay.url}?prefix=engine:"
[local]
model = "smollm2-135m"
context = 1024
"""
    with replicas(config) as [replica]:
        wait_until(lambda: Gateway(replica.port).request("GET", "/ready").status == 200, "it is ready", LIMIT_SECONDS)

        def engines() -> list[int]:
            return [pid for pid, command in children(replica.process.pid).items() if "pellucid.local.engine" in command]

        assert len(engines()) == 1
        workers = [Worker(replica, pid) for pid in workers_of(replica)]
        assert len(workers) == 2
        with ThreadPoolExecutor() as pool:
            requests = [pool.submit(worker.ask, None, True, max_output_tokens=24) for worker in workers]
            bodies = [each.result().body for each in requests]
        assert all(last_event(body)["response"]["output"] for body in bodies)
        # The engine is free again after its worker dies; an engine that dies is replaced, with a new address.
        with only_worker(replica, workers[0].pid):
            stream = Gateway(replica.port).open("smollm2-135m", max_output_tokens=400)
        stream.until("delta")
        os.kill(workers[0].pid, signal.SIGKILL)
        stream.leave()
        reply = workers[1].ask(None, max_output_tokens=16)
        assert reply.json["output"], reply.body
        [engine] = engines()
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: engines() not in ([], [engine]))
        reply = workers[1].ask(None, max_output_tokens=16)
        assert reply.json["output"], reply.body
        for one in workers:
            one.close()
