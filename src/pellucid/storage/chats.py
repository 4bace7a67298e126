"""Chats: titles over branching turns.

A turn is a response with `conversation_id` = the chat's id and `previous_id` = the turn before it. So asking anew makes
a branch beside the old one, and nothing is destroyed. `head` is the last turn of the branch that is shown.

The rules:

* A turn and its chat are begun in one transaction, which is also where it is decided that the head is finished: of two
  requests at once, one begins.
* A chat lives as long as the longest-lived of its turns would by itself, and not without any.
* To delete a chat, delete it first and stop what runs in it afterwards: then nothing can begin in between, and the end
  of a run whose row is gone is kept nowhere.
* Chats are in the order in which they were last touched, and a page begins where that order stood when the last one
  was read. So what is touched meanwhile is not seen twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from ..record import Recording
from . import record_content, record_write, search, tables
from .errors import ChatBusy, ChatMoved, ChatNotFound
from .names import check_names, return_if_unstorable
from .record_content import RESPONSE
from .responses import (
    DELETE_DEPENDENTS,
    RESPONSE_COLUMNS,
    UNFINISHED,
    NewResponse,
    ResponseStatus,
    StoredResponse,
    build_new_response,
    has_turn,
    insert_responses,
    read_branch,
    response_from_row,
    touch_chat,
)
from .statement import Database, Execute, Operation, Params, Row, Statement, for_each, param


class StoredChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its turns. Times are in seconds since 1970."""

    id: str
    owner: str
    title: str
    created_at: float
    updated_at: float
    """When a turn of it was last begun or ended."""
    expires_at: float | None = None
    """None: when it is deleted."""
    head: str | None = None
    """The turn that is shown last. None: it has no turn yet, and is not kept before it has one. In a list it may have
    expired; `get` gives the newest in its place."""


class ChatListEntry(NamedTuple):
    """One of a list."""

    chat: StoredChat
    snippet: str | None = None
    """Where what was searched for stands in the newest turn that holds it. None: in no turn (but in the title), or
    nothing was searched for."""


class ChatPage(NamedTuple):
    """A part of a list."""

    chats: list[ChatListEntry]
    has_more: bool
    next_cursor: str | None
    """What to give as `after` for the next page."""


# ---------------------------------------------------------------------------------------------- statements

_H, _R, _T = tables.chats, tables.responses, tables.texts
_FIELDS = StoredChat.__struct_fields__
_COLUMNS = [_H.c[name] for name in _FIELDS]

_owner, _id, _head, _now = param("for_owner"), param("for_id"), param("head"), param("now", sa.Double)
_not_expired = sa.or_(_H.c.expires_at.is_(None), _H.c.expires_at > _now)
_this_chat = sa.and_(_H.c.owner == _owner, _H.c.id == _id, _not_expired)
_turn_not_expired = sa.or_(_R.c.expires_at.is_(None), _R.c.expires_at > _now)
_turn_of_chat = sa.and_(_R.c.owner == _owner, _R.c.conversation_id == _id)

_INSERT = Statement(sa.insert(_H))
_GET = Statement(sa.select(*_COLUMNS).where(_this_chat))
_LOCK = Statement(sa.select(*_COLUMNS).where(_this_chat).with_for_update())
_GET_HEAD = Statement(sa.select(_R.c.id, _R.c.status).where(_turn_of_chat, _R.c.id == _head, _turn_not_expired))
_NEWEST_TURN = Statement(
    sa.select(_R.c.id, _R.c.status)
    .where(_turn_of_chat, _turn_not_expired)
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(sa.literal_column("1"))
)
_UPDATE = Statement(sa.update(_H).where(_this_chat).values(title=param("to_title"), head=param("to_head")))
_DELETE = Statement(sa.delete(_H).where(_this_chat).returning(_H.c.id))
_turns_of = sa.select(_R.c.owner, _R.c.id).where(_turn_of_chat).order_by(_R.c.created_at)
_DELETE_TURNS = Statement(
    sa.delete(_R)
    .where(sa.tuple_(_R.c.owner, _R.c.id).in_(_turns_of))
    .returning(*(_R.c[name] for name in RESPONSE_COLUMNS))
)
_SIBLINGS = Statement(
    sa.select(_R.c.previous_id, _R.c.id).where(_turn_of_chat, _turn_not_expired).order_by(_R.c.created_at, _R.c.id)
)

