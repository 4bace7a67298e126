"""Responses: what was asked, what came of it, and how it went.

The rules:

* A response that is over is put whole, once. One that runs in the background is begun, and gets exactly one end. What
  either adds to its conversation is there when it is: one transaction.
* Whoever did not hear that it was done may ask the same again. It finds its own there, and that is as good as done.
* Who may write that end is a matter of fences: whoever begins it or takes it over does so under a number, and an end
  under a lower number than the last comes too late.
* What search is to find of a response is there when the response is, and goes with it.
* A response may be a turn of a chat. It is news of its chat when it begins and when it ends; the chat expires no sooner
  than it; and the last one takes the chat along. That is done in the transaction in which the response is written.
* A conversation that goes on keeps its beginning: all that a response builds on expires no sooner than it does. So
  that a turn does not touch all turns before it, they get a little more than they need (`GRACE`), though never more
  than what they build on has. So the first on the way up that has enough is where the walk may end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from ..record import Recording
from . import contents, record, search, tables
from .contents import RESPONSE
from .conversations import ConversationEntry, add, appending
from .errors import AlreadyStored, BrokenChain
from .names import check_names, finds
from .statement import Ask, Database, Op, Params, Row, Statement, each, given, written

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNFINISHED: tuple[ResponseStatus, ...] = ("queued", "in_progress")

GRACE = 0.05
GRACE_SECONDS = 86400.0
"""What a response builds on lives on by this share of the response's own time, and by this long at most."""
LONGEST = 10_000
"""Responses in a conversation."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response as it is kept. What is bytes is its writer's business, and comes back as it was."""

    id: str
    owner: str
    created_at: float
    updated_at: float
    expires_at: float | None = None
    """None: when it is deleted."""
    status: ResponseStatus
    model: str
    previous_id: str | None = None
    conversation_id: str | None = None
    background: bool = False
    header: bytes = b""
    """What the protocol says about it (JSON)."""
    input: bytes = b"[]"
    """The input items as they were received, each with an id (a JSON array)."""
    messages: bytes = b"[]"
    """The messages that this turn added: what was asked and what was said (JSON)."""
    error: bytes | None = None
    log: bytes = b""
    """All its events, compressed. Empty wherever it was not asked for."""
    text: str | None = None
    """What search finds of it, in its chat: its question, and its answer when it is over. None: it is not to be found.
    Comes back from `take_over` alone, for whoever is to end it; elsewhere it is None."""

    @property
    def finished(self) -> bool:
        return self.status not in UNFINISHED


assert set(UNFINISHED) < set(get_args(ResponseStatus))

# ---------------------------------------------------------------------------------------------- statements

_R, _B, _I, _H, _T = tables.responses, tables.bodies, tables.items, tables.chats, tables.texts
NARROW = [name for name in _R.c.keys() if name != "fence"]  # noqa: SIM118 (a collection of columns is no dict)
_BODY = ["header", "input", "messages", "error"]

_owner, _id, _now = given("for_owner"), given("for_id"), given("now", sa.Double)
_alive = sa.or_(_R.c.expires_at.is_(None), _R.c.expires_at > _now)
_mine = sa.and_(_R.c.owner == _owner, _R.c.id == _id)
_joined = _R.join(_B, sa.and_(_B.c.owner == _R.c.owner, _B.c.response_id == _R.c.id))
_columns = [*(_R.c[name] for name in NARROW), *(_B.c[name] for name in _BODY)]

_INSERT, _INSERT_BODY, _INSERT_ITEM = (Statement(sa.insert(table)) for table in (_R, _B, _I))
_GET = Statement(sa.select(*_columns).select_from(_joined).where(_mine, _alive))
_GET_WITH_LOG = Statement(sa.select(*_columns, _B.c.log).select_from(_joined).where(_mine, _alive))

