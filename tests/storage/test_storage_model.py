"""Any sequence of calls by two owners with the same ids has the same results in a store and in a simple model."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import PellucidError
from pellucid.storage import (
    AlreadyStored,
    ChatBusy,
    ChatNotFound,
    ConversationEntry,
    PreviousResponseGone,
    Store,
    StoredChat,
    StoredConversation,
    StoredResponse,
    open_store,
)
from pellucid.storage.responses import GRACE_SHARE
from pellucid.storage.search import fold_text
from tests.storage.storage_kit import Clock


class CircularChain(Exception):
    """Responses that follow each other in a circle. Generated ids never do, but a chain of them must still end."""


class Model:
    """The expected behaviour of a store, with dictionaries."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.responses: dict[tuple[str, str], StoredResponse] = {}
        self.items: dict[tuple[str, str], list[str]] = {}
        self.fences: dict[tuple[str, str], int] = {}
        self.conversations: dict[tuple[str, str], StoredConversation] = {}
        self.entries: dict[tuple[str, str], list[ConversationEntry]] = {}
        self.positions: dict[tuple[str, str], int] = {}
        self.chats: dict[tuple[str, str], StoredChat] = {}
        self.texts: dict[tuple[str, str], str] = {}

    def is_live(self, row: Any) -> bool:
        return row is not None and (row.expires_at is None or row.expires_at > self.clock.now)

    def response(self, owner: str, id: str) -> StoredResponse | None:
        row = self.responses.get((owner, id))
        return row if self.is_live(row) else None

    def put(
        self,
        response: StoredResponse,
        item_ids: list[str],
        entries: list[ConversationEntry],
        fence: int = 0,
    ) -> None:
        key = response.owner, response.id
        if key in self.responses:
            raise AlreadyStored
        self.responses[key], self.items[key], self.fences[key] = replace(response, text=None), item_ids, fence
        if response.text is not None and response.conversation_id is not None:
            self.texts[key] = response.text
        self.extend_life(response)
        self.add(response, entries)

    def add(self, response: StoredResponse, entries: list[ConversationEntry]) -> None:
        """Add the entries that the conversation does not have yet; the others take a position, too."""
        key = response.owner, response.conversation_id or ""
        if response.conversation_id is None or not entries or self.conversation(*key) is None:
            return
        first = self.positions[key]
        for place, entry in enumerate(entries):
            if self.entry(*key, entry.id) is None:
                self.positions[key] = first + place
                self.append(*key, [entry], response.expires_at)
        self.append(*key, [], response.expires_at)
        self.positions[key] = first + len(entries)

    def extend_life(self, response: StoredResponse) -> None:
        until = math.inf if response.expires_at is None else response.expires_at
        longer = until + max(0, until - self.clock.now) * GRACE_SHARE
        short: dict[str, StoredResponse] = {}
        previous = response.previous_id
        while previous is not None and previous not in short and (row := self.response(response.owner, previous)):
            if row.expires_at is None or row.expires_at >= until:
                longer = min(longer, row.expires_at or math.inf)
                break
            short[row.id] = row
            previous = row.previous_id
        for id, row in short.items():
            self.responses[response.owner, id] = replace(row, expires_at=None if longer == math.inf else longer)

    def begin(self, response: StoredResponse, fence: int) -> None:
        self.put(response, [], [], fence)

    def finish(
        self, response: StoredResponse, item_ids: list[str], fence: int, entries: list[ConversationEntry]
    ) -> bool:
        key = response.owner, response.id
        row = self.responses.get(key)
        if row is None or row.is_finished or self.fences[key] > fence:
            return False
        # These fields keep the values from `begin`.
        begun_fields = ("created_at", "previous_id", "conversation_id", "background")
        self.responses[key] = replace(response, text=None, **{name: getattr(row, name) for name in begun_fields})
        if response.text is not None and row.conversation_id is not None:
            self.texts[key] = response.text
        self.touch(response, row.conversation_id)
        self.items[key] = item_ids
        self.extend_life(response)
        self.add(response, entries)
        return True

    def take_over(self, owner: str, id: str, fence: int) -> StoredResponse | None:
        row = self.response(owner, id)
        if row is None or row.is_finished or self.fences[owner, id] >= fence:
            return None
        self.fences[owner, id] = fence
        self.responses[owner, id] = replace(row, updated_at=self.clock.now)
        taken = self.get(owner, id)
        return taken and replace(taken, text=self.texts.get((owner, id)))

    def unfinished(self, before: float) -> list[tuple[str, str, int]]:
        rows = [row for row in self.responses.values() if self.is_live(row) and not row.is_finished]
        return sorted((row.id, row.owner, self.fences[row.owner, row.id]) for row in rows if row.updated_at < before)

    def get(self, owner: str, id: str, log: bool = False) -> StoredResponse | None:
        row = self.response(owner, id)
        return row and (row if log else replace(row, log=b""))

    def chain(self, owner: str, id: str) -> list[StoredResponse] | None:
        row = self.response(owner, id)
        if row is None:
            return None
        rows = [replace(row, log=b"")]
        while (previous := rows[0].previous_id) is not None:
            row = self.response(owner, previous)
            if row is None:
                raise PreviousResponseGone(previous)
            if any(row.id == other.id for other in rows):
                raise CircularChain
            rows.insert(0, replace(row, log=b""))
        return rows

    def delete(self, owner: str, id: str) -> bool:
        return self.response(owner, id) is not None and self.forget(owner, id)

    def forget(self, owner: str, id: str) -> bool:
        self.texts.pop((owner, id), None)
        chat = self.responses.pop((owner, id)).conversation_id or ""
        if not self.turns_of(owner, chat):
            self.chats.pop((owner, chat), None)
        return True

    def find_item(self, owner: str, item_id: str) -> str | None:
        rows = [self.response(*key) for key in self.responses if key[0] == owner and item_id in self.items[key]]
        newest = max((row for row in rows if row), key=lambda row: (row.created_at, row.id), default=None)
        return newest.id if newest else None

    def create(self, conversation: StoredConversation) -> None:
        key = conversation.owner, conversation.id
        if key in self.conversations:
            raise AlreadyStored
        self.conversations[key], self.entries[key], self.positions[key] = conversation, [], 0

    def conversation(self, owner: str, id: str) -> StoredConversation | None:
        row = self.conversations.get((owner, id))
        return row if self.is_live(row) else None

    def update(self, owner: str, id: str, metadata: dict[str, str]) -> StoredConversation | None:
        row = self.conversation(owner, id)
        if row:
            row = self.conversations[owner, id] = replace(row, metadata=metadata)
        return row

    def delete_conversation(self, owner: str, id: str) -> bool:
        return self.conversation(owner, id) is not None and self.conversations.pop((owner, id)) is not None

    def append(self, owner: str, id: str, entries: list[ConversationEntry], keep_until: float | None) -> Any:
        row, key = self.conversation(owner, id), (owner, id)
        if row is None:
            return None
        ids = [entry.id for entry in (*self.entries[key], *entries)]
        if len(set(ids)) < len(ids):
            raise AlreadyStored
        if row.expires_at is not None and row.expires_at < (math.inf if keep_until is None else keep_until):
            self.conversations[key] = replace(row, expires_at=keep_until)
        placed = [
            replace(entry, conversation_id=id, position=self.positions[key] + place)
            for place, entry in enumerate(entries)
        ]
        self.positions[key] += len(placed)
        self.entries[key] += placed
        return placed

    def page(self, owner: str, id: str, after: str | None, limit: int, order: str) -> list[ConversationEntry] | None:
        if self.conversation(owner, id) is None:
            return None
        entries = self.entries[owner, id][:: 1 if order == "asc" else -1]
        if after is not None:
            ids = [entry.id for entry in entries]
            if after not in ids:
                return None
            entries = entries[ids.index(after) + 1 :]
        return entries[:limit]

    def entry(self, owner: str, id: str, entry_id: str) -> ConversationEntry | None:
        entries = self.entries[owner, id] if self.conversation(owner, id) else []
        return next((entry for entry in entries if entry.id == entry_id), None)

    def delete_entry(self, owner: str, id: str, entry_id: str) -> bool:
        entry = self.entry(owner, id, entry_id)
        if entry:
            self.entries[owner, id].remove(entry)
        return entry is not None

    def begin_turn(self, chat: StoredChat, row: StoredResponse, fence: int) -> None:
        key, current = (chat.owner, chat.id), self.chat(chat.owner, chat.id)
        if chat.head is None:
            if key in self.chats:
                raise AlreadyStored
        elif current is None:
            raise ChatNotFound(chat.id)
        elif current.head != chat.head or not self.responses[chat.owner, current.head].is_finished:
            raise ChatBusy
        self.put(row, [], [], fence)
        self.chats[key] = replace(current or replace(chat, updated_at=0.0, expires_at=0.0), head=row.id)
        self.touch(row, chat.id)

    def touch(self, row: StoredResponse, id: str | None) -> None:
        chat = self.chats.get((row.owner, id or ""))
        if chat is not None:
            longer = chat.expires_at is not None and (row.expires_at is None or row.expires_at > chat.expires_at)
            until = row.expires_at if longer else chat.expires_at
            updated_at = max(row.updated_at, chat.updated_at)
            self.chats[row.owner, chat.id] = replace(chat, updated_at=updated_at, expires_at=until)

    def chat(self, owner: str, id: str) -> StoredChat | None:
        chat = self.chats.get((owner, id))
        turns = [row for row in self.turns_of(owner, id) if self.is_live(row)]
        if chat is None or not self.is_live(chat) or not turns:
            return None
        return chat if chat.head in [row.id for row in turns] else replace(chat, head=turns[-1].id)

    def turns_of(self, owner: str, id: str) -> list[StoredResponse]:
        rows = [row for row in self.responses.values() if (row.owner, row.conversation_id) == (owner, id)]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def change(self, owner: str, id: str, title: str | None, head: str | None) -> Any:
        chat, turn = self.chat(owner, id), self.response(owner, head or "")
        if chat is None:
            return None
        if head is not None and (turn is None or turn.conversation_id != id):
            return "not_a_turn"
        turns, branch = [row for row in self.turns_of(owner, id) if self.is_live(row)], {head}
        for _ in turns:
            branch |= {row.id for row in turns if row.previous_id in branch}
        head = [row.id for row in turns if row.id in branch][-1] if head is not None else chat.head
        self.chats[owner, id] = replace(chat, title=chat.title if title is None else title, head=head)
        return self.chats[owner, id]

    def delete_chat(self, owner: str, id: str) -> set[tuple[str, bool]] | None:
        if not self.is_live(self.chats.get((owner, id))):
            return None
        del self.chats[owner, id]
        deleted = self.turns_of(owner, id)
        for row in deleted:
            self.forget(owner, row.id)
        return {(row.id, row.is_finished) for row in deleted}

    def turns(self, owner: str, id: str, head: str | None) -> list[StoredResponse] | None:
        chat = self.chat(owner, id)
        row = self.response(owner, head or chat.head or "") if chat else None
        if row is None or row.conversation_id != id:
            return None
        branch: list[StoredResponse] = []
        while row is not None and row not in branch:
            branch.insert(0, row)
            row = self.response(owner, row.previous_id or "")
        return branch

    def siblings(self, owner: str, id: str) -> dict[str | None, list[str]]:
        children: dict[str | None, list[str]] = {}
        for row in self.turns_of(owner, id):
            if self.is_live(row):
                children.setdefault(row.previous_id, []).append(row.id)
        return children

    def list_chats(self, owner: str, query: str | None) -> list[StoredChat]:
        def matches(chat: StoredChat) -> bool:
            texts = [self.texts.get((owner, row.id), "") for row in self.turns_of(owner, chat.id) if self.is_live(row)]
            return not query or any(fold_text(query) in fold_text(text) for text in (chat.title, *texts))

        mine = [chat for chat in self.chats.values() if self.chat(owner, chat.id) is not None and chat.owner == owner]
        chats = [chat for chat in mine if matches(chat)]
        return sorted(chats, key=lambda chat: (chat.updated_at, chat.id), reverse=True)

    def expire(self) -> int:
        tables = self.chats, self.responses, self.conversations
        due = [(rows, key) for rows in tables for key, row in rows.items() if not self.is_live(row)]
        return self.drop(due)

    def erase(self, owner: str) -> int:
        tables = self.chats, self.responses, self.conversations
        return self.drop([(rows, key) for rows in tables for key in rows if key[0] == owner])

    def drop(self, dropped: list[tuple[Any, tuple[str, str]]]) -> int:
        for rows, key in dropped:
            if rows is self.responses:
                self.forget(*key)
            else:
                rows.pop(key, None)
        return len(dropped)


