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
  that a turn does not touch all turns before it, they get a little more than they need (`GRACE_SHARE`), though never more
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
from . import record_content, record_write, search, tables
from .conversations import ConversationEntry, add_entries, append_params
from .errors import AlreadyStored, PreviousResponseGone
from .names import check_names, return_if_unstorable
from .record_content import RESPONSE
from .statement import Database, Execute, Operation, Params, Row, Statement, for_each, param, raw_sql

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNFINISHED: tuple[ResponseStatus, ...] = ("queued", "in_progress")

GRACE_SHARE = 0.05
GRACE_SECONDS = 86400.0
"""What a response builds on lives on by this share of the response's own time, and by this long at most."""
MAX_CHAIN_LENGTH = 10_000
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
    def is_finished(self) -> bool:
        return self.status not in UNFINISHED


assert set(UNFINISHED) < set(get_args(ResponseStatus))

# ---------------------------------------------------------------------------------------------- statements

_R, _B, _I, _H, _T = tables.responses, tables.bodies, tables.items, tables.chats, tables.texts
RESPONSE_COLUMNS = [name for name in _R.c.keys() if name != "fence"]  # noqa: SIM118 (a collection of columns is no dict)
_BODY_COLUMNS = ["header", "input", "messages", "error"]

_owner, _id, _now = param("for_owner"), param("for_id"), param("now", sa.Double)
_not_expired = sa.or_(_R.c.expires_at.is_(None), _R.c.expires_at > _now)
_this_response = sa.and_(_R.c.owner == _owner, _R.c.id == _id)
_with_body = _R.join(_B, sa.and_(_B.c.owner == _R.c.owner, _B.c.response_id == _R.c.id))
_columns = [*(_R.c[name] for name in RESPONSE_COLUMNS), *(_B.c[name] for name in _BODY_COLUMNS)]

_INSERT, _INSERT_BODY, _INSERT_ITEM = (Statement(sa.insert(table)) for table in (_R, _B, _I))
_GET = Statement(sa.select(*_columns).select_from(_with_body).where(_this_response, _not_expired))
_GET_WITH_LOG = Statement(sa.select(*_columns, _B.c.log).select_from(_with_body).where(_this_response, _not_expired))

_END = Statement(
    sa.update(_R)
    .where(_this_response, _R.c.status.in_(UNFINISHED), _R.c.fence <= param("under", sa.BigInteger))
    .values(
        status=param("to_status"),
        updated_at=param("at", sa.Double),
        expires_at=param("until", sa.Double),
        model=param("to_model"),
    )
    .returning(_R.c.conversation_id)
)
_END_BODY = Statement(
    sa.update(_B)
    .where(_B.c.owner == _owner, _B.c.response_id == _id)
    .values(
        {name: param(f"to_{name}", sa.LargeBinary) for name in (*_BODY_COLUMNS, "log")}
        | {"item_ids": param("to_item_ids")}
    )
)
_TAKE_OVER = Statement(
    sa.update(_R)
    .where(_this_response, _not_expired, _R.c.status.in_(UNFINISHED), _R.c.fence < param("under", sa.BigInteger))
    .values(fence=param("under", sa.BigInteger), updated_at=_now)
    .returning(_R.c.id)
)
_TOUCH_RUN = Statement(
    sa.update(_R)
    .where(_this_response, _R.c.status.in_(UNFINISHED), _R.c.fence <= param("under", sa.BigInteger))
    .values(fence=param("under", sa.BigInteger), updated_at=_now)
    .returning(_R.c.id)
)
_UNTOUCHED = Statement(
    sa.select(_R.c.id, _R.c.owner, _R.c.fence)
    .where(sa.text("status IN ('queued', 'in_progress')"), _R.c.updated_at < param("before", sa.Double), _not_expired)
    .order_by(_R.c.updated_at)
    .limit(param("most", sa.BigInteger))
)


def _extension_statement() -> Statement:
    min_expires_at, new_expires_at = param("least", sa.Double), param("until", sa.Double)
    row = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, _R.c.expires_at)
    ancestors = row.where(_this_response, _not_expired).cte("up", recursive=True)
    # On from those that have too little. UNION, not UNION ALL: what was seen is not followed again.
    is_ancestor = sa.and_(_R.c.owner == ancestors.c.owner, _R.c.id == ancestors.c.previous_id)
    ancestors = ancestors.union(
        row.join(ancestors, is_ancestor).where(_not_expired, ancestors.c.expires_at < min_expires_at)
    )
    enough = (
        sa.select(sa.func.min(ancestors.c.expires_at)).where(ancestors.c.expires_at >= min_expires_at).scalar_subquery()
    )
    too_short = sa.select(ancestors.c.owner, ancestors.c.id).where(ancestors.c.expires_at < min_expires_at)
    return Statement(
        sa.update(_R)
        .where(sa.tuple_(_R.c.owner, _R.c.id).in_(too_short))
        .values(expires_at=sa.case((enough < new_expires_at, enough), else_=new_expires_at))
    )