_END = Statement(
    sa.update(_R)
    .where(_mine, _R.c.status.in_(UNFINISHED), _R.c.fence <= given("under", sa.BigInteger))
    .values(
        status=given("to_status"),
        updated_at=given("at", sa.Double),
        expires_at=given("until", sa.Double),
        model=given("to_model"),
    )
    .returning(_R.c.conversation_id)
)
_END_BODY = Statement(
    sa.update(_B)
    .where(_B.c.owner == _owner, _B.c.response_id == _id)
    .values(
        {name: given(f"to_{name}", sa.LargeBinary) for name in (*_BODY, "log")} | {"item_ids": given("to_item_ids")}
    )
)
_TAKE_OVER = Statement(
    sa.update(_R)
    .where(_mine, _alive, _R.c.status.in_(UNFINISHED), _R.c.fence < given("under", sa.BigInteger))
    .values(fence=given("under", sa.BigInteger), updated_at=_now)
    .returning(_R.c.id)
)
_HOLD = Statement(
    sa.update(_R)
    .where(_mine, _R.c.status.in_(UNFINISHED), _R.c.fence <= given("under", sa.BigInteger))
    .values(fence=given("under", sa.BigInteger), updated_at=_now)
    .returning(_R.c.id)
)
_LEFT = Statement(
    sa.select(_R.c.id, _R.c.owner, _R.c.fence)
    .where(sa.text("status IN ('queued', 'in_progress')"), _R.c.updated_at < given("before", sa.Double), _alive)
    .order_by(_R.c.updated_at)
    .limit(given("most", sa.BigInteger))
)


def _lengthening() -> Statement:
    least, until = given("least", sa.Double), given("until", sa.Double)
    row = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, _R.c.expires_at)
    up = row.where(_mine, _alive).cte("up", recursive=True)
    # On from those that have too little. UNION, not UNION ALL: what was seen is not followed again.
    before = sa.and_(_R.c.owner == up.c.owner, _R.c.id == up.c.previous_id)
    up = up.union(row.join(up, before).where(_alive, up.c.expires_at < least))
    enough = sa.select(sa.func.min(up.c.expires_at)).where(up.c.expires_at >= least).scalar_subquery()
    short = sa.select(up.c.owner, up.c.id).where(up.c.expires_at < least)
    return Statement(
        sa.update(_R)
        .where(sa.tuple_(_R.c.owner, _R.c.id).in_(short))
        .values(expires_at=sa.case((enough < until, enough), else_=until))
    )


_LENGTHEN = _lengthening()


def _walk(*more: sa.ColumnElement[Any]) -> Statement:
    first = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, sa.literal_column("0", sa.Integer).label("steps"))
    up = first.where(_mine, _alive).cte("up", recursive=True)
    # The owner is taken along, although it stays the same: so each row is looked up by its whole key, and no planner
    # is led to read all that this owner has.
    before = sa.and_(_R.c.owner == up.c.owner, _R.c.id == up.c.previous_id)
    further = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, up.c.steps + 1).join(up, before)
    up = up.union_all(further.where(_alive, up.c.steps < LONGEST))
    way = (
        sa.select(up.c.owner, up.c.id, sa.func.min(up.c.steps).label("steps")).group_by(up.c.owner, up.c.id).subquery()
    )
    with_bodies = way.join(_R, sa.and_(_R.c.owner == way.c.owner, _R.c.id == way.c.id)).join(
        _B, sa.and_(_B.c.owner == way.c.owner, _B.c.response_id == way.c.id)
    )
    return Statement(sa.select(*_columns, *more).select_from(with_bodies).order_by(way.c.steps.desc()))


_CHAIN, _CHAIN_WITH_LOGS = _walk(), _walk(_B.c.log)

_DELETE = Statement(sa.delete(_R).where(_mine, _alive).returning(_R.c.conversation_id))
_DELETE_BODY = Statement(sa.delete(_B).where(_B.c.owner == _owner, _B.c.response_id == _id))
_listed_ids = "(SELECT item_ids FROM response_bodies WHERE owner = :for_owner AND response_id = :for_id)"
_mine_too = {"for_owner": sa.Text, "for_id": sa.Text}
_DELETE_LISTED = Statement(
    # All of the key comes out of the list: so each row is looked up by it, also by a planner that knows nothing of the
    # table and would otherwise look through all items of the owner.
    written(
        "DELETE FROM response_items WHERE (owner, item_id, response_id) IN "
        f"(SELECT :for_owner, json_array_elements_text(CAST({_listed_ids} AS json)), :for_id)",
        **_mine_too,
    ),
    sqlite=written(
        "DELETE FROM response_items WHERE owner = :for_owner AND response_id = :for_id AND item_id IN "
        f"(SELECT value FROM json_each({_listed_ids}))",
        **_mine_too,
    ),
)
_unlisted = "WHERE owner = :for_owner AND response_id = :for_id AND listed IS NULL"
_DELETE_UNLISTED = Statement(
    written(f"DELETE FROM response_items {_unlisted}", **_mine_too),
    # Left to itself, SQLite would rather look through all items of the owner than use an index of some rows.
    sqlite=written(f"DELETE FROM response_items INDEXED BY response_items_of {_unlisted}", **_mine_too),
)
_DELETE_TEXT = search.removal(search.CHATS)
DELETE_WITH = (_DELETE_LISTED, _DELETE_UNLISTED, _DELETE_BODY, _DELETE_TEXT)
"""What goes with a response, `for_id` of `for_owner`: its items before its body, which lists them."""


