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
from . import contents, record, search, tables
from .contents import RESPONSE
from .errors import ChatBusy, ChatGone, ChatMoved
from .names import check_names, finds
from .responses import (
    DELETE_WITH,
    NARROW,
    UNFINISHED,
    New,
    ResponseStatus,
    StoredResponse,
    branch,
    has_turn,
    insert,
    new_one,
    read_response,
    touch_chat,
)
from .statement import Ask, Database, Op, Params, Row, Statement, each, given


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


class FoundChat(NamedTuple):
    """One of a list."""

    chat: StoredChat
    snippet: str | None = None
    """Where what was searched for stands in the newest turn that holds it. None: in no turn (but in the title), or
    nothing was searched for."""


class ChatPage(NamedTuple):
    """A part of a list."""

    chats: list[FoundChat]
    has_more: bool
    last: str | None
    """What to give as `after` for the next page."""


# ---------------------------------------------------------------------------------------------- statements

_H, _R, _T = tables.chats, tables.responses, tables.texts
_FIELDS = StoredChat.__struct_fields__
_COLUMNS = [_H.c[name] for name in _FIELDS]

_owner, _id, _head, _now = given("for_owner"), given("for_id"), given("head"), given("now", sa.Double)
_alive = sa.or_(_H.c.expires_at.is_(None), _H.c.expires_at > _now)
_there = sa.and_(_H.c.owner == _owner, _H.c.id == _id, _alive)
_turn_alive = sa.or_(_R.c.expires_at.is_(None), _R.c.expires_at > _now)
_turn_of = sa.and_(_R.c.owner == _owner, _R.c.conversation_id == _id)

_INSERT = Statement(sa.insert(_H))
_GET = Statement(sa.select(*_COLUMNS).where(_there))
_LOCK = Statement(sa.select(*_COLUMNS).where(_there).with_for_update())
_HEAD = Statement(sa.select(_R.c.id, _R.c.status).where(_turn_of, _R.c.id == _head, _turn_alive))
_NEWEST = Statement(
    sa.select(_R.c.id, _R.c.status)
    .where(_turn_of, _turn_alive)
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(sa.literal_column("1"))
)
_UPDATE = Statement(sa.update(_H).where(_there).values(title=given("to_title"), head=given("to_head")))
_DELETE = Statement(sa.delete(_H).where(_there).returning(_H.c.id))
_turns_of = sa.select(_R.c.owner, _R.c.id).where(_turn_of).order_by(_R.c.created_at)
_DELETE_TURNS = Statement(
    sa.delete(_R).where(sa.tuple_(_R.c.owner, _R.c.id).in_(_turns_of)).returning(*(_R.c[name] for name in NARROW))
)
_SIBLINGS = Statement(
    sa.select(_R.c.previous_id, _R.c.id).where(_turn_of, _turn_alive).order_by(_R.c.created_at, _R.c.id)
)

_before = sa.tuple_(_H.c.updated_at, _H.c.id) < sa.tuple_(given("at", sa.Double), given("before"))
_in_order = (_H.c.updated_at.desc(), _H.c.id.desc())
_page = sa.select(*_COLUMNS).where(_H.c.owner == _owner, _alive, _before, has_turn(_H.c.owner, _H.c.id, _turn_alive))
_most = given("most", sa.BigInteger)
_LIST = Statement(_page.order_by(*_in_order).limit(_most))


_kept = sa.exists().where(_R.c.owner == _T.c.owner, _R.c.id == _T.c.id, _turn_alive)


def _searched(matched: search.Matched) -> sa.Select[Any]:
    found = matched.texts.where(sa.or_(_T.c.id == _T.c.of, _kept)).distinct().cte("found")
    page = _page.join(found, _H.c.id == found.c.of).order_by(*_in_order).limit(_most).subquery()
    turn = sa.and_(_T.c.owner == _owner, _T.c.scope == search.CHATS, _T.c.of == page.c.id, _T.c.id != page.c.id)
    newest = (
        sa.select(_T.c.text)
        .where(turn, matched.holds, _kept)
        .order_by(_T.c.number.desc())
        .limit(sa.literal_column("1"))
    )
    return sa.select(page, newest.scalar_subquery()).order_by(page.c.updated_at.desc(), page.c.id.desc())


_SEARCH = search.finding([_T.c.of], _searched)


# ---------------------------------------------------------------------------------------------- what can be asked


class _Begun(NamedTuple):
    chat: StoredChat
    new: New
    follows: str | None


