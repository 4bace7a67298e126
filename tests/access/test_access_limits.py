"""Limits, counted in memory and in a real Redis: over replicas, after the fact, and while nobody can count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.parts import Usage
from pellucid.relay import Relay, RelayError, open_relay
from pellucid.relay.memory import MemoryRelay
from pellucid.server.access.errors import AccessError, headers_of
from pellucid.server.access.guard import Guard
from pellucid.server.access.limits import COUNTERS, RateLimiter, charged_tokens, has_limits
from pellucid.server.access.policy import Policy, Principal
from tests.access.access_kit import Clock, guard, principal
from tests.service_redis import RedisService, redis_service
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


REDIS = pytest.param("redis", marks=pytest.mark.needs("redis"))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisService]:
    with redis_service() as running:
        yield running


@pytest.fixture(params=["memory", REDIS])
async def guards(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Guard, Guard]]:
    """Of two replicas; in memory, of one."""
    relays: list[Any]
    if request.param == "memory":
        relays = [MemoryRelay(Clock())] * 2
    else:
        service: RedisService = request.getfixturevalue("redis")
        service.start()
        service.ask(b"FLUSHALL")
        relays = [await open_relay(service.url) for _ in range(2)]
    both = guard({}, relay=relays[0]), guard({}, relay=relays[1])
    yield both
    for one, relay in zip(both, relays, strict=True):
        await one.aclose()
        await relay.aclose()


async def refused(guard: Guard, who: Principal) -> AccessError:
    with pytest.raises(AccessError) as caught:
        await guard.spend(who)
    return caught.value


async def test_requests_are_counted_over_replicas_and_told(guards: tuple[Guard, Guard]) -> None:
    who, other = principal(requests_per_minute=4), Principal("acme", "key_other", "", Policy(requests_per_minute=4))
    for n in range(4):
        headers = dict(await guards[n % 2].spend(who))
        assert headers[b"x-ratelimit-limit-requests"] == b"4"
        assert headers[b"x-ratelimit-remaining-requests"] == b"%d" % (3 - n)
        assert headers[b"x-ratelimit-reset-requests"].endswith(b"s")
    for one in guards:
        error = await refused(one, who)
        assert (error.info.kind, error.info.code) == ("too_many_requests", "rate_limit_exceeded")
        assert error.info.message.startswith("more than 4 requests a minute; try again in 15 s")
        assert error.info.retry_after == pytest.approx(15, abs=1)
        assert dict(headers_of(error))[b"x-ratelimit-remaining-requests"] == b"0"
    await guards[0].spend(other)


async def test_tokens_are_charged_after_the_fact_also_below_zero(guards: tuple[Guard, Guard]) -> None:
    who = principal(tokens_per_minute=1000, reasoning_tokens_per_minute=600)
    usage = Usage(input_tokens=100, output_tokens=1100, output_reasoning_tokens=300)
    await guards[0].spend(who)
    await guards[0].charge(who, usage)
    error = await refused(guards[1], who)
    assert error.info.message.startswith("more than 1000 tokens a minute; try again in 12 s")
    headers = dict(error.headers)
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-remaining-reasoning-tokens"] in (b"300", b"301")
    assert b"x-ratelimit-limit-requests" not in headers
    await guards[1].charge(who, Usage(output_tokens=0, output_reasoning_tokens=600))
    assert "reasoning tokens a minute" in (await refused(guards[0], who)).info.message


async def test_nothing_is_taken_unless_every_counter_allows_it(guards: tuple[Guard, Guard]) -> None:
    who = principal(requests_per_minute=10, tokens_per_minute=100)
    await guards[0].charge(who, Usage(output_tokens=1000))
    for _ in range(30):
        assert "tokens" in (await refused(guards[0], who)).info.message
    remaining = dict((await refused(guards[0], who)).headers)[b"x-ratelimit-remaining-requests"]
    assert remaining == b"10"


async def test_streams_are_counted_over_replicas_and_come_free(guards: tuple[Guard, Guard]) -> None:
    who = principal(streams=2)
    async with guards[0].stream_slot(who), guards[1].stream_slot(who):
        with pytest.raises(AccessError) as caught:
            async with guards[0].stream_slot(who):
                pytest.fail("a third stream")
        assert caught.value.info.code == "too_many_streams"
    async with guards[0].stream_slot(who), guards[0].stream_slot(who):
        pass

    entered = 0

    async def cancelled() -> None:
        nonlocal entered
        async with guards[0].stream_slot(who):
            entered += 1
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(cancelled()) for _ in range(2)]
    await eventually(lambda: entered == 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with guards[1].stream_slot(who), guards[1].stream_slot(who):
        pass


class Holding(MemoryRelay):
    """It counts how often a place was held or held on to."""

    count = 0

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        held = await super().acquire_slot(bucket, limit, holder, seconds)
        self.count += 1
        return held


async def test_a_place_is_kept_while_the_stream_is_open_and_freed_when_its_replica_dies() -> None:
    clock = Clock()
    relay = Holding(clock)
    living, dead = RateLimiter(relay, lease_seconds=0.03), RateLimiter(relay, lease_seconds=0.03)
    who = principal(streams=1)
    async with living.stream_slot(who):
        for _ in range(4):
            before = relay.count
            clock.now += 0.02
            await eventually(lambda: relay.count > before)  # noqa: B023 (it is called in this round)
        with pytest.raises(AccessError):
            await living.stream_slot(who).__aenter__()
    left_open = dead.stream_slot(who)
    await left_open.__aenter__()
    await dead.aclose()  # without a word to anybody
    with pytest.raises(AccessError):
        await living.stream_slot(who).__aenter__()
    clock.now += 0.04
    async with living.stream_slot(who):
        pass
    await living.aclose()
    await relay.aclose()


async def test_who_has_no_limits_never_asks_the_relay() -> None:
    door = guard({}, relay=object())
    who = principal()
    assert await door.spend(who) == []
    await door.charge(who, Usage(output_tokens=10))
    async with door.stream_slot(who):
        pass


class Stoppable(MemoryRelay):
    """It can be stopped as a server can, and has nothing in it when it is started again."""

    is_away = False

    def start(self) -> None:
        self.is_away = False
        self._buckets.clear()

    def stop(self) -> None:
        self.is_away = True

    def _expire_due(self) -> float:
        if self.is_away:
            raise RelayError("it is away")
        return super()._expire_due()


@pytest.fixture(params=["memory", REDIS])
async def stoppable(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Relay, Stoppable | RedisService]]:
    if request.param == "memory":
        alone = Stoppable(Clock())
        yield alone, alone
        return
    service: RedisService = request.getfixturevalue("redis")
    service.start()
    service.ask(b"FLUSHALL")
    relay = await open_relay(service.url)
    yield relay, service
    await relay.aclose()


@pytest.mark.parametrize("when_down", ["refuse", "allow"])
async def test_while_nobody_can_count(stoppable: tuple[Relay, Stoppable | RedisService], when_down: str) -> None:
    relay, service = stoppable
    door = guard({"limits_when_down": when_down}, relay=relay)
    who = Principal("acme", f"key_{when_down}", "", Policy(requests_per_minute=5, tokens_per_minute=9, streams=1))
    await door.spend(who)
    async with door.stream_slot(who):
        service.stop()
        if when_down == "allow":
            assert await door.spend(who) == []
        else:
            error = await refused(door, who)
            assert (error.info.kind, error.info.code) == ("unavailable", "limits_unavailable")
            assert error.info.retry_after
            with pytest.raises(AccessError, match="cannot be counted now"):
                await door.stream_slot(who).__aenter__()
        # What is over is over, and what is open stays open.
        await door.charge(who, Usage(output_tokens=5))
        assert await door.spend(principal()) == []
    service.start()
    assert dict(await door.spend(who))[b"x-ratelimit-remaining-requests"] == b"4"
    await door.aclose()


@given(
    st.builds(
        Usage,
        input_tokens=st.none() | st.integers(0, 10**6),
        output_tokens=st.none() | st.integers(0, 10**6),
        output_reasoning_tokens=st.none() | st.integers(0, 10**6),
    ),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_what_was_reported_is_charged_as_it_is_and_what_was_not_is_never_free(
    usage: Usage, thought: int, said: int
) -> None:
    charged = charged_tokens(usage, thought + said, thought)
    if usage.output_tokens is not None:
        assert charged["tokens"] == (usage.input_tokens or 0) + usage.output_tokens
    if usage.output_reasoning_tokens is not None:
        assert charged["reasoning_tokens"] == usage.output_reasoning_tokens
    elif thought and usage.output_tokens != 0:
        assert charged["reasoning_tokens"] > 0
    if usage.output_tokens is None and thought + said:
        assert charged["tokens"] > (usage.input_tokens or 0)
    assert charged["tokens"] >= 0


@pytest.mark.parametrize("field", [*COUNTERS.values(), "streams"])
def test_whoever_has_a_limit_is_counted_and_nobody_else(field: str) -> None:
    assert has_limits(msgspec.convert({field: 1}, Policy))
    assert not has_limits(Policy(max_output_tokens=1, max_body_bytes=1, models=[]))
