"""What was erased is in none of SQLite's files a moment later, whichever way it went."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pellucid.storage import ConversationEntry, Store, StoredChat, StoredConversation, open_store, sqlite
from tests.storage.space_store_kit import OWNER, ROOM, append, stored_envelope, stored_participant, stored_space
from tests.storage.storage_kit import Clock, response
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

MARK = b"a-marker-that-is-nowhere-else"
TEXT = MARK.decode()

Way = Callable[[Store, Clock], Awaitable[object]]


def _later(clock: Clock) -> float:
    clock.now = 10_000.0
    return clock.now


WAYS: dict[str, Way] = {
    "response": lambda store, _: store.responses.delete(OWNER, "resp_1"),
    "recorded": lambda store, _: store.record.erase(OWNER, "response:resp_1"),
    "expired": lambda store, clock: store.expire(_later(clock)),
    "tenant": lambda store, _: store.erase(OWNER),
}


def _files(kept: Path) -> list[str]:
    return [file.name for file in kept.parent.iterdir() if MARK in file.read_bytes()]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TRUNCATE_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(sqlite, "OVERDUE_SECONDS", 0.1)


async def _gone(kept: Path) -> None:
    await eventually(lambda: not _files(kept), "the marker is in no file")


async def _with(kept: Path, clock: Clock, put: Callable[[Store], Awaitable[object]], way: Way) -> None:
    store = await open_store(f"sqlite:///{kept}", clock=clock)
    try:
        await put(store)
        assert _files(kept)
        await way(store, clock)
        await _gone(kept)
        # And what is written next is there as ever.
        await store.responses.put(response("resp_2"), [])
        assert await store.responses.get("ann", "resp_2")
    finally:
        await store.aclose()


@pytest.mark.parametrize("way", WAYS)
async def test_a_response(tmp_path: Path, clock: Clock, way: str) -> None:
    one = response(owner=OWNER, log=MARK * 500, expires_at=9_000.0)
    await _with(tmp_path / "kept.db", clock, lambda store: store.responses.put(one, []), WAYS[way])


@pytest.mark.parametrize("way", ["whole", "entry", "expired"])
async def test_a_conversation(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        await store.conversations.create(
            StoredConversation(id="conv_1", owner=OWNER, created_at=1.0, expires_at=9_000.0, metadata={"a": "b"})
        )
        await store.conversations.append(OWNER, "conv_1", [ConversationEntry(id="msg_1", item=MARK * 300)])

    ways: dict[str, Way] = {
        "whole": lambda store, _: store.conversations.delete(OWNER, "conv_1"),
        "entry": lambda store, _: store.conversations.delete_entry(OWNER, "conv_1", "msg_1"),
        "expired": WAYS["expired"],
    }
    await _with(tmp_path / "kept.db", clock, put, ways[way])


@pytest.mark.parametrize("way", ["deleted", "expired"])
async def test_a_chat(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        chat = StoredChat(id="chat_1", owner=OWNER, title=TEXT, created_at=1.0, updated_at=1.0, expires_at=9_000.0)
        turn = response(
            owner=OWNER, conversation_id="chat_1", status="in_progress", background=True, expires_at=9_000.0
        )
        await store.chats.begin_turn(chat, turn, 1)
        await store.responses.finish(replace(turn, status="completed", log=MARK * 300, text=TEXT), [], 1)

    gone: Way = WAYS["expired"] if way == "expired" else lambda store, _: store.chats.delete(OWNER, "chat_1")
    await _with(tmp_path / "kept.db", clock, put, gone)


@pytest.mark.parametrize("way", ["erased", "recorded", "removed"])
async def test_what_was_said_in_a_space(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        await store.spaces.put(stored_space(), [stored_participant("ann")])
        await store.spaces.append(append([stored_envelope(1, TEXT * 300), stored_envelope(2, "stays")], 0))

    ways: dict[str, Way] = {
        "erased": lambda store, _: store.spaces.erase(OWNER, ROOM, [1], at_ms=2_000),
        "recorded": lambda store, _: store.record.erase(OWNER, f"space:{ROOM}", ["1"]),
        "removed": lambda store, _: store.spaces.remove(OWNER, ROOM),
    }
    await _with(tmp_path / "kept.db", clock, put, ways[way])


async def test_a_reader_in_the_way_is_waited_for_and_disturbs_nobody(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.db"
    tries = 0
    carry_over = sqlite.WalTruncation.truncate

    def counted(self: sqlite.WalTruncation, connection: sqlite3.Connection, usual_seconds: float) -> None:
        nonlocal tries
        carry_over(self, connection, usual_seconds)
        tries += 1

    monkeypatch.setattr(sqlite.WalTruncation, "truncate", counted)
    store = await open_store(f"sqlite:///{kept}", clock=clock)
    reader = sqlite3.connect(kept, isolation_level=None)
    try:
        await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM responses").fetchone() == (1,)
        await store.responses.delete(OWNER, "resp_1")
        for number in range(20):
            await store.responses.put(response(f"other_{number}"), [])
        before = tries
        await eventually(lambda: tries > before + 2, "it is tried again and again")
        assert _files(kept)
        reader.execute("COMMIT")
        await _gone(kept)
        assert await store.responses.get("ann", "other_19")
    finally:
        reader.close()
        await store.aclose()


async def test_it_goes_while_others_write_without_a_pause(tmp_path: Path, clock: Clock) -> None:
    kept = tmp_path / "kept.db"
    store = await open_store(f"sqlite:///{kept}", clock=clock)

    async def write(name: str) -> None:
        number = 0
        while True:
            await store.responses.put(response(f"{name}_{number}"), [])
            number += 1

    await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
    writing = [asyncio.create_task(write(f"w{number}")) for number in range(4)]
    try:
        await store.responses.delete(OWNER, "resp_1")
        await _gone(kept)
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await store.aclose()


async def test_what_an_earlier_process_left_goes_at_the_start(tmp_path: Path, clock: Clock) -> None:
    """It was killed between the deletion and the emptying: the files as they were then."""
    kept, killed = tmp_path / "kept.db", tmp_path / "killed" / "kept.db"
    killed.parent.mkdir()
    store = await open_store(f"sqlite:///{kept}", clock=clock)
    hold = sqlite3.connect(kept, isolation_level=None)
    try:
        await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
        hold.execute("BEGIN")
        hold.execute("SELECT count(*) FROM responses").fetchone()
        await store.responses.delete(OWNER, "resp_1")
        for name in ("kept.db", "kept.db-wal"):
            (killed.parent / name).write_bytes((tmp_path / name).read_bytes())
    finally:
        hold.close()
        await store.aclose()
    assert _files(killed)
    again = await open_store(f"sqlite:///{killed}", clock=clock)
    try:
        await _gone(killed)
    finally:
        await again.aclose()