_after_cursor = sa.tuple_(_H.c.updated_at, _H.c.id) < sa.tuple_(param("at", sa.Double), param("before"))
_newest_first = (_H.c.updated_at.desc(), _H.c.id.desc())
_page_query = sa.select(*_COLUMNS).where(
    _H.c.owner == _owner, _not_expired, _after_cursor, has_turn(_H.c.owner, _H.c.id, _turn_not_expired)
)
_limit = param("most", sa.BigInteger)
_LIST = Statement(_page_query.order_by(*_newest_first).limit(_limit))


_turn_exists = sa.exists().where(_R.c.owner == _T.c.owner, _R.c.id == _T.c.id, _turn_not_expired)


def _search_statement(matches: search.Matches) -> sa.Select[Any]:
    matching_chats = matches.texts.where(sa.or_(_T.c.id == _T.c.of, _turn_exists)).distinct().cte("found")
    page = (
        _page_query.join(matching_chats, _H.c.id == matching_chats.c.of)
        .order_by(*_newest_first)
        .limit(_limit)
        .subquery()
    )
    turn = sa.and_(_T.c.owner == _owner, _T.c.scope == search.CHATS, _T.c.of == page.c.id, _T.c.id != page.c.id)
    newest = (
        sa.select(_T.c.text)
        .where(turn, matches.holds, _turn_exists)
        .order_by(_T.c.number.desc())
        .limit(sa.literal_column("1"))
    )
    return sa.select(page, newest.scalar_subquery()).order_by(page.c.updated_at.desc(), page.c.id.desc())


_SEARCH = search.search_query([_T.c.of], _search_statement)


# ---------------------------------------------------------------------------------------------- what can be asked


class _NewTurn(NamedTuple):
    chat: StoredChat
    new_response: NewResponse
    expected_head: str | None


def _begin_turn(new_turn: _NewTurn) -> Operation[RequestError | None]:
    """What refuses it comes back, for an exception would have all that is written with it done again."""
    (chat, new_response, expected_head), row = new_turn, new_turn.new_response.response
    params = {"for_owner": chat.owner, "for_id": chat.id, "now": new_response.now}
    if chat.head is None:
        new_chat = replace(chat, updated_at=row.updated_at, expires_at=row.expires_at, head=row.id)
        yield Execute(_INSERT, msgspec.structs.asdict(new_chat))
        yield from search.insert_texts([_title_text(chat)])
        yield from insert_responses([new_response])
        return None
    rows = yield Execute(_LOCK, params)  # another that begins a turn in it waits from here on
    if not rows:
        return ChatNotFound(chat.id)
    title, head = _chat_from_row(rows[0]).title, (yield from _head_of(rows[0], params))
    if head is None:
        return ChatNotFound(chat.id)
    if expected_head not in (None, head.id):
        return ChatMoved()
    if head.id != chat.head or head.status in UNFINISHED:
        return ChatBusy()
    yield from insert_responses([new_response])
    yield Execute(_UPDATE, {**params, "to_title": title, "to_head": row.id})
    yield from touch_chat(row.owner, chat.id, at=row.updated_at, expires_at=row.expires_at)
    return None


def _title_text(chat: StoredChat) -> search.Text:
    return search.Text(chat.owner, search.CHATS, chat.id, chat.id, chat.title)


class _ChatHead(NamedTuple):
    id: str
    status: ResponseStatus


def _head_of(row: Row, params: Params) -> Operation[_ChatHead | None]:
    """Its head, or the newest turn there is, if that has expired before another branch has."""
    rows = yield Execute(_GET_HEAD, {**params, "head": _chat_from_row(row).head})
    rows = rows or (yield Execute(_NEWEST_TURN, params))
    return _ChatHead(*rows[0]) if rows else None