_EXTEND_EXPIRY = _extension_statement()


def _chain_statement(*more: sa.ColumnElement[Any]) -> Statement:
    first = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, sa.literal_column("0", sa.Integer).label("steps"))
    ancestors = first.where(_this_response, _not_expired).cte("up", recursive=True)
    # The owner is taken along, although it stays the same: so each row is looked up by its whole key, and no planner
    # is led to read all that this owner has.
    is_ancestor = sa.and_(_R.c.owner == ancestors.c.owner, _R.c.id == ancestors.c.previous_id)
    next_ancestors = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, ancestors.c.steps + 1).join(
        ancestors, is_ancestor
    )
    ancestors = ancestors.union_all(next_ancestors.where(_not_expired, ancestors.c.steps < MAX_CHAIN_LENGTH))
    chain = (
        sa.select(ancestors.c.owner, ancestors.c.id, sa.func.min(ancestors.c.steps).label("steps"))
        .group_by(ancestors.c.owner, ancestors.c.id)
        .subquery()
    )
    with_bodies = chain.join(_R, sa.and_(_R.c.owner == chain.c.owner, _R.c.id == chain.c.id)).join(
        _B, sa.and_(_B.c.owner == chain.c.owner, _B.c.response_id == chain.c.id)
    )
    return Statement(sa.select(*_columns, *more).select_from(with_bodies).order_by(chain.c.steps.desc()))


_CHAIN, _CHAIN_WITH_LOGS = _chain_statement(), _chain_statement(_B.c.log)

_DELETE = Statement(sa.delete(_R).where(_this_response, _not_expired).returning(_R.c.conversation_id))
_DELETE_BODY = Statement(sa.delete(_B).where(_B.c.owner == _owner, _B.c.response_id == _id))
_listed_ids_sql = "(SELECT item_ids FROM response_bodies WHERE owner = :for_owner AND response_id = :for_id)"
_this_response_params = {"for_owner": sa.Text, "for_id": sa.Text}
_DELETE_LISTED = Statement(
    # All of the key comes out of the list: so each row is looked up by it, also by a planner that knows nothing of the
    # table and would otherwise look through all items of the owner.
    raw_sql(
        "DELETE FROM response_items WHERE (owner, item_id, response_id) IN "
        f"(SELECT :for_owner, json_array_elements_text(CAST({_listed_ids_sql} AS json)), :for_id)",
        **_this_response_params,
    ),
    sqlite=raw_sql(
        "DELETE FROM response_items WHERE owner = :for_owner AND response_id = :for_id AND item_id IN "
        f"(SELECT value FROM json_each({_listed_ids_sql}))",
        **_this_response_params,
    ),
)
_unlisted_items_sql = "WHERE owner = :for_owner AND response_id = :for_id AND listed IS NULL"
_DELETE_UNLISTED = Statement(
    raw_sql(f"DELETE FROM response_items {_unlisted_items_sql}", **_this_response_params),
    # Left to itself, SQLite would rather look through all items of the owner than use an index of some rows.
    sqlite=raw_sql(
        f"DELETE FROM response_items INDEXED BY response_items_of {_unlisted_items_sql}", **_this_response_params
    ),
)
_DELETE_TEXT = search.delete_statement(search.CHATS)
DELETE_DEPENDENTS = (_DELETE_LISTED, _DELETE_UNLISTED, _DELETE_BODY, _DELETE_TEXT)
"""What goes with a response, `for_id` of `for_owner`: its items before its body, which lists them."""


def has_turn(owner: Any, chat: Any, *more: Any) -> sa.ColumnElement[bool]:
    """Whether a chat has one. The newest is asked for: without an order, SQLite looks through all that an owner has."""
    one: sa.Select[Any] = sa.select(sa.literal_column("1"))
    newest = one.where(_R.c.owner == owner, _R.c.conversation_id == chat, *more).order_by(_R.c.created_at.desc())
    return newest.limit(sa.literal_column("1")).scalar_subquery().is_not(None)


