"""Redis stops, restarts empty, freezes, or disconnects: calls fail with a clear error and succeed afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator

import pytest

from pellucid.errors import ConfigError
from pellucid.relay import FencedError, LogLost, Relay, RelayError, open_relay
from tests.relay.relay_kit import read_all, read_some, replicas_of
from tests.service_redis import RedisService, redis_service
from tests.waiting import eventually, loop_turns

pytestmark = pytest.mark.anyio
needs_redis = pytest.mark.needs("redis")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def one_service() -> Iterator[RedisService]:
    with redis_service() as service:
        yield service


@pytest.fixture
def service(one_service: RedisService) -> RedisService:
    one_service.start()
    one_service.ask(b"FLUSHALL")
    return one_service


async def check_unavailable(relay: Relay) -> None:
    with pytest.raises(RelayError) as caught:
        await relay.check()
    assert (caught.value.info.kind, caught.value.info.code) == ("unavailable", "relay_unavailable")


@needs_redis
async def test_calls_fail_during_an_outage_and_succeed_afterwards(service: RedisService) -> None:
    async with replicas_of(service.url, call_timeout_seconds=300, outage_seconds=300) as (one, _):

        async def all_calls() -> list[object]:
            calls: list[Awaitable[object]] = [
                one.append("log", [b"a"], 0),
                one.length("log"),
                one.drop("log", 60),
                one.claim("name", "me", 9),
                one.renew("name", 1, 9),
                one.release("name", 1),
                one.lapsed_leases(),
                one.publish("name", b"a"),
                one.spend("bucket", {"n": 1}, {"n": 100}),
                one.charge("bucket", {"n": 1}, {"n": 100}),
                one.acquire_slot("places", 9, "me", 9),
                one.release_slot("places", "me"),
                one.check(),
            ]
            async with asyncio.timeout(60):  # much less than the timeout of a call
                return await asyncio.gather(*calls, return_exceptions=True)

        for _ in range(2):
            assert not [result for result in await all_calls() if isinstance(result, Exception)]
            service.stop()
            failures = await all_calls()
            assert {type(failure) for failure in failures} == {RelayError}
            # Clients may see these messages; the address is for the operator alone, at the start.
            assert not [failure for failure in failures if str(service.port) in str(failure)]
            with pytest.raises(RelayError, match=str(service.port)):
                await open_relay(service.url)
            service.start()
        # Even the first call after a restart succeeds, although its idle connection was closed.
        await one.check()
        service.stop()
        service.start()
        await one.check()


@needs_redis
async def test_followers_of_a_log_that_redis_lost_get_an_error(service: RedisService) -> None:
    async with replicas_of(service.url) as (one, two):
        token = await one.claim("log", "me", 100)
        assert token is not None
        await one.append("log", [b"a", b"b"], token)
        followers = [two.follow("log"), two.follow("log", 1), two.follow("log", 2), two.follow("not yet")]
        for follower, count in zip(followers[:3], (2, 1, 0), strict=True):
            await read_some(follower, count)
        waiting = [asyncio.create_task(follower.read()) for follower in followers]
        await eventually(lambda: service.ask(b"PUBSUB CHANNELS") == b"*2", "both logs are subscribed to")
        service.stop()
        service.start()
        async with asyncio.timeout(60):
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, LogLost)
        # Its writer cannot continue either.
        assert not await one.renew("log", token, 100)
        with pytest.raises(LogLost):
            await one.append("log", [b"c"], token)
        again = await two.claim("log", "you", 100)
        assert again is not None
        assert again > token
        with pytest.raises(FencedError):
            await one.append("log", [b"c"], token)


@needs_redis
async def test_a_recreated_log_is_another_log(service: RedisService) -> None:
    """It has the same name and is longer than before."""
    async with replicas_of(service.url) as (one, two):
        await one.append("log", [b"a", b"b"], 0)
        follower = two.follow("log")
        await read_some(follower, 2)
        service.ask(b"FLUSHALL")
        await one.append("log", [b"A", b"B", b"C"], 0)
        with pytest.raises(LogLost):
            async with asyncio.timeout(60):
                await follower.read()


@needs_redis
async def test_followers_wait_for_redis_and_then_fail(service: RedisService) -> None:
    async with replicas_of(service.url, outage_seconds=0.5) as (one, two):
        await one.append("log", [b"a"], 0)
        old, listener = two.follow("log", 1), two.subscribe("name")
        await eventually(lambda: service.ask(b"PUBSUB CHANNELS") == b"*2", "log and mailbox are subscribed to")
        service.stop()
        began = time.monotonic()
        new = two.follow("log")
        for follower in (old, new):
            with pytest.raises(RelayError) as caught:
                async with asyncio.timeout(60):
                    await follower.read()
            assert caught.value.info.code == "relay_unavailable"
        assert time.monotonic() - began > 0.4
        # A listener gets no error; it receives nothing meanwhile.
        service.start()
        await one.publish("name", b"hello")
        async with asyncio.timeout(60):
            assert await listener.read() == [b"hello"]


@needs_redis
async def test_calls_to_a_frozen_server_time_out_together(service: RedisService) -> None:
    async with replicas_of(service.url, call_timeout_seconds=2) as (one, _):
        await one.check()
        service.freeze()
        try:
            first = asyncio.create_task(check_unavailable(one))
            await loop_turns()
            async with asyncio.timeout(60):  # in sequence they would take half an hour
                await asyncio.gather(first, *(check_unavailable(one) for _ in range(1000)))
        finally:
            service.thaw()
        await one.check()


@needs_redis
async def test_what_is_opened_at_a_closed_relay_is_over_at_once(service: RedisService) -> None:
    """A log cannot be read any more; a listener, which never fails, has ended."""
    async with replicas_of(service.url) as (one, _):
        await one.aclose()
        assert await one.subscribe("name").read() is None
        with pytest.raises(RelayError, match="closed"):
            await one.follow("log").read()


@needs_redis
async def test_broken_connections_lose_and_repeat_nothing(service: RedisService) -> None:
    """Read logs and signals while connections are closed again and again."""
    async with replicas_of(service.url) as (one, two):
        followers = [two.follow("log") for _ in range(5)]
        listener = two.subscribe("name")
        total, entries = 300, [b"%d" % number for number in range(300)]
        reading = [asyncio.create_task(read_all(follower)) for follower in followers]
        hearing = asyncio.create_task(read_some(listener, total))
        for number, entry in enumerate(entries):
            known = number
            while True:  # the writer's connection is closed, too: it retries, and the entry is stored once
                try:
                    await one.append("log", [entry], 0, last=number == total - 1, after=known)
                    break
                except LogLost:
                    raise
                except RelayError:
                    await loop_turns()
            if number % 50 == 25:
                await one.publish("name", entry)
                service.ask(b"CLIENT KILL TYPE pubsub")
            else:
                if number % 50 == 10:
                    service.ask(b"CLIENT KILL TYPE normal")
                try:
                    await one.publish("name", entry)
                except RelayError:
                    await one.publish("name", entry)
            await asyncio.sleep(0.002)  # the followers read meanwhile
        async with asyncio.timeout(60):
            assert all(received == entries for received in await asyncio.gather(*reading))
            assert await hearing == entries


@needs_redis
async def test_flushed_scripts_are_loaded_again(service: RedisService) -> None:
    async with replicas_of(service.url) as (one, _):
        await one.append("log", [b"a"], 0)
        service.ask(b"SCRIPT FLUSH")
        lengths = await asyncio.gather(*(one.append(f"log {number}", [b"a"], 0) for number in range(50)))
        assert lengths == [1] * 50


@needs_redis
async def test_cancelled_calls_do_not_disturb_others(service: RedisService) -> None:
    async with replicas_of(service.url) as (one, _):
        before = service.connections()
        for number in range(50):
            cancelled = asyncio.create_task(one.append("log", [b"%d" % number], 0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cancelled.cancel()
            assert (await one.spend("bucket", {"n": 1}, {"n": 1000})).allowed
        assert service.connections() == before
        await one.append("log", [], 0, last=True)
        assert await read_all(one.follow("log")) == [b"%d" % number for number in range(50)]


@needs_redis
async def test_many_followers_share_few_connections(service: RedisService) -> None:
    """2,000 followers of 200 logs."""
    async with replicas_of(service.url) as (one, two):
        before = service.connections()
        followers = [two.follow(f"log {number % 200}") for number in range(2000)]
        reading = [asyncio.create_task(read_all(follower)) for follower in followers]
        for round_ in range(5):
            await asyncio.gather(
                *(one.append(f"log {number}", [b"%d" % round_], 0, last=round_ == 4) for number in range(200))
            )
            if round_ == 3:
                assert service.connections() - before <= 3
        async with asyncio.timeout(60):
            assert await asyncio.gather(*reading) == [[b"0", b"1", b"2", b"3", b"4"]] * 2000


@needs_redis
async def test_closing_ends_open_followers(service: RedisService) -> None:
    before = service.connections()
    relay = await open_relay(service.url)
    waiting = asyncio.create_task(relay.follow("log").read())
    await eventually(lambda: service.ask(b"PUBSUB CHANNELS") == b"*1", "the log is subscribed to")
    await relay.aclose()
    await relay.aclose()
    assert await waiting is None
    with pytest.raises(RelayError):
        await relay.check()
    with pytest.raises(RelayError):
        await relay.follow("log").read()
    await eventually(lambda: service.connections() == before)


@needs_redis
async def test_prefixes_keep_gateways_apart(service: RedisService) -> None:
    async with (
        replicas_of(f"{service.url}?prefix=a:") as (one, _),
        replicas_of(f"unix://{service.socket}?prefix=b:") as (two, _),
    ):
        await one.append("log", [b"a"], 0)
        assert await two.length("log") == 0
        assert await one.claim("name", "a", 0)
        assert await two.lapsed_leases() == []


@pytest.mark.parametrize("url", ["memory://", None])
async def test_without_an_address_the_relay_is_in_memory(url: str | None) -> None:
    async with replicas_of(url) as (one, _):
        await one.check()


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://localhost:port", "redis://h?what=1"])
async def test_an_invalid_address_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError):
        await open_relay(url)


async def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(RelayError) as caught:
        await open_relay("redis://user:hunter2@127.0.0.1:1/0")
    assert "127.0.0.1:1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@needs_redis
async def test_a_refusal_by_redis_does_not_quote_what_was_sent(service: RedisService) -> None:
    with pytest.raises(RelayError, match="refused") as caught:
        await open_relay(service.url.replace("//", "//user:hunter2@"))
    assert "hunter2" not in str(caught.value)
    async with replicas_of(service.url) as (one, _):
        service.ask(b"CONFIG SET maxmemory 1")
        try:
            with pytest.raises(RelayError, match="refused") as caught:
                await one.append("log", [b"hunter2"], 0)
        finally:
            service.ask(b"CONFIG SET maxmemory 0")
        assert "hunter2" not in str(caught.value)
        await one.append("log", [b"a"], 0)
