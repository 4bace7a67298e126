"""Logs: entries are numbered, a log ends once, and followers get every entry once."""

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
    """A decoded entry; equal to the encoded one."""


@given(steps=steps, last=entries)
def test_every_follower_reads_the_log_from_its_cursor(
    replicas: Replicas, steps: list[tuple[str, int | list[bytes], bool]], last: list[bytes]
) -> None:
    async def scene() -> None:
        log, written = new_name(), list[bytes]()
        followers = [(replicas.one.follow(log), 0), (replicas.two.follow(log), 0)]
        received: list[list[bytes]] = [[], []]
        appending: asyncio.Task[int] | None = None
        length = 0
        for verb, argument, first in steps:
            replica = replicas.one if first else replicas.two
            if isinstance(argument, list):
                if appending is not None:
                    length = await appending
                    assert length == len(written)
                written += argument
                decoded = [Decoded(entry) for entry in argument]
                appending = asyncio.create_task(replica.append(log, argument, 0, decoded=decoded))
                if verb == "append":
                    length = await appending
            elif verb == "follow" and isinstance(argument, int):
                # Clients only have cursors of entries that exist.
                cursor = argument % (length + 1)
                followers.append((replica.follow(log, cursor), cursor))
                received.append([])
            elif verb == "take" and isinstance(argument, int):
                which = argument % len(followers)
                received[which] += followers[which][0].take() or []
            else:
                await loop_turns()
                await replica.length(log)  # a round trip, where there is a server
        if appending is not None:
            assert await appending == len(written)
        assert await replicas.one.append(log, last, 0, last=True) == len(written) + len(last)
        written += last
        followers += [(replicas.two.follow(log, cursor), cursor) for cursor in range(len(written) + 1)]
        rest = await asyncio.gather(*(read_all(follower) for follower, _ in followers))
        for (_, cursor), before, after in zip(followers, [*received, *[[]] * len(rest)], rest, strict=False):
            assert before + after == written[cursor:]

    replicas.run(scene())


def test_a_follower_in_the_writing_process_gets_decoded_entries(replicas: Replicas) -> None:
    async def scene() -> None:
        log, number = new_name(), 0
        local_follower, remote_follower, slow_follower = (
            replicas.one.follow(log),
            replicas.two.follow(log),
            replicas.one.follow(log),
        )
        received: list[list[bytes]] = [[], []]
        with replicas.one.writing(log):
            for entry in (b"a", b"b", b"c", b"d"):
                number = await replicas.one.append(
                    log, [entry], 0, after=number, last=entry == b"d", decoded=[Decoded(entry)]
                )
                for follower, read in zip((local_follower, remote_follower), received, strict=True):
                    read += await read_some(follower, 1)
        assert received == [[b"a", b"b", b"c", b"d"]] * 2
        if not isinstance(replicas.one, MemoryRelay):  # which gives the decoded entries to all followers
            # The first entry may be read before the follower knows that this process writes the log.
            assert [type(entry) for entry in received[0][1:]] == [Decoded] * 3
            assert [type(entry) for entry in received[1]] == [bytes] * 4
        assert await read_all(slow_follower) == received[0]

    replicas.run(scene())


def test_an_ended_log_takes_no_entries(replicas: Replicas) -> None:
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

    replicas.run(scene())


def test_a_cursor_beyond_the_log_is_refused(replicas: Replicas) -> None:
    async def scene() -> None:
        log, never = new_name(), new_name()
        await replicas.one.append(log, [b"a"], 0)
        await replicas.one.append(log, [b"b"], 0, last=True)
        for name, cursor in ((log, 3), (log, 4), (never, 1)):
            with pytest.raises(LogLost):
                await replicas.two.follow(name, cursor).read()

    replicas.run(scene())


def test_a_retried_append_is_stored_once(replicas: Replicas) -> None:
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


