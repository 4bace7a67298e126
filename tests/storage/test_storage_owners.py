"""For every method, data of another owner looks as if it did not exist."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from pellucid.envelopes.reasoning import NameSet
from pellucid.errors import PellucidError
from pellucid.storage import (
    Chats,
    ConversationEntry,
    Conversations,
    KeyStore,
    Responses,
    Spaces,
    Store,
    StoredChat,
    StoredConversation,
    StoredKey,
    StoredResponse,
    UsageCounts,
    UsageFilter,
    UsageKey,
    UsageStore,
)
from tests.storage.space_store_kit import append, stored_envelope, stored_participant, stored_space
from tests.storage.storage_kit import Clock, response

pytestmark = pytest.mark.anyio

StoreCall = Callable[[Store, str, str], Awaitable[Any]]
"""Call a method as an owner, with an id."""


def running_response(id: str, owner: str) -> StoredResponse:
    return response(id, owner, status="in_progress", background=True)


def entry(id: str) -> ConversationEntry:
    return ConversationEntry(id=id, item=b'"theirs"')


def conversation(id: str, owner: str) -> StoredConversation:
    return StoredConversation(id=id, owner=owner, created_at=1.0, metadata={"of": owner})


async def await_both(one: Awaitable[Any], other: Awaitable[Any]) -> tuple[Any, Any]:
    return await one, await other


METHODS: dict[str, StoreCall] = {
    "Responses.put": lambda store, owner, id: store.responses.put(response(id, owner), ["item"]),
    "Responses.begin": lambda store, owner, id: store.responses.begin(running_response(id, owner), 1),
    "Responses.finish": lambda store, owner, id: store.responses.finish(response(id, owner), ["item"], 99),
    "Responses.take_over": lambda store, owner, id: store.responses.take_over(owner, id, 99),
    "Responses.touch": lambda store, owner, id: store.responses.touch(owner, id, 99),
    "Responses.get": lambda store, owner, id: store.responses.get(owner, id, log=True),
    "Responses.chain": lambda store, owner, id: store.responses.chain(owner, id),
    "Responses.delete": lambda store, owner, id: store.responses.delete(owner, id),
    "Responses.find_item": lambda store, owner, id: store.responses.find_item(owner, f"item-{id}"),
    "Conversations.create": lambda store, owner, id: store.conversations.create(conversation(id, owner)),
    "Conversations.get": lambda store, owner, id: store.conversations.get(owner, id),
    "Conversations.update": lambda store, owner, id: store.conversations.update(owner, id, {"mine": "now"}),
    "Conversations.delete": lambda store, owner, id: store.conversations.delete(owner, id),
    "Conversations.append": lambda store, owner, id: store.conversations.append(owner, id, [entry("new")]),
    "Conversations.entries": lambda store, owner, id: store.conversations.entries(owner, id),
    "Conversations.entry": lambda store, owner, id: store.conversations.entry(owner, id, f"entry-{id}"),
    "Conversations.delete_entry": lambda store, owner, id: store.conversations.delete_entry(owner, id, f"entry-{id}"),
    "Chats.begin_turn": lambda store, owner, id: store.chats.begin_turn(
        StoredChat(id=id, owner=owner, title="their title", created_at=1.0, updated_at=1.0),
        replace(running_response(f"turn-{id}", owner), conversation_id=id, text="their turn"),
        1,
    ),
    "Chats.get": lambda store, owner, id: store.chats.get(owner, id),
    "Chats.list": lambda store, owner, id: await_both(store.chats.list(owner), store.chats.list(owner, query="their")),
    "Chats.update": lambda store, owner, id: store.chats.update(owner, id, title="mine now", head=f"turn-{id}"),
    "Chats.delete": lambda store, owner, id: store.chats.delete(owner, id),
    "Chats.turns": lambda store, owner, id: store.chats.turns(owner, id, f"turn-{id}"),
    "Chats.siblings": lambda store, owner, id: store.chats.siblings(owner, id),
    "Spaces.add": lambda store, owner, id: store.spaces.add(owner, id, [stored_participant("mine")]),
    "Spaces.participants": lambda store, owner, id: store.spaces.participants(owner, id),
    "Spaces.list": lambda store, owner, id: store.spaces.list(owner),
    "Spaces.remove": lambda store, owner, id: store.spaces.remove(owner, id),
    "Spaces.head": lambda store, owner, id: store.spaces.head(owner, id),
    "Spaces.append": lambda store, owner, id: store.spaces.append(
        append([stored_envelope(2)], 1, owner=owner, space=id)
    ),
    "Spaces.page": lambda store, owner, id: store.spaces.page(owner, id),
    "Spaces.get_envelope": lambda store, owner, id: store.spaces.get_envelope(owner, id, 1),
    "Spaces.get_envelope_by_id": lambda store, owner, id: store.spaces.get_envelope_by_id(owner, id, "msg-1"),
    "Spaces.find_correlated": lambda store, owner, id: store.spaces.find_correlated(owner, id, ["trigger"]),
    "Spaces.find_openers": lambda store, owner, id: store.spaces.find_openers(owner, id),
    "Spaces.first_seq_since": lambda store, owner, id: store.spaces.first_seq_since(owner, id, 2),
    "Spaces.existing_names": lambda store, owner, id: store.spaces.existing_names(
        owner, id, NameSet(frozenset({"msg-1"}), frozenset("p"))
    ),
    "Spaces.search": lambda store, owner, id: store.spaces.search(owner, id, "their"),
    "Spaces.state": lambda store, owner, id: store.spaces.state(owner, id),
    "Spaces.erase": lambda store, owner, id: store.spaces.erase(owner, id, [1], at_ms=1),
    "UsageStore.cost_totals": lambda store, owner, id: store.usage.cost_totals(owner, id, "USD", "2026-01-31"),
    "KeyStore.list": lambda store, owner, id: store.keys.list(owner),
    "Store.erase": lambda store, owner, id: store.erase(owner),
}
# Names of spaces are unique in the whole gateway, not only within an owner; and a token identifies its owner.
WITHOUT_OWNER = (
    {"Spaces.put", "Spaces.get", "Spaces.find_by_token", "Spaces.sweep", "Spaces.begin_webhook", "Spaces.move_webhook"}
    | {"Spaces.heads"}
    | {
        "Responses.unfinished",
        "KeyStore.add",
        "KeyStore.by_hash",
        "KeyStore.by_ids",
        "KeyStore.revoke",
        "UsageStore.add",
        "UsageStore.report",
    }
    | {f"Store.{name}" for name in ("aclose", "check", "expire", "require_writable")}
)


def test_every_method_is_covered() -> None:
    methods = {
        f"{room.__name__}.{name}"
        for room in (Responses, Conversations, Chats, KeyStore, Spaces, UsageStore, Store)
        for name, method in vars(room).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }
    assert methods == set(METHODS) | WITHOUT_OWNER


IDS = ("over", "running", "talk", "chat", "room")


async def fill(store: Store) -> None:
    """Store for ann a completed response, a running one, a conversation, a chat, a space, a key, and a sum of
    usage, with contents."""
    await store.responses.put(response("over", log=b"theirs"), ["item-over"])
    await store.responses.begin(running_response("running", "ann"), 1)
    await store.conversations.create(conversation("talk", "ann"))
    await store.conversations.append("ann", "talk", [entry("entry-talk")])
    await METHODS["Chats.begin_turn"](store, "ann", "chat")
    await store.spaces.put(stored_space(), [stored_participant("ann")])
    theirs = stored_envelope(1, "their words", path="p", role="opens", correlation_id=("trigger",))
    await store.spaces.append(append([theirs], 0, state=b"theirs"))
    await store.keys.add(StoredKey(id="key", hash=b"hash", owner="ann", name="n", created_at=1.0))
    used = UsageKey("ann", "over", "2026-01-31", "m", "p/m", "USD")
    await store.usage.add([(used, UsageCounts(cost_nanos=1))])


async def everything_of_ann(store: Store) -> list[Any]:
    return [
        *[await store.responses.get("ann", id, log=True) for id in IDS],
        await store.responses.find_item("ann", "item-over"),
        [row for row in await store.responses.unfinished(1e9) if row[1] == "ann"],
        await store.conversations.get("ann", "talk"),
        await store.conversations.entries("ann", "talk"),
        await store.chats.get("ann", "chat"),
        await store.chats.turns("ann", "chat"),
        await store.chats.list("ann", query="their"),
        await store.spaces.get("room"),
        await store.spaces.participants("ann", "room"),
        await store.spaces.page("ann", "room"),
        await store.spaces.search("ann", "room", "their"),
        await store.spaces.state("ann", "room"),
        await store.keys.list("ann"),
        await store.usage.report(["day"], UsageFilter(owner="ann")),
    ]


async def outcome_of(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except PellucidError as error:
        return type(error), error.info


async def test_data_of_another_owner_is_not_visible(store: Store) -> None:
    for method, call in METHODS.items():
        nothing = [await outcome_of(call(store, "bob", id)) for id in IDS]
        for owner in ("ann", "bob"):
            await store.erase(owner)
        await fill(store)
        before = await everything_of_ann(store)
        assert [await outcome_of(call(store, "bob", id)) for id in IDS] == nothing, method
        assert await everything_of_ann(store) == before, method
        for owner in ("ann", "bob"):
            await store.erase(owner)


@pytest.mark.parametrize("id", ["nul\0", "half\ud800"])
async def test_an_invalid_id_is_not_found(store: Store, id: str) -> None:
    for method, call in METHODS.items():
        if method.split(".")[1] in ("put", "begin", "begin_turn", "finish", "create"):  # they validate a row
            continue
        if method in ("Spaces.add", "Spaces.append"):  # their errors name the missing space
            continue
        assert await outcome_of(call(store, "bob", id)) == await outcome_of(call(store, "bob", "absent"))
        assert await outcome_of(call(store, id, "over")) == await outcome_of(call(store, "absent", "over"))


async def test_a_previous_id_of_another_owner_is_not_found(store: Store, clock: Clock) -> None:
    await store.responses.put(response("over", expires_at=clock.now + 10))
    await store.responses.put(response("mine", "bob", previous_id="over", expires_at=None))
    ann = await store.responses.get("ann", "over")
    assert ann is not None
    assert ann.expires_at == clock.now + 10
    with pytest.raises(PellucidError, match="over"):
        await store.responses.chain("bob", "mine")


async def test_a_key_is_found_by_its_hash_even_if_revoked(store: Store) -> None:
    key = StoredKey(
        id="key", hash=bytes(range(32)), owner="ann", name="n", created_at=1.0, expires_at=2.0, policy=b"{}"
    )
    await store.keys.add(key)
    assert await store.keys.by_hash(key.hash) == key
    assert await store.keys.by_hash(b"other") is None
    assert await store.keys.revoke("key", 5.0) is True
    assert await store.keys.revoke("key", 6.0) is False
    assert await store.keys.revoke("none", 6.0) is False
    assert await store.keys.by_hash(key.hash) == replace(key, revoked_at=5.0)
    later = replace(key, id="later", hash=b"other", owner="bob", created_at=3.0)
    await store.keys.add(later)
    assert [listed_key.id for listed_key in await store.keys.list()] == ["key", "later"]
    assert await store.keys.list("bob") == (later,)
    for twice in (replace(later, id="third"), replace(later, hash=b"third")):
        with pytest.raises(PellucidError) as caught:
            await store.keys.add(twice)
        assert caught.value.info.code == "already_exists"
