"""Signals: each listener on any replica receives each signal once and in order, including earlier ones."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from pellucid.relay.relay import MAX_SIGNALS
from tests.examples import costly
from tests.relay.relay_kit import Replicas, new_name, read_some


@costly
@given(messages=st.lists(st.binary(max_size=9), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_every_listener_receives_all_signals_in_order(replicas: Replicas, messages: list[bytes], cut: int) -> None:
    async def scene() -> None:
        name = new_name()
        listeners = [replicas.one.subscribe(name), replicas.two.subscribe(name)]
        for message in messages[:cut]:
            await replicas.one.publish(name, message)
        listeners.append(replicas.two.subscribe(name))
        for message in messages[cut:]:
            await replicas.two.publish(name, message)
        for listener in listeners:
            assert await read_some(listener, len(messages)) == messages
            assert listener.take() == []
            listener.close()
            assert listener.take() is None

    replicas.run(scene())


def test_a_signal_reaches_its_own_mailbox_only(replicas: Replicas) -> None:
    async def scene() -> None:
        names = [new_name(), new_name()]
        one, other = [replicas.one.subscribe(name) for name in names]
        await replicas.two.publish(names[1], b"you")
        assert await other.read() == [b"you"]
        await replicas.two.publish(names[0], b"me")
        assert await one.read() == [b"me"]
        one.close()
        other.close()

    replicas.run(scene())


def test_a_mailbox_keeps_the_newest(replicas: Replicas) -> None:
    async def scene() -> None:
        name, count = new_name(), MAX_SIGNALS + 50
        early = replicas.one.subscribe(name)
        messages = [b"%d" % number for number in range(count)]
        for message in messages[:10]:
            await replicas.two.publish(name, message)
        assert await read_some(early, 10) == messages[:10]
        await asyncio.gather(*(replicas.two.publish(name, message) for message in messages[10:]))
        late = replicas.two.subscribe(name)
        assert await read_some(late, MAX_SIGNALS) == messages[-MAX_SIGNALS:]
        assert (await read_some(early, MAX_SIGNALS))[-MAX_SIGNALS:] == messages[-MAX_SIGNALS:]
        early.close()
        late.close()

    replicas.run(scene())