owners, ids = st.sampled_from(["ann", "bob"]), st.sampled_from([f"resp_{n}" for n in range(5)])
chat_ids, heads = st.sampled_from(["chat_1", "chat_2"]), st.one_of(st.none(), ids)
words = st.lists(st.sampled_from(["Straße", "STRASSE", "marmalade", "漢字", "%", "né", "a"]), max_size=3).map(" ".join)
conversation_ids, item_ids = st.sampled_from(["conv_1", "conv_2"]), st.sampled_from(["msg_1", "msg_2", "rs_1"])
soon = st.one_of(st.none(), st.integers(1, 60))
some_bytes = st.binary(max_size=20)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@st.composite
def responses(draw: st.DrawFn, finished: bool) -> dict[str, Any]:
    finished_fields = ["completed", "incomplete", "failed", "cancelled"]
    return {
        "owner": draw(owners),
        "id": draw(ids),
        "expires_in": draw(soon),
        "status": draw(st.sampled_from(finished_fields if finished else ["queued", "in_progress"])),
        "model": draw(texts),
        "previous_id": draw(st.one_of(st.none(), ids)),
        "conversation_id": draw(st.one_of(st.none(), conversation_ids, chat_ids, texts)),
        "background": draw(st.booleans()),
        "header": draw(some_bytes),
        "input": draw(some_bytes),
        "messages": draw(some_bytes),
        "error": draw(st.one_of(st.none(), some_bytes)),
        "log": draw(some_bytes),
        "text": draw(st.one_of(st.none(), words)),
    }


