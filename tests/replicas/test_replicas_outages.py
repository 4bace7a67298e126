"""The relay or the store goes away and comes back, empty or as it was: clear errors, and nothing is restarted."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.replicas.replicas_kit import (
    LEASE,
    LIMIT_SECONDS,
    Gate,
    Replica,
    background,
    begin,
    clients,
    config_of,
    fetch,
    follow,
    get,
    last_of,
    over,
    replicas,
    run,
    text_of,
    until,
)
from tests.scripted import Upstream
from tests.service_postgres import PostgresServer, postgres
from tests.service_redis import redis_service

pytestmark = pytest.mark.needs("long", "postgresql", "redis")

MANY = 50


def works_again(gateway: Replica, upstream: Upstream) -> float:
    """Seconds until a background request is taken again."""
    began = time.monotonic()
    model = upstream.plays(gate := Gate(1, 1))
    gate.open()
    while (reply := gateway.ask(model, background=True)).status != 200:
        assert reply.status == 503, reply.body
        assert time.monotonic() - began < LIMIT_SECONDS, reply.body
        time.sleep(0.1)
    took = time.monotonic() - began
    assert text_of(until(gateway, reply.json["id"], over)) == gate.whole
    return took


def test_redis_goes_and_comes_back_empty(upstream: Upstream, database: PostgresServer) -> None:
    gates = [Gate(before=3, after=3) for _ in range(MANY)]
    models = [upstream.plays(gate) for gate in gates]

    async def main(one: Replica, two: Replica) -> None:
        async with clients() as session:
            begun = await asyncio.gather(*(begin(session, one, model) for model in models))
            assert {status for status, _ in begun} == {200}
            ids = [response["id"] for _, response in begun]
            followers = [asyncio.create_task(follow(session, two, id)) for id in ids]
            # Longer than a row may go untouched: the rows themselves say that somebody drives them.
            await asyncio.sleep(2.5 * LEASE)
            redis.stop()
            status, refused = await begin(session, one, models[0])
            assert (status, refused["error"]["code"]) == (503, "relay_unavailable"), refused
            for gate in gates[:10]:
                gate.open()  # these end while it is away
            await asyncio.sleep(0.5)  # it is away for a while
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
            assert (row["status"], text_of(row)) == ("completed", gate.whole)
        for body in bodies:  # went on, or were told
            last = last_of(body)
            if last["type"] == "response.failed":
                assert last["response"]["error"]["code"] in ("log_lost", "relay_unavailable")
            else:
                assert last["type"] == "response.completed"
        for body in again:
            assert last_of(body)["type"] == "response.completed"

    with redis_service() as redis:
        config = config_of(upstream, database.database(), redis.url)
        with replicas(config, config) as (one, two):
            run(main(one, two))
            for gateway in (one, two):
                works_again(gateway, upstream)
            assert "ended here" not in one.stderr_text + two.stderr_text


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_postgresql_goes_and_comes_back(upstream: Upstream, mode: str, relay_url: str) -> None:
    gates = [Gate(before=3, after=3) for _ in range(20)]
    with postgres() as store, replicas(config_of(upstream, store.database(), relay_url)) as [gateway]:
        ids = [background(gateway, upstream.plays(gate)) for gate in gates]
        for id in ids:
            until(gateway, id, lambda response: response["status"] == "in_progress")
        store.stop(mode)
        for body in ({"background": True}, {"background": True, "stream": True}, {"previous_response_id": ids[0]}):
            reply = gateway.ask(upstream.plays(Gate(1, 1)), **body)
            assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), reply.body
        reply = get(gateway, ids[0])
        assert (reply.status, reply.error["code"]) == (503, "storage_unavailable")
        for gate in gates[:10]:
            gate.open()  # these end while it is away
        time.sleep(1)  # it is away for a while
        store.start()
        took = works_again(gateway, upstream)
        for gate in gates[10:]:
            gate.open()
        began = time.monotonic()
        for id, gate in zip(ids, gates, strict=True):
            response = until(gateway, id, over)
            assert (response["status"], text_of(response)) == ("completed", gate.whole)
            assert last_of(get(gateway, id, "?stream=true").body)["type"] == "response.completed"
        print(f"{mode}: works again after {took:.2f} s, all kept after {took + time.monotonic() - began:.2f} s")
        assert "ended here" not in gateway.stderr_text