_this_chat = sa.and_(_H.c.owner == _owner, _H.c.id == _id)
_at, _until = param("at", sa.Double), param("until", sa.Double)
_TOUCH_CHAT = Statement(
    sa.update(_H)
    .where(_this_chat)
    .values(
        updated_at=sa.case((_H.c.updated_at < _at, _at), else_=_H.c.updated_at),
        expires_at=sa.case((_H.c.expires_at < param("least", sa.Double), _until), else_=_H.c.expires_at),
    )
)
DELETE_EMPTY_CHAT = (
    Statement(sa.delete(_H).where(_this_chat, ~has_turn(_owner, _id))),
    Statement(sa.delete(_T).where(search.text_with_id(search.CHATS), ~sa.exists().where(_this_chat))),
)
"""What goes with the last turn of a chat, `for_id` of `for_owner`: the chat, and its title. With another, nothing."""

_FIND_ITEM = Statement(
    sa.select(_I.c.response_id)
    .select_from(_I.join(_R, sa.and_(_R.c.owner == _I.c.owner, _R.c.id == _I.c.response_id)))
    .where(_I.c.owner == _owner, _I.c.item_id == _id, _not_expired)
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(sa.literal_column("1"))
)

# ---------------------------------------------------------------------------------------------- what can be asked


class NewResponse(NamedTuple):
    response: StoredResponse
    item_ids: tuple[str, ...]
    fence: int
    now: float
    entries: list[ConversationEntry]
    recording: Recording


def insert_responses(new_responses: list[NewResponse]) -> Operation[list[None]]:
    yield Execute(_INSERT, [{**_response_row(new.response), "fence": new.fence} for new in new_responses])
    yield Execute(_INSERT_BODY, [_body_row(new) for new in new_responses])
    yield from search.insert_texts(
        text for new in new_responses if (text := _search_text(new.response, new.response.conversation_id))
    )
    yield from _write_related(new_responses)
    return [None] * len(new_responses)


def _write_related(new_responses: list[NewResponse]) -> Operation[None]:
    """What goes with a new end of a conversation: its items are found by it, its beginning lives on, and a
    conversation with an id of its own has what was added. The record has all that is over."""
    if item_rows := [
        {"owner": new.response.owner, "item_id": item, "response_id": new.response.id, "listed": True}
        for new in new_responses
        for item in new.item_ids
    ]:
        yield Execute(_INSERT_ITEM, item_rows)
    if extensions := [_extension_params(new) for new in new_responses if new.response.previous_id is not None]:
        yield Execute(_EXTEND_EXPIRY, extensions)
    record_entries: list[record_write.NewEntry] = []
    for new in new_responses:
        response = new.response
        if response.is_finished:
            record_entries.append(_record_entry(response))
        if new.entries and response.conversation_id is not None:
            conversation_key = response.owner, response.conversation_id
            record_entries += yield from add_entries(
                append_params(*conversation_key, new.entries, response.expires_at, new.now)
            )
    if record_entries:
        yield from record_write.append_entries(
            new_responses[0].recording,
            record_write.to_milliseconds(max(new.now for new in new_responses)),
            record_entries,
        )


def _record_entry(response: StoredResponse) -> record_write.NewEntry:
    scope = record_content.response_scope(response.id, response.conversation_id)
    content = record_content.build_content(RESPONSE, {name: getattr(response, name) for name in _RECORDED})
    return record_write.NewEntry(response.owner, scope, RESPONSE, response.id, content)


def _extension_params(new: NewResponse) -> Params:
    expires_at = new.response.expires_at
    return {
        "for_owner": new.response.owner,
        "for_id": new.response.previous_id,
        "now": new.now,
        "least": math.inf if expires_at is None else expires_at,
        "until": None
        if expires_at is None
        else expires_at + min(max(0.0, expires_at - new.now) * GRACE_SHARE, GRACE_SECONDS),
    }


def _write_end(new: NewResponse) -> Operation[bool]:
    response = new.response
    key = {"for_owner": response.owner, "for_id": response.id}
    rows = yield Execute(
        _END,
        {
            **key,
            "under": new.fence,
            "to_status": response.status,
            "at": response.updated_at,
            "until": response.expires_at,
            "to_model": response.model,
        },
    )
    if not rows:
        stored = yield from _get({**key, "now": new.now, "log": True})
        return stored is not None and _are_equal(stored, response, _END_FIELDS)
    body = {f"to_{name}": getattr(response, name) for name in (*_BODY_COLUMNS, "log")}
    yield Execute(_END_BODY, {**key, **body, "to_item_ids": _item_ids_json(new)})
    yield from _write_related([new])
    if (chat := rows[0][0]) is not None:
        if text := _search_text(response, chat):
            yield from search.replace_text(text)
        yield from touch_chat(response.owner, chat, at=response.updated_at, expires_at=response.expires_at)
    return True


