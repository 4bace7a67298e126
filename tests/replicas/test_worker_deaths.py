"""The supervisor of `--workers`: it survives the death of a worker in every phase, and its stop is bounded."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.replicas.replicas_kit import (
    LIMIT_SECONDS,
    Gate,
    Replica,
    config_of,
    last_event,
    replicas,
    wait_until_leaving,
)
from tests.replicas.test_workers import children
from tests.scripted import Gateway, Upstream, say
from tests.service_redis import RedisService, redis_service
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("long", "redis")

WORKERS = 2


@pytest.fixture(scope="module")
def own_redis() -> Iterator[RedisService]:
    with redis_service() as service:
        yield service


@pytest.fixture
def config(upstream: Upstream, own_redis: RedisService, tmp_path: Path) -> str:
    return config_of(upstream, f"sqlite:///{tmp_path}/kept.sqlite", own_redis.url, workers=WORKERS, shutdown_seconds=60)


def workers_of(replica: Replica) -> list[int]:
    """Return the processes of the workers, in the order of their start."""
    return sorted(pid for pid, command in children(replica.process.pid).items() if " worker " in command)


def wait_for_workers(replica: Replica, count: int) -> list[int]:
    wait_until(lambda: len(workers_of(replica)) >= count or replica.process.poll() is not None, "", LIMIT_SECONDS)
    return workers_of(replica)


def handles_signals(pid: int) -> bool:
    """Whether the process handles SIGTERM, as a worker does while it starts its services, and later."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


def in_the_imports(replica: Replica, redis: RedisService) -> int:
    return wait_for_workers(replica, 1)[0]


def before_it_listens(replica: Replica, redis: RedisService) -> int:
    [pid] = wait_for_workers(replica, 1)
    redis.freeze()
    wait_until(lambda: handles_signals(pid), "it starts its services", LIMIT_SECONDS)
    return pid


def while_its_sibling_starts(replica: Replica, redis: RedisService) -> int:
    return wait_for_workers(replica, 2)[0]


def when_only_its_sibling_listens(replica: Replica, redis: RedisService) -> int:
    return wait_for_workers(replica, 2)[1]


def when_it_is_ready(replica: Replica, redis: RedisService) -> int:
    replica.started()
    return workers_of(replica)[1]


@pytest.mark.parametrize(
    "reach",
    [
        in_the_imports,
        before_it_listens,
        while_its_sibling_starts,
        when_only_its_sibling_listens,
        when_it_is_ready,
    ],
)
def test_a_worker_that_is_killed_is_replaced(
    config: str, upstream: Upstream, own_redis: RedisService, reach: Callable[[Replica, RedisService], int]
) -> None:
    replica = Replica(config)
    with contextlib.closing(replica):
        pid = reach(replica, own_redis)
        os.kill(pid, signal.SIGKILL)
        own_redis.thaw()
        line = f"(process {pid}) ended by signal 9; another one is started"
        wait_until(lambda: line in replica.stderr_text or replica.process.poll() is not None, line, LIMIT_SECONDS)
        assert line in replica.stderr_text
        replica.started()
        wait_until(lambda: len(workers_of(replica)) == WORKERS, "all workers run", LIMIT_SECONDS)
        assert pid not in workers_of(replica)
        assert replica.ask(upstream.plays(say())).json["status"] == "completed"
        replica.signal(signal.SIGTERM)
        assert replica.process.wait(LIMIT_SECONDS) == 0, replica.stderr_text


def test_a_relay_that_goes_away_between_two_starts_delays_the_second(
    config: str, upstream: Upstream, own_redis: RedisService
) -> None:
    replica = Replica(config)
    with contextlib.closing(replica):
        wait_for_workers(replica, 2)
        own_redis.stop()
        wait_until(lambda: "ended with status 1; another one is started" in replica.stderr_text, "", LIMIT_SECONDS)
        own_redis.start()
        replica.started()
        assert replica.ask(upstream.plays(say())).json["status"] == "completed"


def test_a_worker_that_is_killed_while_it_stops_is_reported(config: str, upstream: Upstream) -> None:
    with replicas(config) as [replica]:
        streams = [Gateway(replica.port).open(upstream.plays(Gate())) for _ in range(8)]
        for stream in streams:
            stream.until("thought 2. ")
        pids = workers_of(replica)
        replica.signal(signal.SIGTERM)
        wait_until_leaving(replica)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a worker without a stream has ended
                os.kill(pid, signal.SIGKILL)
        assert replica.process.wait(LIMIT_SECONDS) == 1
        assert "ended by signal 9 while it stopped" in replica.stderr_text
        for stream in streams:
            stream.leave()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_all_workers_at_once(config: str, upstream: Upstream, number: int) -> None:
    with replicas(config.replace("shutdown_seconds = 60", "shutdown_seconds = 3600")) as [replica]:
        streams = [Gateway(replica.port).open(upstream.plays(Gate())) for _ in range(4)]
        for stream in streams:
            stream.until("thought 2. ")
        replica.signal(number)
        wait_until(lambda: "waiting for" in replica.stderr_text, "a worker states what it waits for", LIMIT_SECONDS)
        assert replica.process.poll() is None
        replica.signal(number)
        for stream in streams:
            last = last_event(stream.rest())
            assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "stopping")
            stream.leave()
        assert replica.process.wait(LIMIT_SECONDS) == 0, replica.stderr_text


def test_a_signal_during_the_start_ends_all_workers(config: str, own_redis: RedisService) -> None:
    own_redis.freeze()
    try:
        replica = Replica(config)
        with contextlib.closing(replica):
            [pid] = wait_for_workers(replica, 1)
            wait_until(lambda: handles_signals(pid), "it starts its services", LIMIT_SECONDS)
            replica.signal(signal.SIGTERM)
            assert replica.process.wait(LIMIT_SECONDS) == 0, replica.stderr_text
            assert not Path(f"/proc/{pid}").exists()
    finally:
        own_redis.thaw()
