"""The relay or the store stops and restarts, empty or not: clear errors, and no gateway needs a restart."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.replicas.replicas_kit import (
    LEASE,
    LIMIT_SECONDS,
    Gate,
    Replica,
    begin,
    clients,
    config_of,
    fetch,
    follow,
    get,
    is_over,
    last_event,
    replicas,
    run,
    start_background,
    text_of,
    wait_for_response,
)
from tests.scripted import Upstream
from tests.service_postgres import PostgresServer, postgres
from tests.service_redis import redis_service

pytestmark = pytest.mark.needs("long", "postgresql", "redis")

MANY = 50


def wait_until_it_works(gateway: Replica, upstream: Upstream) -> float:
    """Wait until a background request is accepted; return the seconds."""
    began = time.monotonic()
    model = upstream.plays(gate := Gate(1, 1))
    gate.open()
    while (reply := gateway.ask(model, background=True)).status != 200:
        assert reply.status == 503, reply.body
        assert time.monotonic() - began < LIMIT_SECONDS, reply.body
        time.sleep(0.1)
    took = time.monotonic() - began
    assert text_of(wait_for_response(gateway, reply.json["id"], is_over)) == gate.full_text
    return took


def test_redis_restarts_empty(upstream: Upstream, database: PostgresServer) -> None:
    gates = [Gate(before=3, after=3) for _ in range(MANY)]
    models = [upstream.plays(gate) for gate in gates]

    async def main(one: Replica, two: Replica) -> None:
        async with clients() as session:
            replies = await asyncio.gather(*(begin(session, one, model) for model in models))
            assert {status for status, _ in replies} == {200}
            ids = [response["id"] for _, response in replies]
            followers = [asyncio.create_task(follow(session, two, id)) for id in ids]
            # Longer than a row may go without an update: the drivers must update their rows.
            await asyncio.sleep(2.5 * LEASE)
            redis.stop()
            status, refused = await begin(session, one, models[0])
            assert (status, refused["error"]["code"]) == (503, "relay_unavailable"), refused
            for gate in gates[:10]:
                gate.open()  # these end during the outage
            await asyncio.sleep(0.5)  # the outage lasts a while
            redis.start()
            at = time.monotonic()
            await asyncio.sleep(2 * LEASE)
            late = [asyncio.create_task(follow(session, two, id)) for id in ids]
            for gate in gates[10:]:
                gate.open()
            bodies = await asyncio.gather(*followers)
            again = await asyncio.gather(*late)
            rows = await asyncio.gather(*(fetch(session, two, id) for id in ids))
            print(f"all over {time.monotonic() - at:.2f} s after Redis was back")
        for row, gate in zip(rows, gates, strict=True):
            assert (row["status"], text_of(row)) == ("completed", gate.full_text)
        for body in bodies:  # continued, or got an error
            last = last_event(body)
            if last["type"] == "response.failed":
                assert last["response"]["error"]["code"] in ("log_lost", "relay_unavailable")
            else:
                assert last["type"] == "response.completed"
        for body in again:
            assert last_event(body)["type"] == "response.completed"

    with redis_service() as redis:
        config = config_of(upstream, database.database(), redis.url)
        with replicas(config, config) as (one, two):
            run(main(one, two))
            for gateway in (one, two):
                wait_until_it_works(gateway, upstream)
            assert "ended here" not in one.stderr_text + two.stderr_text


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_postgresql_restarts(upstream: Upstream, mode: str, relay_url: str) -> None:
    gates = [Gate(before=3, after=3) for _ in range(20)]
    with postgres() as store, replicas(config_of(upstream, store.database(), relay_url)) as [gateway]:
        ids = [start_background(gateway, upstream.plays(gate)) for gate in gates]
        for id in ids:
            wait_for_response(gateway, id, lambda response: response["status"] == "in_progress")
        store.stop(mode)
        for body in ({"background": True}, {"background": True, "stream": True}, {"previous_response_id": ids[0]}):
            reply = gateway.ask(upstream.plays(Gate(1, 1)), **body)
            assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), reply.body
        reply = get(gateway, ids[0])
        assert (reply.status, reply.error["code"]) == (503, "storage_unavailable")
        for gate in gates[:10]:
            gate.open()  # these end during the outage
        time.sleep(1)  # the outage lasts a while
        store.start()
        took = wait_until_it_works(gateway, upstream)
        for gate in gates[10:]:
            gate.open()
        began = time.monotonic()
        for id, gate in zip(ids, gates, strict=True):
            response = wait_for_response(gateway, id, is_over)
            assert (response["status"], text_of(response)) == ("completed", gate.full_text)
            assert last_event(get(gateway, id, "?stream=true").body)["type"] == "response.completed"
        print(f"{mode}: works again after {took:.2f} s, all kept after {took + time.monotonic() - began:.2f} s")
        assert "ended here" not in gateway.stderr_text
