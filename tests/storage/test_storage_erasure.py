"""Erased data is in none of SQLite's files a moment later, whatever deleted it."""

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


def _advance_clock(clock: Clock) -> float:
    clock.now = 10_000.0
    return clock.now


ERASURES: dict[str, Way] = {
    "response": lambda store, _: store.responses.delete(OWNER, "resp_1"),
    "recorded": lambda store, _: store.record.erase(OWNER, "response:resp_1"),
    "expired": lambda store, clock: store.expire(_advance_clock(clock)),
    "tenant": lambda store, _: store.erase(OWNER),
}


def _files_with_mark(path: Path) -> list[str]:
    return [file.name for file in path.parent.iterdir() if MARK in file.read_bytes()]


@pytest.fixture(autouse=True)
def _short_truncation_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TRUNCATE_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(sqlite, "OVERDUE_SECONDS", 0.1)


async def _wait_until_erased(path: Path) -> None:
    await eventually(lambda: not _files_with_mark(path), "the marker is in no file")


async def _check_erasure(path: Path, clock: Clock, put: Callable[[Store], Awaitable[object]], way: Way) -> None:
    store = await open_store(f"sqlite:///{path}", clock=clock)
    try:
        await put(store)
        assert _files_with_mark(path)
        await way(store, clock)
        await _wait_until_erased(path)
        # Later writes are stored as usual.
        await store.responses.put(response("resp_2"), [])
        assert await store.responses.get("ann", "resp_2")
    finally:
        await store.aclose()


@pytest.mark.parametrize("way", ERASURES)
async def test_an_erased_response_is_in_no_file(tmp_path: Path, clock: Clock, way: str) -> None:
    one = response(owner=OWNER, log=MARK * 500, expires_at=9_000.0)
    await _check_erasure(tmp_path / "kept.db", clock, lambda store: store.responses.put(one, []), ERASURES[way])


@pytest.mark.parametrize("way", ["whole", "entry", "expired"])
async def test_an_erased_conversation_is_in_no_file(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        await store.conversations.create(
            StoredConversation(id="conv_1", owner=OWNER, created_at=1.0, expires_at=9_000.0, metadata={"a": "b"})
        )
        await store.conversations.append(OWNER, "conv_1", [ConversationEntry(id="msg_1", item=MARK * 300)])

    ways: dict[str, Way] = {
        "whole": lambda store, _: store.conversations.delete(OWNER, "conv_1"),
        "entry": lambda store, _: store.conversations.delete_entry(OWNER, "conv_1", "msg_1"),
        "expired": ERASURES["expired"],
    }
    await _check_erasure(tmp_path / "kept.db", clock, put, ways[way])


@pytest.mark.parametrize("way", ["deleted", "expired"])
async def test_an_erased_chat_is_in_no_file(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        chat = StoredChat(id="chat_1", owner=OWNER, title=TEXT, created_at=1.0, updated_at=1.0, expires_at=9_000.0)
        turn = response(
            owner=OWNER, conversation_id="chat_1", status="in_progress", background=True, expires_at=9_000.0
        )
        await store.chats.begin_turn(chat, turn, 1)
        await store.responses.finish(replace(turn, status="completed", log=MARK * 300, text=TEXT), [], 1)

    erasure: Way = ERASURES["expired"] if way == "expired" else lambda store, _: store.chats.delete(OWNER, "chat_1")
    await _check_erasure(tmp_path / "kept.db", clock, put, erasure)


@pytest.mark.parametrize("way", ["erased", "recorded", "removed"])
async def test_an_erased_envelope_is_in_no_file(tmp_path: Path, clock: Clock, way: str) -> None:
    async def put(store: Store) -> None:
        await store.spaces.put(stored_space(), [stored_participant("ann")])
        await store.spaces.append(append([stored_envelope(1, TEXT * 300), stored_envelope(2, "stays")], 0))

    ways: dict[str, Way] = {
        "erased": lambda store, _: store.spaces.erase(OWNER, ROOM, [1], at_ms=2_000),
        "recorded": lambda store, _: store.record.erase(OWNER, f"space:{ROOM}", ["1"]),
        "removed": lambda store, _: store.spaces.remove(OWNER, ROOM),
    }
    await _check_erasure(tmp_path / "kept.db", clock, put, ways[way])


async def test_truncation_waits_for_a_reader_and_blocks_no_writes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.db"
    truncations = 0
    truncate = sqlite.WalTruncation.truncate

    def count_truncation(self: sqlite.WalTruncation, connection: sqlite3.Connection, usual_seconds: float) -> None:
        nonlocal truncations
        truncate(self, connection, usual_seconds)
        truncations += 1

    monkeypatch.setattr(sqlite.WalTruncation, "truncate", count_truncation)
    store = await open_store(f"sqlite:///{path}", clock=clock)
    reader = sqlite3.connect(path, isolation_level=None)
    try:
        await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM responses").fetchone() == (1,)
        await store.responses.delete(OWNER, "resp_1")
        for number in range(20):
            await store.responses.put(response(f"other_{number}"), [])
        before = truncations
        await eventually(lambda: truncations > before + 2, "it is tried again and again")
        assert _files_with_mark(path)
        reader.execute("COMMIT")
        await _wait_until_erased(path)
        assert await store.responses.get("ann", "other_19")
    finally:
        reader.close()
        await store.aclose()


async def test_erased_data_goes_while_others_write(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "kept.db"
    store = await open_store(f"sqlite:///{path}", clock=clock)

    async def write(name: str) -> None:
        number = 0
        while True:
            await store.responses.put(response(f"{name}_{number}"), [])
            number += 1

    await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
    writing = [asyncio.create_task(write(f"w{number}")) for number in range(4)]
    try:
        await store.responses.delete(OWNER, "resp_1")
        await _wait_until_erased(path)
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await store.aclose()


async def test_erased_data_that_a_killed_process_left_goes_at_the_start(tmp_path: Path, clock: Clock) -> None:
    """The process was killed after the deletion and before the truncation; the test copies the files of that moment."""
    path, killed = tmp_path / "kept.db", tmp_path / "killed" / "kept.db"
    killed.parent.mkdir()
    store = await open_store(f"sqlite:///{path}", clock=clock)
    reader = sqlite3.connect(path, isolation_level=None)
    try:
        await store.responses.put(response(owner=OWNER, log=MARK * 500), [])
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM responses").fetchone()
        await store.responses.delete(OWNER, "resp_1")
        for name in ("kept.db", "kept.db-wal"):
            (killed.parent / name).write_bytes((tmp_path / name).read_bytes())
    finally:
        reader.close()
        await store.aclose()
    assert _files_with_mark(killed)
    again = await open_store(f"sqlite:///{killed}", clock=clock)
    try:
        await _wait_until_erased(killed)
    finally:
        await again.aclose()
