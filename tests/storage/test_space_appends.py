"""A space's log has no holes and no repeats, and what was accepted stands in it whole: whoever writes at once."""

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
from tests.storage.storage_kit import ROOT, opened

pytestmark = pytest.mark.anyio


def batch(
    name: str, expected: int, many: int, version: int = 1, space: str = ROOM, state: bytes | None = None
) -> Append:
    envelopes = [stored_envelope(expected + 1 + place, id=f"{name}:{place}") for place in range(many)]
    return append(envelopes, expected, version, space=space, state=state)


def whole(ids: list[str], accepted: dict[str, int]) -> None:
    """The log is these, each in one piece."""
    runs = [(name, [int(id.split(":")[1]) for id in run]) for name, run in itertools.groupby(ids, _name)]
    assert len(runs) == len(accepted)
    assert {name: len(run) for name, run in runs} == accepted
    assert all(run == list(range(len(run))) for _, run in runs)


def _name(id: str) -> str:
    return id.split(":")[0]


async def log_of(store: Store, space: str = ROOM) -> list[str]:
    """The ids, after looking that the seqs are 1, 2, 3 … and that the head is the last."""
    log = await store.spaces.page(OWNER, space, limit=100_000)
    head = await store.spaces.head(OWNER, space)
    assert head is not None
    assert [one.envelope.seq for one in log] == list(range(1, head.head + 1))
    return [one.envelope.id for one in log]


_TOGETHER = for_each(append_op)
"""Several appends in one transaction, as it falls out when they wait for the disk together."""


def test_several_in_one_transaction_come_one_after_the_other(url: str) -> None:
    """Whatever each of them saw: those that saw the end are appended, the others are told where it is."""
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
                asked, wanted = list[Append](), list[tuple[type, int]]()
                for place, (which, expected, many, version) in enumerate(steps):
                    space, name = f"{which}{round}", f"{number}.{place}"
                    asked.append(batch(name, expected, many, version, space, state=name.encode()))
                    log = logs[space]
                    if (expected, version) == (len(log), 1):
                        log += [f"{name}:{n}" for n in range(many)]
                        states[space] = (len(log), name.encode())
                        wanted.append((SpaceHead, len(log)))
                    else:
                        wanted.append((AppendConflict, len(log)))
                answers = runner.run(store._database.write(_TOGETHER, [prepare(one) for one in asked]))
                assert [(type(answer), getattr(answer, "head", None)) for answer in answers] == wanted
            for space, log in logs.items():
                assert runner.run(log_of(store, space)) == log
                assert runner.run(store.spaces.state(OWNER, space)) == states.get(space)

        try:
            any_writers()
        finally:
            runner.run(store.aclose())


async def write(store: Store, name: str, times: int, accepted: dict[str, int], everybody: asyncio.Barrier) -> int:
    """As a space does it: see where it is, append, and if somebody was faster, see again. How often that was."""
    overtaken = 0
    await everybody.wait()
    for number in range(times):
        head = await store.spaces.head(OWNER, ROOM)
        while True:
            assert head is not None
            this, many = f"{name}.{number}", 1 + number % 4
            try:
                now = await store.spaces.append(batch(this, head.head, many, head.version))
            except AppendConflict as error:
                overtaken += 1
                saw, head = head, SpaceHead(error.head, error.version)
            else:
                assert now == (head.head + many, head.version)
                accepted[this] = many
                break
            assert head != saw
    return overtaken


async def test_writers_of_one_process_take_turns(url: str) -> None:
    async with space_in_store(url) as store:
        accepted: dict[str, int] = {}
        everybody = asyncio.Barrier(8)
        overtaken = await asyncio.gather(*(write(store, f"w{n}", 12, accepted, everybody) for n in range(8)))
        assert len(accepted) == 8 * 12
        assert sum(overtaken) > 0
        whole(await log_of(store), accepted)


async def test_two_clients_of_one_postgresql_take_turns(postgres_server: PostgresServer) -> None:
    url = postgres_server.database()
    async with space_in_store(url) as store, opened(url) as other:
        accepted: dict[str, int] = {}
        everybody = asyncio.Barrier(6)
        writers = [write((store, other)[n % 2], f"w{n}", 15, accepted, everybody) for n in range(6)]
        changing = other.spaces.add(OWNER, ROOM, [stored_participant("late")])  # they are to see the new version, too
        overtaken, changed = await asyncio.gather(asyncio.gather(*writers), changing)
        assert sum(overtaken) > 0
        assert await store.spaces.head(OWNER, ROOM) == (sum(accepted.values()), changed.version)
        whole(await log_of(store), accepted)
        assert await log_of(other) == await log_of(store)


