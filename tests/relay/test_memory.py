"""The relay of one process: expiry, and its notifications."""

from __future__ import annotations

import pytest

from pellucid.relay import LogLost
from pellucid.relay.memory import MemoryRelay
from pellucid.relay.relay import LOG_LIFE_SECONDS, SIGNAL_LIFE_SECONDS, TOMBSTONE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.anyio
async def test_an_appender_stops_when_another_holder_claims_the_log(clock: Clock) -> None:
    relay = MemoryRelay(clock)
    fence = await relay.claim("log", "a", 10)
    assert fence is not None
    assert relay.open_appender("log", fence) is None  # nothing was appended yet
    await relay.append("log", [b"1"], fence)
    appender = relay.open_appender("log", fence)
    assert appender is not None
    assert relay.open_appender("log", fence - 1) is None

    received: list[object] = []
    reading, waiting = relay.follow("log", after=1), relay.follow("log", after=0)
    reading.start(lambda: None)
    reading.receiver = received.append
    assert appender.append(b"2")
    assert received == [b"2"]
    assert waiting.take() == [b"1", b"2"]
    assert await relay.length("log") == 2

    clock.now += 11
    later = await relay.claim("log", "b", 10)
    assert later is not None
    assert not appender.append(b"3")
    await relay.append("log", [b"3"], later, last=True)
    assert relay.open_appender("log", later) is None
    assert received == [b"2", b"3"]


@pytest.mark.anyio
async def test_an_expired_log_is_lost_to_followers_and_writer(clock: Clock) -> None:
    relay = MemoryRelay(clock)
    fence = await relay.claim("log", "a", 10)
    assert fence is not None
    await relay.append("log", [b"1"], fence)
    appender, follower = relay.open_appender("log", fence), relay.follow("log", after=1)
    assert appender is not None
    clock.now += LOG_LIFE_SECONDS + 1
    assert await relay.length("log") == 0
    assert not appender.append(b"2")
    with pytest.raises(LogLost):
        follower.take()
    assert await relay.renew("log", fence, 10)  # an expired lease can be renewed, however late
    clock.now += LOG_LIFE_SECONDS + TOMBSTONE_SECONDS + 11
    assert await relay.lapsed_leases() == ["log"]
    await relay.aclose()


@pytest.mark.anyio
async def test_signals_expire_and_listeners_stay(clock: Clock) -> None:
    relay = MemoryRelay(clock)
    listener = relay.subscribe("box")
    await relay.publish("box", b"1")
    assert listener.take() == [b"1"]
    clock.now += SIGNAL_LIFE_SECONDS + 1
    late = relay.subscribe("box")
    assert not late.is_ready
    await relay.publish("box", b"2")
    assert listener.take() == late.take() == [b"2"]
    late.close()
    listener.close()
    await relay.check()
    await relay.aclose()


@pytest.mark.anyio
async def test_a_follower_that_closes_while_it_receives_gets_no_more(clock: Clock) -> None:
    relay = MemoryRelay(clock)
    follower, received = relay.follow("log"), list[object]()
    follower.start(lambda: None)

    def receive_once(entry: object) -> None:
        received.append(entry)
        follower.close()

    follower.receiver = receive_once
    await relay.append("log", [b"1", b"2"], 0)
    await relay.append("log", [b"3"], 0)
    assert received == [b"1"]
    assert follower.is_closed