def _begin_turn(begun: _Begun) -> Op[RequestError | None]:
    """What refuses it comes back, for an exception would have all that is written with it done again."""
    (chat, new, follows), row = begun, begun.new.response
    named = {"for_owner": chat.owner, "for_id": chat.id, "now": new.now}
    if chat.head is None:
        kept = replace(chat, updated_at=row.updated_at, expires_at=row.expires_at, head=row.id)
        yield Ask(_INSERT, msgspec.structs.asdict(kept))
        yield from search.add([_title(chat)])
        yield from insert([new])
        return None
    rows = yield Ask(_LOCK, named)  # another that begins a turn in it waits from here on
    if not rows:
        return ChatGone(chat.id)
    title, head = _chat(rows[0]).title, (yield from _head_of(rows[0], named))
    if head is None:
        return ChatGone(chat.id)
    if follows not in (None, head.id):
        return ChatMoved()
    if head.id != chat.head or head.status in UNFINISHED:
        return ChatBusy()
    yield from insert([new])
    yield Ask(_UPDATE, {**named, "to_title": title, "to_head": row.id})
    yield from touch_chat(row.owner, chat.id, at=row.updated_at, until=row.expires_at)
    return None


def _title(chat: StoredChat) -> search.Text:
    return search.Text(chat.owner, search.CHATS, chat.id, chat.id, chat.title)


class _Head(NamedTuple):
    id: str
    status: ResponseStatus


def _head_of(row: Row, params: Params) -> Op[_Head | None]:
    """Its head, or the newest turn there is, if that has expired before another branch has."""
    rows = yield Ask(_HEAD, {**params, "head": _chat(row).head})
    rows = rows or (yield Ask(_NEWEST, params))
    return _Head(*rows[0]) if rows else None


def _get(params: Params) -> Op[StoredChat | None]:
    return (yield from _read(_GET, params))


def _read(statement: Statement, params: Params) -> Op[StoredChat | None]:
    rows = yield Ask(statement, params)
    head = (yield from _head_of(rows[0], params)) if rows else None
    return replace(_chat(rows[0]), head=head.id) if head else None


def _update(params: Params) -> Op[StoredChat | RequestError | None]:
    there = yield from _read(_LOCK, params)
    if there is None:
        return None
    title, head = params["title"], params["head"]
    if head is not None:
        if not (yield Ask(_HEAD, params)):
            return RequestError(f"{head} is no turn of this conversation", code="not_a_turn", param="head")
        head = _newest_on(head, (yield Ask(_SIBLINGS, params)))
    updated = replace(there, title=there.title if title is None else title, head=head or there.head)
    yield Ask(_UPDATE, {**params, "to_title": updated.title, "to_head": updated.head})
    if updated.title != there.title:
        yield from search.put(_title(updated))
    return updated


def _newest_on(turn: str, turns: Sequence[Row]) -> str:
    """The newest of `turns` (oldest first) that goes on from this one: the end of the branch that was last asked in."""
    after: defaultdict[str | None, list[str]] = defaultdict(list)
    for previous, id in turns:
        after[previous].append(id)
    branch, ahead = set[str](), [turn]
    while ahead:
        one = ahead.pop()
        if one not in branch:
            branch.add(one)
            ahead += after[one]
    return [str(id) for _, id in turns if id in branch][-1]


def delete(params: Params) -> Op[list[StoredResponse] | None]:
    if not (yield Ask(_DELETE, params)):
        return None
    gone = [read_response(row) for row in (yield Ask(_DELETE_TURNS, params))]
    if gone:
        named: list[Params] = [{"for_owner": turn.owner, "for_id": turn.id} for turn in gone]
        for statement in DELETE_WITH:
            yield Ask(statement, named)
    yield from search.remove_of(params["for_owner"], search.CHATS, params["for_id"])
    scope = contents.of_conversation(params["for_id"])
    yield from record.end_of(params, [record.Gone(params["for_owner"], scope, RESPONSE, None)])
    return gone


def _turns(params: Params) -> Op[list[StoredResponse] | None]:
    chat = yield from _get(params)
    if chat is None:
        return None
    found = yield from branch({**params, "for_id": params["head"] or chat.head}, log=params["log"])
    if not found or found[-1].conversation_id != chat.id:
        return None
    return found


def _siblings(params: Params) -> Op[Mapping[str | None, list[str]]]:
    siblings: defaultdict[str | None, list[str]] = defaultdict(list)
    for previous, id in (yield Ask(_SIBLINGS, params)):
        siblings[previous].append(id)
    return dict(siblings)