def has_turn(owner: Any, chat: Any, *more: Any) -> sa.ColumnElement[bool]:
    """Whether a chat has one. The newest is asked for: without an order, SQLite looks through all that an owner has."""
    one: sa.Select[Any] = sa.select(sa.literal_column("1"))
    newest = one.where(_R.c.owner == owner, _R.c.conversation_id == chat, *more).order_by(_R.c.created_at.desc())
    return newest.limit(sa.literal_column("1")).scalar_subquery().is_not(None)


_its_chat = sa.and_(_H.c.owner == _owner, _H.c.id == _id)
_at, _until = given("at", sa.Double), given("until", sa.Double)
_TOUCH = Statement(
    sa.update(_H)
    .where(_its_chat)
    .values(
        updated_at=sa.case((_H.c.updated_at < _at, _at), else_=_H.c.updated_at),
        expires_at=sa.case((_H.c.expires_at < given("least", sa.Double), _until), else_=_H.c.expires_at),
    )
)
EMPTIED = (
    Statement(sa.delete(_H).where(_its_chat, ~has_turn(_owner, _id))),
    Statement(sa.delete(_T).where(search.one_of(search.CHATS), ~sa.exists().where(_its_chat))),
)
"""What goes with the last turn of a chat, `for_id` of `for_owner`: the chat, and its title. With another, nothing."""

_FIND_ITEM = Statement(
    sa.select(_I.c.response_id)
    .select_from(_I.join(_R, sa.and_(_R.c.owner == _I.c.owner, _R.c.id == _I.c.response_id)))
    .where(_I.c.owner == _owner, _I.c.item_id == _id, _alive)
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(sa.literal_column("1"))
)

# ---------------------------------------------------------------------------------------------- what can be asked


class New(NamedTuple):
    response: StoredResponse
    item_ids: tuple[str, ...]
    fence: int
    now: float
    entries: list[ConversationEntry]
    recording: Recording


def insert(news: list[New]) -> Op[list[None]]:
    yield Ask(_INSERT, [{**_narrow(new.response), "fence": new.fence} for new in news])
    yield Ask(_INSERT_BODY, [_body(new) for new in news])
    yield from search.add(text for new in news if (text := _searched_text(new.response, new.response.conversation_id)))
    yield from _keep(news)
    return [None] * len(news)


def _keep(news: list[New]) -> Op[None]:
    """What goes with a new end of a conversation: its items are found by it, its beginning lives on, and a
    conversation with an id of its own has what was added. The record has all that is over."""
    if found := [
        {"owner": new.response.owner, "item_id": item, "response_id": new.response.id, "listed": True}
        for new in news
        for item in new.item_ids
    ]:
        yield Ask(_INSERT_ITEM, found)
    if longer := [_longer(new) for new in news if new.response.previous_id is not None]:
        yield Ask(_LENGTHEN, longer)
    noted: list[record.Noted] = []
    for new in news:
        response = new.response
        if response.finished:
            noted.append(_noted(response))
        if new.entries and response.conversation_id is not None:
            named = response.owner, response.conversation_id
            noted += yield from add(appending(*named, new.entries, response.expires_at, new.now))
    if noted:
        yield from record.append(news[0].recording, record.milliseconds(max(new.now for new in news)), noted)


def _noted(response: StoredResponse) -> record.Noted:
    scope = contents.of_response(response.id, response.conversation_id)
    kept = contents.content(RESPONSE, {name: getattr(response, name) for name in _RECORDED})
    return record.Noted(response.owner, scope, RESPONSE, response.id, kept)


def _longer(new: New) -> Params:
    until = new.response.expires_at
    return {
        "for_owner": new.response.owner,
        "for_id": new.response.previous_id,
        "now": new.now,
        "least": math.inf if until is None else until,
        "until": None if until is None else until + min(max(0.0, until - new.now) * GRACE, GRACE_SECONDS),
    }


