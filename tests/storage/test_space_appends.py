"""The log of a space has no gaps and no duplicates, and appends are contiguous, even with concurrent writers."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.record import Recording
from pellucid.storage import Append, AppendConflict, SpaceHead, SpaceNotFound, Store, open_store
from pellucid.storage.appends import append as append_op
from pellucid.storage.appends import prepare
from pellucid.storage.statement import for_each
from tests.examples import by_circle, costly
from tests.service_postgres import PostgresServer
from tests.storage.space_store_kit import (
    OWNER,
    ROOM,
    append,
    space_in_store,
    stored_envelope,
    stored_participant,
    stored_space,
)
from tests.storage.storage_kit import ROOT, store_at

pytestmark = pytest.mark.anyio


def batch(
    name: str, expected: int, count: int, version: int = 1, space: str = ROOM, state: bytes | None = None
) -> Append:
    envelopes = [stored_envelope(expected + 1 + place, id=f"{name}:{place}") for place in range(count)]
    return append(envelopes, expected, version, space=space, state=state)


def check_contiguous(ids: list[str], accepted: dict[str, int]) -> None:
    """Check that the log holds exactly the accepted appends, each contiguous."""
    runs = [(name, [int(id.split(":")[1]) for id in run]) for name, run in itertools.groupby(ids, _append_name)]
    assert len(runs) == len(accepted)
    assert {name: len(run) for name, run in runs} == accepted
    assert all(run == list(range(len(run))) for _, run in runs)


def _append_name(id: str) -> str:
    return id.split(":")[0]


async def log_of(store: Store, space: str = ROOM) -> list[str]:
    """Return the ids in the log; check that the seqs are 1, 2, 3 … and that the head is the last one."""
    log = await store.spaces.page(OWNER, space, limit=100_000)
    head = await store.spaces.head(OWNER, space)
    assert head is not None
    assert [one.envelope.seq for one in log] == list(range(1, head.head + 1))
    return [one.envelope.id for one in log]


_APPEND_EACH = for_each(append_op)
"""Several appends in one transaction, as happens when they wait for the disk together."""


def test_appends_in_one_transaction_are_checked_in_order(url: str) -> None:
    """Appends that expect the current head succeed; the others get a conflict with the current head."""
    steps = st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.integers(0, 3), st.sampled_from([1, 1, 1, 1, 2])),
        min_size=1,
        max_size=9,
    )
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))
        numbers = itertools.count()

        @costly
        @given(st.lists(steps, min_size=1, max_size=3))
        def any_writers(transactions: list[list[tuple[str, int, int, int]]]) -> None:
            round = next(numbers)
            logs: dict[str, list[str]] = {f"a{round}": [], f"b{round}": []}
            states: dict[str, tuple[int, bytes]] = {}
            for name in logs:
                runner.run(store.spaces.put(stored_space(name), []))
            for number, steps in enumerate(transactions):
                appends, outcomes = list[Append](), list[tuple[type, int]]()
                for place, (which, expected, count, version) in enumerate(steps):
                    space, name = f"{which}{round}", f"{number}.{place}"
                    appends.append(batch(name, expected, count, version, space, state=name.encode()))
                    log = logs[space]
                    if (expected, version) == (len(log), 1):
                        log += [f"{name}:{n}" for n in range(count)]
                        states[space] = (len(log), name.encode())
                        outcomes.append((SpaceHead, len(log)))
                    else:
                        outcomes.append((AppendConflict, len(log)))
                answers = runner.run(
                    store._database.write(_APPEND_EACH, [prepare(one, Recording(), 0) for one in appends])
                )
                assert [(type(answer), getattr(answer, "head", None)) for answer in answers] == outcomes
            for space, log in logs.items():
                assert runner.run(log_of(store, space)) == log
                assert runner.run(store.spaces.state(OWNER, space)) == states.get(space)

        try:
            any_writers()
        finally:
            runner.run(store.aclose())


async def write(store: Store, name: str, times: int, accepted: dict[str, int], barrier: asyncio.Barrier) -> int:
    """Append as a space does: read the head, append, and retry after a conflict. Return the number of conflicts."""
    conflicts = 0
    await barrier.wait()
    for number in range(times):
        head = await store.spaces.head(OWNER, ROOM)
        while True:
            assert head is not None
            this, count = f"{name}.{number}", 1 + number % 4
            try:
                now = await store.spaces.append(batch(this, head.head, count, head.version))
            except AppendConflict as error:
                conflicts += 1
                saw, head = head, SpaceHead(error.head, error.version)
            else:
                assert now == (head.head + count, head.version)
                accepted[this] = count
                break
            assert head != saw
    return conflicts


async def test_writers_of_one_process_append_in_turn(url: str) -> None:
    async with space_in_store(url) as store:
        accepted: dict[str, int] = {}
        barrier = asyncio.Barrier(8)
        conflicts = await asyncio.gather(*(write(store, f"w{n}", 12, accepted, barrier) for n in range(8)))
        assert len(accepted) == 8 * 12
        assert sum(conflicts) > 0
        check_contiguous(await log_of(store), accepted)


async def test_two_stores_on_one_postgresql_append_in_turn(postgres_server: PostgresServer) -> None:
    url = postgres_server.database()
    async with space_in_store(url) as store, store_at(url) as other:
        accepted: dict[str, int] = {}
        barrier = asyncio.Barrier(6)
        writers = [write((store, other)[n % 2], f"w{n}", 15, accepted, barrier) for n in range(6)]
        changing = other.spaces.add(OWNER, ROOM, [stored_participant("late")])  # the writers must see its version
        conflicts, changed = await asyncio.gather(asyncio.gather(*writers), changing)
        assert sum(conflicts) > 0
        assert await store.spaces.head(OWNER, ROOM) == (sum(accepted.values()), changed.version)
        check_contiguous(await log_of(store), accepted)
        assert await log_of(other) == await log_of(store)


async def test_appends_to_several_spaces_do_not_deadlock(
    postgres_server: PostgresServer,
) -> None:
    """Each transaction locks several spaces; all of them take the locks in the same order."""
    url = postgres_server.database()
    names = [f"room{n}" for n in range(6)]
    async with space_in_store(url) as store, store_at(url) as other:
        for name in names:
            await store.spaces.put(stored_space(name), [])

        async def fill(client: Store, backwards: bool) -> int:
            heads = dict.fromkeys(names, 0)
            conflicts = 0
            for number in range(10):
                order = names[::-1] if backwards else names
                sent = [batch(f"{backwards}{number}", heads[name], 2, space=name) for name in order]
                outcomes = await asyncio.gather(*map(client.spaces.append, sent), return_exceptions=True)
                for name, answer in zip(order, outcomes, strict=True):
                    assert isinstance(answer, SpaceHead | AppendConflict)
                    heads[name] = answer.head
                    conflicts += isinstance(answer, AppendConflict)
            return conflicts

        conflicts = sum(await asyncio.gather(fill(store, False), fill(other, True)))
        stored_count = sum([len(await log_of(store, name)) for name in names])
        assert stored_count == 2 * (2 * 10 * len(names) - conflicts)


WRITER = """
import asyncio, json, sys
from tests.storage.storage_kit import store_at
from tests.storage.test_space_appends import write

