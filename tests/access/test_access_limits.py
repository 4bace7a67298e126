"""Rate limits in memory and in a real Redis: across replicas, after the turn, and during an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from pellucid.parts import Usage
from pellucid.relay import Relay, RelayError, open_relay
from pellucid.relay.memory import MemoryRelay
from pellucid.server.access.errors import AccessError, headers_of
from pellucid.server.access.guard import Guard
from pellucid.server.access.limits import RateLimiter
from pellucid.server.access.policy import COUNTERS, Policy, Principal
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
    """Guards of two replicas; in memory, of one."""
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


async def refused_spend(guard: Guard, who: Principal) -> AccessError:
    with pytest.raises(AccessError) as caught:
        await guard.spend(who)
    return caught.value


async def test_requests_are_counted_across_replicas_and_reported(guards: tuple[Guard, Guard]) -> None:
    who, other = principal(requests_per_minute=4), Principal("acme", "key_other", "", Policy(requests_per_minute=4))
    for n in range(4):
        headers = dict(await guards[n % 2].spend(who))
        assert headers[b"x-ratelimit-limit-requests"] == b"4"
        assert headers[b"x-ratelimit-remaining-requests"] == b"%d" % (3 - n)
        assert headers[b"x-ratelimit-reset-requests"].endswith(b"s")
    for one in guards:
        error = await refused_spend(one, who)
        assert (error.info.kind, error.info.code) == ("too_many_requests", "rate_limit_exceeded")
        assert error.info.message.startswith("more than 4 requests a minute; try again in 15 s")
        assert error.info.retry_after == pytest.approx(15, abs=1)
        assert dict(headers_of(error))[b"x-ratelimit-remaining-requests"] == b"0"
    await guards[0].spend(other)


async def test_tokens_are_charged_after_the_turn_even_below_zero(guards: tuple[Guard, Guard]) -> None:
    who = principal(tokens_per_minute=1000, reasoning_tokens_per_minute=600)
    usage = Usage(input_tokens=100, output_tokens=1100, output_reasoning_tokens=300)
    await guards[0].spend(who)
    await guards[0].charge(who, usage)
    error = await refused_spend(guards[1], who)
    assert error.info.message.startswith("more than 1000 tokens a minute; try again in 12 s")
    headers = dict(error.headers)
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-remaining-reasoning-tokens"] in (b"300", b"301")
    assert b"x-ratelimit-limit-requests" not in headers
    await guards[1].charge(who, Usage(output_tokens=0, output_reasoning_tokens=600))
    assert "reasoning tokens a minute" in (await refused_spend(guards[0], who)).info.message


async def test_a_refused_request_charges_no_counter(guards: tuple[Guard, Guard]) -> None:
    who = principal(requests_per_minute=10, tokens_per_minute=100)
    await guards[0].charge(who, Usage(output_tokens=1000))
    for _ in range(30):
        assert "tokens" in (await refused_spend(guards[0], who)).info.message
    remaining = dict((await refused_spend(guards[0], who)).headers)[b"x-ratelimit-remaining-requests"]
    assert remaining == b"10"


async def test_streams_are_counted_across_replicas_and_released(guards: tuple[Guard, Guard]) -> None:
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


class SlotCountingRelay(MemoryRelay):
    """Relay that counts how often a slot was acquired or renewed."""

    count = 0

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        is_acquired = await super().acquire_slot(bucket, limit, holder, seconds)
        self.count += 1
        return is_acquired


async def test_a_stream_slot_is_renewed_while_open_and_expires_with_its_replica() -> None:
    clock = Clock()
    relay = SlotCountingRelay(clock)
    living, dead = (RateLimiter(relay, "refuse", lease_seconds=0.03) for _ in range(2))
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
    await dead.aclose()  # without releasing the slot
    with pytest.raises(AccessError):
        await living.stream_slot(who).__aenter__()
    clock.now += 0.04
    async with living.stream_slot(who):
        pass
    await living.aclose()
    await relay.aclose()


async def test_a_principal_without_limits_does_not_use_the_relay() -> None:
    access_guard = guard({}, relay=object())
    who = principal()
    assert await access_guard.spend(who) == []
    await access_guard.charge(who, Usage(output_tokens=10))
    async with access_guard.stream_slot(who):
        pass


class StoppableRelay(MemoryRelay):
    """Relay that can be stopped like a server and is empty when it starts again."""

    is_remote = True
    is_stopped = False

    def start(self) -> None:
        self.is_stopped = False
        self._buckets.clear()

    def stop(self) -> None:
        self.is_stopped = True

    def _expire_due(self) -> float:
        if self.is_stopped:
            raise RelayError("it is away")
        return super()._expire_due()


@pytest.fixture(params=["memory", REDIS])
async def stoppable(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Relay, StoppableRelay | RedisService]]:
    if request.param == "memory":
        alone = StoppableRelay(Clock())
        yield alone, alone
        return
    service: RedisService = request.getfixturevalue("redis")
    service.start()
    service.ask(b"FLUSHALL")
    relay = await open_relay(service.url)
    yield relay, service
    await relay.aclose()


@pytest.mark.parametrize("when_down", ["refuse", "allow"])
async def test_limits_during_a_relay_outage(
    stoppable: tuple[Relay, StoppableRelay | RedisService], when_down: str
) -> None:
    relay, service = stoppable
    access_guard = guard({"limits_when_down": when_down}, relay=relay)
    who = Principal("acme", f"key_{when_down}", "", Policy(requests_per_minute=5, tokens_per_minute=9, streams=1))
    await access_guard.spend(who)
    async with access_guard.stream_slot(who):
        service.stop()
        if when_down == "allow":
            assert await access_guard.spend(who) == []
        else:
            error = await refused_spend(access_guard, who)
            assert (error.info.kind, error.info.code) == ("unavailable", "limits_unavailable")
            assert error.info.retry_after
            with pytest.raises(AccessError, match="cannot be counted now"):
                await access_guard.stream_slot(who).__aenter__()
        # Finished turns are not charged, and open streams stay open.
        await access_guard.charge(who, Usage(output_tokens=5))
        assert await access_guard.spend(principal()) == []
    service.start()
    assert dict(await access_guard.spend(who))[b"x-ratelimit-remaining-requests"] == b"4"
    await access_guard.aclose()


@pytest.mark.parametrize("field", [*COUNTERS.values(), "streams"])
def test_only_principals_with_rate_limits_are_counted(field: str) -> None:
    assert msgspec.convert({field: 1}, Policy).has_limits
    assert not Policy(max_output_tokens=1, max_body_bytes=1, models=[]).has_limits