def test_a_dropped_log_is_lost_and_takes_no_entries(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        log, empty = new_name(), new_name()
        await replicas.one.append(empty, [], 0, last=True)
        await replicas.one.drop(empty, 0)
        with pytest.raises(LogLost):
            await replicas.two.follow(empty).read()
        follower = replicas.two.follow(log)
        await replicas.one.append(log, [b"a"], 0)
        assert await read_some(follower, 1) == [b"a"]
        assert await replicas.two.length(log)
        await replicas.one.drop(log, 0)
        assert not await replicas.two.length(log)
        for cursor in (0, 1):
            with pytest.raises(LogLost):
                await replicas.two.follow(log, cursor).read()
        with pytest.raises(LogLost):
            await replicas.one.append(log, [b"b"], 0)
        # A deletion is not signalled; followers check from time to time.
        with pytest.raises(LogLost):
            await follower.read()

    monkeypatch.setattr(redis_streams, "ROUND_SECONDS", 1)
    replicas.run(scene())


def test_a_drop_takes_effect_after_its_delay(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        await replicas.one.append(log, [b"a"], 0, last=True)
        await replicas.one.drop(log, 1)
        assert await read_all(replicas.two.follow(log)) == [b"a"]
        await replicas.let_pass(1.1)
        assert not await replicas.two.length(log)

    replicas.run(scene())


def test_a_wait_can_be_cancelled_and_repeated(replicas: Replicas) -> None:
    async def scene() -> None:
        log = new_name()
        follower, written = replicas.two.follow(log), [b"%d" % number for number in range(60)]
        received: list[bytes] = []

        async def write() -> None:
            for number, entry in enumerate(written):
                await replicas.one.append(log, [entry], 0, last=number == 59)
                await asyncio.sleep(0.001)  # so that some waits are cancelled, and some are not

        writing = asyncio.create_task(write())
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(follower.wait(), 0.0005)
            batch = follower.take()
            if batch is None:
                break
            received += batch
        await writing
        assert received == written

    replicas.run(scene())


def test_a_closed_follower_receives_nothing(replicas: Replicas) -> None:
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


def test_a_slow_reader_delays_neither_the_writer_nor_other_readers(replicas: Replicas) -> None:
    async def scene() -> int:
        log, many, piece = new_name(), 40, b"x" * 50_000
        slow_follower, fast = replicas.two.follow(log), replicas.two.follow(log)
        reading = asyncio.create_task(read_all(fast))
        for number in range(many):
            await replicas.one.append(log, [piece] * 5, 0, last=number == many - 1)
            await asyncio.sleep(0)
        assert await reading == [piece] * 5 * many
        buffered = sum(map(len, slow_follower._entries))
        assert await read_all(slow_follower) == [piece] * 5 * many
        return buffered

    buffered = replicas.run(scene())
    if not isinstance(replicas.one, MemoryRelay):  # in memory a reference costs nothing
        assert buffered <= MAX_UNTAKEN_BYTES + redis_streams.PAGE_ENTRIES * 50_000


def test_closed_followers_leave_nothing(replicas: Replicas) -> None:
    async def scene(one: Relay) -> None:
        assert isinstance(one, MemoryRelay | RedisRelay)
        open_log, finished_log, mailbox = new_name(), new_name(), new_name()
        await one.append(finished_log, [b"a"], 0, last=True)
        await read_all(one.follow(finished_log))
        followers = [one.follow(open_log), one.subscribe(mailbox)]
        if isinstance(one, MemoryRelay):
            assert {open_log, mailbox} <= {*one._logs, *one._boxes}
            for follower in followers:
                follower.close()
            assert not {open_log, mailbox} & {*one._logs, *one._boxes}
        else:
            keys = {one._key("log", open_log), one._key("box", mailbox)}
            await eventually(lambda: keys <= one._streams._subscriber._channels)
            await one.publish(mailbox, b"a")
            assert await followers[1].read() == [b"a"]
            for follower in followers:
                follower.close()
            remaining = set(one._streams._streams) | one._streams._subscriber._channels
            assert not {*keys, one._key("log", finished_log)} & remaining

    replicas.run(scene(replicas.one))
