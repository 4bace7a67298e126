"""Keys and browser sessions over replicas: what ends at one of them ends at all."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator

import pytest

from pellucid.storage import open_store
from tests.access.access_kit import PEPPER, make_key
from tests.access.oidc_kit import Browser
from tests.access.test_access_revocation import bearer, open_stream
from tests.replicas.replicas_kit import Gate, Replica, config_of, replicas
from tests.scripted import Upstream
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Stream
from tests.service_postgres import PostgresServer
from tests.service_redis import RedisService
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("postgresql", "redis")


@pytest.fixture(scope="module")
def store_url(database: PostgresServer) -> str:
    return database.database()


@pytest.fixture(scope="module")
def two(upstream: Upstream, relay: RedisService, store_url: str) -> Iterator[list[Replica]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PELLUCID_KEY_PEPPER", PEPPER)
        config = config_of(upstream, store_url, relay.url) + "[access]\nkeys = true\nkey_seconds = 0.5\n"
        with replicas(config, config) as running:
            yield running


def create_key(url: str) -> tuple[str, str]:
    async def create() -> tuple[str, str]:
        store = await open_store(url)
        try:
            return await make_key(store)
        finally:
            await store.aclose()

    return asyncio.run(create())


def begin(replica: Replica, model: str, key: str) -> Stream:
    return open_stream(replica, "/v1/responses", {"input": "Why?", "stream": True}, model, bearer(key))


def test_a_revoked_key_ends_its_streams_at_every_replica(
    two: list[Replica], upstream: Upstream, store_url: str
) -> None:
    (key, id_), (other_key, _) = create_key(store_url), create_key(store_url)
    gate = Gate()
    model = upstream.plays(*[gate] * 3)
    with (
        begin(two[0], model, key) as here,
        begin(two[1], model, key) as there,
        begin(two[1], model, other_key) as other,
    ):
        for stream in (here, there, other):
            stream.until(b"thought 2")
        subprocess.run([*PELLUCID, "keys", "revoke", id_, "--store", store_url], check=True, capture_output=True)
        for stream in (here, there):
            failed = stream.events[-1]
            assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "key_revoked")
        gate.open()
        assert other.events[-1]["type"] == "response.completed"


def test_a_session_that_was_signed_out_is_over_at_every_replica(two: list[Replica], store_url: str) -> None:
    here, there = Browser(two[0]), Browser(two[1])
    assert here.fetch("POST", "/api/session", {"key": create_key(store_url)[0]}).status == 200
    there.cookies = dict(here.cookies)
    assert there.fetch("GET", "/api/conversations").status == 200
    assert here.fetch("DELETE", "/api/session").status == 200
    wait_until(lambda: there.fetch("GET", "/api/conversations").status == 401)
    error = json.loads(there.fetch("GET", "/api/conversations").body)["error"]
    assert error["code"] == "session_over"
