"""Conversations by `previous_id`: what they build on is found, and lives as long as they do."""

from __future__ import annotations

import asyncio
import time

import pytest

from pellucid.errors import RequestError
from pellucid.storage import PreviousResponseGone, Store, responses
from pellucid.storage.responses import GRACE_SHARE
from tests.examples import by_circle
from tests.storage.storage_kit import Clock, response

pytestmark = pytest.mark.anyio


async def test_a_conversation_that_goes_on_keeps_its_beginning(store: Store, clock: Clock) -> None:
    """A turn each minute, each kept for an hour: nothing of it expires while it goes on, and all of it when it ends."""
    kept = store.responses
    for turn in range(240):
        previous = f"resp_{turn - 1}" if turn else None
        await kept.put(response(f"resp_{turn}", previous_id=previous, expires_at=clock.now + 3600))
        clock.now += 60
        if turn % 40 == 39:
            assert await store.expire(clock.now) == 0
    chain = await kept.chain("ann", "resp_239")
    assert chain is not None
    assert [turn.id for turn in chain] == [f"resp_{turn}" for turn in range(240)]
    clock.now += 3600 * (1 + GRACE_SHARE)
    assert await kept.chain("ann", "resp_239") is None
    assert await store.expire(clock.now, 200) == 200
    assert await store.expire(clock.now) == 40


async def test_a_turn_touches_few_of_those_before_it(store: Store, clock: Clock) -> None:
    kept = store.responses
    touched = 0
    before: dict[str, float | None] = {}
    for turn in range(60):
        previous = f"resp_{turn - 1}" if turn else None
        await kept.put(response(f"resp_{turn}", previous_id=previous, expires_at=clock.now + 86_400))
        clock.now += 60
        after = {row.id: row.expires_at for row in await kept.chain("ann", f"resp_{turn}") or []}
        touched += sum(before.get(id, until) != until for id, until in after.items())
        before = after
    assert touched <= 2 * 60


async def test_other_branches_do_not_live_longer(store: Store, clock: Clock) -> None:
    kept = store.responses
    await kept.put(response("root", expires_at=clock.now + 10))
    await kept.put(response("left", previous_id="root", expires_at=clock.now + 10))
    await kept.put(response("right", previous_id="root", expires_at=None))
    clock.now += 60
    assert await kept.get("ann", "left") is None
    assert [row.id for row in await kept.chain("ann", "right") or []] == ["root", "right"]


async def test_the_first_missing_one_is_named(store: Store) -> None:
    kept = store.responses
    for id, previous in ("a", None), ("b", "a"), ("c", "b"), ("d", "c"):
        await kept.put(response(id, previous_id=previous, log=b"long"))
    await kept.delete("ann", "b")
    with pytest.raises(PreviousResponseGone, match="b") as caught:
        await kept.chain("ann", "d")
    assert caught.value.missing_id == "b"
    assert (caught.value.info.kind, caught.value.info.code) == ("not_found", "previous_response_not_found")


async def test_one_that_comes_back_to_itself_ends(store: Store) -> None:
    kept = store.responses
    for id, previous in ("a", "c"), ("b", "a"), ("c", "b"), ("self", "self"):
        await kept.put(response(id, previous_id=previous, messages=bytes(10_000)))
    for id in ("a", "self"):
        began = time.process_time()
        with pytest.raises(RequestError) as caught:
            await kept.chain("ann", id)
        assert caught.value.info.code == "conversation_too_long"
        assert time.process_time() - began < 5


async def test_one_longer_than_anyone_wants_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert responses.MAX_CHAIN_LENGTH == 10_000
    longest = by_circle(1_250, 10_000)
    monkeypatch.setattr(responses, "MAX_CHAIN_LENGTH", longest)
    monkeypatch.setattr(responses, "_CHAIN", responses._chain_statement())
    kept = store.responses
    rows = [response(f"resp_{n}", previous_id=f"resp_{n - 1}" if n else None) for n in range(longest + 3)]
    await asyncio.gather(*map(kept.put, rows))
    assert len(await kept.chain("ann", f"resp_{longest - 1}") or []) == longest
    with pytest.raises(RequestError, match=str(longest)):
        await kept.chain("ann", rows[-1].id)
