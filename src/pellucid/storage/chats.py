"""Chats: each has a title, and turns that form branches.

A turn is a response whose `conversation_id` is the chat's id, and whose `previous_id` is the turn before it. Another
answer to a question makes a new branch, and the old branch remains. `head` is the last turn of the branch that is
shown.

The rules:

* A new turn and its chat are written in one transaction, which also checks that the head is finished: of two concurrent
  requests, one begins.
* A chat expires with the last of its turns. A chat without turns does not exist.
* To delete a chat, delete its rows first and stop its runs afterwards. Then no turn can begin in between, and the end
  of a run whose row was deleted is not stored.
* Chats are listed in the order of their last update. A page begins at the position that the cursor of the last page
  contains, so a chat that is updated meanwhile is not listed twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from . import record_write, search, tables
from .database import StoreOperations
from .errors import ChatBusy, ChatMoved, ChatNotFound
from .names import check_names, return_if_unstorable
from .record_write import RESPONSE
from .responses import (
    DELETE_DEPENDENTS,
    DELETE_SHARES,
    RESPONSE_COLUMNS,
    UNFINISHED,
    NewResponse,
    ResponseStatus,
    StoredResponse,
    build_new_response,
    check_branch,
    has_turn,
    insert_responses,
    read_branch,
    read_branch_with_logs,
    response_from_row,
    touch_chat,
)
from .statement import (
    ID,
    LIMIT,
    ONE,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    columns_of,
    for_each,
    not_expired,
    param,
    struct_from_row,
)

THREAD_PREFIX = "thread_"
"""Begins the ids of chats that are threads of AG-UI clients. Such chats are not listed."""


class StoredChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat, without its turns. Times are in seconds since 1970."""

    id: str
    owner: str
    title: str
    created_at: float
    updated_at: float
    """When one of its turns last began or ended."""
    expires_at: float | None = None
    """None: it does not expire."""
    head: str | None = None
    """Id of the last turn that is shown. None: the chat is new, and is stored with its first turn. In a list, this turn
    may have expired; `get` returns the newest turn instead."""
    instructions: str | None = None
    """The system prompt of each turn of the chat, in addition to the operator's instructions."""


class ChatListEntry(NamedTuple):
    """One chat of a list."""

    chat: StoredChat
    snippet: str | None = None
    """Text around the match in the newest turn that contains the query. None: only the title matches, or the list was
    not a search."""
    is_active: bool = False
    """Whether the turn that is shown last is not finished."""


class ChatPage(NamedTuple):
    """One page of a list of chats."""

    chats: list[ChatListEntry]
    has_more: bool
    next_cursor: str | None
    """The value of `after` for the next page."""


# ---------------------------------------------------------------------------------------------- statements

_H, _R, _T = tables.chats, tables.responses, tables.texts
_COLUMNS = columns_of(StoredChat, _H)

_this_chat = sa.and_(_H.c.owner == OWNER, _H.c.id == ID, not_expired(_H))
_turn_of_chat = sa.and_(_R.c.owner == OWNER, _R.c.conversation_id == ID)

_INSERT = Statement(sa.insert(_H))
_GET = Statement(sa.select(*_COLUMNS).where(_this_chat))
_LOCK = Statement(sa.select(*_COLUMNS).where(_this_chat).with_for_update())
_GET_HEAD = Statement(sa.select(_R.c.id, _R.c.status).where(_turn_of_chat, _R.c.id == param("head"), not_expired(_R)))
_NEWEST_TURN = Statement(
    sa.select(_R.c.id, _R.c.status)
    .where(_turn_of_chat, not_expired(_R))
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(ONE)
)
_MOVE_HEAD = Statement(sa.update(_H).where(_this_chat).values(head=param("to_head")))
_CHANGED_FIELDS = ("title", "head", "instructions")
_UPDATE = Statement(sa.update(_H).where(_this_chat).values({name: param(f"to_{name}") for name in _CHANGED_FIELDS}))
_DELETE = Statement(sa.delete(_H).where(_this_chat).returning(_H.c.id))
_turns_of = sa.select(_R.c.owner, _R.c.id).where(_turn_of_chat).order_by(_R.c.created_at)
_DELETE_TURNS = Statement(
    sa.delete(_R)
    .where(sa.tuple_(_R.c.owner, _R.c.id).in_(_turns_of))
    .returning(*(_R.c[name] for name in RESPONSE_COLUMNS))
)
_SIBLINGS = Statement(
    sa.select(_R.c.previous_id, _R.c.id).where(_turn_of_chat, not_expired(_R)).order_by(_R.c.created_at, _R.c.id)
)

