"""Told to stop, a replica loses nothing: what is under way finishes within its time, or ends as failed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.replicas.replicas_kit import (
    LIMIT_SECONDS,
    Gate,
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
from tests.scripted import Upstream
from tests.scripted.gateway import events_of
from tests.service_postgres import PostgresServer

pytestmark = pytest.mark.needs("long", "redis")


@pytest.mark.needs("postgresql")
def test_what_is_under_way_finishes_or_is_ended(upstream: Upstream, database: PostgresServer, relay_url: str) -> None:
    config = config_of(upstream, database.database(), relay_url, shutdown_seconds=8)
    read, quick, slow = Gate(), Gate(), Gate()
    with replicas(config, config) as (leaving, staying):
        finishing = background(leaving, upstream.plays(quick))
        hanging = background(leaving, upstream.plays(slow))
        for id in (finishing, hanging):
            until(staying, id, lambda response: response["status"] == "in_progress")
        with leaving.open(upstream.plays(read)) as attached:
            attached.until("thought 2")
            leaving.signal(signal.SIGTERM)
            until_leaving(leaving)
            leaving.signal(signal.SIGTERM)  # impatient, as some supervisors are
            read.open()
            quick.open()
            body = attached.rest()
            assert verify(body) == []
            assert text_of(events_of(body)[-1]["response"]) == read.whole
        began = time.monotonic()
        assert leaving.process.wait(LIMIT_SECONDS) == 0
        print(f"gone {time.monotonic() - began:.2f} s after its last client")
        assert "Traceback" not in leaving.stderr_text
        done, ended = get(staying, finishing).json, get(staying, hanging).json
        assert (done["status"], text_of(done)) == ("completed", quick.whole)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "stopping")
        assert text_of(ended) == "thought 0. thought 1. thought 2. "
        assert last_of(get(staying, hanging, "?stream=true").body)["type"] == "response.failed"
        assert "ended here" not in staying.stderr_text


@pytest.mark.parametrize("relayed", [True, False])
def test_a_second_ctrl_c_ends_them_at_once(upstream: Upstream, tmp_path: Path, relay_url: str, relayed: bool) -> None:
    config = config_of(
        upstream, f"sqlite:///{tmp_path}/kept.sqlite", relay_url if relayed else None, shutdown_seconds=300
    )
    gate = Gate()
    with replicas(config) as [leaving]:
        id = background(leaving, upstream.plays(gate))
        until(leaving, id, lambda response: response["status"] == "in_progress")
        leaving.signal(signal.SIGINT)
        until_leaving(leaving)
        assert leaving.process.poll() is None
        leaving.signal(signal.SIGINT)
        leaving.process.wait(LIMIT_SECONDS)
        assert "Traceback" not in leaving.stderr_text
    with replicas(config) as [after]:
        response = get(after, id).json
        assert over(response)
        assert response["error"]["code"] == "stopping"
        assert text_of(response) == "thought 0. thought 1. thought 2. "