def _get(params: Params) -> Operation[StoredChat | None]:
    return (yield from _read_chat(_GET, params))


def _read_chat(statement: Statement, params: Params) -> Operation[StoredChat | None]:
    rows = yield Execute(statement, params)
    head = (yield from _head_of(rows[0], params)) if rows else None
    return replace(_chat_from_row(rows[0]), head=head.id) if head else None


def _update(params: Params) -> Operation[StoredChat | RequestError | None]:
    chat = yield from _read_chat(_LOCK, params)
    if chat is None:
        return None
    title, head = params["title"], params["head"]
    if head is not None:
        if not (yield Execute(_GET_HEAD, params)):
            return RequestError(f"{head} is no turn of this conversation", code="not_a_turn", param="head")
        head = _newest_descendant(head, (yield Execute(_SIBLINGS, params)))
    updated = replace(chat, title=chat.title if title is None else title, head=head or chat.head)
    yield Execute(_UPDATE, {**params, "to_title": updated.title, "to_head": updated.head})
    if updated.title != chat.title:
        yield from search.replace_text(_title_text(updated))
    return updated


def _newest_descendant(turn: str, turns: Sequence[Row]) -> str:
    """The newest of `turns` (oldest first) that goes on from this one: the end of the branch that was last asked in."""
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
    if not (yield Execute(_DELETE, params)):
        return None
    deleted_turns = [response_from_row(row) for row in (yield Execute(_DELETE_TURNS, params))]
    if deleted_turns:
        keys: list[Params] = [{"for_owner": turn.owner, "for_id": turn.id} for turn in deleted_turns]
        for statement in DELETE_DEPENDENTS:
            yield Execute(statement, keys)
    yield from search.delete_texts_of(params["for_owner"], search.CHATS, params["for_id"])
    scope = record_content.conversation_scope(params["for_id"])
    yield from record_write.record_removals_of(
        params, [record_write.RemovedContent(params["for_owner"], scope, RESPONSE, None)]
    )
    return deleted_turns


def _turns(params: Params) -> Operation[list[StoredResponse] | None]:
    chat = yield from _get(params)
    if chat is None:
        return None
    turns = yield from read_branch({**params, "for_id": params["head"] or chat.head}, log=params["log"])
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
    at, before = math.inf, ""
    if after is not None:
        position = _parse_cursor(after)
        if position is None:
            chat = yield from _get({**params, "for_id": after})
            if chat is None:
                return ChatPage([], False, None)
            position = chat.updated_at, chat.id
        at, before = position
    page_params = {**params, "at": at, "before": before, "most": limit + 1}
    if query:
        rows = yield _SEARCH.bind({**page_params, **search.search_params(params["for_owner"], search.CHATS, query)})
    else:
        rows = yield Execute(_LIST, page_params)
    entries = [_list_entry(row, query) for row in rows[:limit]]
    next_cursor = f"{entries[-1].chat.id}@{entries[-1].chat.updated_at!r}" if entries else None
    return ChatPage(entries, len(rows) > limit, next_cursor)


def _list_entry(row: Row, query: str | None) -> ChatListEntry:
    text = row[len(_FIELDS)] if query else None
    return ChatListEntry(_chat_from_row(row), None if text is None else search.snippet(text, query or ""))


def _parse_cursor(cursor: str) -> tuple[float, str] | None:
    id, at, updated_at = cursor.rpartition("@")
    try:
        return (float(updated_at), id) if at else None
    except ValueError:
        return None


_BEGIN_EACH, _UPDATE_EACH, _DELETE_EACH = for_each(_begin_turn), for_each(_update), for_each(delete)