_after_cursor = sa.tuple_(_H.c.updated_at, _H.c.id) < sa.tuple_(param("before_time", sa.Double), param("before_id"))
_newest_first = (_H.c.updated_at.desc(), _H.c.id.desc())
_head_is_active = (
    sa.exists()
    .where(_R.c.owner == _H.c.owner, _R.c.id == _H.c.head, _R.c.status.in_(UNFINISHED), not_expired(_R))
    .label("is_active")
)
_page_query = sa.select(*_COLUMNS, _head_is_active).where(
    _H.c.owner == OWNER,
    not_expired(_H),
    _after_cursor,
    has_turn(_H.c.owner, _H.c.id, not_expired(_R)),
    _H.c.id.not_like(f"{THREAD_PREFIX}%"),
)
_LIST = Statement(_page_query.order_by(*_newest_first).limit(LIMIT))

_turn_exists = sa.exists().where(_R.c.owner == _T.c.owner, _R.c.id == _T.c.id, not_expired(_R))


def _search_statement(matches: search.Matches) -> sa.Select[Any]:
    matching_chats = matches.texts.where(sa.or_(_T.c.id == _T.c.of, _turn_exists)).distinct().cte("found")
    page = (
        _page_query.join(matching_chats, _H.c.id == matching_chats.c.of)
        .order_by(*_newest_first)
        .limit(LIMIT)
        .subquery()
    )
    turn = sa.and_(_T.c.owner == OWNER, _T.c.scope == search.CHATS, _T.c.of == page.c.id, _T.c.id != page.c.id)
    newest = sa.select(_T.c.text).where(turn, matches.holds, _turn_exists).order_by(_T.c.number.desc()).limit(ONE)
    return sa.select(page, newest.scalar_subquery()).order_by(page.c.updated_at.desc(), page.c.id.desc())


_SEARCH = search.search_query([_T.c.of], _search_statement)


# ---------------------------------------------------------------------------------------------- operations


_chat_from_row = partial(struct_from_row, StoredChat)


class _NewTurn(NamedTuple):
    chat: StoredChat
    new_response: NewResponse
    expected_head: str | None


@for_each
def _begin_turn(new_turn: _NewTurn) -> Operation[RequestError | None]:
    """Write a new turn, and its chat if that is new.

    An error is returned, because an exception would repeat all writes of the transaction.
    """
    chat, new_response, expected_head = new_turn
    turn = new_response.response
    params = {"for_owner": chat.owner, "for_id": chat.id, "now": new_response.now}
    if chat.head is None:
        new_chat = replace(chat, updated_at=turn.updated_at, expires_at=turn.expires_at, head=turn.id)
        yield Execute(_INSERT, msgspec.structs.asdict(new_chat))
        yield from search.insert_texts([_title_text(chat)])
        yield from insert_responses([new_response])
        return None
    rows = yield Execute(_LOCK, params)  # concurrent turns of this chat wait from here on
    if not rows:
        return ChatNotFound(chat.id)
    head = yield from _head_of(rows[0], params)
    if head is None:
        return ChatNotFound(chat.id)
    if expected_head not in (None, head.id):
        return ChatMoved()
    if head.id != chat.head or head.status in UNFINISHED:
        return ChatBusy()
    yield from insert_responses([new_response])
    yield Execute(_MOVE_HEAD, {**params, "to_head": turn.id})
    yield from touch_chat(chat.id, turn)
    return None


def _title_text(chat: StoredChat) -> search.Text:
    return search.Text(chat.owner, search.CHATS, chat.id, chat.id, chat.title)


class _ChatHead(NamedTuple):
    id: str
    status: ResponseStatus


def _head_of(row: Row, params: Params) -> Operation[_ChatHead | None]:
    """Return the head of a chat; or its newest turn, if the head has expired before another branch."""
    rows = yield Execute(_GET_HEAD, {**params, "head": _chat_from_row(row).head})
    rows = rows or (yield Execute(_NEWEST_TURN, params))
    return _ChatHead(*rows[0]) if rows else None


def _get(params: Params) -> Operation[StoredChat | None]:
    return (yield from _read_chat(_GET, params))


def _read_chat(statement: Statement, params: Params) -> Operation[StoredChat | None]:
    rows = yield Execute(statement, params)
    head = (yield from _head_of(rows[0], params)) if rows else None
    return replace(_chat_from_row(rows[0]), head=head.id) if head else None


@for_each
def _update(params: Params) -> Operation[StoredChat | RequestError | None]:
    chat = yield from _read_chat(_LOCK, params)
    if chat is None or params["expected_title"] not in (None, chat.title):
        return chat
    title, head, instructions = params["title"], params["head"], params["instructions"]
    if head is not None:
        if not (yield Execute(_GET_HEAD, params)):
            return RequestError(f"{head} is not a turn of this conversation", code="not_a_turn", param="head")
        head = _newest_descendant(head, (yield Execute(_SIBLINGS, params)))
    updated = replace(
        chat,
        title=chat.title if title is None else title,
        head=head or chat.head,
        instructions=chat.instructions if instructions is None else instructions or None,
    )
    yield Execute(_UPDATE, {**params, **{f"to_{name}": getattr(updated, name) for name in _CHANGED_FIELDS}})
    if updated.title != chat.title:
        yield from search.replace_text(_title_text(updated))
    return updated


