"""Logs: numbered, whole, ended once; and followed without a gap or a repeat."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.relay import FencedError, LogLost, Relay, redis_streams
from pellucid.relay.follower import MAX_UNTAKEN_BYTES
from pellucid.relay.memory import MemoryRelay
from pellucid.relay.redis_relay import RedisRelay
from tests.relay.relay_kit import Replicas, new_name, read_all, read_some
from tests.waiting import eventually, loop_turns

entries = st.lists(st.binary(max_size=20), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), entries, st.booleans()),
        st.tuples(st.just("begin to append"), entries, st.booleans()),
        st.tuples(st.just("follow"), st.integers(0, 100), st.booleans()),
        st.tuples(st.just("take"), st.integers(0, 100), st.booleans()),
        st.tuples(st.just("pause"), st.just(0), st.just(False)),
    ),
    max_size=25,
)


class Decoded(bytes):
    """Equal to the entry for which it stands."""


@given(steps=steps, last=entries)
def test_every_follower_reads_the_log_from_its_cursor(
    replicas: Replicas, steps: list[tuple[str, int | list[bytes], bool]], last: list[bytes]
) -> None:
    async def scene() -> None:
        log, written = new_name(), list[bytes]()
        followers = [(replicas.one.follow(log), 0), (replicas.two.follow(log), 0)]
        came: list[list[bytes]] = [[], []]
        appending: asyncio.Task[int] | None = None
        there = 0
        for verb, what, first in steps:
            replica = replicas.one if first else replicas.two
            if isinstance(what, list):
                if appending is not None:
                    there = await appending
                    assert there == len(written)
                written += what
                decoded = [Decoded(entry) for entry in what]
                appending = asyncio.create_task(replica.append(log, what, 0, decoded=decoded))
                if verb == "append":
                    there = await appending
            elif verb == "follow" and isinstance(what, int):
                # A cursor is a number that somebody was given.
                cursor = what % (there + 1)
                followers.append((replica.follow(log, cursor), cursor))
                came.append([])
            elif verb == "take" and isinstance(what, int):
                which = what % len(followers)
                came[which] += followers[which][0].take() or []
            else:
                await loop_turns()
                await replica.exists(log)  # a round trip, where there is a server
        if appending is not None:
            assert await appending == len(written)
        assert await replicas.one.append(log, last, 0, last=True) == len(written) + len(last)
        written += last
        followers += [(replicas.two.follow(log, cursor), cursor) for cursor in range(len(written) + 1)]
        rest = await asyncio.gather(*(read_all(follower) for follower, _ in followers))
        for (_, cursor), before, after in zip(followers, [*came, *[[]] * len(rest)], rest, strict=False):
            assert before + after == written[cursor:]

    replicas.run(scene())


def test_who_follows_in_the_process_that_writes_gets_what_is_decoded(replicas: Replicas) -> None:
    async def scene() -> None:
        log, number = new_name(), 0
        here, there, slow = replicas.one.follow(log), replicas.two.follow(log), replicas.one.follow(log)
        got: list[list[bytes]] = [[], []]
        with replicas.one.writing(log):
            for entry in (b"a", b"b", b"c", b"d"):
                number = await replicas.one.append(
                    log, [entry], 0, after=number, last=entry == b"d", decoded=[Decoded(entry)]
                )
                for follower, read in zip((here, there), got, strict=True):
                    read += await read_some(follower, 1)
        assert got == [[b"a", b"b", b"c", b"d"]] * 2
        if not isinstance(replicas.one, MemoryRelay):  # which gives everybody what was appended
            # The first may have been read, before it was certain that the log is the one that is written.
            assert [type(entry) for entry in got[0][1:]] == [Decoded] * 3
            assert [type(entry) for entry in got[1]] == [bytes] * 4
        assert await read_all(slow) == got[0]

    replicas.run(scene())


def test_a_log_that_has_its_last_entry_takes_no_more(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        await replicas.one.append(log, [b"a"], 0, last=True)
        for last in (False, True):
            with pytest.raises(FencedError):
                await replicas.two.append(log, [b"b"], 0, last=last)
        assert await read_all(replicas.two.follow(log)) == [b"a"]

    replicas.run(scene())


def test_a_log_may_end_without_another_entry(replicas: Replicas) -> None:
    async def scene() -> None:
        log, empty = new_name(), new_name()
        await replicas.one.append(log, [b"a", b"b"], 0)
        assert await replicas.one.append(log, [], 0, last=True) == 2
        assert await replicas.one.append(empty, [], 0, last=True) == 0
        assert await read_all(replicas.two.follow(log, 1)) == [b"b"]
        assert await read_all(replicas.two.follow(log, 2)) == []
        assert await read_all(replicas.two.follow(empty)) == []
        assert await replicas.two.exists(empty)

    replicas.run(scene())


def test_a_cursor_that_the_log_never_reached_is_told_so(replicas: Replicas) -> None:
    async def scene() -> None:
        log, never = new_name(), new_name()
        await replicas.one.append(log, [b"a"], 0)
        await replicas.one.append(log, [b"b"], 0, last=True)
        for name, cursor in ((log, 3), (log, 4), (never, 1)):
            with pytest.raises(LogLost):
                await replicas.two.follow(name, cursor).read()

    replicas.run(scene())


def test_an_append_that_is_tried_again_lands_once(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        for _ in range(2):
            assert await replicas.one.append(log, [b"a", b"b"], 0, after=0) == 2
        for _ in range(2):
            assert await replicas.two.append(log, [b"c"], 0, after=2, last=True) == 3
        for known in (1, 5):
            with pytest.raises(LogLost):
                await replicas.one.append(log, [b"d"], 0, after=known)
        assert await read_all(replicas.one.follow(log)) == [b"a", b"b", b"c"]

    replicas.run(scene())


def test_what_was_dropped_is_gone_for_everyone_and_is_not_begun_anew(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        log, empty = new_name(), new_name()
        await replicas.one.append(empty, [], 0, last=True)
        await replicas.one.drop(empty, 0)
        with pytest.raises(LogLost):
            await replicas.two.follow(empty).read()
        follower = replicas.two.follow(log)
        await replicas.one.append(log, [b"a"], 0)
        assert await read_some(follower, 1) == [b"a"]
        assert await replicas.two.exists(log)
        await replicas.one.drop(log, 0)
        assert not await replicas.two.exists(log)
        for cursor in (0, 1):
            with pytest.raises(LogLost):
                await replicas.two.follow(log, cursor).read()
        with pytest.raises(LogLost):
            await replicas.one.append(log, [b"b"], 0)
        # Nobody says that something has gone: it is looked for now and then.
        with pytest.raises(LogLost):
            await follower.read()

    monkeypatch.setattr(redis_streams, "ROUND_SECONDS", 1)
    replicas.run(scene())


def test_a_log_is_dropped_when_its_time_has_come(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        await replicas.one.append(log, [b"a"], 0, last=True)
        await replicas.one.drop(log, 1)
        assert await read_all(replicas.two.follow(log)) == [b"a"]
        await replicas.let_pass(1.1)
        assert not await replicas.two.exists(log)

    replicas.run(scene())


def test_waiting_can_be_given_up_and_begun_again(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        follower, written = replicas.two.follow(log), [b"%d" % number for number in range(60)]
        came: list[bytes] = []

        async def write() -> None:
            for number, entry in enumerate(written):
                await replicas.one.append(log, [entry], 0, last=number == 59)
                await asyncio.sleep(0.001)  # so that some waits are given up, and some are not

        writing = asyncio.create_task(write())
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(follower.wait(), 0.0005)
            batch = follower.take()
            if batch is None:
                break
            came += batch
        await writing
        assert came == written

    replicas.run(scene())


def test_whoever_closes_hears_no_more(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        follower, other = replicas.two.follow(log), replicas.two.follow(log)
        await replicas.one.append(log, [b"a"], 0)
        await other.wait()
        waiting = asyncio.create_task(follower.wait())
        follower.close()
        follower.close()
        await waiting
        assert follower.take() is None
        await replicas.one.append(log, [b"b"], 0, last=True)
        assert await read_all(other) == [b"a", b"b"]

    replicas.run(scene())


def test_a_slow_reader_holds_up_neither_the_log_nor_the_others(replicas: Replicas) -> None:
    async def scene() -> int:
        log, many, piece = new_name(), 40, b"x" * 50_000
        slow, fast = replicas.two.follow(log), replicas.two.follow(log)
        reading = asyncio.create_task(read_all(fast))
        for number in range(many):
            await replicas.one.append(log, [piece] * 5, 0, last=number == many - 1)
            await asyncio.sleep(0)
        assert await reading == [piece] * 5 * many
        held = sum(map(len, slow._entries))
        assert await read_all(slow) == [piece] * 5 * many
        return held

    held = replicas.run(scene())
    if not isinstance(replicas.one, MemoryRelay):  # where it lies in memory anyway, a reference costs nothing
        assert held <= MAX_UNTAKEN_BYTES + redis_streams.PAGE_ENTRIES * 50_000


def test_nothing_is_left_of_those_who_went(replicas: Replicas) -> None:
    async def scene(one: Relay) -> None:
        assert isinstance(one, MemoryRelay | RedisRelay)
        waited, read, heard = new_name(), new_name(), new_name()
        await one.append(read, [b"a"], 0, last=True)
        await read_all(one.follow(read))
        followers = [one.follow(waited), one.subscribe(heard)]
        if isinstance(one, MemoryRelay):
            assert {waited, heard} <= {*one._logs, *one._boxes}
            for follower in followers:
                follower.close()
            assert not {waited, heard} & {*one._logs, *one._boxes}
        else:
            keys = {one._key("log", waited), one._key("box", heard)}
            await eventually(lambda: keys <= one._streams._subscriber._channels)
            await one.publish(heard, b"a")
            assert await followers[1].read() == [b"a"]
            for follower in followers:
                follower.close()
            left = set(one._streams._streams) | one._streams._subscriber._channels
            assert not {*keys, one._key("log", read)} & left

    replicas.run(scene(replicas.one))
