"""Two gateways on one PostgreSQL and one Redis, for tests that stop none of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replicas.replicas_kit import Replica, config_of, replicas
from tests.scripted import Upstream
from tests.service_postgres import PostgresServer, postgres
from tests.service_redis import RedisService, redis_service


@pytest.fixture(scope="session")
def database() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def relay() -> Iterator[RedisService]:
    with redis_service() as service:
        yield service


@pytest.fixture(scope="session")
def two_replicas(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> Iterator[tuple[Replica, Replica]]:
    config = config_of(upstream, database.database(), relay.url)
    with replicas(config, config) as (one, two):
        yield one, two


@pytest.fixture
def relay_url(relay: RedisService) -> str:
    return relay.url
