"""Presence: participants are listed on every replica until they are cleared or expire."""

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
def test_participants_are_present_until_cleared(replicas: Replicas, steps: list[tuple[bool, str]]) -> None:
    async def scene() -> None:
        roll, present = new_name(), set[str]()
        for number, (enters, participant) in enumerate(steps):
            relay = replicas.one if number % 2 else replicas.two
            if enters:
                await relay.set_presence(roll, participant, 1000)
                present.add(participant)
            else:
                await relay.clear_presence(roll, participant)
                present.discard(participant)
            assert set(await replicas.one.list_present(roll)) == present
        assert await replicas.two.list_present(new_name()) == []

    replicas.run(scene())


def test_presence_expires_unless_renewed(replicas: Replicas) -> None:
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
def test_presence_expires_exactly_and_leaves_nothing(steps: list[tuple[float, str, float]]) -> None:
    async def scene() -> None:
        now, until = 1000.0, dict[str, float]()
        relay = MemoryRelay(lambda: now)
        for pause, participant, seconds in steps:
            now += pause
            await relay.set_presence("r", participant, seconds)
            until[participant] = now + seconds
            assert set(await relay.list_present("r")) == {one for one, end in until.items() if end > now}
        now += 100
        assert await relay.list_present("r") == []
        assert not relay._groups

    asyncio.run(scene())