def _end(new: New) -> Op[bool]:
    response = new.response
    mine = {"for_owner": response.owner, "for_id": response.id}
    ended = yield Ask(
        _END,
        {
            **mine,
            "under": new.fence,
            "to_status": response.status,
            "at": response.updated_at,
            "until": response.expires_at,
            "to_model": response.model,
        },
    )
    if not ended:
        there = yield from _get({**mine, "now": new.now, "log": True})
        return there is not None and _alike(there, response, _WRITTEN)
    body = {f"to_{name}": getattr(response, name) for name in (*_BODY, "log")}
    yield Ask(_END_BODY, {**mine, **body, "to_item_ids": _listing(new)})
    yield from _keep([new])
    if (chat := ended[0][0]) is not None:
        if text := _searched_text(response, chat):
            yield from search.put(text)
        yield from touch_chat(response.owner, chat, at=response.updated_at, until=response.expires_at)
    return True


def _searched_text(turn: StoredResponse, chat: str | None) -> search.Text | None:
    """What search is to find of a turn of a chat."""
    if turn.text is None or chat is None:
        return None
    return search.Text(turn.owner, search.CHATS, chat, turn.id, turn.text)


def _alike(one: StoredResponse, other: StoredResponse, fields: Iterable[str]) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def _get(params: Params) -> Op[StoredResponse | None]:
    rows = yield Ask(_GET_WITH_LOG if params["log"] else _GET, params)
    return read_response(rows[0]) if rows else None


def _take_over(params: Params) -> Op[StoredResponse | None]:
    if not (yield Ask(_TAKE_OVER, params)):
        return None
    taken = yield from _get({**params, "log": False})
    text = yield from search.text_of(params["for_owner"], search.CHATS, params["for_id"])
    return taken and replace(taken, text=text)


def _hold(params: Params) -> Op[bool]:
    return bool((yield Ask(_HOLD, params)))


def _unfinished(params: Params) -> Op[list[tuple[str, str, int]]]:
    return [(id, owner, fence) for id, owner, fence in (yield Ask(_LEFT, params))]


def delete(params: Params) -> Op[bool]:
    gone = yield Ask(_DELETE, params)
    if not gone:
        return False
    for statement in DELETE_WITH:
        yield Ask(statement, params)
    if (chat := gone[0][0]) is not None:
        for statement in EMPTIED:
            yield Ask(statement, {**params, "for_id": chat})
    scope = contents.of_response(params["for_id"], chat)
    yield from record.end_of(params, [record.Gone(params["for_owner"], scope, RESPONSE, params["for_id"])])
    return True


def touch_chat(owner: str, chat: str, *, at: float, until: float | None) -> Op[None]:
    """A turn of a chat, which expires at `until`, was begun or has ended: Unix times in seconds."""
    least = math.inf if until is None else until
    yield Ask(_TOUCH, {"for_owner": owner, "for_id": chat, "at": at, "least": least, "until": until})


def branch(params: Params, *, log: bool) -> Op[list[StoredResponse]]:
    """A response and as much of what it builds on as is there, oldest first."""
    return [read_response(row) for row in (yield Ask(_CHAIN_WITH_LOGS if log else _CHAIN, params))]


def _chain(params: Params) -> Op[list[StoredResponse]]:
    turns = yield from branch(params, log=False)
    if turns and (missing := turns[0].previous_id) is not None:
        if len(turns) > LONGEST or any(turn.id == missing for turn in turns):
            raise RequestError(
                f"this conversation is longer than {LONGEST} responses; begin a new one",
                code="conversation_too_long",
                param="previous_response_id",
            )
        raise BrokenChain(missing)
    return turns


def _find_item(params: Params) -> Op[str | None]:
    rows = yield Ask(_FIND_ITEM, params)
    return rows[0][0] if rows else None


_END_EACH, _TAKE_OVER_EACH, _DELETE_EACH = each(_end), each(_take_over), each(delete)
_HOLD_EACH = each(_hold)