class Chats:
    """`store.chats`. What a title holds that cannot be kept (NUL, half of a surrogate pair) is U+FFFD in it."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def begin_turn(
        self, chat: StoredChat, row: StoredResponse, fence: int, *, follows: str | None = None
    ) -> None:
        """Keep a turn that is still to run, under this fence (as `Responses.begin` does), as the head of its chat.

        `chat`: as it was read (`get`), or, with `head=None`, a new one, which is made with its title. `row` has
        `conversation_id=chat.id`. Raises `ChatBusy` (code `conversation_busy`) if the chat's head is not finished, or
        is another than `chat.head` by now; `ChatMoved` (code `conversation_moved`) if it is another than `follows`,
        the head as whoever asks saw it, where that is known; `ChatNotFound` (kind `response_not_found`, code
        `conversation_not_found`) if it should be there and is not; `AlreadyStored` if there is a turn, or for a new
        chat a chat, with this id."""
        if (row.owner, row.conversation_id) != (chat.owner, chat.id):
            raise ValueError("a turn has its chat's owner, and its chat's id as conversation_id")
        check_names(**{"chat.id": chat.id, "chat.head": chat.head})
        new_response = build_new_response(row, (), fence, self._clock(), self._recording, is_finished=False)
        chat = replace(chat, title=search.replace_unstorable(chat.title))
        refusal = await self._database.write(_BEGIN_EACH, _NewTurn(chat, new_response, follows))
        if refusal is not None:
            raise refusal

    @return_if_unstorable(None)
    async def get(self, owner: str, id: str) -> StoredChat | None:
        return await self._database.read(_get, self._params(owner, id))

    async def update(
        self, owner: str, id: str, *, title: str | None = None, head: str | None = None
    ) -> StoredChat | None:
        """Give it another title, or another branch: that of the turn `head`, whose newest end becomes the chat's head.
        It must be a turn of this chat: `RequestError` (code `not_a_turn`) otherwise. It does not count as touched.
        None if there is no such chat."""
        changed = await self._update(owner, id, None if title is None else search.replace_unstorable(title), head)
        if isinstance(changed, RequestError):
            raise changed
        return changed

    @return_if_unstorable(None)
    async def _update(
        self, owner: str, id: str, title: str | None, head: str | None
    ) -> StoredChat | RequestError | None:
        return await self._database.write(_UPDATE_EACH, {**self._params(owner, id), "title": title, "head": head})

    @return_if_unstorable(None)
    async def delete(self, owner: str, id: str) -> list[StoredResponse] | None:
        """Delete it with all its turns. Gives the turns that were there, without bodies, so that what still runs can
        be cancelled now (`not row.finished`) and all live logs let go of. None if there is no such chat."""
        return await self._database.write(_DELETE_EACH, {**self._params(owner, id), "recording": self._recording})

    @return_if_unstorable(None)
    async def turns(
        self, owner: str, id: str, head: str | None = None, *, log: bool = True
    ) -> list[StoredResponse] | None:
        """The branch that ends in `head` (None: the chat's own), from its beginning, with logs if asked for. If a turn
        on the way is gone, those after it (then the first of them has a `previous_id`). None if there is no such chat,
        or no such turn in it."""
        return await self._database.read(_turns, {**self._params(owner, id), "head": head, "log": log})

    @return_if_unstorable(MappingProxyType[str | None, list[str]]({}))
    async def siblings(self, owner: str, id: str) -> Mapping[str | None, list[str]]:
        """The ids of a chat's turns by what they follow (`previous_id`; None: nothing), oldest first. So a turn's
        versions are `siblings[turn.previous_id]`."""
        return await self._database.read(_siblings, self._params(owner, id))

    async def list(
        self, owner: str, *, after: str | None = None, limit: int = 20, query: str | None = None
    ) -> ChatPage:
        """A page of this owner's chats, the last touched first: those after `after` (a page's `last`; the id of a
        chat will do, too, and stands for the place that it has now). `query`: only those that hold it in their title,
        a question or an answer (see `search`)."""
        return await self._page(owner, after, limit, query and search.replace_unstorable(query)) or ChatPage(
            [], False, None
        )

    @return_if_unstorable(None)
    async def _page(self, owner: str, after: str | None, limit: int, query: str | None) -> ChatPage:
        params = {**self._params(owner, ""), "after": after, "limit": limit, "query": query}
        return await self._database.read(_list, params)

    def _params(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def _chat_from_row(row: Row) -> StoredChat:
    return StoredChat(**dict(zip(_FIELDS, row, strict=False)))
