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
    background,
    config_of,
    get,
    last_of,
    over,
    replicas,
    text_of,
    until,
    until_leaving,
)
from tests.scripted import Gateway, Upstream, say
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Reply
from tests.service_redis import RedisService
from tests.waiting import wait_until

WORKERS = 3


def children(pid: int) -> dict[int, str]:
    """The processes that it started, and their command lines."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def workers_of(replica: Replica) -> list[int]:
    return [pid for pid, command in children(replica.process.pid).items() if " worker " in command]


@contextlib.contextmanager
def only(replica: Replica, pid: int) -> Iterator[None]:
    """The other workers stand still, so that who comes now comes to this one."""
    others = [other for other in workers_of(replica) if other != pid]
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGCONT)


class One(Gateway):
    """One worker: a connection that was made to it, and stays."""

    def __init__(self, replica: Replica, pid: int) -> None:
        super().__init__(replica.port)
        self.pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        with only(replica, pid):
            assert self.request("GET", "/health").status == 200

    def request(self, method: str, path: str, *args: Any, **more: Any) -> Reply:
        body, headers = (*args, None, None)[:2]
        self._connection.request(method, path, body, more.get("headers") or headers or {})
        response = self._connection.getresponse()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())

    def close(self) -> None:
        self._connection.close()


def configured(upstream: Upstream, relay: str, store: str, more: str = "", **server: object) -> str:
    text = config_of(upstream, store, relay, workers=WORKERS, **server)
    # Long enough for a worker that stands still for a moment.
    return text.replace("lease_seconds = 1.0", "lease_seconds = 3") + more


@pytest.fixture(scope="module")
def crew(upstream: Upstream, relay: RedisService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """On a SQLite file, all of them."""
    store = f"sqlite:///{tmp_path_factory.mktemp('kept')}/kept.sqlite"
    with replicas(configured(upstream, relay.url, store, "[telemetry]\nmetrics_open = true\n")) as [replica]:
        yield replica


@pytest.fixture
def ones(crew: Replica) -> Iterator[list[One]]:
    wait_until(lambda: len(workers_of(crew)) == WORKERS)
    found = [One(crew, pid) for pid in workers_of(crew)]
    yield found
    for one in found:
        one.close()


@pytest.mark.needs("long", "redis")
def test_a_run_is_everybodys(ones: list[One], upstream: Upstream) -> None:
    """Begun on one, followed on another from its beginning and from its middle, cancelled on the third."""
    one, two, three = ones
    gate, endless = Gate(), Gate()
    id = background(one, upstream.plays(gate))
    until(two, id, lambda response: response["status"] == "in_progress")
    with ThreadPoolExecutor() as pool:
        following = [pool.submit(get, who, id, "?stream=true") for who in (two, three)]
        time.sleep(0.2)  # they follow while it goes on
        gate.open()
        bodies = [each.result().body for each in following]
    assert bodies[0] == bodies[1]
    assert last_of(bodies[0])["type"] == "response.completed"
    assert text_of(get(three, id).json) == gate.whole
    for cursor in (0, 3, 7):
        query = f"?stream=true&starting_after={cursor}"
        assert get(one, id, query).body == get(three, id, query).body
    other = background(two, upstream.plays(endless))
    until(one, other, lambda response: response["status"] == "in_progress")
    cancelled = three.request("POST", f"/v1/responses/{other}/cancel")
    assert cancelled.json["status"] == "cancelled"
    assert get(two, other).json["status"] == "cancelled"


@pytest.mark.needs("long", "redis")
def test_a_conversation_goes_on_wherever_it_is_asked(ones: list[One], upstream: Upstream) -> None:
    previous = None
    for who in ones * 2:
        reply = who.ask(upstream.plays(say()), previous_response_id=previous)
        assert reply.json["status"] == "completed"
        previous = reply.json["id"]


@pytest.mark.needs("long", "redis")
def test_the_numbers_are_of_all(crew: Replica, ones: list[One], upstream: Upstream) -> None:
    def numbers(who: Gateway, name: str) -> float:
        text = who.request("GET", "/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))

    before = numbers(ones[0], "pellucid_upstream_turns_total")
    for who in ones:
        assert who.ask(upstream.plays(say())).status == 200
    assert {numbers(who, "pellucid_upstream_turns_total") - before for who in ones} == {WORKERS}
    gate = Gate()
    id = background(ones[0], upstream.plays(gate))
    wait_until(lambda: numbers(ones[2], "pellucid_open_runs") == 1)
    gate.open()
    until(ones[1], id, over)
    wait_until(lambda: numbers(ones[2], "pellucid_open_runs") == 0)


@pytest.mark.needs("long", "redis")
def test_one_is_killed_under_streams(crew: Replica, ones: list[One], upstream: Upstream) -> None:
    """What the others do goes on; the streams of the dead one break, its background runs end; it is replaced."""
    gates = [Gate() for _ in range(12)]
    streams = []
    for place, gate in enumerate(gates):
        with only(crew, ones[place % 3].pid):
            streams.append(Gateway(crew.port).open(upstream.plays(gate)))
    left, kept = Gate(), Gate()
    lost = background(ones[0], upstream.plays(left))
    goes_on = background(ones[1], upstream.plays(kept))
    for stream in streams:
        stream.until("thought 2. ")
    os.kill(ones[0].pid, signal.SIGKILL)
    for gate in (*gates, kept):
        gate.open()
    for place, stream in enumerate(streams):
        if place % 3:
            assert last_of(stream.rest())["type"] == "response.completed"
        else:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                stream.rest()
            assert b"response.completed" not in stream.seen
        stream.leave()
    assert text_of(until(ones[1], goes_on, over)) == kept.whole
    wait_until(lambda: len(workers_of(crew)) == WORKERS)
    assert f"(process {ones[0].pid}) ended by signal 9; another one is started" in crew.stderr_text
    # The new one serves, and what the old one drove was ended by somebody.
    new = One(crew, next(pid for pid in workers_of(crew) if pid not in [one.pid for one in ones]))
    ended = until(new, lost, over)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "abandoned")
    assert new.ask(upstream.plays(say())).json["status"] == "completed"
    new.close()


@pytest.mark.needs("long", "redis")
def test_many_writers_on_one_file(crew: Replica, ones: list[One], upstream: Upstream) -> None:
    model = upstream.plays(say())

    def ask(who: One) -> list[str]:
        return [who.ask(model).json["id"] for _ in range(40)]

    begun = time.monotonic()
    with ThreadPoolExecutor() as pool:
        ids = [id for some in pool.map(ask, ones) for id in some]
    print(f"{len(ids)} responses kept by {WORKERS} workers in {time.monotonic() - begun:.2f} s")
    assert all(get(ones[place % 3], id).json["status"] == "completed" for place, id in enumerate(ids))


@pytest.mark.needs("long", "redis")
def test_told_to_stop_all_let_their_streams_end(upstream: Upstream, relay: RedisService, tmp_path: Path) -> None:
    gates = [Gate() for _ in range(WORKERS)]
    with replicas(configured(upstream, relay.url, f"sqlite:///{tmp_path}/kept.sqlite")) as [replica]:
        pids = workers_of(replica)
        streams = []
        for pid, gate in zip(pids, gates, strict=True):
            with only(replica, pid):
                streams.append(Gateway(replica.port).open(upstream.plays(gate)))
        for stream in streams:
            stream.until("thought 2. ")
        replica.signal(signal.SIGTERM)
        until_leaving(replica)
        for gate in gates:
            gate.open()
        for stream in streams:
            assert last_of(stream.rest())["type"] == "response.completed"
            stream.leave()
        assert replica.process.wait(LIMIT_SECONDS) == 0, replica.stderr_text
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert "Traceback" not in replica.stderr_text


@pytest.mark.needs("long", "redis")
def test_limits_are_of_all_together_and_none_outlives_the_supervisor(
    upstream: Upstream, relay: RedisService, tmp_path: Path
) -> None:
    more = '[access]\ndefault_policy = "few"\n[access.policies.few]\nrequests_per_minute = 5\n'
    model, gate = upstream.plays(say()), Gate()
    with replicas(configured(upstream, relay.url, f"sqlite:///{tmp_path}/kept.sqlite", more)) as [replica]:
        pids = workers_of(replica)
        ones = [One(replica, pid) for pid in pids]
        with Gateway(replica.port).open(upstream.plays(gate)) as stream:
            stream.until("thought 2. ")
            statuses = [who.ask(model).status for who in ones * 4]
            assert statuses == [200] * 4 + [429] * 8
            replica.kill()
            gate.open()
            assert last_of(stream.rest())["type"] == "response.completed"
        for one in ones:
            one.close()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def started(folder: Path, config: str, *args: str) -> subprocess.CompletedProcess[str]:
    """One that does not start; what it said."""
    file = folder / "pellucid.toml"
    file.write_text(config)
    command = [*PELLUCID, "serve", "--config", str(file), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, check=False)


def test_the_memory_of_one_is_not_enough(tmp_path: Path) -> None:
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
def test_one_that_cannot_start_says_why_once(
    upstream: Upstream, relay: RedisService, tmp_path: Path, wrong: str
) -> None:
    """… and none is started again and again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "no.sqlite").mkdir()
        port = taken.getsockname()[1] if wrong == "port" else 0
        done = started(
            tmp_path,
            configured(
                upstream,
                "redis://127.0.0.1:9" if wrong == "relay" else relay.url,
                f"sqlite:///{tmp_path}/{'no' if wrong == 'store' else 'kept'}.sqlite",
                port=port,
            ),
        )
    assert done.returncode == (2 if wrong == "port" else 1), done.stderr
    told = {"relay": "does not answer", "store": "no.sqlite cannot be opened", "port": "cannot listen on"}[wrong]
    assert done.stderr.count(told) == 1, done.stderr
    assert "listens" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("long", "redis")
@pytest.mark.needs("engine")
def test_one_engine_for_all(relay: RedisService, tmp_path: Path) -> None:
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
        ones = [One(replica, pid) for pid in workers_of(replica)]
        assert len(ones) == 2
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(who.ask, None, True, max_output_tokens=24) for who in ones]
            bodies = [each.result().body for each in asked]
        assert all(last_of(body)["response"]["output"] for body in bodies)
        # A worker that dies while it holds the engine gives it back; an engine that dies has a new address.
        with only(replica, ones[0].pid):
            stream = Gateway(replica.port).open("smollm2-135m", max_output_tokens=400)
        stream.until("delta")
        os.kill(ones[0].pid, signal.SIGKILL)
        stream.leave()
        reply = ones[1].ask(None, max_output_tokens=16)
        assert reply.json["output"], reply.body
        [engine] = engines()
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: engines() not in ([], [engine]))
        reply = ones[1].ask(None, max_output_tokens=16)
        assert reply.json["output"], reply.body
        for one in ones:
            one.close()