def _newest_descendant(turn: str, turns: Sequence[Row]) -> str:
    """Return the id of the newest turn that follows `turn`: the end of the branch that was last continued.

    Args:
        turn: Id of a turn.
        turns: (previous_id, id) of all turns of the chat, oldest first.
    """
    followers: defaultdict[str | None, list[str]] = defaultdict(list)
    for previous, id in turns:
        followers[previous].append(id)
    branch, to_visit = set[str](), [turn]
    while to_visit:
        id_on_branch = to_visit.pop()
        if id_on_branch not in branch:
            branch.add(id_on_branch)
            to_visit += followers[id_on_branch]
    return [str(id) for _, id in turns if id in branch][-1]


def delete(params: Params) -> Operation[list[StoredResponse] | None]:
    """Delete a chat and its turns (see `Chats.delete`)."""
    if not (yield Execute(_DELETE, params)):
        return None
    deleted_turns = [response_from_row(row) for row in (yield Execute(_DELETE_TURNS, params))]
    if deleted_turns:
        turn_keys: list[Params] = [{"for_owner": turn.owner, "for_id": turn.id} for turn in deleted_turns]
        for statement in DELETE_DEPENDENTS:
            yield Execute(statement, turn_keys)
    yield Execute(DELETE_SHARES, params)
    yield from search.delete_texts_of(params["for_owner"], search.CHATS, params["for_id"])
    scope = record_write.conversation_scope(params["for_id"])
    removed = record_write.RemovedContent(params["for_owner"], scope, RESPONSE, None)
    yield from record_write.record_removals_of(params, [removed])
    return deleted_turns


def _turns(params: Params) -> Operation[list[StoredResponse] | None]:
    chat = yield from _get(params)
    if chat is None:
        return None
    read = read_branch_with_logs if params["log"] else read_branch
    turns = yield from read({**params, "for_id": params["head"] or chat.head})
    if not params["log"]:  # who reads it shows what there is; a model must not get a part of it
        check_branch(turns, "conversation_id")
    if not turns or turns[-1].conversation_id != chat.id:
        return None
    return turns


def _siblings(params: Params) -> Operation[Mapping[str | None, list[str]]]:
    siblings: defaultdict[str | None, list[str]] = defaultdict(list)
    for previous, id in (yield Execute(_SIBLINGS, params)):
        siblings[previous].append(id)
    return dict(siblings)


def _list(params: Params) -> Operation[ChatPage]:
    limit, query, after = params["limit"], params["query"], params["after"]
    cursor: tuple[float, str] | None = math.inf, ""
    if after is not None and (cursor := _parse_cursor(after)) is None:
        chat = yield from _get({**params, "for_id": after})
        cursor = (chat.updated_at, chat.id) if chat else None
    if cursor is None:
        return ChatPage([], False, None)
    page_params = {**params, "before_time": cursor[0], "before_id": cursor[1], "most": limit + 1}
    if query:
        rows = yield _SEARCH.bind({**page_params, **search.search_params(params["for_owner"], search.CHATS, query)})
    else:
        rows = yield Execute(_LIST, page_params)
    entries = [_list_entry(row, query) for row in rows[:limit]]
    next_cursor = f"{entries[-1].chat.id}@{entries[-1].chat.updated_at!r}" if entries else None
    return ChatPage(entries, len(rows) > limit, next_cursor)


def _list_entry(row: Row, query: str | None) -> ChatListEntry:
    text = row[len(_COLUMNS) + 1] if query else None
    snippet = None if text is None else search.snippet(text, query or "")
    return ChatListEntry(_chat_from_row(row), snippet, bool(row[len(_COLUMNS)]))


def _parse_cursor(cursor: str) -> tuple[float, str] | None:
    id, separator, updated_at = cursor.rpartition("@")
    try:
        return (float(updated_at), id) if separator else None
    except ValueError:
        return None


_delete = for_each(delete)


