"""Stored and deleted data is recorded in the same transaction, on every kind of database."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pellucid.record import CheckpointLine, EntryLine, Recording, ScopeLine, UnrecordedLine
from pellucid.storage import (
    AlreadyStored,
    Append,
    AppendConflict,
    Store,
    StoredChat,
    StoredConversation,
    open_store,
)
from tests.record.record_kit import (
    OWNER,
    SIGNER,
    Clock,
    append_of,
    check_record,
    entry,
    lines_of,
    response,
    space,
    stored_envelope,
    verify_lines,
)

pytestmark = pytest.mark.anyio


async def entries_of(store: Store, scope: str) -> list[tuple[str, str, bool]]:
    """Return kind and subject of the entries of a scope, and whether the content exists."""
    await check_record(store)
    lines = await lines_of(store, scope=scope)
    entries = [line for line in lines if isinstance(line, EntryLine)]
    assert all((line.salt is None) == (line.content_bytes is None) for line in entries)
    return [(line.kind, line.subject, line.salt is not None) for line in entries]


async def test_a_finished_response_is_recorded(store: Store) -> None:
    one = response("r", header=b'{"a":1}', log=b"\0\xff", error=b"e", background=True)
    await store.responses.put(one)
    await store.responses.put(one)  # a caller that missed the reply repeats the call
    with pytest.raises(AlreadyStored):
        await store.responses.put(replace(one, header=b"other"))
    assert await entries_of(store, "response:r") == [("response", "r", True)]
    (line,) = [line for line in await lines_of(store) if isinstance(line, EntryLine)]
    content = line.content_bytes
    assert content is not None
    assert b'{"a":1}' in content
    assert content.endswith(b"\0\xff")


async def test_a_background_response_is_recorded_when_it_ends(store: Store) -> None:
    running_row = response("r", status="in_progress", background=True)
    await store.responses.begin(running_row, 1)
    assert await entries_of(store, "response:r") == []
    finished_row = replace(running_row, status="completed", header=b"{}")
    assert await store.responses.finish(finished_row, [], 1)
    assert await store.responses.finish(finished_row, [], 1)
    assert not await store.responses.finish(replace(finished_row, status="failed"), [], 1)
    assert await entries_of(store, "response:r") == [("response", "r", True)]


async def test_conversation_items_are_recorded(store: Store, clock: Clock) -> None:
    await store.conversations.create(StoredConversation(id="c", owner=OWNER, created_at=clock.now))
    await store.conversations.append(OWNER, "c", [entry("one"), entry("two")])
    added = [entry("two", b'"other"'), entry("three"), entry("three", b'"other"')]
    await store.responses.put(response("r", conversation_id="c"), ["three"], added)
    assert await entries_of(store, "conversation:c") == [
        ("item", "one", True),
        ("item", "two", True),
        ("response", "r", True),
        ("item", "three", True),
    ]
    assert [one.item for one in await store.conversations.entries(OWNER, "c") or []] == [b'"said"'] * 3
    with pytest.raises(AlreadyStored):
        await store.conversations.append(OWNER, "c", [entry("four"), entry("one")])
    assert await store.conversations.delete_entry(OWNER, "c", "two")
    assert (await entries_of(store, "conversation:c"))[-1] == ("deleted", "two", False)
    await store.conversations.append(OWNER, "c", [entry("two")])
    assert await store.conversations.delete(OWNER, "c")
    assert await entries_of(store, "conversation:c") == [
        ("item", "one", False),
        ("item", "two", False),
        ("response", "r", True),
        ("item", "three", False),
        ("deleted", "two", False),
        ("item", "two", False),
        ("deleted", "", False),
    ]


async def test_turns_of_a_chat_are_recorded(store: Store, clock: Clock) -> None:
    chat = StoredChat(id="chat", owner=OWNER, title="t", created_at=clock.now, updated_at=clock.now)
    turn = response("t1", conversation_id="chat", status="queued", background=True)
    await store.chats.begin_turn(chat, turn, 1)
    await store.responses.finish(replace(turn, status="completed"), [], 1)
    stored_chat = await store.chats.get(OWNER, "chat")
    assert stored_chat is not None
    await store.chats.begin_turn(stored_chat, replace(turn, id="t2", previous_id="t1"), 1)
    await store.responses.finish(replace(turn, id="t2", previous_id="t1", status="failed"), [], 1)
    assert await entries_of(store, "conversation:chat") == [("response", "t1", True), ("response", "t2", True)]
    await store.responses.delete(OWNER, "t1")
    await store.chats.delete(OWNER, "chat")
    assert await entries_of(store, "conversation:chat") == [
        ("response", "t1", False),
        ("response", "t2", False),
        ("deleted", "t1", False),
        ("deleted", "t2", False),
    ]


async def test_expiry_and_erasure_of_an_owner_are_recorded(store: Store, clock: Clock) -> None:
    until = clock.now + 10
    await store.conversations.create(
        StoredConversation(id="c", owner=OWNER, created_at=clock.now, expires_at=clock.now + 10)
    )
    await store.conversations.append(OWNER, "c", [entry("one"), entry("two")])
    for id in ("a", "b"):
        await store.responses.put(response(id, conversation_id="talk", expires_at=until))
    await store.responses.put(response("alone", expires_at=until))
    await store.responses.put(response("stays"))
    clock.now += 11
    await check_record(store)  # expired rows that are not deleted yet
    assert await store.expire(clock.now) == 4
    expired_entry = ("expired", "", False)
    assert await entries_of(store, "conversation:c") == [("item", "one", False), ("item", "two", False), expired_entry]
    assert await entries_of(store, "conversation:talk") == [
        ("response", "a", False),
        ("response", "b", False),
        expired_entry,
    ]
    assert await entries_of(store, "response:alone") == [("response", "alone", False), ("expired", "alone", False)]
    await store.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one", "two"))
    await store.erase(OWNER)
    assert await entries_of(store, "response:stays") == [("response", "stays", False), ("erased", "stays", False)]
    assert await entries_of(store, "space:room") == [
        ("envelope", "1", False),
        ("envelope", "2", False),
        ("deleted", "", False),
    ]


async def test_envelopes_of_a_space_are_recorded(store: Store) -> None:
    await store.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one", "two"))
    redacted = stored_envelope(3, note=b'{"redacted":["mail","card","mail"]}')
    await store.spaces.append(Append(owner=OWNER, space="room", expected_head=2, version=1, envelopes=[redacted]))
    with pytest.raises(AppendConflict):
        await store.spaces.append(append_of(0, "late"))
    assert await entries_of(store, "space:room") == [("envelope", str(seq), True) for seq in (1, 2, 3)]
    assert await store.spaces.erase(OWNER, "room", [2, 9], at_ms=1_700_000_000_500) == 1
    assert await store.spaces.erase(OWNER, "room", [2], at_ms=1_700_000_000_600) == 0
    assert await entries_of(store, "space:room") == [
        ("envelope", "1", True),
        ("envelope", "2", False),
        ("envelope", "3", True),
        ("erased", "2", True),  # the content is the erased envelope
    ]
    entries = [line for line in await lines_of(store) if isinstance(line, EntryLine)]
    assert [line.more for line in entries] == [{}, {}, {"redacted": ["card", "mail"]}, {"ends": [[2, 2]]}]
    assert b"two" not in (entries[3].content_bytes or b"two")


async def test_a_space_that_is_not_recorded(store: Store) -> None:
    await store.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one", recorded=False))
    assert await check_record(store) == {}


async def test_appends_to_several_spaces_are_recorded_together(store: Store) -> None:
    names = [f"room{number}" for number in range(4)]
    for name in names:
        await store.spaces.put(space(name), [])
    await asyncio.gather(*(store.spaces.append(append_of(0, "one", "two", name=name)) for name in names))
    assert {scope: one.contents for scope, one in (await check_record(store)).items()} == {
        f"space:{n}": 2 for n in names
    }


async def test_nothing_is_recorded_if_disabled(url: str, clock: Clock) -> None:
    store = await open_store(url, clock=clock, recording=Recording(is_enabled=False))
    try:
        await store.responses.put(response("r"))
        lines = await lines_of(store)
        assert not [line for line in lines if isinstance(line, ScopeLine | CheckpointLine)]
        assert [line.before for line in lines if isinstance(line, UnrecordedLine)] == [True]
        assert verify_lines(lines)[0].findings == ()
    finally:
        await store.aclose()


async def test_recorded_contents_are_erased_after_recording_was_disabled(url: str, clock: Clock) -> None:
    if url == "sqlite://":
        return
    for recording in (Recording(signers=[SIGNER]), Recording(False, [SIGNER])):
        store = await open_store(url, clock=clock, recording=recording)
        if recording.is_enabled:
            await store.responses.put(response("r"))
        else:
            await store.responses.delete(OWNER, "r")
            await store.responses.put(response("unseen"))
            report, scopes = verify_lines(await lines_of(store))
            assert [(finding.what, finding.scope) for finding in report.findings] == [("unrecorded", "response:unseen")]
            assert scopes["response:r"].gone == 1
        await store.aclose()


async def test_recording_adds_no_transaction(store: Store) -> None:
    before = store.transactions
    await store.responses.put(response("r"))
    await store.responses.delete(OWNER, "r")
    assert store.transactions - before == 2


async def test_contents_are_erased_by_scope_and_subject(store: Store, clock: Clock) -> None:
    await store.conversations.create(StoredConversation(id="c", owner=OWNER, created_at=clock.now))
    await store.responses.put(response("r", conversation_id="c"), [], [entry("one"), entry("two")])
    await store.responses.put(response("other"))
    await store.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one", "two"))
    assert await store.record.owners_of("conversation:c") == (OWNER,)
    assert await store.record.erase(OWNER, "conversation:c", ["other", "one", "nothing", "nul\0"]) == 0
    assert await store.record.erase(OWNER, "conversation:c", ["other", "one", "nothing"]) == 1
    assert await store.record.erase(OWNER, "conversation:c") == 2
    assert await store.record.erase(OWNER, "conversation:c") == 0
    assert await store.conversations.get(OWNER, "c") is None
    assert await store.responses.get(OWNER, "r") is None
    assert await store.record.erase("bob", "response:other") == 0
    assert await store.record.erase(OWNER, "response:other") == 1
    assert await store.record.erase(OWNER, "space:room", ["2", "x"]) == 1
    assert await store.record.erase(OWNER, "space:room") == 1
    remaining = await store.spaces.page(OWNER, "room")
    assert [(one.envelope.payload, one.envelope.extra) for one in remaining] == [({}, {"erased": True})] * 2
    assert [kind for kind, _, _ in await entries_of(store, "conversation:c")] == [
        "response",
        "item",
        "item",
        "erased",
        "erased",
        "erased",
    ]
    assert await entries_of(store, "response:other") == [("response", "other", False), ("erased", "other", False)]


async def test_checkpoints_sign_the_scopes_of_each_owner(store: Store, clock: Clock) -> None:
    await store.responses.put(response("a"))
    await store.responses.put(response("b", "bob"))
    assert store.record.recording.unsigned_count == 2
    assert (await store.record.sign()).done == 2
    before = store.transactions
    assert (await store.record.sign()).done == 0
    assert (store.transactions, store.record.recording.unsigned_count) == (before, 0)
    clock.now += 60
    await store.responses.delete(OWNER, "a")
    assert (await store.record.sign()).done == 1
    scopes = await check_record(store)
    assert {scope: (one.signed, one.checkpoint) for scope, one in scopes.items()} == {
        "response:a": (2, 2),
        "response:b": (1, 1),
    }
    # The export of one owner or scope verifies by itself, and holds nothing of others.
    for which in ({"owner": OWNER}, {"owner": "bob", "scope": "response:b"}, {"scope": "response:a"}):
        lines = await lines_of(store, **which)
        assert verify_lines(lines)[0].findings == ()
        expected = (
            {"response:a"} if which.get("owner") == OWNER or which.get("scope") == "response:a" else {"response:b"}
        )
        assert {line.scope for line in lines if isinstance(line, ScopeLine)} == expected
        heads = [line.checkpoint.heads for line in lines if isinstance(line, CheckpointLine) and line.checkpoint]
        assert {scope for one in heads for scope in one} == expected


async def test_many_chains_are_signed_in_steps(store: Store) -> None:
    await asyncio.gather(*(store.responses.put(response(f"r{number}", f"o{number % 3}")) for number in range(450)))
    done = await store.record.sign()
    assert (done.done, done.refused) == (450, 0)
    scopes = await check_record(store)
    assert all(one.signed == 1 for one in scopes.values())