async def test_clients_that_write_into_several_spaces_do_not_hinder_each_other(
    postgres_server: PostgresServer,
) -> None:
    """Each transaction locks several spaces; they do it in one order."""
    url = postgres_server.database()
    names = [f"room{n}" for n in range(6)]
    async with space_in_store(url) as store, opened(url) as other:
        for name in names:
            await store.spaces.put(stored_space(name), [])

        async def fill(client: Store, backwards: bool) -> int:
            heads = dict.fromkeys(names, 0)
            overtaken = 0
            for number in range(10):
                order = names[::-1] if backwards else names
                sent = [batch(f"{backwards}{number}", heads[name], 2, space=name) for name in order]
                told = await asyncio.gather(*map(client.spaces.append, sent), return_exceptions=True)
                for name, answer in zip(order, told, strict=True):
                    assert isinstance(answer, SpaceHead | AppendConflict)
                    heads[name] = answer.head
                    overtaken += isinstance(answer, AppendConflict)
            return overtaken

        overtaken = sum(await asyncio.gather(fill(store, False), fill(other, True)))
        kept = sum([len(await log_of(store, name)) for name in names])
        assert kept == 2 * (2 * 10 * len(names) - overtaken)


WRITER = """
import asyncio, json, sys
from tests.storage.storage_kit import opened
from tests.storage.test_space_appends import write

async def main():
    url, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    accepted, everybody = {}, asyncio.Barrier(3)
    async with opened(url) as store:
        overtaken = await asyncio.gather(*(write(store, f"{name}{n}", times, accepted, everybody) for n in range(3)))
    print(json.dumps([accepted, sum(overtaken)]))

asyncio.run(main())
"""


def test_two_processes_on_one_file_take_turns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    command = [sys.executable, "-W", "ignore", "-c", WRITER, url]
    times = by_circle(5, 40)

    async def begin() -> None:
        async with space_in_store(url):
            pass

    asyncio.run(begin())
    writers = [
        subprocess.Popen([*command, name, str(times)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        for name in "xy"
    ]
    told = [writer.communicate(timeout=100) for writer in writers]
    assert [error for _, error in told if error] == []
    accepted = {name: many for out, _ in told for name, many in json.loads(out)[0].items()}
    assert len(accepted) == 2 * 3 * times

    async def look() -> None:
        async with opened(url) as store:
            whole(await log_of(store), accepted)

    asyncio.run(look())


async def test_an_append_is_refused_with_the_reason(url: str) -> None:
    async with space_in_store(url) as store:
        assert await store.spaces.append(batch("one", 0, 3)) == (3, 1)
        with pytest.raises(AppendConflict) as overtaken:
            await store.spaces.append(batch("two", 2, 3))
        assert (overtaken.value.head, overtaken.value.version) == (3, 1)
        with pytest.raises(AppendConflict) as overtaken:
            await store.spaces.append(batch("three", 3, 3, version=2))
        assert (overtaken.value.head, overtaken.value.version) == (3, 1)
        for space in ("none", "nul\0"):
            with pytest.raises(SpaceNotFound):
                await store.spaces.append(batch("four", 0, 1, space=space))
        with pytest.raises(ValueError, match=r"envelopes\[0\] has the seq 9, not 4"):
            await store.spaces.append(append([stored_envelope(9)], 3))
        with pytest.raises(RequestError, match="cannot be stored"):
            await store.spaces.append(append([stored_envelope(4, id="\ud800")], 3))
        whole(await log_of(store), {"one": 3})


async def test_what_goes_wrong_with_one_leaves_the_others(store: Store) -> None:
    """Two that were invited with one token: that fails, by itself, with all that it says."""
    for name in "abc":
        await store.spaces.put(stored_space(name), [stored_participant("first")])
    twice = [stored_participant("x", token_hash=b"t"), stored_participant("y", token_hash=b"t")]
    asked = [
        append([stored_envelope(1)], 0, space="a"),
        append([stored_envelope(1)], 0, space="b", participants=twice),
        append([stored_envelope(1)], 0, space="c"),
    ]
    answers = await asyncio.gather(*map(store.spaces.append, asked), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == ["SpaceHead", "AlreadyStored", "SpaceHead"]
    assert [len(await log_of(store, name)) for name in "abc"] == [1, 0, 1]
    assert [one.id for one in await store.spaces.participants(OWNER, "b")] == ["first"]


async def test_a_snapshot_can_come_by_itself(store: Store) -> None:
    await store.spaces.put(stored_space(), [])
    await store.spaces.append(append([stored_envelope(1), stored_envelope(2)], 0))
    assert await store.spaces.state(OWNER, ROOM) is None
    assert await store.spaces.append(append([], 2, state=b"two")) == (2, 1)
    with pytest.raises(AppendConflict):
        await store.spaces.append(append([], 1, state=b"one"))
    assert await store.spaces.state(OWNER, ROOM) == (2, b"two")


async def test_who_is_invited_comes_in_by_the_newest_token(store: Store) -> None:
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
    there = {one.id: one for one in await store.spaces.participants(OWNER, ROOM)}
    assert there["ann"].token_hash == b"anns"
    assert there["bob"] == stored_participant(
        "bob", token_hash=b"2", capabilities=b'["chat"]', created_at=5.0, origin="invited"
    )
    assert await store.spaces.find_by_token(b"1") == await store.spaces.find_by_token(b"stolen") == ()
    assert [(space.name, one.id) for space, one in await store.spaces.find_by_token(b"2")] == [(ROOM, "bob")]
    assert await store.spaces.head(OWNER, ROOM) == (2, 1)