class Chats(StoreOperations):
    """Operations on chats: `store.chats`. In titles, NUL and lone surrogates are replaced with U+FFFD."""

    async def begin_turn(
        self, chat: StoredChat, turn: StoredResponse, fence: int, *, follows: str | None = None
    ) -> None:
        """Store a turn that is about to run, with a fencing token (as `Responses.begin` does), as the head of its chat.

        Args:
            chat: The chat as `get` returned it; or a new chat with `head=None`, which is created with its title.
            turn: The turn. Its `conversation_id` is `chat.id`.
            fence: Fencing token of the driver.
            follows: The head that the client has seen, if known.

        Raises:
            ChatBusy: If the chat's head is not finished, or is not `chat.head` any more (code `conversation_busy`).
            ChatMoved: If the chat's head is not `follows` (code `conversation_moved`).
            ChatNotFound: If the chat does not exist (kind `not_found`, code `conversation_not_found`).
            AlreadyStored: If a turn with this id exists; for a new chat, also if a chat with its id exists.
        """
        if (turn.owner, turn.conversation_id) != (chat.owner, chat.id):
            raise ValueError("a turn has its chat's owner, and its chat's id as conversation_id")
        check_names(**{"chat.id": chat.id, "chat.head": chat.head})
        new_response = build_new_response(turn, (), fence, self._clock(), self.recording, is_finished=False)
        chat = replace(
            chat,
            title=search.replace_unstorable(chat.title),
            instructions=None if chat.instructions is None else search.replace_unstorable(chat.instructions),
        )
        refusal = await self._database.write(_begin_turn, _NewTurn(chat, new_response, follows))
        if refusal is not None:
            raise refusal

    @return_if_unstorable(None)
    async def get(self, owner: str, id: str) -> StoredChat | None:
        """Return a chat; None if it does not exist. Its `head` is a turn that has not expired."""
        return await self._database.read(_get, self._params(owner, id))

    async def update(
        self,
        owner: str,
        id: str,
        *,
        title: str | None = None,
        expected_title: str | None = None,
        head: str | None = None,
        instructions: str | None = None,
    ) -> StoredChat | None:
        """Change the title, the shown branch or the instructions of a chat. `updated_at` stays the same.

        Args:
            owner: Owner of the chat.
            id: Id of the chat.
            title: The new title; None: unchanged.
            expected_title: A chat with another title is not changed; None: any is.
            head: A turn of the branch to show. The newest turn that follows it becomes the chat's head. None:
            unchanged.
            instructions: The new instructions, empty for none; None: unchanged.

        Returns:
            The chat as it is now; None if it does not exist.

        Raises:
            RequestError: If `head` is not a turn of this chat (code `not_a_turn`).
        """
        changed = await self._update(
            owner,
            id,
            title=None if title is None else search.replace_unstorable(title),
            expected_title=expected_title,
            head=head,
            instructions=None if instructions is None else search.replace_unstorable(instructions),
        )
        if isinstance(changed, RequestError):
            raise changed
        return changed

    @return_if_unstorable(None)
    async def _update(self, owner: str, id: str, **changes: str | None) -> StoredChat | RequestError | None:
        return await self._database.write(_update, {**self._params(owner, id), **changes})

    @return_if_unstorable(None)
    async def delete(self, owner: str, id: str) -> list[StoredResponse] | None:
        """Delete a chat with all its turns.

        Returns:
            The deleted turns without their bodies, so that the caller can cancel those in progress and drop live logs;
            None if the chat does not exist.
        """
        return await self._database.write(_delete, self._params(owner, id))

    @return_if_unstorable(None)
    async def turns(
        self, owner: str, id: str, head: str | None = None, *, log: bool = True
    ) -> list[StoredResponse] | None:
        """Read one branch of a chat.

        Args:
            owner: Owner of the chat.
            id: Id of the chat.
            head: The last turn of the branch; None: the chat's head.
            log: Whether the turns contain their logs.

        Returns:
            The turns of the branch, from its beginning. If a turn was deleted, only the turns after it (then the first
            one has a `previous_id`). None if the chat does not exist, or does not contain the turn.
        """
        return await self._database.read(_turns, {**self._params(owner, id), "head": head, "log": log})

    @return_if_unstorable(MappingProxyType[str | None, list[str]]({}))
    async def siblings(self, owner: str, id: str) -> Mapping[str | None, list[str]]:
        """Return the ids of a chat's turns by their `previous_id`, oldest first; None is the key of first turns.

        So the versions of a turn are `siblings[turn.previous_id]`.
        """
        return await self._database.read(_siblings, self._params(owner, id))

    async def list(
        self, owner: str, *, after: str | None = None, limit: int = 20, query: str | None = None
    ) -> ChatPage:
        """Return a page of an owner's chats, the last updated first.

        Args:
            owner: Owner of the chats.
            after: `next_cursor` of the page before; or the id of a chat, for its current position.
            limit: Maximum number of chats.
            query: Only chats that contain this text in their title, a question or an answer (see `search`).
        """
        page = await self._page(owner, after, limit, query and search.replace_unstorable(query))
        return page or ChatPage([], False, None)

    @return_if_unstorable(None)
    async def _page(self, owner: str, after: str | None, limit: int, query: str | None) -> ChatPage:
        return await self._database.read(
            _list, {**self._params(owner, ""), "after": after, "limit": limit, "query": query}
        )
