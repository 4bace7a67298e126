"""A replica that dies or stalls loses nothing that was stored; another replica ends its runs, each once."""

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
    begin,
    clients,
    config_of,
    fetch,
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
from tests.service_postgres import PostgresServer
from tests.service_redis import RedisService
from tests.waiting import eventually

pytestmark = pytest.mark.needs("long")

MANY = 200


@pytest.mark.needs("postgresql", "redis")
def test_a_killed_replica_loses_no_finished_response(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    config = config_of(upstream, database.database(), f"{relay.url}?prefix=death:")
    # Long enough that no lease of a busy replica lapses.
    config = config.replace(f"lease_seconds = {LEASE}", "lease_seconds = 5.0")
    # When it is killed, some are finished, some are about to finish, and most continue.
    gates = [Gate(before=3, after=place % 40, pace=0.01) for place in range(MANY)]
    models = [upstream.plays(gate) for gate in gates]

    async def main() -> int:
        async with clients() as session:
            replies = await asyncio.gather(*(begin(session, dying, model) for model in models))
            assert {status for status, _ in replies} == {200}
            ids = [response["id"] for _, response in replies]
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
                finished = {id: row for id in ids if is_over(row := await fetch(session, dying, id))}
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
            last = last_event(body)
            assert last["response"]["id"] == id
            assert last["type"] == f"response.{row['status']}"
            if id in finished:
                assert row == finished[id]
            if row["status"] == "completed":
                assert text_of(row) == gate.full_text
            else:
                assert row["error"]["code"] == "abandoned"
                # The partial answer is kept.
                assert text_of(row) == text_of(last["response"])
                assert gate.full_text.startswith(text_of(row))
        for id, body in list(zip(ids, bodies, strict=True))[::10]:
            assert get(survivor, id, "?stream=true").body == body
        partial_texts = [text_of(row) for row in rows if row["status"] == "failed"]
        assert all(text.startswith("thought 0. thought 1. thought 2. ") for text in partial_texts)
        return counts["failed"]

    with replicas(config, config) as (dying, survivor):
        failed = run(main())
        # No run was ended twice, and no lease remains.
        assert survivor.stderr_text.count("was abandoned by its replica, and ended here") == failed
        assert relay.ask(b"ZCARD death:leases") == b":0"


@pytest.mark.needs("postgresql", "redis")
def test_a_stalled_replica_does_not_overwrite_what_another_wrote(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    config = config_of(upstream, database.database(), relay.url)
    gate = Gate()
    model = upstream.plays(gate)
    with replicas(config, config) as (stalled, other):
        ids = [start_background(stalled, model) for _ in range(5)]
        for id in ids:
            wait_for_response(other, id, lambda response: response["status"] == "in_progress")
        calls = upstream.calls(model, at_least=5)
        stalled.signal(signal.SIGSTOP)
        ended = [wait_for_response(other, id, is_over) for id in ids]
        assert {response["error"]["code"] for response in ended} == {"abandoned"}
        bodies = [get(other, id, "?stream=true").body for id in ids]
        stalled.signal(signal.SIGCONT)
        # It detects the takeover, and closes its upstream connections.
        for call in calls:
            assert call.connection.closed.wait(LIMIT_SECONDS), stalled.stderr_text
        gate.open()
        # A new response finishes; by then the old runs have ended, too.
        assert (
            text_of(wait_for_response(stalled, start_background(stalled, upstream.plays(gate)), is_over))
            == gate.full_text
        )
        assert [get(stalled, id).json for id in ids] == ended
        assert [get(stalled, id, "?stream=true").body for id in ids] == bodies


@pytest.mark.needs("postgresql", "redis")
def test_a_stalled_replica_continues_if_no_other_took_over(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    """No other replica took the run over, so it continues."""
    gate = Gate()
    with replicas(config_of(upstream, database.database(), relay.url)) as [alone]:
        id = start_background(alone, upstream.plays(gate))
        wait_for_response(alone, id, lambda response: response["status"] == "in_progress")
        alone.signal(signal.SIGSTOP)
        time.sleep(2.5 * LEASE)  # its lease lapses
        alone.signal(signal.SIGCONT)
        time.sleep(LEASE)  # it checks for abandoned runs
        assert not is_over(get(alone, id).json)
        gate.open()
        assert text_of(wait_for_response(alone, id, is_over)) == gate.full_text


def test_a_restarted_gateway_ends_abandoned_responses(upstream: Upstream, tmp_path: Path) -> None:
    config = config_of(upstream, f"sqlite:///{tmp_path}/kept.sqlite", None)
    gate = Gate()
    with replicas(config) as [before]:
        done = start_background(before, upstream.plays(Gate(1, 1, 0)), stream=False)
        abandoned = start_background(before, upstream.plays(gate))
        wait_for_response(before, abandoned, lambda response: response["status"] == "in_progress")
        before.kill()
    at = time.monotonic()
    with replicas(config) as [after]:
        up = time.monotonic() - at
        response = wait_for_response(after, abandoned, is_over)
        print(f"up after {up:.2f} s; ended after {time.monotonic() - at:.2f} s")
        assert (response["status"], response["error"]["code"]) == ("failed", "abandoned")
        assert last_event(get(after, abandoned, "?stream=true").body)["type"] == "response.failed"
        assert is_over(wait_for_response(after, done, is_over))


@pytest.mark.needs("postgresql")
def test_two_gateways_on_one_database_do_not_end_each_others_runs(upstream: Upstream, database: PostgresServer) -> None:
    """Without a common relay, only the row shows that a process drives the run."""
    config = config_of(upstream, database.database(), None)
    gate = Gate()
    with replicas(config) as [one]:
        id = start_background(one, upstream.plays(gate))
        with replicas(config) as [two]:
            time.sleep(4 * LEASE)  # longer than a row may go without an update
            gate.open()
            assert text_of(wait_for_response(two, id, is_over)) == gate.full_text