class Responses:
    """`store.responses`. `clock` says what time it is, for what has expired."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def put(
        self, response: StoredResponse, item_ids: Iterable[str] = (), entries: Iterable[ConversationEntry] = ()
    ) -> None:
        """Keep a response that is over. `item_ids` are those by which `find_item` is to find it; `entries` go to the
        end of its conversation, if there is one, but for those that are in it already.

        Raises `AlreadyStored` if there is another one with this id."""
        new = new_one(response, item_ids, 0, self._clock(), self._recording, entries, finished=True)
        try:
            await self._database.write(insert, new)
        except AlreadyStored:
            there = await self.get(response.owner, response.id, log=True)
            if there is None or not _alike(there, response, _PUT):
                raise

    async def begin(self, response: StoredResponse, fence: int) -> None:
        """Keep a response that was accepted and is still to run, under this fence. Raises `AlreadyStored`."""
        new = new_one(response, (), fence, self._clock(), self._recording, finished=False)
        await self._database.write(insert, new)

    async def finish(
        self,
        response: StoredResponse,
        item_ids: Iterable[str],
        fence: int,
        entries: Iterable[ConversationEntry] = (),
    ) -> bool:
        """Write the end of a response that was begun, with `entries` as in `put`; whether it is its end now. It is not
        if it has another, if it is gone, or if somebody took it over under a higher fence."""
        new = new_one(response, item_ids, fence, self._clock(), self._recording, entries, finished=True)
        return await self._database.write(_END_EACH, new)

    @finds(None)
    async def take_over(self, owner: str, id: str, fence: int) -> StoredResponse | None:
        """Raise the fence of one that is not finished (and count it as touched now). None if it is finished or gone,
        or has a fence as high as that already: of several that try with the same, one gets it."""
        return await self._database.write(_TAKE_OVER_EACH, {**self._asked(owner, id), "under": fence})

    @finds(False)
    async def hold(self, owner: str, id: str, fence: int) -> bool:
        """Count it as touched now, under this fence or a new one of the same driver's. False if it is finished or gone,
        or somebody took it over under a higher fence."""
        return await self._database.write(_HOLD_EACH, {**self._asked(owner, id), "under": fence})

    async def unfinished(self, before: float, limit: int = 100) -> list[tuple[str, str, int]]:
        """Id, owner and fence of those that are not finished and were not touched since `before`, oldest first."""
        return await self._database.read(_unfinished, {"before": before, "most": limit, "now": self._clock()})

    @finds(None)
    async def get(self, owner: str, id: str, *, log: bool = False) -> StoredResponse | None:
        """The response; its log only if that is asked for."""
        return await self._database.read(_get, {**self._asked(owner, id), "log": log})

    @finds(None)
    async def chain(self, owner: str, id: str) -> list[StoredResponse] | None:
        """The response and all that it builds on, oldest first, without logs. None if there is no such response.

        Raises `BrokenChain` if one that it builds on is gone, `RequestError` if there are more than anyone can want
        (10,000)."""
        return await self._database.read(_chain, self._asked(owner, id)) or None

    @finds(False)
    async def delete(self, owner: str, id: str) -> bool:
        """Whether there was one."""
        return await self._database.write(_DELETE_EACH, {**self._asked(owner, id), "recording": self._recording})

    @finds(None)
    async def find_item(self, owner: str, item_id: str) -> str | None:
        """The id of the (newest) response that has this item."""
        return await self._database.read(_find_item, self._asked(owner, item_id))

    def _asked(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def new_one(
    response: StoredResponse,
    item_ids: Iterable[str],
    fence: int,
    now: float,
    recording: Recording,
    entries: Iterable[ConversationEntry] = (),
    *,
    finished: bool,
) -> New:
    """What `insert` takes. Raises `RequestError` for names that cannot be kept."""
    if response.finished is not finished:
        raise ValueError(
            f"a response that is {response.status} cannot be kept as one that is{' not' * (not finished)} over"
        )
    ids, added = tuple(dict.fromkeys(item_ids)), list(entries)
    check_names(
        id=response.id,
        owner=response.owner,
        model=response.model,
        previous_id=response.previous_id,
        conversation_id=response.conversation_id,
        **{f"item_ids[{place}]": item for place, item in enumerate(ids)},
        **{f"entries[{place}].id": entry.id for place, entry in enumerate(added)},
    )
    return New(response, ids, fence, now, added, recording)


def _narrow(response: StoredResponse) -> dict[str, Any]:
    return {name: getattr(response, name) for name in NARROW}


def _body(new: New) -> dict[str, Any]:
    response = new.response
    body = {name: getattr(response, name) for name in (*_BODY, "log")}
    return {"owner": response.owner, "response_id": response.id, **body, "item_ids": _listing(new)}


def _listing(new: New) -> str | None:
    return msgspec.json.encode(new.item_ids).decode() if new.item_ids else None


_FIELDS = [*NARROW, *_BODY, "log"]
_RECORDED = [name for names in contents.COLUMNS[RESPONSE] for name in names]
_BACKGROUND = _FIELDS.index("background")
_PUT = [name for name in _FIELDS if name != "expires_at"]
"""What stays as it was put, whatever goes on from it."""
_WRITTEN = ["status", "updated_at", "model", *_BODY, "log"]
"""What an end is, of these."""


def read_response(row: Row) -> StoredResponse:
    values = dict(zip(_FIELDS, row, strict=False))
    values["background"] = bool(row[_BACKGROUND])
    return StoredResponse(**values)