entries = st.lists(
    st.builds(ConversationEntry, id=item_ids, item=some_bytes, message=st.one_of(st.none(), some_bytes)), max_size=3
)
fences, metadata = st.integers(0, 4), st.dictionaries(texts, texts, max_size=2)
mine, conversation = (owners, ids), (owners, conversation_ids)

STEPS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "put": (responses(True), st.lists(item_ids), entries),
    "begin": (responses(False), fences),
    "finish": (responses(True), st.lists(item_ids), fences, entries),
    "take_over": (*mine, fences),
    "unfinished": (st.integers(-30, 30),),
    "get": (*mine, st.booleans()),
    "chain": mine,
    "delete": mine,
    "find_item": (owners, item_ids),
    "create": (*conversation, soon, metadata),
    "conversation": conversation,
    "update": (*conversation, metadata),
    "delete_conversation": conversation,
    "append": (*conversation, entries, soon),
    "page": (*conversation, st.one_of(st.none(), item_ids), st.integers(1, 4), st.sampled_from(["asc", "desc"])),
    "entry": (*conversation, item_ids),
    "delete_entry": (*conversation, item_ids),
    "begin_turn": (responses(False), chat_ids, words, st.sampled_from(["new", "gone", *["any"] * 4]), fences),
    "change": (owners, chat_ids, st.one_of(st.none(), words), heads),
    "delete_chat": (owners, chat_ids),
    "turns": (owners, chat_ids, heads),
    "siblings": (owners, chat_ids),
    "list_chats": (owners, st.one_of(st.none(), words)),
    "expire": (),
    "erase": (owners,),
    "wait": (st.integers(1, 40),),
}
# The most important steps are the most frequent ones.
NAMES = [*STEPS, "put", "put", "put", "begin", "append", "append", "chain", "get", "finish", "wait"]

