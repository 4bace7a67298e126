"""Rolls: who entered is on it until they lapse or quit; on every replica."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from pellucid.relay.memory import MemoryRelay
from tests.examples import costly
from tests.relay.relay_kit import Replicas, new_name

people = st.sampled_from(["ada", "bob ü", "one two"])


@costly
@given(steps=st.lists(st.tuples(st.booleans(), people), max_size=10))
def test_who_entered_and_did_not_quit_is_on_it(replicas: Replicas, steps: list[tuple[bool, str]]) -> None:
    async def scene() -> None:
        roll, there = new_name(), set[str]()
        for number, (enters, who) in enumerate(steps):
            relay = replicas.one if number % 2 else replicas.two
            if enters:
                await relay.set_presence(roll, who, 1000)
                there.add(who)
            else:
                await relay.clear_presence(roll, who)
                there.discard(who)
            assert set(await replicas.one.list_present(roll)) == there
        assert await replicas.two.list_present(new_name()) == []

    replicas.run(scene())


def test_who_does_not_enter_again_lapses(replicas: Replicas) -> None:
    async def scene() -> None:
        roll = new_name()
        await replicas.one.set_presence(roll, "short", 1.5)
        await replicas.one.set_presence(roll, "long", 100)
        await replicas.one.set_presence(roll, "again", 1.5)
        assert set(await replicas.two.list_present(roll)) == {"short", "long", "again"}
        await replicas.two.set_presence(roll, "again", 100)
        await replicas.let_pass(1.6)
        assert set(await replicas.two.list_present(roll)) == {"long", "again"}

    replicas.run(scene())


@given(steps=st.lists(st.tuples(st.floats(0, 5), people, st.floats(0.1, 10)), max_size=20))
def test_it_lapses_to_the_moment_and_leaves_nothing(steps: list[tuple[float, str, float]]) -> None:
    async def scene() -> None:
        now, until = 1000.0, dict[str, float]()
        relay = MemoryRelay(lambda: now)
        for pause, who, seconds in steps:
            now += pause
            await relay.set_presence("r", who, seconds)
            until[who] = now + seconds
            assert set(await relay.list_present("r")) == {one for one, end in until.items() if end > now}
        now += 100
        assert await relay.list_present("r") == []
        assert not relay._rolls

    asyncio.run(scene())