def _search_text(turn: StoredResponse, chat: str | None) -> search.Text | None:
    """What search is to find of a turn of a chat."""
    if turn.text is None or chat is None:
        return None
    return search.Text(turn.owner, search.CHATS, chat, turn.id, turn.text)


def _are_equal(one: StoredResponse, other: StoredResponse, fields: Iterable[str]) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def _get(params: Params) -> Operation[StoredResponse | None]:
    rows = yield Execute(_GET_WITH_LOG if params["log"] else _GET, params)
    return response_from_row(rows[0]) if rows else None


def _take_over(params: Params) -> Operation[StoredResponse | None]:
    if not (yield Execute(_TAKE_OVER, params)):
        return None
    response = yield from _get({**params, "log": False})
    text = yield from search.get_text(params["for_owner"], search.CHATS, params["for_id"])
    return response and replace(response, text=text)


def _touch_run(params: Params) -> Operation[bool]:
    return bool((yield Execute(_TOUCH_RUN, params)))


def _unfinished(params: Params) -> Operation[list[tuple[str, str, int]]]:
    return [(id, owner, fence) for id, owner, fence in (yield Execute(_UNTOUCHED, params))]


def delete(params: Params) -> Operation[bool]:
    rows = yield Execute(_DELETE, params)
    if not rows:
        return False
    for statement in DELETE_DEPENDENTS:
        yield Execute(statement, params)
    if (chat := rows[0][0]) is not None:
        for statement in DELETE_EMPTY_CHAT:
            yield Execute(statement, {**params, "for_id": chat})
    scope = record_content.response_scope(params["for_id"], chat)
    yield from record_write.record_removals_of(
        params, [record_write.RemovedContent(params["for_owner"], scope, RESPONSE, params["for_id"])]
    )
    return True


def touch_chat(owner: str, chat: str, *, at: float, expires_at: float | None) -> Operation[None]:
    """A turn of a chat, which expires at `until`, was begun or has ended: Unix times in seconds."""
    min_expires_at = math.inf if expires_at is None else expires_at
    yield Execute(
        _TOUCH_CHAT, {"for_owner": owner, "for_id": chat, "at": at, "least": min_expires_at, "until": expires_at}
    )


def read_branch(params: Params, *, log: bool) -> Operation[list[StoredResponse]]:
    """A response and as much of what it builds on as is there, oldest first."""
    return [response_from_row(row) for row in (yield Execute(_CHAIN_WITH_LOGS if log else _CHAIN, params))]


def _chain(params: Params) -> Operation[list[StoredResponse]]:
    turns = yield from read_branch(params, log=False)
    if turns and (missing := turns[0].previous_id) is not None:
        if len(turns) > MAX_CHAIN_LENGTH or any(turn.id == missing for turn in turns):
            raise RequestError(
                f"this conversation is longer than {MAX_CHAIN_LENGTH} responses; begin a new one",
                code="conversation_too_long",
                param="previous_response_id",
            )
        raise PreviousResponseGone(missing)
    return turns


def _find_item(params: Params) -> Operation[str | None]:
    rows = yield Execute(_FIND_ITEM, params)
    return rows[0][0] if rows else None