def _list(params: Params) -> Op[ChatPage]:
    most, query, after = params["limit"], params["query"], params["after"]
    at, before = math.inf, ""
    if after is not None:
        place = _place(after)
        if place is None:
            chat = yield from _get({**params, "for_id": after})
            if chat is None:
                return ChatPage([], False, None)
            place = chat.updated_at, chat.id
        at, before = place
    paged = {**params, "at": at, "before": before, "most": most + 1}
    if query:
        rows = yield _SEARCH.ask({**paged, **search.asked(params["for_owner"], search.CHATS, query)})
    else:
        rows = yield Ask(_LIST, paged)
    found = [_found(row, query) for row in rows[:most]]
    last = f"{found[-1].chat.id}@{found[-1].chat.updated_at!r}" if found else None
    return ChatPage(found, len(rows) > most, last)


def _found(row: Row, query: str | None) -> FoundChat:
    text = row[len(_FIELDS)] if query else None
    return FoundChat(_chat(row), None if text is None else search.snippet(text, query or ""))


def _place(after: str) -> tuple[float, str] | None:
    id, at, updated_at = after.rpartition("@")
    try:
        return (float(updated_at), id) if at else None
    except ValueError:
        return None


_BEGIN_EACH, _UPDATE_EACH, _DELETE_EACH = each(_begin_turn), each(_update), each(delete)


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
        the head as whoever asks saw it, where that is known; `ChatGone` (kind `not_found`, code
        `conversation_not_found`) if it should be there and is not; `AlreadyStored` if there is a turn, or for a new
        chat a chat, with this id."""
        if (row.owner, row.conversation_id) != (chat.owner, chat.id):
            raise ValueError("a turn has its chat's owner, and its chat's id as conversation_id")
        check_names(**{"chat.id": chat.id, "chat.head": chat.head})
        new = new_one(row, (), fence, self._clock(), self._recording, finished=False)
        chat = replace(chat, title=search.keepable(chat.title))
        refused = await self._database.write(_BEGIN_EACH, _Begun(chat, new, follows))
        if refused is not None:
            raise refused

    @finds(None)
    async def get(self, owner: str, id: str) -> StoredChat | None:
        return await self._database.read(_get, self._asked(owner, id))

    async def update(
        self, owner: str, id: str, *, title: str | None = None, head: str | None = None
    ) -> StoredChat | None:
        """Give it another title, or another branch: that of the turn `head`, whose newest end becomes the chat's head.
        It must be a turn of this chat: `RequestError` (code `not_a_turn`) otherwise. It does not count as touched.
        None if there is no such chat."""
        changed = await self._change(owner, id, None if title is None else search.keepable(title), head)
        if isinstance(changed, RequestError):
            raise changed
        return changed

    @finds(None)
    async def _change(
        self, owner: str, id: str, title: str | None, head: str | None
    ) -> StoredChat | RequestError | None:
        return await self._database.write(_UPDATE_EACH, {**self._asked(owner, id), "title": title, "head": head})

    @finds(None)
    async def delete(self, owner: str, id: str) -> list[StoredResponse] | None:
        """Delete it with all its turns. Gives the turns that were there, without bodies, so that what still runs can
        be cancelled now (`not row.finished`) and all live logs let go of. None if there is no such chat."""
        return await self._database.write(_DELETE_EACH, {**self._asked(owner, id), "recording": self._recording})

    @finds(None)
    async def turns(
        self, owner: str, id: str, head: str | None = None, *, log: bool = True
    ) -> list[StoredResponse] | None:
        """The branch that ends in `head` (None: the chat's own), from its beginning, with logs if asked for. If a turn
        on the way is gone, those after it (then the first of them has a `previous_id`). None if there is no such chat,
        or no such turn in it."""
        return await self._database.read(_turns, {**self._asked(owner, id), "head": head, "log": log})

    @finds(MappingProxyType[str | None, list[str]]({}))
    async def siblings(self, owner: str, id: str) -> Mapping[str | None, list[str]]:
        """The ids of a chat's turns by what they follow (`previous_id`; None: nothing), oldest first. So a turn's
        versions are `siblings[turn.previous_id]`."""
        return await self._database.read(_siblings, self._asked(owner, id))

    async def list(
        self, owner: str, *, after: str | None = None, limit: int = 20, query: str | None = None
    ) -> ChatPage:
        """A page of this owner's chats, the last touched first: those after `after` (a page's `last`; the id of a
        chat will do, too, and stands for the place that it has now). `query`: only those that hold it in their title,
        a question or an answer (see `search`)."""
        return await self._page(owner, after, limit, query and search.keepable(query)) or ChatPage([], False, None)

    @finds(None)
    async def _page(self, owner: str, after: str | None, limit: int, query: str | None) -> ChatPage:
        params = {**self._asked(owner, ""), "after": after, "limit": limit, "query": query}
        return await self._database.read(_list, params)

    def _asked(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def _chat(row: Row) -> StoredChat:
    return StoredChat(**dict(zip(_FIELDS, row, strict=False)))