async def main():
    url, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    accepted, barrier = {}, asyncio.Barrier(3)
    async with store_at(url) as store:
        conflicts = await asyncio.gather(*(write(store, f"{name}{n}", times, accepted, barrier) for n in range(3)))
    print(json.dumps([accepted, sum(conflicts)]))

asyncio.run(main())
"""


def test_two_processes_on_one_file_append_in_turn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    command = [sys.executable, "-W", "ignore", "-c", WRITER, url]
    times = by_circle(5, 40)

    async def create_space() -> None:
        async with space_in_store(url):
            pass

    asyncio.run(create_space())
    writers = [
        subprocess.Popen([*command, name, str(times)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        for name in "xy"
    ]
    outputs = [writer.communicate(timeout=100) for writer in writers]
    assert [error for _, error in outputs if error] == []
    accepted = {name: count for out, _ in outputs for name, count in json.loads(out)[0].items()}
    assert len(accepted) == 2 * 3 * times

    async def check_log() -> None:
        async with store_at(url) as store:
            check_contiguous(await log_of(store), accepted)

    asyncio.run(check_log())


async def test_a_refused_append_gives_the_reason(url: str) -> None:
    async with space_in_store(url) as store:
        assert await store.spaces.append(batch("one", 0, 3)) == (3, 1)
        with pytest.raises(AppendConflict) as caught:
            await store.spaces.append(batch("two", 2, 3))
        assert (caught.value.head, caught.value.version) == (3, 1)
        with pytest.raises(AppendConflict) as caught:
            await store.spaces.append(batch("three", 3, 3, version=2))
        assert (caught.value.head, caught.value.version) == (3, 1)
        for space in ("none", "nul\0"):
            with pytest.raises(SpaceNotFound):
                await store.spaces.append(batch("four", 0, 1, space=space))
        with pytest.raises(ValueError, match=r"envelopes\[0\] has the seq 9, not 4"):
            await store.spaces.append(append([stored_envelope(9)], 3))
        with pytest.raises(RequestError, match="cannot be stored"):
            await store.spaces.append(append([stored_envelope(4, id="\ud800")], 3))
        check_contiguous(await log_of(store), {"one": 3})


async def test_a_failed_append_does_not_affect_the_others(store: Store) -> None:
    """An append that invites two participants with the same token fails as a whole, and alone."""
    for name in "abc":
        await store.spaces.put(stored_space(name), [stored_participant("first")])
    twice = [stored_participant("x", token_hash=b"t"), stored_participant("y", token_hash=b"t")]
    appends = [
        append([stored_envelope(1)], 0, space="a"),
        append([stored_envelope(1)], 0, space="b", participants=twice),
        append([stored_envelope(1)], 0, space="c"),
    ]
    answers = await asyncio.gather(*map(store.spaces.append, appends), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == ["SpaceHead", "AlreadyStored", "SpaceHead"]
    assert [len(await log_of(store, name)) for name in "abc"] == [1, 0, 1]
    assert [one.id for one in await store.spaces.participants(OWNER, "b")] == ["first"]


async def test_a_state_snapshot_needs_no_envelopes(store: Store) -> None:
    await store.spaces.put(stored_space(), [])
    await store.spaces.append(append([stored_envelope(1), stored_envelope(2)], 0))
    assert await store.spaces.state(OWNER, ROOM) is None
    assert await store.spaces.append(append([], 2, state=b"two")) == (2, 1)
    with pytest.raises(AppendConflict):
        await store.spaces.append(append([], 1, state=b"one"))
    assert await store.spaces.state(OWNER, ROOM) == (2, b"two")


async def test_a_second_invitation_replaces_the_token(store: Store) -> None:
    await store.spaces.put(stored_space(), [stored_participant("ann", token_hash=b"anns")])
    invited = [
        stored_participant("bob", token_hash=b"1", created_at=5.0),
        stored_participant("ann", token_hash=b"stolen"),
    ]
    await store.spaces.append(append([stored_envelope(1)], 0, participants=invited))
    await store.spaces.append(
        append(
            [stored_envelope(2)], 1, participants=[stored_participant("bob", token_hash=b"2", capabilities=b'["chat"]')]
        )
    )
    participants = {one.id: one for one in await store.spaces.participants(OWNER, ROOM)}
    assert participants["ann"].token_hash == b"anns"
    assert participants["bob"] == stored_participant(
        "bob", token_hash=b"2", capabilities=b'["chat"]', created_at=5.0, origin="invited"
    )
    assert await store.spaces.find_by_token(b"1") == await store.spaces.find_by_token(b"stolen") == ()
    assert [(space.name, one.id) for space, one in await store.spaces.find_by_token(b"2")] == [(ROOM, "bob")]
    assert await store.spaces.head(OWNER, ROOM) == (2, 1)
