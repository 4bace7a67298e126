"""Every rule of a relay is tried on each: in memory, and in a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.relay.relay_kit import Replicas, replicas_of
from tests.service_redis import RedisService
from tests.service_redis import redis as redis


@pytest.fixture(scope="module", params=["memory", "redis"])
def replicas(request: pytest.FixtureRequest) -> Iterator[Replicas]:
    url = None
    if request.param == "redis":
        service: RedisService = request.getfixturevalue("redis")
        url = service.url
    with asyncio.Runner() as runner:
        both = replicas_of(url)
        yield Replicas(*runner.run(both.__aenter__()), runner)
        runner.run(both.__aexit__(None, None, None))
