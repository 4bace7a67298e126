"""Correlated envelopes and openers of contexts are found by their indexes, which are removed with the space."""

from __future__ import annotations

import pytest

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace, Role
from pellucid.storage import Append, Store, StoredEnvelope, StoredSpace

pytestmark = pytest.mark.anyio


def make_envelope(seq: int, *about: str, role: Role = "main", id: str = "again") -> StoredEnvelope:
    path = None if role == "main" else f"m{seq}"
    envelope = Envelope(id=id, ts=seq, sender="a", kind="chat", correlation_id=about, seq=seq)
    return StoredEnvelope(envelope, seq, ContextPlace(path, role, None if path is None else "a"))


async def envelope(store: Store, name: str, *envelopes: StoredEnvelope, owner: str = "ann") -> None:
    await store.spaces.put(StoredSpace(owner=owner, name=name, created_at=0.0, settings=b"{}"), [])
    await store.spaces.append(Append(owner=owner, space=name, expected_head=0, version=1, envelopes=envelopes))


def seqs(several: list[StoredEnvelope]) -> list[int]:
    return [one.envelope.seq for one in several]


async def test_correlated_envelopes_are_found_once_in_order(store: Store) -> None:
    await envelope(
        store,
        "one",
        make_envelope(1),
        make_envelope(2, "q", "r"),
        make_envelope(3, "r", "r"),
        make_envelope(4, "other"),
        make_envelope(5, "q"),
    )
    await envelope(store, "two", make_envelope(1, "q"))
    find = store.spaces.find_correlated
    assert seqs(await find("ann", "one", ["q", "r"])) == [2, 3, 5]
    assert seqs(await find("ann", "one", ["q", "r"], after=2)) == [3, 5]
    assert seqs(await find("ann", "one", ["r", "q"], limit=2)) == [2, 3]
    assert seqs(await find("ann", "two", ["q", "r"])) == [1]
    for query in (find("bob", "one", ["q"]), find("ann", "one", []), find("ann", "one", ["\0", "\ud800", "none"])):
        assert await query == []


async def test_context_openers_are_listed_in_either_order(store: Store) -> None:
    roles: list[Role] = ["main", "opens", "step", "opens", "ends", "opens", "opens"]
    await envelope(store, "one", *[make_envelope(seq, role=role) for seq, role in enumerate(roles, 1)])
    openers = store.spaces.find_openers
    assert seqs(await openers("ann", "one")) == [7, 6, 4, 2]
    assert seqs(await openers("ann", "one", before=6, limit=1)) == [4]
    assert seqs(await openers("ann", "one", after=2, before=7, newest=False)) == [4, 6]
    assert await openers("bob", "one") == []


async def test_an_earlier_envelope_of_a_repeated_id_is_found(store: Store) -> None:
    await envelope(store, "one", make_envelope(1, id="a"), make_envelope(2, id="b"), make_envelope(3, id="a"))
    for before, seq in ((None, 3), (4, 3), (3, 1)):
        hit = await store.spaces.get_envelope_by_id("ann", "one", "a", before=before)
        assert hit is not None
        assert hit.envelope.seq == seq
    assert await store.spaces.get_envelope_by_id("ann", "one", "a", before=1) is None


async def test_links_are_removed_with_their_space(store: Store) -> None:
    await envelope(store, "one", *[make_envelope(seq, "q") for seq in range(1, 1_201)])
    await store.spaces.remove("ann", "one")
    await envelope(store, "one", make_envelope(1))
    assert await store.spaces.find_correlated("ann", "one", ["q"]) == []
