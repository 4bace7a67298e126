"""Limits: a spend takes all amounts or none, and never more than the limit plus the refill."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.relay.memory import MemoryRelay
from tests.relay.relay_kit import Replicas, new_name

LIMITS = {"requests": 5.0, "tokens": 100.0}
amounts = st.fixed_dictionaries({}, optional={"requests": st.integers(0, 6), "tokens": st.integers(0, 110)})


@given(steps=st.lists(st.tuples(st.booleans(), amounts), max_size=12))
def test_a_spend_takes_all_amounts_or_none(replicas: Replicas, steps: list[tuple[bool, dict[str, float]]]) -> None:
    """The window is so long that nothing is refilled."""

    async def scene() -> None:
        bucket, remaining = new_name(), dict(LIMITS)
        for number, (spends, requested) in enumerate(steps):
            relay = replicas.one if number % 2 else replicas.two
            verdict = await (relay.spend if spends else relay.charge)(bucket, requested, LIMITS, 1e9)
            short = [name for name, level in remaining.items() if level < requested.get(name, 0)]
            assert verdict.allowed == (not spends or not short)
            if verdict.allowed:
                remaining = {name: level - requested.get(name, 0) for name, level in remaining.items()}
                assert (verdict.retry_after, verdict.limiting_counter) == (0, None)
            else:
                assert verdict.limiting_counter in short
                assert verdict.retry_after > 0
                assert (verdict.retry_after == inf) == any(requested.get(name, 0) > LIMITS[name] for name in short)
            assert verdict.levels == pytest.approx(remaining, abs=0.001)

    replicas.run(scene())


@given(steps=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 12)), max_size=60))
def test_no_span_of_time_exceeds_limit_and_refill(steps: list[tuple[float, int]]) -> None:
    """A refused spend is allowed after `retry_after`, and not before."""

    async def scene() -> None:
        now, spends = 1000.0, list[tuple[float, int]]()
        relay = MemoryRelay(lambda: now)
        for pause, amount in steps:
            now += pause
            verdict = await relay.spend("b", {"n": amount}, {"n": 10}, 20)
            if not verdict.allowed and verdict.retry_after < inf:
                wait = verdict.retry_after
                now += wait * 0.99
                assert not (await relay.spend("b", {"n": amount}, {"n": 10}, 20)).allowed
                now += wait * 0.010001
                verdict = await relay.spend("b", {"n": amount}, {"n": 10}, 20)
                assert verdict.allowed
            if verdict.allowed:
                spends.append((now, amount))
        for start, (begin, _) in enumerate(spends):
            total = 0
            for at, amount in spends[start:]:
                total += amount
                assert total <= 10 + (at - begin) * 10 / 20 + 1e-3

    asyncio.run(scene())


def test_concurrent_spends_do_not_exceed_the_limit(replicas: Replicas) -> None:
    async def scene() -> None:
        bucket, loop = new_name(), asyncio.get_running_loop()
        began, allowed, rounds, pause = loop.time(), 0, 20, 0.03
        for _ in range(rounds):
            await replicas.let_pass(pause)
            tries = (relay.spend(bucket, {"n": 1}, {"n": 10}, 0.5) for relay in (replicas.one, replicas.two) * 10)
            allowed += sum(verdict.allowed for verdict in await asyncio.gather(*tries))
        least_seconds = (rounds - 1) * pause
        most_seconds = loop.time() - began if replicas.clock is None else least_seconds
        assert 10 + least_seconds * 10 / 0.5 * 0.8 <= allowed <= 10 + most_seconds * 10 / 0.5 + 1

    replicas.run(scene())


def test_a_charge_beyond_the_limit_delays_later_spends(replicas: Replicas) -> None:
    async def scene() -> None:
        bucket, limits = new_name(), {"requests": 100, "tokens": 10}
        assert (await replicas.one.spend(bucket, {"requests": 1}, limits, 2)).allowed
        assert (await replicas.one.charge(bucket, {"tokens": 20}, limits, 2)).levels["tokens"] < 0
        verdict = await replicas.two.spend(bucket, {"requests": 1}, limits, 2)
        assert (verdict.allowed, verdict.limiting_counter) == (False, "tokens")
        assert (0 if replicas.clock is None else 1.99) < verdict.retry_after <= 2
        await replicas.let_pass(verdict.retry_after + 0.01)
        assert (await replicas.two.spend(bucket, {"requests": 1}, limits, 2)).allowed

    replicas.run(scene())


def test_a_limit_of_zero_allows_nothing(replicas: Replicas) -> None:
    async def scene() -> None:
        bucket = new_name()
        verdict = await replicas.one.spend(bucket, {"n": 1}, {"n": 0})
        assert (verdict.allowed, verdict.retry_after) == (False, inf)
        assert (await replicas.one.spend(bucket, {"n": 0}, {"n": 0})).allowed
        assert (await replicas.one.spend(bucket, {"m": 1}, {})).allowed

    replicas.run(scene())


def test_slots_do_not_exceed_their_number(replicas: Replicas) -> None:
    async def scene() -> None:
        bucket = new_name()
        tries = [relay.acquire_slot(bucket, 3, f"{number}", 2) for number in range(10) for relay in replicas[:2]]
        acquired = await asyncio.gather(*tries)
        assert sum(acquired[::2]) == 3
        assert acquired[::2] == acquired[1::2]  # a holder keeps its slot
        inside = [f"{number}" for number in range(10) if acquired[2 * number]]
        await replicas.two.release_slot(bucket, inside[0])
        await replicas.two.release_slot(bucket, "nobody")
        assert await replicas.one.acquire_slot(bucket, 3, "late", 100)
        assert not await replicas.one.acquire_slot(bucket, 3, "later", 100)
        await replicas.let_pass(2.1)  # the other two have expired
        assert [await replicas.one.acquire_slot(bucket, 3, holder, 100) for holder in ("x", "y", "z", "late")] == [
            *[True, True, False],
            True,
        ]

    replicas.run(scene())
