"""What follows from what, and what opened a context, is found by its index; and goes with its space."""

from __future__ import annotations

import pytest

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace, Role
from pellucid.storage import Append, Store, StoredEnvelope, StoredSpace

pytestmark = pytest.mark.anyio


def stored(seq: int, *about: str, role: Role = "main", id: str = "again") -> StoredEnvelope:
    path = None if role == "main" else f"m{seq}"
    envelope = Envelope(id=id, ts=seq, sender="a", kind="chat", correlation_id=about, seq=seq)
    return StoredEnvelope(envelope, seq, ContextPlace(path, role, None if path is None else "a"))


async def envelope(store: Store, name: str, *several: StoredEnvelope, owner: str = "ann") -> None:
    await store.spaces.put(StoredSpace(owner=owner, name=name, created_at=0.0, settings=b"{}"), [])
    await store.spaces.append(Append(owner=owner, space=name, expected_head=0, version=1, envelopes=several))


def seqs(several: list[StoredEnvelope]) -> list[int]:
    return [one.envelope.seq for one in several]


async def test_what_correlates_to_any_of_some_ids_is_found_once_in_order(store: Store) -> None:
    await envelope(
        store, "one", stored(1), stored(2, "q", "r"), stored(3, "r", "r"), stored(4, "other"), stored(5, "q")
    )
    await envelope(store, "two", stored(1, "q"))
    about = store.spaces.find_correlated
    assert seqs(await about("ann", "one", ["q", "r"])) == [2, 3, 5]
    assert seqs(await about("ann", "one", ["q", "r"], after=2)) == [3, 5]
    assert seqs(await about("ann", "one", ["r", "q"], limit=2)) == [2, 3]
    assert seqs(await about("ann", "two", ["q", "r"])) == [1]
    for nobody in (about("bob", "one", ["q"]), about("ann", "one", []), about("ann", "one", ["\0", "\ud800", "none"])):
        assert await nobody == []


async def test_what_opened_contexts_is_walked_either_way(store: Store) -> None:
    roles: list[Role] = ["main", "opens", "step", "opens", "ends", "opens", "opens"]
    await envelope(store, "one", *[stored(seq, role=role) for seq, role in enumerate(roles, 1)])
    opened = store.spaces.find_openers
    assert seqs(await opened("ann", "one")) == [7, 6, 4, 2]
    assert seqs(await opened("ann", "one", before=6, limit=1)) == [4]
    assert seqs(await opened("ann", "one", after=2, before=7, newest=False)) == [4, 6]
    assert await opened("bob", "one") == []


async def test_an_id_that_came_again_is_found_as_it_was_before(store: Store) -> None:
    await envelope(store, "one", stored(1, id="a"), stored(2, id="b"), stored(3, id="a"))
    for before, seq in ((None, 3), (4, 3), (3, 1)):
        found = await store.spaces.get_envelope_by_id("ann", "one", "a", before=before)
        assert found is not None
        assert found.envelope.seq == seq
    assert await store.spaces.get_envelope_by_id("ann", "one", "a", before=1) is None


async def test_links_go_with_their_space(store: Store) -> None:
    await envelope(store, "one", *[stored(seq, "q") for seq in range(1, 1_201)])
    await store.spaces.remove("ann", "one")
    await envelope(store, "one", stored(1))
    assert await store.spaces.find_correlated("ann", "one", ["q"]) == []
