"""Relays for the tests: in memory, and in a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pellucid.relay.memory import MemoryRelay
from tests.relay.relay_kit import Clock, Replicas, replicas_of
from tests.service_redis import RedisService
from tests.service_redis import redis as redis


@pytest.fixture(scope="module", params=["memory", pytest.param("redis", marks=pytest.mark.needs("redis"))])
def replicas(request: pytest.FixtureRequest) -> Iterator[Replicas]:
    with asyncio.Runner() as runner:
        if request.param == "memory":
            clock = Clock()
            relay = MemoryRelay(clock)
            yield Replicas(relay, relay, runner, clock)
            runner.run(relay.aclose())
        else:
            service: RedisService = request.getfixturevalue("redis")
            pair = replicas_of(service.url)
            yield Replicas(*runner.run(pair.__aenter__()), runner, None)
            runner.run(pair.__aexit__(None, None, None))
