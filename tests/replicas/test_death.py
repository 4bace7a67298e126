"""A replica that dies, or stands still, loses nothing that was finalised; what it left is ended by another, once."""

from __future__ import annotations

import asyncio
import collections
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.replicas.replicas_kit import (
    LEASE,
    LIMIT_SECONDS,
    Gate,
    background,
    begin,
    clients,
    config_of,
    fetch,
    get,
    last_of,
    over,
    replicas,
    run,
    text_of,
    until,
)
from tests.scripted import Upstream
from tests.service_postgres import PostgresServer
from tests.service_redis import RedisService
from tests.waiting import eventually

pytestmark = pytest.mark.needs("long")

MANY = 200


@pytest.mark.needs("postgresql", "redis")
def test_killed_under_many_streams(upstream: Upstream, database: PostgresServer, relay: RedisService) -> None:
    config = config_of(upstream, database.database(), f"{relay.url}?prefix=death:")
    # So long that no lease lapses of a replica that is only slow with so many.
    config = config.replace(f"lease_seconds = {LEASE}", "lease_seconds = 5.0")
    # Some are over before, some are about to end when it is killed, most go on.
    gates = [Gate(before=3, after=place % 40, pace=0.01) for place in range(MANY)]
    models = [upstream.plays(gate) for gate in gates]

    async def main() -> int:
        async with clients() as session:
            begun = await asyncio.gather(*(begin(session, dying, model) for model in models))
            assert {status for status, _ in begun} == {200}
            ids = [response["id"] for _, response in begun]
            thought = set[str]()

            async def follow(id: str) -> bytes:
                body = b""
                async with session.get(f"{survivor.url}/v1/responses/{id}?stream=true") as reply:
                    async for data in reply.content.iter_any():
                        body += data
                        if b"thought 2. " in body:
                            thought.add(id)
                return body

            followers = [asyncio.create_task(follow(id)) for id in ids]
            await eventually(lambda: thought == set(ids), "every run has thought", LIMIT_SECONDS)
            for gate in gates[: MANY // 2]:
                gate.open()
            finished: dict[str, dict[str, Any]] = {}
            while not finished:
                finished = {id: row for id in ids if over(row := await fetch(session, dying, id))}
            dying.kill()
            at = time.monotonic()
            bodies = await asyncio.gather(*followers)
            took = time.monotonic() - at
            rows = await asyncio.gather(*(fetch(session, survivor, id) for id in ids))
        counts = collections.Counter(row["status"] for row in rows)
        print(f"{len(finished)} seen whole, {counts}, all ended {took:.2f} s after the death")
        assert set(counts) == {"completed", "failed"}
        assert counts["completed"] >= len(finished) > 0
        assert counts["failed"] >= MANY // 2
        for id, gate, row, body in zip(ids, gates, rows, bodies, strict=True):
            last = last_of(body)
            assert last["response"]["id"] == id
            assert last["type"] == f"response.{row['status']}"
            if id in finished:
                assert row == finished[id]
            if row["status"] == "completed":
                assert text_of(row) == gate.whole
            else:
                assert row["error"]["code"] == "abandoned"
                # What had come until then is kept.
                assert text_of(row) == text_of(last["response"])
                assert gate.whole.startswith(text_of(row))
        for id, body in list(zip(ids, bodies, strict=True))[::10]:
            assert get(survivor, id, "?stream=true").body == body
        kept = [text_of(row) for row in rows if row["status"] == "failed"]
        assert all(text.startswith("thought 0. thought 1. thought 2. ") for text in kept)
        return counts["failed"]

    with replicas(config, config) as (dying, survivor):
        failed = run(main())
        # Nothing was done twice, and nothing is left to be done.
        assert survivor.stderr_text.count("was abandoned by its replica, and ended here") == failed
        assert relay.ask(b"ZCARD death:leases") == b":0"


@pytest.mark.needs("postgresql", "redis")
def test_one_that_stood_still_does_not_overwrite_what_another_wrote(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    config = config_of(upstream, database.database(), relay.url)
    gate = Gate()
    model = upstream.plays(gate)
    with replicas(config, config) as (still, other):
        ids = [background(still, model) for _ in range(5)]
        for id in ids:
            until(other, id, lambda response: response["status"] == "in_progress")
        calls = upstream.calls(model, at_least=5)
        still.signal(signal.SIGSTOP)
        ended = [until(other, id, over) for id in ids]
        assert {response["error"]["code"] for response in ended} == {"abandoned"}
        bodies = [get(other, id, "?stream=true").body for id in ids]
        still.signal(signal.SIGCONT)
        # It finds out, and lets go of its upstream without being asked.
        for call in calls:
            assert call.connection.closed.wait(LIMIT_SECONDS), still.stderr_text
        gate.open()
        # What it begins after that is over: so is what it left.
        assert text_of(until(still, background(still, upstream.plays(gate)), over)) == gate.whole
        assert [get(still, id).json for id in ids] == ended
        assert [get(still, id, "?stream=true").body for id in ids] == bodies


@pytest.mark.needs("postgresql", "redis")
def test_one_that_stood_still_alone_goes_on(upstream: Upstream, database: PostgresServer, relay: RedisService) -> None:
    """Nobody took what it drives, so it is still its own."""
    gate = Gate()
    with replicas(config_of(upstream, database.database(), relay.url)) as [alone]:
        id = background(alone, upstream.plays(gate))
        until(alone, id, lambda response: response["status"] == "in_progress")
        alone.signal(signal.SIGSTOP)
        time.sleep(2.5 * LEASE)  # its lease lapses
        alone.signal(signal.SIGCONT)
        time.sleep(LEASE)  # it looks for what was left
        assert not over(get(alone, id).json)
        gate.open()
        assert text_of(until(alone, id, over)) == gate.whole


def test_alone_with_a_file_it_ends_what_it_left(upstream: Upstream, tmp_path: Path) -> None:
    config = config_of(upstream, f"sqlite:///{tmp_path}/kept.sqlite", None)
    gate = Gate()
    with replicas(config) as [before]:
        done = background(before, upstream.plays(Gate(1, 1, 0)), stream=False)
        left = background(before, upstream.plays(gate))
        until(before, left, lambda response: response["status"] == "in_progress")
        before.kill()
    at = time.monotonic()
    with replicas(config) as [after]:
        up = time.monotonic() - at
        response = until(after, left, over)
        print(f"up after {up:.2f} s; ended after {time.monotonic() - at:.2f} s")
        assert (response["status"], response["error"]["code"]) == ("failed", "abandoned")
        assert last_of(get(after, left, "?stream=true").body)["type"] == "response.failed"
        assert over(until(after, done, over))


def test_two_that_share_a_file_leave_each_other_alone(upstream: Upstream, tmp_path: Path) -> None:
    """Without a common relay, the row alone says that somebody drives it."""
    config = config_of(upstream, f"sqlite:///{tmp_path}/kept.sqlite", None)
    gate = Gate()
    with replicas(config) as [one]:
        id = background(one, upstream.plays(gate))
        with replicas(config) as [two]:
            time.sleep(4 * LEASE)  # longer than a row may go untouched
            gate.open()
            assert text_of(until(two, id, over)) == gate.whole
