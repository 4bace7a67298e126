"""Chats: a turn and its chat begin in one transaction, branches are kept, and deleted chats are gone."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.storage import AlreadyStored, ChatBusy, ChatMoved, ChatNotFound, Store, StoredChat, StoredResponse
from pellucid.storage.responses import GRACE_SHARE
from tests.storage.storage_kit import Clock, response, store_at

pytestmark = pytest.mark.anyio


def chat(id: str = "chat_1", owner: str = "ann", **fields: Any) -> StoredChat:
    return StoredChat(**{"title": f"About {id}", "created_at": 1.0, "updated_at": 1.0, **fields}, id=id, owner=owner)


def turn(id: str, previous: str | None = None, chat: str = "chat_1", owner: str = "ann", **fields: Any) -> Any:
    values = {"status": "in_progress", "background": True, "text": f"question {id}", **fields}
    return response(id, owner, previous_id=previous, conversation_id=chat, **values)


async def begin(store: Store, row: StoredResponse, *, new_chat: StoredChat | None = None) -> None:
    """Begin a turn; create its chat if there is none."""
    assert row.conversation_id is not None
    current = await store.chats.get(row.owner, row.conversation_id)
    await store.chats.begin_turn(current or new_chat or chat(row.conversation_id, row.owner), row, 1)


async def finish(store: Store, row: StoredResponse, **fields: Any) -> None:
    done = replace(row, **{"status": "completed", "log": b"log", "text": f"{row.text}\n\nanswer {row.id}", **fields})
    assert await store.responses.finish(done, [f"item {row.id}"], 1) is True


async def add_turns(store: Store, *rows: StoredResponse) -> None:
    for row in rows:
        await begin(store, row)
        await finish(store, row)


async def list_ids(store: Store, query: str | None = None, owner: str = "ann", **options: Any) -> list[str]:
    return [item.chat.id for item in (await store.chats.list(owner, query=query, **options)).chats]


async def test_a_turn_takes_two_transactions(store: Store) -> None:
    before = store.transactions
    row = turn("evt_1", expires_at=5_000.0)
    await store.chats.begin_turn(chat(), row, 1)
    assert store.transactions == before + 1
    begun_chat = await store.chats.get("ann", "chat_1")
    assert begun_chat == chat(updated_at=1.0, expires_at=5_000.0, head="evt_1")
    await finish(store, row, updated_at=77.0)
    assert store.transactions == before + 2
    assert await store.chats.get("ann", "chat_1") == replace(begun_chat, updated_at=77.0)


async def test_one_of_twenty_concurrent_turns_begins(url: str) -> None:
    async with store_at(url) as one, store_at(url) as other:
        stores = [one, one] if url == "sqlite://" else [one, other]
        begins = [stores[n % 2].chats.begin_turn(chat(), turn(f"evt_{n}"), 1) for n in range(20)]
        outcomes = await asyncio.gather(*begins, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [AlreadyStored] * 19
        for step in range(10):
            current = await one.chats.get("ann", "chat_1")
            assert current is not None
            assert current.head is not None
            head = await one.responses.get("ann", current.head)
            assert head is not None
            await finish(one, head)
            next_begins = [
                stores[n % 2].chats.begin_turn(current, turn(f"evt_{step}_{n}", current.head), 1) for n in range(20)
            ]
            outcomes = await asyncio.gather(*next_begins, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes if outcome is not None] == [ChatBusy] * 19
            ids = await one.chats.siblings("ann", "chat_1")
            assert ids[current.head] == [f"evt_{step}_{outcomes.index(None)}"]


async def test_a_refused_turn_stores_nothing_and_other_writes_succeed(store: Store) -> None:
    await add_turns(store, turn("evt_1"))
    current = await store.chats.get("ann", "chat_1")
    assert current is not None
    await begin(store, turn("evt_2", "evt_1"))
    before = store.transactions
    outcomes = await asyncio.gather(
        store.chats.begin_turn(current, turn("late", "evt_1"), 1),
        store.responses.put(response("neighbour")),
        store.chats.begin_turn(chat("chat_2", head="evt_9"), turn("lost", chat="chat_2"), 1),
        store.chats.begin_turn(chat(), turn("again"), 1),
        store.chats.begin_turn(chat("chat_3"), turn("evt_1", chat="chat_3"), 1),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [ChatBusy, type(None), ChatNotFound, AlreadyStored, AlreadyStored]
    busy, _, missing, *_ = outcomes
    assert isinstance(busy, RequestError)
    assert isinstance(missing, RequestError)
    assert busy.info.code == "conversation_busy"
    assert (missing.info.kind, missing.info.code) == ("not_found", "conversation_not_found")
    assert store.transactions - before <= 2
    for id in ("late", "lost", "again"):
        assert await store.responses.get("ann", id) is None
        assert await list_ids(store, f"question {id}") == []
    assert await store.chats.get("ann", "chat_3") is None
    assert await store.responses.get("ann", "neighbour") is not None
    with pytest.raises(ValueError, match="conversation_id"):
        await store.chats.begin_turn(chat(), turn("evt_5", chat="chat_9"), 1)


async def test_a_turn_that_follows_another_head_is_refused(store: Store) -> None:
    await add_turns(store, turn("a"), turn("b", "a"))
    seen = await store.chats.get("ann", "chat_1")
    await add_turns(store, turn("b2", "a"))
    current = await store.chats.get("ann", "chat_1")
    assert seen is not None
    assert current is not None
    for chat in seen, current:  # read before the new branch was added, and after
        with pytest.raises(ChatMoved) as moved:
            await store.chats.begin_turn(chat, turn("c", chat.head), 1, follows="b")
        assert (moved.value.info.code, moved.value.info.param) == ("conversation_moved", "follows")
    assert await store.responses.get("ann", "c") is None
    await store.chats.begin_turn(current, turn("c", "b2"), 1, follows="b2")
    # A head that is still in progress is another error.
    current = replace(current, head="c")
    with pytest.raises(ChatBusy):
        await store.chats.begin_turn(current, turn("d", "c"), 1, follows="c")
    with pytest.raises(ChatMoved):
        await store.chats.begin_turn(current, turn("d", "c"), 1, follows="b2")


async def test_instructions_stay_until_they_are_changed(store: Store) -> None:
    chat = StoredChat(id="chat_1", owner="ann", title="Tea", created_at=1.0, updated_at=1.0, instructions="In verse.\0")
    await store.chats.begin_turn(chat, turn("a"), 1)
    stored = await store.chats.get("ann", "chat_1")
    assert stored is not None
    assert stored.instructions == "In verse.\N{REPLACEMENT CHARACTER}"
    for change, expected in (({"title": "Coffee"}, stored.instructions), ({"instructions": "In prose."}, "In prose.")):
        changed = await store.chats.update("ann", "chat_1", **change)
        assert changed == await store.chats.get("ann", "chat_1")
        assert changed is not None
        assert changed.instructions == expected
    assert (await store.chats.list("ann", query="prose")).chats == []
    removed = await store.chats.update("ann", "chat_1", instructions="")
    assert removed is not None
    assert removed.instructions is None


async def test_a_chat_keeps_all_branches(store: Store) -> None:
    await add_turns(store, turn("a"), turn("b", "a"), turn("c", "b", created_at=2.0), turn("c2", "b", created_at=3.0))
    await add_turns(store, turn("a2", created_at=9.0))
    chats = store.chats
    assert await chats.siblings("ann", "chat_1") == {None: ["a", "a2"], "a": ["b"], "b": ["c", "c2"]}

    async def branch(head: str | None = None, **options: Any) -> list[str]:
        turns = await chats.turns("ann", "chat_1", head, **options)
        assert turns is not None
        assert {row.log for row in turns} == {b"" if options else b"log"}
        return [row.id for row in turns]

    assert await branch() == ["a2"]
    assert await branch("c") == ["a", "b", "c"]
    assert await branch("c2", log=False) == ["a", "b", "c2"]
    changed = await chats.update("ann", "chat_1", head="c")
    assert changed == await chats.get("ann", "chat_1")
    assert await branch() == ["a", "b", "c"]
    # A turn in the middle selects its branch up to the newest turn.
    further = await chats.update("ann", "chat_1", head="a")
    assert further is not None
    assert further.head == "c2"
    assert await chats.update("ann", "chat_1", head="c") == changed
    for foreign in ("none", "elsewhere"):
        await store.responses.put(response("elsewhere"))
        assert await chats.turns("ann", "chat_1", foreign) is None
        with pytest.raises(RequestError) as caught:
            await chats.update("ann", "chat_1", title="not so", head=foreign)
        assert caught.value.info.code == "not_a_turn"
    assert changed == await chats.get("ann", "chat_1")
    await store.responses.delete("ann", "a")
    assert await branch() == ["b", "c"]  # what remains


async def test_a_title_is_changed_and_found(store: Store) -> None:
    await add_turns(store, turn("a"))
    before = await store.chats.get("ann", "chat_1")
    assert before is not None
    changed = await store.chats.update("ann", "chat_1", title="Marmalade\0 \ud800")
    assert changed == replace(before, title="Marmalade� �")
    assert await store.chats.get("ann", "chat_1") == changed
    assert await list_ids(store, "marmalade\0") == ["chat_1"]
    assert await list_ids(store, "About") == []
    assert await store.chats.update("ann", "none", title="x") is None


async def test_chats_are_listed_by_last_update_and_pages_are_stable(store: Store) -> None:
    for n in range(9):
        await add_turns(store, turn(f"evt_{n}", chat=f"chat_{n}", updated_at=float(n // 2)))
    order = [f"chat_{n}" for n in range(8, -1, -1)]
    for query in (None, "question"):
        assert await list_ids(store, query) == order
    seen, after = [], None
    while True:
        page = await store.chats.list("ann", after=after, limit=2)
        seen += [item.chat.id for item in page.chats]
        if not page.has_more:
            break
        after = page.next_cursor
        if len(seen) == 4:
            # A chat that is updated now comes first in a new listing, even if the page ended at it.
            current = await store.chats.get("ann", seen[-1])
            assert current is not None
            await add_turns(store, turn("news", current.head, chat=current.id, updated_at=50.0))
    assert seen == order
    assert (await list_ids(store))[0] == "chat_5"
    assert await list_ids(store, after="chat_1") == ["chat_0"]
    assert await list_ids(store, after="none") == await list_ids(store, after="nul\0") == []


async def test_a_list_says_which_chat_has_an_unfinished_turn(store: Store) -> None:
    await add_turns(store, turn("evt_1"), turn("evt_2", chat="chat_2"))
    running = turn("evt_3", "evt_1", updated_at=60.0)
    await begin(store, running)
    for query in (None, "question"):
        page = await store.chats.list("ann", query=query)
        assert {item.chat.id: item.is_active for item in page.chats} == {"chat_1": True, "chat_2": False}
    await finish(store, running)
    assert not any(item.is_active for item in (await store.chats.list("ann")).chats)


async def test_a_deleted_chat_is_gone_and_its_running_turn_stores_nothing(store: Store) -> None:
    await add_turns(store, turn("a"), turn("b", "a"), turn("b2", "a"))
    await begin(store, turn("c", "b2"))
    await add_turns(store, turn("other", chat="chat_2"))
    deleted = await store.chats.delete("ann", "chat_1")
    assert deleted is not None
    assert {row.id: row.is_finished for row in deleted} == {"a": True, "b": True, "b2": True, "c": False}
    assert {row.owner for row in deleted} == {"ann"}
    assert await store.chats.delete("ann", "chat_1") is None
    assert await store.responses.finish(turn("c", "b2", status="completed"), ["item c"], 1) is False
    assert await store.chats.get("ann", "chat_1") is None
    for id in "a", "b", "b2", "c":
        assert await store.responses.get("ann", id) is None
        assert await store.responses.find_item("ann", f"item {id}") is None
    assert await list_ids(store, "question") == await list_ids(store) == ["chat_2"]
    assert await store.chats.siblings("ann", "chat_1") == {}


async def test_a_chat_lives_as_long_as_its_longest_lived_turn(store: Store, clock: Clock) -> None:
    await add_turns(store, turn("a", expires_at=clock.now + 100))
    await add_turns(store, turn("b", "a", expires_at=clock.now + 1_000), turn("b2", "a", expires_at=clock.now + 10))
    current = await store.chats.get("ann", "chat_1")
    assert current is not None
    assert current.expires_at == clock.now + 1_000
    clock.now += 500
    assert await list_ids(store, "question b2") == []
    assert await store.expire(clock.now) == 1  # b2
    assert await list_ids(store, "About") == ["chat_1"]
    # The head is gone; another branch remains.
    now = await store.chats.get("ann", "chat_1")
    assert now is not None
    assert now.head == "b"
    assert [row.id for row in await store.chats.turns("ann", "chat_1") or []] == ["a", "b"]
    with pytest.raises(ChatBusy):
        await store.chats.begin_turn(current, turn("c", "b"), 1)
    assert await store.chats.update("ann", "chat_1", title="About it") == replace(now, title="About it")
    clock.now += 500
    assert await store.chats.get("ann", "chat_1") is None
    assert await list_ids(store) == await list_ids(store, "About") == []
    with pytest.raises(ChatNotFound):
        await store.chats.begin_turn(current, turn("c", "b"), 1)
    clock.now += 1_000 * GRACE_SHARE
    assert await store.expire(clock.now) == 3
    await store.chats.begin_turn(chat(), turn("a"), 1)  # the ids are free


async def test_a_finish_with_a_later_expiry_extends_the_chat(store: Store, clock: Clock) -> None:
    row = turn("a", expires_at=clock.now + 10)
    await begin(store, row)
    await finish(store, row, expires_at=None)
    clock.now += 20
    assert await store.expire(clock.now) == 0
    assert await list_ids(store) == ["chat_1"]


async def test_take_over_returns_the_text_of_the_turn(store: Store) -> None:
    row = turn("a", text="Where?")
    await begin(store, row)
    taken = await store.responses.take_over("ann", "a", 2)
    assert taken is not None
    assert taken.text == "Where?"
    assert await store.responses.finish(replace(taken, status="failed", text="Where?\n\nHere."), [], 2)
    assert await list_ids(store, "here.") == ["chat_1"]


async def test_erasing_an_owner_erases_their_chats(store: Store) -> None:
    for owner in ("ann", "bob"):
        await add_turns(store, turn("a", owner=owner), turn("b", "a", owner=owner))
    assert await store.erase("ann") == 3
    assert await list_ids(store) == await list_ids(store, "question") == []
    assert await list_ids(store, owner="bob") == await list_ids(store, "question", owner="bob") == ["chat_1"]


@pytest.mark.parametrize("way", ["turn", "chat", "owner", "due"])
async def test_nothing_of_a_deleted_chat_is_left_in_the_file(tmp_path: Path, clock: Clock, way: str) -> None:
    path = tmp_path / "store.db"
    marks = ("Zxqwvkj", "marmalade", "pqgzzt")
    async with store_at(f"sqlite:///{path}", clock=clock) as store:
        for n in range(40):
            await add_turns(store, turn(f"evt_{n}", chat=f"chat_{n}", owner="bob", text="Of other things altogether."))
        title, question, answer_text = marks
        row = turn("evt_1", text=question, expires_at=clock.now + 10, messages=answer_text.encode())
        await begin(store, row, new_chat=chat(title=title))
        await finish(store, row, text=f"{question}\n\n{answer_text}")
        assert await list_ids(store, answer_text) == ["chat_1"]
        if way == "turn":
            assert await store.responses.delete("ann", "evt_1")  # this was the only turn, so the chat is deleted, too
        elif way == "chat":
            assert await store.chats.delete("ann", "chat_1")
        elif way == "owner":
            assert await store.erase("ann")
        else:
            clock.now += 20
            assert await store.expire(clock.now) == 2
    file_bytes = path.read_bytes().lower()
    for mark in marks:
        assert mark.lower().encode() not in file_bytes
        assert mark.lower().encode("utf-16-le") not in file_bytes
    if way == "owner" or sqlite3.sqlite_version_info >= (3, 45):
        # The index of trigrams holds no part of it either.
        assert not [gram for gram in (b"zxq", b"vkj", b"pqg", b"zzt") if gram in file_bytes]
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO texts_grams(texts_grams, rank) VALUES ('integrity-check', 1)")
    database.close()


async def test_a_failed_turn_removes_nothing_from_the_search_index(store: Store) -> None:
    """A transaction that is repeated without its failed parts leaves the index consistent with the table."""
    ids = [f"chat_{n % 7}" for n in range(30)]
    begins = [store.chats.begin_turn(chat(id), turn(f"evt_{n}.", chat=id), 1) for n, id in enumerate(ids)]
    outcomes = await asyncio.gather(*begins, return_exceptions=True)
    assert outcomes[:7] == [None] * 7
    assert {type(outcome) for outcome in outcomes[7:]} == {AlreadyStored}
    for n, id in enumerate(ids):
        assert await list_ids(store, f"question evt_{n}.") == ([id] if n < 7 else [])
