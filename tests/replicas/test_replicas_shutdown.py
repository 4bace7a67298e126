"""A replica that shuts down loses nothing: running responses finish within its time, or end as failed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.replicas.replicas_kit import (
    LIMIT_SECONDS,
    Gate,
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
from tests.scripted import Upstream
from tests.scripted.gateway import events_of
from tests.service_postgres import PostgresServer

pytestmark = pytest.mark.needs("long", "redis")


@pytest.mark.needs("postgresql")
def test_running_responses_finish_or_are_ended(upstream: Upstream, database: PostgresServer, relay_url: str) -> None:
    config = config_of(upstream, database.database(), relay_url, shutdown_seconds=8)
    read, quick, slow = Gate(), Gate(), Gate()
    with replicas(config, config) as (leaving, staying):
        finishing = start_background(leaving, upstream.plays(quick))
        hanging = start_background(leaving, upstream.plays(slow))
        for id in (finishing, hanging):
            wait_for_response(staying, id, lambda response: response["status"] == "in_progress")
        with leaving.open(upstream.plays(read)) as attached:
            attached.until("thought 2")
            leaving.signal(signal.SIGTERM)
            wait_until_leaving(leaving)
            read.open()
            quick.open()
            body = attached.rest()
            assert verify(body) == []
            assert text_of(events_of(body)[-1]["response"]) == read.full_text
        began = time.monotonic()
        assert leaving.process.wait(LIMIT_SECONDS) == 0
        print(f"gone {time.monotonic() - began:.2f} s after its last client")
        assert "Traceback" not in leaving.stderr_text
        done, ended = get(staying, finishing).json, get(staying, hanging).json
        assert (done["status"], text_of(done)) == ("completed", quick.full_text)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "stopping")
        assert text_of(ended) == "thought 0. thought 1. thought 2. "
        assert last_event(get(staying, hanging, "?stream=true").body)["type"] == "response.failed"
        assert "ended here" not in staying.stderr_text


@pytest.mark.parametrize(("relayed", "number"), [(True, signal.SIGINT), (False, signal.SIGTERM)])
def test_a_second_signal_ends_all_responses_at_once(
    upstream: Upstream, tmp_path: Path, relay_url: str, relayed: bool, number: int
) -> None:
    config = config_of(
        upstream, f"sqlite:///{tmp_path}/kept.sqlite", relay_url if relayed else None, shutdown_seconds=300
    )
    gate = Gate()
    with replicas(config) as [leaving]:
        id = start_background(leaving, upstream.plays(gate))
        wait_for_response(leaving, id, lambda response: response["status"] == "in_progress")
        leaving.signal(number)
        wait_until_leaving(leaving)
        assert leaving.process.poll() is None
        leaving.signal(number)
        leaving.process.wait(LIMIT_SECONDS)
        assert "Traceback" not in leaving.stderr_text
    with replicas(config) as [after]:
        response = get(after, id).json
        assert is_over(response)
        assert response["error"]["code"] == "stopping"
        assert text_of(response) == "thought 0. thought 1. thought 2. "