Step = tuple[Any, ...]


def step(name: str) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *STEPS[name])


@st.composite
def chat_turns(draw: st.DrawFn) -> list[Step]:
    """A turn of one of ann's chats, mostly the first one, that begins and may finish."""
    who = {"owner": "ann", "id": draw(ids)}
    begun_fields = {**draw(responses(False)), **who}
    finished_fields = {**draw(responses(True)), **who, "text": draw(words)}
    chat = draw(st.sampled_from(["chat_1", "chat_1", "chat_2"]))
    begin = ("begin_turn", begun_fields, chat, draw(words), "any", 1)
    return [begin, ("finish", finished_fields, [], 1, [])] if draw(st.integers(0, 5)) else [begin]


CHAT_NAMES = [
    "change",
    "turns",
    "siblings",
    "list_chats",
    "delete",
    "delete_chat",
    "expire",
    "wait",
    "begin_turn",
    "chain",
]
one_step = st.sampled_from(NAMES).flatmap(step).map(lambda one: [one])
in_chats = st.sampled_from(CHAT_NAMES).flatmap(step).map(lambda one: [one])


def flatten(several: list[list[Step]]) -> list[Step]:
    return [one for steps in several for one in steps]


programs = st.one_of(
    st.lists(one_step, min_size=5, max_size=30).map(flatten),
    st.lists(st.one_of(chat_turns(), chat_turns(), in_chats), min_size=5, max_size=15).map(flatten),
)


