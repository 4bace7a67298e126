"""`/api/status` of one replica is that of all; a run is cancelled on whichever replica drives it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.replicas.replicas_kit import (
    LIMIT_SECONDS,
    Replica,
    config_of,
    is_over,
    replicas,
    start_background,
    wait_for_response,
)
from tests.scripted import Call, Gateway, Reply, Upstream, delta, say
from tests.service_postgres import PostgresServer
from tests.service_redis import RedisService
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("redis")

CODE = "cancelled_by_operator"


async def thinks(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    await call.wait_for_disconnect()


def status_of(gateway: Gateway) -> dict[str, Any]:
    reply = gateway.request("GET", "/api/status")
    assert reply.status == 200, reply.body
    status: dict[str, Any] = reply.json
    return status


def states_of(gateway: Gateway) -> list[str]:
    return [replica["state"] for replica in status_of(gateway)["replicas"]]


def run_of(gateway: Gateway, model: str) -> dict[str, Any]:
    """Wait until a run of this model is thinking; return it."""

    def runs() -> list[dict[str, Any]]:
        return [run for run in status_of(gateway)["runs"] if run["model"] == f"vllm:{model}"]

    wait_until(lambda: [run["state"] for run in runs()] == ["thinking"], "it is thinking", LIMIT_SECONDS)
    return runs()[0]


def cancel(gateway: Gateway, id: str) -> Reply:
    return gateway.request("POST", f"/api/status/runs/{id}/cancel")


@pytest.mark.needs("postgresql")
def test_each_replica_shows_and_cancels_the_runs_of_all(
    two_replicas: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = two_replicas
    for gateway, other in ((one, two), (two, one)):
        attached, detached = upstream.plays(thinks), upstream.plays(thinks)
        stream = gateway.open(f"vllm:{attached}")
        id = start_background(gateway, f"vllm:{detached}")
        for seen_from in (gateway, other):
            status = status_of(seen_from)
            assert len(status["replicas"]) == 2
            assert status["ready"]
            names = {run_of(seen_from, model)["replica"] for model in (attached, detached)}
            assert names == {status_of(gateway)["replica"]}
        assert status_of(one)["replica"] != status_of(two)["replica"]
        for model in (attached, detached):
            assert cancel(other, run_of(other, model)["id"]).status == 200
        assert stream.events[-1]["response"]["error"]["code"] == CODE
        response = wait_for_response(other, id, is_over)
        assert (response["status"], response["error"]["code"]) == ("failed", CODE)
        assert response["output"][0]["content"][0]["text"] == "Hm."
        assert cancel(other, "run_of_nobody").status == 404


@pytest.mark.needs("postgresql")
def test_the_failures_and_cooldowns_of_all_replicas_are_shown(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    async def fails(call: Call) -> None:
        await call.answer(503, b'{"error": {"message": "not now"}}')

    failing, working = upstream.plays(fails), upstream.plays(say("", "It is 42."))
    config = config_of(upstream, database.database(), relay.url) + "".join(
        f'\n[[models.m.deployments]]\nprovider = "vllm"\nmodel = "{model}"\norder = {order}'
        for order, model in enumerate((failing, working))
    )
    with replicas(config, config) as (one, two):
        assert one.ask("m").status == 200
        for gateway in (one, two):
            status = status_of(gateway)
            [model] = [model for model in status["models"] if model["name"] == "m"]
            states = {row["name"]: (row["state"], row["failures"]) for row in model["deployments"]}
            assert states == {f"vllm/{failing}": ("cooling", 1), f"vllm/{working}": ("available", 0)}
            assert [failure["deployment"] for failure in status["failures"]] == [f"vllm/{failing}"]
            assert status["counts"]["completed"] == 1
        two.kill()
        # Until its membership lapses, it is listed as one that does not answer.
        wait_until(lambda: states_of(one) == ["ready"], "the dead replica is not listed", LIMIT_SECONDS)


def test_each_worker_is_a_replica(upstream: Upstream, relay: RedisService, tmp_path: Path) -> None:
    with replicas(config_of(upstream, f"sqlite:///{tmp_path}/store.sqlite", relay.url, workers=2)) as [gateway]:
        wait_until(lambda: states_of(gateway) == ["ready", "ready"], "both workers are listed", LIMIT_SECONDS)
        model = upstream.plays(thinks)
        with ThreadPoolExecutor() as executor:
            response = executor.submit(gateway.ask, f"vllm:{model}")
            # A new connection may reach either worker.
            assert cancel(gateway, run_of(gateway, model)["id"]).status == 200
            assert response.result().json["error"]["code"] == CODE
