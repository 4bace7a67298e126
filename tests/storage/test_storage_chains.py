"""Chains by `previous_id`: earlier turns are found, and live as long as the newest one."""

from __future__ import annotations

import asyncio
import time

import pytest

from pellucid.errors import RequestError
from pellucid.storage import PreviousResponseGone, Store, responses
from pellucid.storage.responses import GRACE_SHARE
from pellucid.storage.statement import read_rows
from tests.examples import by_circle
from tests.storage.storage_kit import Clock, response

pytestmark = pytest.mark.anyio


async def test_a_new_turn_extends_the_life_of_earlier_turns(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a turn each minute that lives for an hour, no turn expires until the conversation ends."""
    turns = store.responses
    for turn in range(240):
        previous = f"resp_{turn - 1}" if turn else None
        await turns.put(response(f"resp_{turn}", previous_id=previous, expires_at=clock.now + 3600))
        clock.now += 60
        if turn % 40 == 39:
            assert await store.expire(clock.now) == 0
    chain = await turns.chain("ann", "resp_239")
    assert chain is not None
    assert [turn.id for turn in chain] == [f"resp_{turn}" for turn in range(240)]
    clock.now += 3600 * (1 + GRACE_SHARE)
    assert await turns.chain("ann", "resp_239") is None
    with monkeypatch.context() as patch:
        patch.setattr("pellucid.storage.store.MAX_EXPIRED_ROWS", 200)
        assert await store.expire(clock.now) == 200
    assert await store.expire(clock.now) == 40


async def test_a_turn_updates_few_earlier_turns(store: Store, clock: Clock) -> None:
    turns = store.responses
    updated = 0
    before: dict[str, float | None] = {}
    for turn in range(60):
        previous = f"resp_{turn - 1}" if turn else None
        await turns.put(response(f"resp_{turn}", previous_id=previous, expires_at=clock.now + 86_400))
        clock.now += 60
        after = {row.id: row.expires_at for row in await turns.chain("ann", f"resp_{turn}") or []}
        updated += sum(before.get(id, until) != until for id, until in after.items())
        before = after
    assert updated <= 2 * 60


async def test_the_life_of_other_branches_is_not_extended(store: Store, clock: Clock) -> None:
    turns = store.responses
    await turns.put(response("root", expires_at=clock.now + 10))
    await turns.put(response("left", previous_id="root", expires_at=clock.now + 10))
    await turns.put(response("right", previous_id="root", expires_at=None))
    clock.now += 60
    assert await turns.get("ann", "left") is None
    assert [row.id for row in await turns.chain("ann", "right") or []] == ["root", "right"]


async def test_the_error_names_the_first_missing_response(store: Store) -> None:
    turns = store.responses
    for id, previous in ("a", None), ("b", "a"), ("c", "b"), ("d", "c"):
        await turns.put(response(id, previous_id=previous, log=b"long"))
    await turns.delete("ann", "b")
    with pytest.raises(PreviousResponseGone, match="b") as caught:
        await turns.chain("ann", "d")
    assert caught.value.missing_id == "b"
    assert (caught.value.info.kind, caught.value.info.code) == ("not_found", "previous_response_not_found")


async def test_a_circular_chain_is_refused(store: Store) -> None:
    turns = store.responses
    for id, previous in ("a", "c"), ("b", "a"), ("c", "b"), ("self", "self"):
        await turns.put(response(id, previous_id=previous, messages=bytes(10_000)))
    for id in ("a", "self"):
        began = time.process_time()
        with pytest.raises(RequestError) as caught:
            await turns.chain("ann", id)
        assert caught.value.info.code == "conversation_too_long"
        assert time.process_time() - began < 5


async def test_a_chain_over_the_maximum_length_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert responses.MAX_CHAIN_LENGTH == 10_000
    longest = by_circle(1_250, 10_000)
    limit_chains(monkeypatch, "MAX_CHAIN_LENGTH", longest)
    turns = store.responses
    rows = [response(f"resp_{n}", previous_id=f"resp_{n - 1}" if n else None) for n in range(longest + 3)]
    await asyncio.gather(*map(turns.put, rows))
    assert len(await turns.chain("ann", f"resp_{longest - 1}") or []) == longest
    with pytest.raises(RequestError, match=str(longest)):
        await turns.chain("ann", rows[-1].id)


async def test_a_chain_over_the_maximum_size_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_chains(monkeypatch, "MAX_CHAIN_BYTES", 10_000)
    turns = store.responses
    for n in range(20):
        row = response(f"resp_{n}", previous_id=f"resp_{n - 1}" if n else None, input=bytes(500), messages=bytes(500))
        await turns.put(row)
    assert len(await turns.chain("ann", "resp_9") or []) == 10
    loaded: list[str] = []
    monkeypatch.setattr(responses, "check_branch", lambda turns, param: loaded.extend(turn.id for turn in turns))
    with pytest.raises(PreviousResponseGone):
        await turns.chain("ann", "resp_19")
    assert loaded == [f"resp_{n}" for n in range(9, 20)]  # no more is read than is needed to know
    monkeypatch.undo()
    limit_chains(monkeypatch, "MAX_CHAIN_BYTES", 10_000)
    with pytest.raises(RequestError, match="longer than") as caught:
        await turns.chain("ann", "resp_11")
    assert (caught.value.info.code, caught.value.info.param) == ("conversation_too_long", "previous_response_id")


def limit_chains(monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    monkeypatch.setattr(responses, name, limit)
    read_shorter_branch = read_rows(responses._chain_statement(), responses.response_from_row)
    monkeypatch.setattr(responses, "read_branch", read_shorter_branch)