async def play(store: Store, clock: Clock, program: list[tuple[Any, ...]]) -> None:
    model = Model(clock)
    ticks = itertools.count()
    store_responses, store_conversations = store.responses, store.conversations

    def make_response(fields: dict[str, Any]) -> StoredResponse:
        at, wait = clock.now + next(ticks) / 1024, fields["expires_in"]
        rest = {name: value for name, value in fields.items() if name != "expires_in"}
        return StoredResponse(created_at=at, updated_at=at, expires_at=wait and clock.now + wait, **rest)

    def make_conversation(owner: str, id: str, wait: int | None, metadata: dict[str, str]) -> StoredConversation:
        until = wait and clock.now + wait
        return StoredConversation(id=id, owner=owner, created_at=clock.now, expires_at=until, metadata=metadata)

    def turn(
        fields: dict[str, Any], id: str, title: str, which: str, fence: int
    ) -> tuple[StoredChat, StoredResponse, int]:
        row = make_response({**fields, "conversation_id": id})
        chat = StoredChat(id=id, owner=row.owner, title=title, created_at=clock.now, updated_at=0.0)
        if which == "gone":
            chat = replace(chat, head="resp_0")
        return model.chat(row.owner, id) or chat if which == "any" else chat, row, fence

    async def change(owner: str, id: str, title: str | None, head: str | None) -> Any:
        try:
            return await store.chats.update(owner, id, title=title, head=head)
        except PellucidError as error:
            return error.info.code

    async def delete_chat(owner: str, id: str) -> set[tuple[str, bool]] | None:
        deleted = await store.chats.delete(owner, id)
        return None if deleted is None else {(row.id, row.is_finished) for row in deleted}

    async def list_chats(owner: str, query: str | None) -> list[StoredChat]:
        chats: list[StoredChat] = []
        more, after = True, None
        while more:
            page, more, after = await store.chats.list(owner, query=query, after=after, limit=1)
            chats += [one.chat for one in page]
        return chats

    # The call of each step, and how its arguments are made from those of the step.
    async def unfinished(before: float) -> list[tuple[str, str, int]]:
        return sorted(await store_responses.unfinished(before))

    calls: dict[str, Callable[..., Any]] = {
        "get": lambda owner, id, log: store_responses.get(owner, id, log=log),
        "unfinished": unfinished,
        "create": store_conversations.create,
        "conversation": store_conversations.get,
        "update": store_conversations.update,
        "delete_conversation": store_conversations.delete,
        "append": lambda owner, id, new, until: store_conversations.append(owner, id, new, keep_until=until),
        "page": lambda owner, id, after, limit, order: store_conversations.entries(
            owner, id, after=after, limit=limit, order=order
        ),
        "entry": store_conversations.entry,
        "delete_entry": store_conversations.delete_entry,
        "begin_turn": store.chats.begin_turn,
        "change": change,
        "delete_chat": delete_chat,
        "turns": store.chats.turns,
        "siblings": store.chats.siblings,
        "list_chats": list_chats,
        "expire": lambda: store.expire(clock.now),
        "erase": store.erase,
    }
    arguments: dict[str, Callable[..., tuple[Any, ...]]] = {
        "put": lambda fields, ids, new: (make_response(fields), ids, new),
        "begin": lambda fields, fence: (make_response(fields), fence),
        "finish": lambda fields, ids, fence, new: (make_response(fields), ids, fence, new),
        "begin_turn": turn,
        "unfinished": lambda ago: (clock.now + ago,),
        "create": lambda *fields: (make_conversation(*fields),),
        "append": lambda owner, id, new, wait: (owner, id, new, wait and clock.now + wait),
    }
    for name, *drawn in program:
        if name == "wait":
            clock.now += drawn[0]
            continue
        args = arguments[name](*drawn) if name in arguments else tuple(drawn)
        expected: Any = None
        try:
            expected = getattr(model, name)(*args)
        except PreviousResponseGone as broken:
            expected = broken.missing_id
        except PellucidError as error:
            expected = type(error)
        except CircularChain:
            expected = "conversation_too_long"
        try:
            result = await (calls.get(name) or getattr(store_responses, name))(*args)
        except PreviousResponseGone as broken:
            result = broken.missing_id
        except PellucidError as error:
            result = error.info.code if expected == error.info.code else type(error)
        assert result == expected, (name, args)
        if name in ("put", "finish") and result in (None, True):
            # A caller that missed the reply repeats the call, which changes nothing.
            assert await getattr(store_responses, name)(*args) is result
    # At the end every query returns what the model returns.
    for owner, id in itertools.product(["ann", "bob"], [f"resp_{n}" for n in range(5)]):
        assert await store_responses.get(owner, id, log=True) == model.get(owner, id, log=True)
    for owner, item in itertools.product(["ann", "bob"], ["msg_1", "msg_2", "rs_1"]):
        assert await store_responses.find_item(owner, item) == model.find_item(owner, item)
    for owner, id in itertools.product(["ann", "bob"], ["conv_1", "conv_2"]):
        assert await store_conversations.get(owner, id) == model.conversation(owner, id)
        assert await store_conversations.entries(owner, id, limit=100) == model.page(owner, id, None, 100, "asc")
    for owner, id in itertools.product(["ann", "bob"], ["chat_1", "chat_2"]):
        assert await store.chats.get(owner, id) == model.chat(owner, id)
        assert await store.chats.siblings(owner, id) == model.siblings(owner, id)
    for owner, query in itertools.product(["ann", "bob"], [None, "strasse", "字", "e"]):
        assert await list_chats(owner, query) == model.list_chats(owner, query)


def test_a_store_behaves_like_the_model(url: str, clock: Clock) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url, clock=clock))

        @given(programs)
        def any_program(program: list[tuple[Any, ...]]) -> None:
            try:
                runner.run(play(store, clock, program))
            finally:
                for owner in ("ann", "bob"):
                    runner.run(store.erase(owner))

        try:
            any_program()
        finally:
            runner.run(store.aclose())
