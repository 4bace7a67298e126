"""What replicas know of each other's deployments: cooldowns, also after the death of a replica, and limits."""

from __future__ import annotations

import time

import pytest

from tests.replicas.replicas_kit import Replica, config_of, replicas
from tests.scripted import Call, Gateway, Upstream, say
from tests.service_postgres import PostgresServer
from tests.service_redis import RedisService

pytestmark = [pytest.mark.needs("redis"), pytest.mark.needs("postgresql"), pytest.mark.needs("long")]

ANSWERS = say("", "It is 42.")


async def is_limited(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "not now"}}', Retry_After="100")


def deployments_of(name: str, *models: str, **more: int) -> str:
    """The configuration of a model with these deployments, in this order; `more` limits the first one."""
    rows = [
        f'\n[[models.{name}.deployments]]\nprovider = "vllm"\nmodel = "{model}"\norder = {order}\n'
        for order, model in enumerate(models)
    ]
    rows[0] += "".join(f"{limit} = {value}\n" for limit, value in more.items())
    return "".join(rows)


def who_answers(gateway: Gateway, model: str = "m") -> str:
    reply = gateway.ask(model)
    assert reply.status == 200, reply.body
    return reply.headers["pellucid-deployment"].removeprefix("vllm/")


def learn(gateway: Replica) -> None:
    """Let a replica read what others know: it does so with calls of any deployed model, once a second."""
    for _ in range(15):
        who_answers(gateway, "n")
        time.sleep(0.1)


def test_a_cooldown_is_respected_by_all_replicas_and_survives_the_one_that_began_it(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    first, second, other = upstream.plays(is_limited, ANSWERS), upstream.plays(ANSWERS), upstream.plays(ANSWERS)
    config = config_of(upstream, database.database(), relay.url)
    config += deployments_of("m", first, second) + deployments_of("n", other, second)
    with replicas(config, config) as (one, two):
        assert who_answers(one) == second
        learn(two)
        assert who_answers(two) == second
        one.kill()
        assert who_answers(two) == second
        with replicas(config) as [three]:
            learn(three)
            assert who_answers(three) == second
    assert len(upstream.calls(first)) == 1  # it would answer now, if it was called


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
def test_the_limits_of_a_deployment_are_those_of_all_replicas_together(
    upstream: Upstream, database: PostgresServer, relay: RedisService, limit: str
) -> None:
    first, second = upstream.plays(ANSWERS), upstream.plays(ANSWERS)
    config = config_of(upstream, database.database(), relay.url)
    # An answer has 16 tokens.
    config += deployments_of("m", first, second, **{limit: 2 if limit == "requests_per_minute" else 30})
    with replicas(config, config) as (one, two):
        assert [who_answers(gateway) for gateway in (one, two)] == [first, first]
        assert [who_answers(gateway) for gateway in (one, two)] == [second, second]


def test_the_streams_of_a_deployment_are_counted_over_replicas(
    upstream: Upstream, database: PostgresServer, relay: RedisService
) -> None:
    async def thinks(call: Call) -> None:
        await call.head()
        await call.event({"choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}}]})
        await call.wait_for_disconnect()

    first, second = upstream.plays(thinks, ANSWERS), upstream.plays(ANSWERS)
    config = config_of(upstream, database.database(), relay.url) + deployments_of("m", first, second, streams=1)
    with replicas(config, config) as (one, two):
        stream = one.open("m")
        stream.until("Hm.")
        assert who_answers(two) == second
        stream.leave()
        deadline = time.monotonic() + 30
        while who_answers(two) != first:  # at once: a deployment that is busy has no cooldown
            assert time.monotonic() < deadline
            time.sleep(0.05)