_END_EACH, _TAKE_OVER_EACH, _DELETE_EACH = for_each(_write_end), for_each(_take_over), for_each(delete)
_TOUCH_RUN_EACH = for_each(_touch_run)


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
        new = build_new_response(response, item_ids, 0, self._clock(), self._recording, entries, is_finished=True)
        try:
            await self._database.write(insert_responses, new)
        except AlreadyStored:
            stored = await self.get(response.owner, response.id, log=True)
            if stored is None or not _are_equal(stored, response, _IMMUTABLE_FIELDS):
                raise

    async def begin(self, response: StoredResponse, fence: int) -> None:
        """Keep a response that was accepted and is still to run, under this fence. Raises `AlreadyStored`."""
        new = build_new_response(response, (), fence, self._clock(), self._recording, is_finished=False)
        await self._database.write(insert_responses, new)

    async def finish(
        self,
        response: StoredResponse,
        item_ids: Iterable[str],
        fence: int,
        entries: Iterable[ConversationEntry] = (),
    ) -> bool:
        """Write the end of a response that was begun, with `entries` as in `put`; whether it is its end now. It is not
        if it has another, if it is gone, or if somebody took it over under a higher fence."""
        new = build_new_response(response, item_ids, fence, self._clock(), self._recording, entries, is_finished=True)
        return await self._database.write(_END_EACH, new)

    @return_if_unstorable(None)
    async def take_over(self, owner: str, id: str, fence: int) -> StoredResponse | None:
        """Raise the fence of one that is not finished (and count it as touched now). None if it is finished or gone,
        or has a fence as high as that already: of several that try with the same, one gets it."""
        return await self._database.write(_TAKE_OVER_EACH, {**self._params(owner, id), "under": fence})

    @return_if_unstorable(False)
    async def touch(self, owner: str, id: str, fence: int) -> bool:
        """Count it as touched now, under this fence or a new one of the same driver's. False if it is finished or gone,
        or somebody took it over under a higher fence."""
        return await self._database.write(_TOUCH_RUN_EACH, {**self._params(owner, id), "under": fence})

    async def unfinished(self, before: float, limit: int = 100) -> list[tuple[str, str, int]]:
        """Id, owner and fence of those that are not finished and were not touched since `before`, oldest first."""
        return await self._database.read(_unfinished, {"before": before, "most": limit, "now": self._clock()})

    @return_if_unstorable(None)
    async def get(self, owner: str, id: str, *, log: bool = False) -> StoredResponse | None:
        """The response; its log only if that is asked for."""
        return await self._database.read(_get, {**self._params(owner, id), "log": log})

    @return_if_unstorable(None)
    async def chain(self, owner: str, id: str) -> list[StoredResponse] | None:
        """The response and all that it builds on, oldest first, without logs. None if there is no such response.

        Raises `PreviousResponseGone` if one that it builds on is gone, `RequestError` if there are more than anyone can want
        (10,000)."""
        return await self._database.read(_chain, self._params(owner, id)) or None

    @return_if_unstorable(False)
    async def delete(self, owner: str, id: str) -> bool:
        """Whether there was one."""
        return await self._database.write(_DELETE_EACH, {**self._params(owner, id), "recording": self._recording})

    @return_if_unstorable(None)
    async def find_item(self, owner: str, item_id: str) -> str | None:
        """The id of the (newest) response that has this item."""
        return await self._database.read(_find_item, self._params(owner, item_id))

    def _params(self, owner: str, id: str) -> dict[str, Any]:
        return {"for_owner": owner, "for_id": id, "now": self._clock()}


def build_new_response(
    response: StoredResponse,
    item_ids: Iterable[str],
    fence: int,
    now: float,
    recording: Recording,
    entries: Iterable[ConversationEntry] = (),
    *,
    is_finished: bool,
) -> NewResponse:
    """What `insert` takes. Raises `RequestError` for names that cannot be kept."""
    if response.is_finished is not is_finished:
        raise ValueError(
            f"a response that is {response.status} cannot be kept as one that is{' not' * (not is_finished)} over"
        )
    ids, added = tuple(dict.fromkeys(item_ids)), list(entries)
    check_names(
        id=response.id,
        owner=response.owner,
        model=response.model,
        previous_id=response.previous_id,
        conversation_id=response.conversation_id,
        **{f"item_ids[{index}]": item for index, item in enumerate(ids)},
        **{f"entries[{index}].id": entry.id for index, entry in enumerate(added)},
    )
    return NewResponse(response, ids, fence, now, added, recording)


def _response_row(response: StoredResponse) -> dict[str, Any]:
    return {name: getattr(response, name) for name in RESPONSE_COLUMNS}


def _body_row(new: NewResponse) -> dict[str, Any]:
    response = new.response
    body = {name: getattr(response, name) for name in (*_BODY_COLUMNS, "log")}
    return {"owner": response.owner, "response_id": response.id, **body, "item_ids": _item_ids_json(new)}


def _item_ids_json(new: NewResponse) -> str | None:
    return msgspec.json.encode(new.item_ids).decode() if new.item_ids else None


_FIELDS = [*RESPONSE_COLUMNS, *_BODY_COLUMNS, "log"]
_RECORDED = [name for names in record_content.RECORDED_COLUMNS[RESPONSE] for name in names]
_BACKGROUND = _FIELDS.index("background")
_IMMUTABLE_FIELDS = [name for name in _FIELDS if name != "expires_at"]
"""What stays as it was put, whatever goes on from it."""
_END_FIELDS = ["status", "updated_at", "model", *_BODY_COLUMNS, "log"]
"""What an end is, of these."""


def response_from_row(row: Row) -> StoredResponse:
    values = dict(zip(_FIELDS, row, strict=False))
    values["background"] = bool(row[_BACKGROUND])
    return StoredResponse(**values)
