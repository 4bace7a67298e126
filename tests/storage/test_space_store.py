"""Stored spaces behave like lists: queries, search, versions, participants, removal."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import Envelope, context
from pellucid.envelopes.reasoning import ContextPlace, NameSet
from pellucid.storage import (
    AlreadyStored,
    AppendConflict,
    SpaceNotFound,
    Store,
    StoredEnvelope,
    StoredSpace,
    open_store,
    search,
    space_rows,
    tables,
)
from pellucid.storage import envelopes as envelope_rows
from pellucid.storage import spaces as facade
from pellucid.storage.statement import Execute, Operation, Statement
from tests.service_postgres import PostgresServer
from tests.storage.space_store_kit import OWNER, ROOM, append, stored_envelope, stored_participant, stored_space
from tests.storage.storage_kit import Clock, store_at

pytestmark = pytest.mark.anyio

# -------------------------------------------------------------------------------------------------------- queries

SENDERS = ["ann", "bob", "Ann"]
KINDS = ["chat", "chat/cancel", "chats", "reasoning/start", "reasoning/thought", "mcp/request", "a/b/c", "a/b", "a~/b"]
PATHS = [None, None, "a", "a/b", "a/b/c", "ab", "a/b.c", "a-b", "z", "a/~x"]
IDS = ["one", "two", "three"]
WORDS = ["Straße", "the water", "100%_", "漢字かな", "\N{GRINNING FACE} fine", "x"]

payloads = st.recursive(
    st.one_of(st.none(), st.integers(0, 9), st.sampled_from(WORDS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "message", "b"]), inner),
    max_leaves=6,
)
envelope_fields = st.builds(
    lambda id, sender, kind, path, role, at, payload: (id, sender, kind, path, role if path else "main", at, payload),
    st.sampled_from(IDS),
    st.sampled_from(SENDERS),
    st.sampled_from(KINDS),
    st.sampled_from(PATHS),
    st.sampled_from(["opens", "step", "ends"]),
    st.integers(0, 20),
    st.dictionaries(st.sampled_from(["text", "message", "x"]), payloads, max_size=3),
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "sender": st.sampled_from([*SENDERS, "nobody"]),
        "kinds": st.lists(st.sampled_from([*KINDS, "chat/*", "a/*", "a/b/*", "reasoning/*", "*", "no/*"]), max_size=3),
        "within": st.sampled_from([path for path in PATHS if path] + ["nowhere"]),
        "before": st.integers(-1, 14),
        "limit": st.sampled_from([0, 1, 2, 3, 50]),
    },
)


def make_envelope(seq: int, one: tuple[Any, ...]) -> StoredEnvelope:
    id, sender, kind, path, role, at, payload = one
    envelope = Envelope(id=id, ts=seq, sender=sender, kind=kind, context=path, payload=payload, seq=seq)
    return StoredEnvelope(envelope, at, ContextPlace(path, role, sender if path else None))


def matches_filters(one: StoredEnvelope, filters: dict[str, Any]) -> bool:
    kinds, within = filters.get("kinds") or ["*"], filters.get("within")
    kind = one.envelope.kind
    return (
        one.envelope.seq < (filters.get("before") or 99)
        and one.envelope.sender == filters.get("sender", one.envelope.sender)
        and any(kind == k or (k.endswith("*") and kind.startswith(k[:-1])) for k in kinds)
        and (within is None or context.is_within(one.place.path, within))
    )


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in strings(one)]


def test_every_query_finds_what_a_list_scan_finds(url: str) -> None:
    """`before=0` means no limit here, as in `holds`; another test covers it."""
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))
        names = (f"room{n}" for n in itertools.count())

        @given(
            st.lists(envelope_fields, min_size=1, max_size=12),
            filters,
            st.integers(0, 12),
            st.sampled_from(WORDS),
            st.data(),
        )
        def any_log(rows: list[tuple[Any, ...]], filters: dict[str, Any], after: int, word: str, data: Any) -> None:
            if filters.get("before") == 0:
                del filters["before"]
            name, neighbour = next(names), next(names)
            log = [make_envelope(seq, one) for seq, one in enumerate(rows, 1)]
            for space in (name, neighbour):
                runner.run(store.spaces.put(stored_space(space), []))
                runner.run(store.spaces.append(append(log, 0, space=space)))
            limit = filters.get("limit", 50)
            matching = [one for one in log if matches_filters(one, filters)]
            matching_after = [one for one in matching if one.envelope.seq > after]

            def call(method: Callable[..., Any], *args: Any, **fields: Any) -> Any:
                return runner.run(method(OWNER, name, *args, **fields))

            page = store.spaces.page
            assert call(page, after=after, **filters) == matching_after[:limit]
            assert call(page, after=after, newest=True, **filters) == (matching_after[-limit:] if limit else [])
            for needle in {word, word[:3], word[1:], word[:2], word[:1]}:
                folded = search.fold_text(needle)
                hits = [
                    one for one in matching if any(folded in search.fold_text(s) for s in strings(one.envelope.payload))
                ]
                assert call(store.spaces.search, needle, **filters) == hits[::-1][:limit], needle
            id, sender = data.draw(st.sampled_from(IDS)), data.draw(st.sampled_from(SENDERS))
            same = [one for one in log if one.envelope.id == id]
            assert call(store.spaces.get_envelope_by_id, id) == (same[-1] if same else None)
            same = [one for one in same if one.envelope.sender == sender]
            assert call(store.spaces.get_envelope_by_id, id, sender) == (same[-1] if same else None)
            seq = data.draw(st.integers(-1, 14))
            assert call(store.spaces.get_envelope, seq) == (log[seq - 1] if 0 < seq <= len(log) else None)
            at = data.draw(st.integers(-1, 22))
            later = [one.envelope.seq for one in log if one.at >= at]
            assert call(store.spaces.first_seq_since, at) == (later[0] if later else len(log) + 1)
            ids, paths = frozenset([*IDS, "nul\0"]), frozenset(path or "none" for path in PATHS)
            known = NameSet(
                ids & {one.envelope.id for one in log},
                frozenset(one.place.path for one in log if one.place.path and one.place.role == "opens"),
            )
            assert call(store.spaces.existing_names, NameSet(ids, paths)) == known

        try:
            any_log()
        finally:
            runner.run(store.aclose())


async def test_search_pages_continue_where_the_previous_one_ended(store: Store) -> None:
    await store.spaces.put(stored_space(), [])
    log = [stored_envelope(seq, "needle" if seq % 3 else "") for seq in range(1, 101)]  # some have no text
    await store.spaces.append(append(log, 0))
    seqs: list[int] = []
    before: int | None = None
    while page := await store.spaces.search(OWNER, ROOM, "NEED", before=before, limit=7):
        seqs += [one.envelope.seq for one in page]
        before = seqs[-1]
    assert seqs == [seq for seq in range(100, 0, -1) if seq % 3]
    assert await store.spaces.search(OWNER, ROOM, "needle", before=0) == []
    assert await store.spaces.page(OWNER, ROOM, before=0) == []


async def test_search_is_limited_to_its_space(store: Store) -> None:
    """A search of a space finds texts of no other space and of no chat, and a search of chats finds none of spaces."""
    for name, owner in ("room", "ann"), ("room2", "ann"), ("room3", "bob"):
        await store.spaces.put(stored_space(name, owner), [])
        await store.spaces.append(append([stored_envelope(1, f"Marmalade in {name}")], 0, space=name, owner=owner))
    assert [one.envelope.payload["text"] for one in await store.spaces.search("ann", "room", "marmalade")] == [
        "Marmalade in room"
    ]
    assert await store.spaces.search("ann", "room3", "marmalade") == []
    assert (await store.chats.list("ann", query="marmalade")).chats == []


# ------------------------------------------------------------------------------------ versions and participants


async def test_the_version_grows_only_if_something_changed(store: Store) -> None:
    spaces = store.spaces
    bare = stored_space(settings=b"{}", version=9, head=9)
    created = await spaces.put(bare, [stored_participant("ann"), stored_participant("bob")])
    assert created == replace(bare, version=1, head=0)
    await spaces.append(append([stored_envelope(1)], 0))
    again = await spaces.put(bare, [stored_participant("bob", created_at=7.0), stored_participant("ann")])
    assert again == replace(created, head=1)
    version = 1
    for settings_, listed in (
        (b'{"a":1}', [stored_participant("ann"), stored_participant("bob")]),
        (b'{"a":1}', [stored_participant("ann"), stored_participant("bob", token_hash=b"new")]),
        (b'{"a":1}', [stored_participant("ann", token_hash=b"new"), stored_participant("bob", token_hash=b"ann")]),
        (b'{"a":1}', [stored_participant("ann", token_hash=b"new", capabilities=b'["chat"]')]),
        (b'{"a":1}', []),
    ):
        version += 1
        changed = await spaces.put(stored_space(settings=settings_), listed)
        assert changed == await spaces.get(ROOM) == stored_space(settings=settings_, version=version, head=1)
        assert await spaces.participants(OWNER, ROOM) == tuple(listed)
    assert await spaces.add(OWNER, ROOM, []) == changed
    assert (await spaces.add(OWNER, ROOM, [stored_participant("cid")])).version == version + 1
    assert await spaces.head(OWNER, ROOM) == (1, version + 1)


async def test_a_put_replaces_only_participants_of_its_origin(store: Store) -> None:
    spaces = store.spaces
    await spaces.put(stored_space(origin="config"), [stored_participant("ann", origin="config")])
    await spaces.add(OWNER, ROOM, [stored_participant("bob")])
    await spaces.append(append([stored_envelope(1)], 0, 2, participants=[stored_participant("cid")]))
    await spaces.put(stored_space(origin="config"), [stored_participant("dan", origin="config")])
    participants = [(one.id, one.origin) for one in await spaces.participants(OWNER, ROOM)]
    assert participants == [("bob", "made"), ("cid", "invited"), ("dan", "config")]
    await spaces.put(
        stored_space(origin="config"), [stored_participant("cid", origin="config")]
    )  # an existing participant gets the listed origin
    participants = [(one.id, one.origin) for one in await spaces.participants(OWNER, ROOM)]
    assert participants == [("bob", "made"), ("cid", "config")]


async def test_space_names_and_tokens_are_unique(store: Store) -> None:
    spaces = store.spaces
    await spaces.put(stored_space(), [stored_participant("ann")])
    with pytest.raises(AlreadyStored):
        await spaces.put(stored_space(owner="bob"), [])
    for twice in (
        [stored_participant("x", token_hash=b"t"), stored_participant("y", token_hash=b"t")],
        [stored_participant("x"), stored_participant("x")],
    ):
        with pytest.raises(AlreadyStored):
            await spaces.put(stored_space("other"), twice)
    assert await spaces.get("other") is None
    with pytest.raises(AlreadyStored):
        await spaces.add(OWNER, ROOM, [stored_participant("ann", token_hash=b"another")])
    with pytest.raises(AlreadyStored):
        await spaces.add(OWNER, ROOM, [stored_participant("bob", token_hash=b"ann")])
    for none in ("none", "nul\0"):
        with pytest.raises(SpaceNotFound):
            await spaces.add(OWNER, none, [stored_participant("bob")])
    with pytest.raises(SpaceNotFound):
        await spaces.add("bob", ROOM, [stored_participant("bob")])
    # A token may belong to participants of several spaces.
    await spaces.put(stored_space("other", "bob"), [stored_participant("someone", token_hash=b"ann")])
    named = [(space.owner, space.name, one.id) for space, one in await spaces.find_by_token(b"ann")]
    assert named == [("bob", "other", "someone"), ("ann", "room", "ann")]
    assert [one.name for one in await spaces.list()] == ["other", "room"]
    assert [one.name for one in await spaces.list("ann")] == ["room"]
    assert (await spaces.list("nul\0"), await spaces.find_by_token(b"nobody's")) == ((), ())


async def test_replicas_that_start_together_create_a_space_once(postgres_server: PostgresServer) -> None:
    url = postgres_server.database()
    async with store_at(url) as one, store_at(url) as other:
        for number in range(8):
            space = stored_space(f"room{number}", origin="config")
            listed = [stored_participant("ann", origin="config")]
            both = await asyncio.gather(*(store.spaces.put(space, listed) for store in (one, other, one, other)))
            assert both == [both[0]] * 4 == [space] * 4


# --------------------------------------------------------------------------------------------- erasure and removal


async def test_an_erased_envelope_keeps_its_position(store: Store) -> None:
    await store.spaces.put(stored_space(), [])
    secret = stored_envelope(2, "secret", kind="reasoning/start", path="msg-2", role="opens", extra={"x": "secret too"})
    secret = replace(secret, envelope=replace(secret.envelope, context_operation={"secret": 1}, to=("bob",)))
    flagged = b'{"flags":[{"code":"unknown_reference","message":"nothing is called \'secret\'"}],"by":{"kind":"*"}}'
    secret = replace(secret, note=flagged)
    marked = stored_envelope(3, "secret", extra={"erased": True})  # the sender claims that it is erased, but it is not
    await store.spaces.append(append([stored_envelope(1, "secret"), secret, marked], 0))
    assert await store.spaces.erase(OWNER, ROOM, [2, 2, 9, -1, 2**70], at_ms=5) == 1
    assert await store.spaces.erase(OWNER, ROOM, [2], at_ms=5) == 0
    assert await store.spaces.erase("bob", ROOM, [1], at_ms=5) == 0
    bare = replace(secret.envelope, payload={}, extra={"erased": True}, context_operation=None)
    assert await store.spaces.get_envelope(OWNER, ROOM, 2) == replace(
        secret, envelope=bare, note=b'{"by":{"kind":"*"}}'
    )
    assert [one.envelope.seq for one in await store.spaces.search(OWNER, ROOM, "secret")] == [3, 1]
    assert [one.envelope.seq for one in await store.spaces.page(OWNER, ROOM, within="msg-2")] == [2]
    with pytest.raises(AppendConflict):
        await store.spaces.append(append([stored_envelope(4)], 3))
    assert await store.spaces.append(append([stored_envelope(4)], 3, 2)) == (4, 2)
    assert await store.spaces.erase(OWNER, ROOM, [3], at_ms=5) == 1
    assert [one.envelope.seq for one in await store.spaces.search(OWNER, ROOM, "secret")] == [1]


def _count_rows(_: None) -> Operation[dict[str, int]]:
    """Count the rows of each table."""
    counts = {}
    for table in tables.metadata.sorted_tables:
        counts[table.name] = (yield Execute(Statement(_count_statement(table)), {}))[0][0]
    return counts


def _count_statement(table: Any) -> Any:
    import sqlalchemy as sa

    return sa.select(sa.func.count()).select_from(table)


async def fill(store: Store, name: str, owner: str, many: int) -> None:
    await store.spaces.put(stored_space(name, owner), [stored_participant("ann", token_hash=name.encode())])
    log = [stored_envelope(seq, "of it", path="p", role="opens", correlation_id=("x",)) for seq in range(1, many + 1)]
    await store.spaces.append(append(log, 0, owner=owner, space=name, state=b"state"))


async def test_remove_deletes_all_rows_of_a_space(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "ENVELOPES_PER_STEP", 7)
    await fill(store, "other", "bob", 3)
    before = await store._database.read(_count_rows, None)
    await fill(store, ROOM, OWNER, 40)
    assert await store.spaces.remove("bob", ROOM) is False
    assert await store.spaces.remove(OWNER, ROOM) is True
    assert await store.spaces.remove(OWNER, ROOM) is False
    after = await store._database.read(_count_rows, None)
    record_tables = {name for name in after if name.startswith("record")}  # the record keeps its entries
    assert {name: n for name, n in after.items() if name not in record_tables} == {
        name: n for name, n in before.items() if name not in record_tables
    }
    assert await store.spaces.put(stored_space(), []) == stored_space()
    assert await store.spaces.page(OWNER, ROOM) == []


async def test_an_interrupted_removal_is_completed_later(store: Store) -> None:
    await fill(store, ROOM, OWNER, 4)
    named = {"for_owner": OWNER, "for_name": ROOM}
    for later in ("swept", "recreated", "by its owner's erasure", "removed again"):
        assert await store._database.write(space_rows.mark_removed, {**named, "now": 1.0}) is True
        params = {**named, "most": 1, "now": 1.0, "recording": store.record.recording}
        await store._database.write(envelope_rows.remove, params)
        # The space is not visible to any query.
        assert await store.spaces.get(ROOM) is None
        assert await store.spaces.head(OWNER, ROOM) is None
        assert await store.spaces.state(OWNER, ROOM) is None
        assert await store.spaces.find_by_token(ROOM.encode()) == ()
        assert await store.spaces.list() == ()
        with pytest.raises(SpaceNotFound):
            await store.spaces.append(append([stored_envelope(5)], 4))
        if later == "swept":
            assert await store.expire(1e9) == 0
        elif later == "by its owner's erasure":
            await store.erase(OWNER)
        elif later == "removed again":
            assert await store.spaces.remove(OWNER, ROOM) is False
        if later == "recreated":
            await store.spaces.put(stored_space(), [])
            assert await store.spaces.page(OWNER, ROOM) == []
            await store.spaces.remove(OWNER, ROOM)
        counts = await store._database.read(_count_rows, None)
        assert not any(n for name, n in counts.items() if name == "texts" or name.startswith("space")), later
        await fill(store, ROOM, OWNER, 4)


async def test_spaces_do_not_expire_and_are_erased_with_their_owner(store: Store, clock: Clock) -> None:
    await fill(store, ROOM, OWNER, 4)
    await fill(store, "room2", OWNER, 2)
    await fill(store, "other", "bob", 3)
    clock.now = 1e9
    assert await store.expire(1e9) == 0
    assert len(await store.spaces.page(OWNER, ROOM)) == 4
    assert await store.erase(OWNER) == 2
    assert [one.name for one in await store.spaces.list()] == ["other"]
    assert len(await store.spaces.search("bob", "other", "of it")) == 3
    assert await store.spaces.search(OWNER, ROOM, "of it") == []
    assert isinstance(await store.spaces.put(stored_space(), []), StoredSpace)


async def test_an_append_to_a_recreated_space_conflicts(store: Store) -> None:
    await fill(store, ROOM, OWNER, 4)
    await store.spaces.remove(OWNER, ROOM)
    await store.spaces.put(stored_space(), [])
    with pytest.raises(AppendConflict):
        await store.spaces.append(append([stored_envelope(5)], 4))
