"""Responses: the request, the events and the outcome of each.

The rules:

* A finished response is stored as a whole, once (`put`). A background response is begun, and gets exactly one end. The
  entries that a response adds to its conversation are written in the same transaction.
* The ids of very many items are written before their response, in portions of `ITEMS_PER_WRITE`, so that other writes
  do not wait for all of them. An item is found only with its finished response. If that cannot be written, its items
  are deleted; if the process is killed, their ids remain, which lead to nothing.
* A caller that does not know the result of a write may repeat it. If the same response is stored already, the write
  succeeds.
* Fencing tokens decide which driver may write the end: `begin` and `take_over` set the token of a response, and an end
  with a lower token is rejected.
* The searchable text of a response is stored and deleted in the same transaction as the response.
* A response may be a turn of a chat. Its begin and its end update the chat; the chat does not expire before its turns;
  and the chat is deleted with its last turn. That is done in the transaction that writes the response.
* The responses that a response builds on (its ancestors) do not expire before it. So that not every turn updates all
  its ancestors, they get a longer expiry than needed (`GRACE_SHARE`), but never a later one than their own ancestors
  have. So the walk can stop at the first ancestor whose expiry is sufficient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from ..record import Recording
from . import record_write, search, tables
from .conversations import ConversationEntry, add_entries, append_params
from .database import StoreOperations
from .errors import AlreadyStored, PreviousResponseGone
from .names import check_names, return_if_unstorable
from .record_write import RESPONSE
from .statement import (
    ID,
    LIMIT,
    NOW,
    ONE,
    OWNER,
    BulkOperation,
    Execute,
    Operation,
    Params,
    R,
    Row,
    Statement,
    for_each,
    has_rows,
    not_expired,
    param,
    raw_sql,
    read_first,
    read_rows,
)

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNFINISHED: tuple[ResponseStatus, ...] = ("queued", "in_progress")

GRACE_SHARE = 0.05
GRACE_SECONDS = 86400.0
"""Ancestors expire later than a response by this share of its remaining time, and by this many seconds at most."""
MAX_UNFINISHED = 100
"""Maximum number of responses that one call of `Responses.unfinished` returns."""

ITEMS_PER_WRITE = 1_000
"""Ids of items that are written in one transaction with their response; more are written before it, in portions."""

MAX_CHAIN_LENGTH = 10_000
"""Maximum number of responses in a chain of `previous_id`s."""

MAX_CHAIN_BYTES = 1 << 26
"""Maximum size of the input and the messages of a chain: it is loaded whole."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response as it is stored. The store does not interpret values of the type bytes."""

    id: str
    owner: str
    created_at: float
    updated_at: float
    expires_at: float | None = None
    """None: it does not expire."""
    status: ResponseStatus
    model: str
    previous_id: str | None = None
    conversation_id: str | None = None
    background: bool = False
    header: bytes = b""
    """Metadata of the client protocol (JSON)."""
    input: bytes = b"[]"
    """The input items as received, each with an id (a JSON array)."""
    messages: bytes = b"[]"
    """The messages that this turn added: its input and its output (JSON)."""
    error: bytes | None = None
    log: bytes = b""
    """All its events, compressed. Empty if it was not requested."""
    text: str | None = None
    """Its searchable text, in a chat: the question, and when it is finished, the answer. None: it is not searchable.
    When read, it is None, except from `take_over`, whose caller needs it to write the end."""

    @property
    def is_finished(self) -> bool:
        """Whether the response has its end."""
        return self.status not in UNFINISHED


# ---------------------------------------------------------------------------------------------- statements

_R, _B, _I, _H, _T = tables.responses, tables.bodies, tables.items, tables.chats, tables.texts
_S = tables.shares
RESPONSE_COLUMNS = [name for name in _R.c.keys() if name != "fence"]  # noqa: SIM118 (a collection of columns is no dict)
_BODY_COLUMNS = ["header", "input", "messages", "error"]
_END_COLUMNS = ["status", "updated_at", "expires_at", "model"]

_this_response = sa.and_(_R.c.owner == OWNER, _R.c.id == ID)
_with_body = _R.join(_B, sa.and_(_B.c.owner == _R.c.owner, _B.c.response_id == _R.c.id))
_columns = [*(_R.c[name] for name in RESPONSE_COLUMNS), *(_B.c[name] for name in _BODY_COLUMNS)]

_INSERT, _INSERT_BODY, _INSERT_ITEM = (Statement(sa.insert(table)) for table in (_R, _B, _I))
_responses = sa.select(*_columns).select_from(_with_body).where(_this_response, not_expired(_R))
_GET, _GET_WITH_LOG = Statement(_responses), Statement(_responses.add_columns(_B.c.log))

_fence = param("to_fence", sa.BigInteger)
_unfinished_response = sa.and_(_this_response, _R.c.status.in_(UNFINISHED))
_END = Statement(
    sa.update(_R)
    .where(_unfinished_response, _R.c.fence <= _fence)
    .values({name: param(f"to_{name}", type(_R.c[name].type)) for name in _END_COLUMNS})
    .returning(_R.c.conversation_id)
)
_END_BODY = Statement(
    sa.update(_B)
    .where(_B.c.owner == OWNER, _B.c.response_id == ID)
    .values({name: param(f"to_{name}", type(_B.c[name].type)) for name in (*_BODY_COLUMNS, "log", "item_ids")})
)
_touch_run = sa.update(_R).values(fence=_fence, updated_at=NOW).returning(_R.c.id)
_TAKE_OVER = Statement(
    _touch_run.where(_this_response, not_expired(_R), _R.c.status.in_(UNFINISHED), _R.c.fence < _fence)
)
_TOUCH_RUN = Statement(_touch_run.where(_unfinished_response, _R.c.fence <= _fence))
_UNTOUCHED = Statement(
    sa.select(_R.c.id, _R.c.owner, _R.c.fence)
    .where(
        sa.text("status IN ('queued', 'in_progress')"), _R.c.updated_at < param("before", sa.Double), not_expired(_R)
    )
    .order_by(_R.c.updated_at)
    .limit(LIMIT)
)


def _extension_statement() -> Statement:
    min_expires_at, new_expires_at = param("least", sa.Double), param("until", sa.Double)
    row = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, _R.c.expires_at)
    ancestors = row.where(_this_response, not_expired(_R)).cte("up", recursive=True)
    # Continue from rows whose expiry is too early. UNION, not UNION ALL: visited rows are not followed again.
    is_ancestor = sa.and_(_R.c.owner == ancestors.c.owner, _R.c.id == ancestors.c.previous_id)
    ancestors = ancestors.union(
        row.join(ancestors, is_ancestor).where(not_expired(_R), ancestors.c.expires_at < min_expires_at)
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
    size = sa.func.length(_B.c.input) + sa.func.length(_B.c.messages)
    first = sa.select(
        _R.c.owner, _R.c.id, _R.c.previous_id, sa.literal_column("0", sa.Integer).label("steps"), size.label("size")
    ).select_from(_with_body)
    ancestors = first.where(_this_response, not_expired(_R)).cte("up", recursive=True)
    # The owner is selected although it is always the same. So each row is looked up by its whole key, and no planner
    # reads all rows of the owner.
    is_ancestor = sa.and_(_R.c.owner == ancestors.c.owner, _R.c.id == ancestors.c.previous_id)
    is_body = sa.and_(_B.c.owner == _R.c.owner, _B.c.response_id == _R.c.id)
    next_ancestors = sa.select(
        _R.c.owner, _R.c.id, _R.c.previous_id, ancestors.c.steps + 1, ancestors.c.size + size
    ).select_from(ancestors.join(_R, is_ancestor).join(_B, is_body))
    ancestors = ancestors.union_all(
        next_ancestors.where(not_expired(_R), ancestors.c.steps < MAX_CHAIN_LENGTH, ancestors.c.size <= MAX_CHAIN_BYTES)
    )
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

_DELETE = Statement(sa.delete(_R).where(_this_response, not_expired(_R)).returning(_R.c.conversation_id))
_DELETE_BODY = Statement(sa.delete(_B).where(_B.c.owner == OWNER, _B.c.response_id == ID))
_listed_ids_sql = "(SELECT item_ids FROM response_bodies WHERE owner = :for_owner AND response_id = :for_id)"
_this_response_params = {"for_owner": sa.Text, "for_id": sa.Text}
_DELETE_LISTED = Statement(
    # The list contains the whole key. So each row is looked up by it, also by a planner without statistics, which would
    # otherwise scan all items of the owner.
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


def _delete_unlisted(more: str = "") -> Statement:
    return Statement(
        raw_sql(f"DELETE FROM response_items {_unlisted_items_sql} {more}", **_this_response_params),
        # Without INDEXED BY, SQLite would scan all items of the owner, instead of this partial index.
        sqlite=raw_sql(
            f"DELETE FROM response_items INDEXED BY response_items_of {_unlisted_items_sql} {more}",
            **_this_response_params,
        ),
    )


_DELETE_UNLISTED = _delete_unlisted()
_DELETE_UNFINISHED_ITEMS = _delete_unlisted(
    "AND NOT EXISTS (SELECT 1 FROM responses WHERE owner = :for_owner AND id = :for_id"
    " AND status NOT IN ('queued', 'in_progress'))"
)
_DELETE_TEXT = search.delete_statement(search.CHATS)
_DELETE_FEEDBACK = Statement(
    sa.delete(tables.feedback).where(tables.feedback.c.owner == OWNER, tables.feedback.c.response_id == ID)
)
DELETE_DEPENDENTS = (_DELETE_LISTED, _DELETE_UNLISTED, _DELETE_BODY, _DELETE_TEXT, _DELETE_FEEDBACK)
"""Statements that delete the dependents of a response (`for_owner`, `for_id`): its items before its body, which lists
them."""


def has_turn(owner: Any, chat: Any, *more: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a chat has a turn.

    The subquery selects the newest turn: without an order, SQLite scans all responses of the owner.
    """
    one: sa.Select[Any] = sa.select(ONE)
    newest = one.where(_R.c.owner == owner, _R.c.conversation_id == chat, *more).order_by(_R.c.created_at.desc())
    return newest.limit(ONE).scalar_subquery().is_not(None)


_this_chat = sa.and_(_H.c.owner == OWNER, _H.c.id == ID)
_touched_at, _until = param("touched_at", sa.Double), param("until", sa.Double)
_TOUCH_CHAT = Statement(
    sa.update(_H)
    .where(_this_chat)
    .values(
        updated_at=sa.case((_H.c.updated_at < _touched_at, _touched_at), else_=_H.c.updated_at),
        expires_at=sa.case((_H.c.expires_at < param("least", sa.Double), _until), else_=_H.c.expires_at),
    )
)
DELETE_EMPTY_CHAT = (
    Statement(sa.delete(_H).where(_this_chat, ~has_turn(OWNER, ID))),
    Statement(sa.delete(_T).where(search.text_with_id(search.CHATS), ~sa.exists().where(_this_chat))),
    Statement(sa.delete(_S).where(_S.c.owner == OWNER, _S.c.chat_id == ID, ~sa.exists().where(_this_chat))),
)
"""Statements that delete a chat (`for_owner`, `for_id`), its title and its shares, if it has no turns any more."""
DELETE_SHARES = Statement(sa.delete(_S).where(_S.c.owner == OWNER, _S.c.chat_id == ID))
"""Deletes the shares of a chat (`for_owner`, `for_id`)."""

_FIND_ITEM = Statement(
    sa.select(_I.c.response_id)
    .select_from(_I.join(_R, sa.and_(_R.c.owner == _I.c.owner, _R.c.id == _I.c.response_id)))
    .where(_I.c.owner == OWNER, _I.c.item_id == ID, _R.c.status.not_in(UNFINISHED), not_expired(_R))
    .order_by(_R.c.created_at.desc(), _R.c.id.desc())
    .limit(ONE)
)

# ---------------------------------------------------------------------------------------------- rows

_FIELDS = [*RESPONSE_COLUMNS, *_BODY_COLUMNS, "log"]
_RECORDED = [name for names in record_write.RECORDED_COLUMNS[RESPONSE] for name in names]
_IMMUTABLE_FIELDS = [name for name in _FIELDS if name != "expires_at"]
"""Fields that do not change after `put`."""
_END_FIELDS = ["status", "updated_at", "model", *_BODY_COLUMNS, "log"]
"""Fields that the end of a response sets, and that do not change afterwards."""


def response_from_row(row: Row) -> StoredResponse:
    values = dict(zip(_FIELDS, row, strict=False))
    return StoredResponse(**{**values, "background": bool(values["background"])})


# ---------------------------------------------------------------------------------------------- operations


class NewResponse(NamedTuple):
    """A response to write, with everything that belongs to it."""

    response: StoredResponse
    item_ids: tuple[str, ...]
    fence: int
    now: float
    entries: list[ConversationEntry]
    recording: Recording

    @property
    def has_portions(self) -> bool:
        """Whether its items are written before it."""
        return len(self.item_ids) > ITEMS_PER_WRITE


def insert_responses(new_responses: list[NewResponse]) -> Operation[list[None]]:
    """Insert new responses, in one transaction."""
    rows, body_rows, texts = list[Params](), list[Params](), list[search.Text]()
    for new in new_responses:
        response = new.response
        rows.append({**_values(response, RESPONSE_COLUMNS), "fence": new.fence})
        body_rows.append({"owner": response.owner, "response_id": response.id, **_body_values(new)})
        if text := _search_text(response, response.conversation_id):
            texts.append(text)
    yield Execute(_INSERT, rows)
    yield Execute(_INSERT_BODY, body_rows)
    yield from search.insert_texts(texts)
    yield from _write_related(new_responses)
    return [None] * len(new_responses)


def _values(response: StoredResponse, names: Iterable[str]) -> Params:
    return {name: getattr(response, name) for name in names}


def _body_values(new: NewResponse) -> Params:
    item_ids = msgspec.json.encode(new.item_ids).decode() if new.item_ids else None
    return {**_values(new.response, (*_BODY_COLUMNS, "log")), "item_ids": item_ids}


def _write_related(new_responses: list[NewResponse]) -> Operation[None]:
    """Write the rows that belong to new or finished responses.

    These are the items by which a response is found, a later expiry of its ancestors, the entries of its conversation,
    and the record's entries of finished responses.
    """
    if item_rows := [
        {"owner": new.response.owner, "item_id": item, "response_id": new.response.id, "listed": True}
        for new in new_responses
        if not new.has_portions
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


@for_each
def _insert_portion(rows: list[Params]) -> Operation[None]:
    """Insert some items of a response that is not finished yet."""
    yield Execute(_INSERT_ITEM, rows)


@for_each
def _delete_portions(params: Params) -> Operation[None]:
    """Delete the items of a response that could not be written."""
    yield Execute(_DELETE_UNFINISHED_ITEMS, params)


def _record_entry(response: StoredResponse) -> record_write.NewEntry:
    scope = record_write.response_scope(response.id, response.conversation_id)
    content = record_write.build_content(RESPONSE, _values(response, _RECORDED))
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


@for_each
def _write_end(new: NewResponse) -> Operation[bool]:
    response = new.response
    params = {"for_owner": response.owner, "for_id": response.id, "to_fence": new.fence}
    values = {**_values(response, _END_COLUMNS), **_body_values(new)}
    params |= {f"to_{name}": value for name, value in values.items()}
    rows = yield Execute(_END, params)
    if not rows:
        stored = yield from _get_with_log({**params, "now": new.now})
        return stored is not None and _are_equal(stored, response, _END_FIELDS)
    yield Execute(_END_BODY, params)
    yield from _write_related([new])
    if (chat := rows[0][0]) is not None:
        if text := _search_text(response, chat):
            yield from search.replace_text(text)
        yield from touch_chat(chat, response)
    return True


def _search_text(turn: StoredResponse, chat: str | None) -> search.Text | None:
    """Return the searchable text of a turn of a chat; None if there is none."""
    if turn.text is None or chat is None:
        return None
    return search.Text(turn.owner, search.CHATS, chat, turn.id, turn.text)


def _are_equal(one: StoredResponse, other: StoredResponse, fields: Iterable[str]) -> bool:
    return _values(one, fields) == _values(other, fields)


_get, _get_with_log = read_first(_GET, response_from_row), read_first(_GET_WITH_LOG, response_from_row)


@for_each
def _take_over(params: Params) -> Operation[StoredResponse | None]:
    if not (yield Execute(_TAKE_OVER, params)):
        return None
    response = yield from _get(params)
    text = yield from search.get_text(params["for_owner"], search.CHATS, params["for_id"])
    return response and replace(response, text=text)


_touch = for_each(has_rows(_TOUCH_RUN))
_unfinished = read_rows(_UNTOUCHED, tuple[str, str, int])
_find_item = read_first(_FIND_ITEM, lambda row: str(row[0]))


def delete(params: Params) -> Operation[bool]:
    """Delete a response and its dependents; return whether it existed."""
    rows = yield Execute(_DELETE, params)
    if not rows:
        return False
    for statement in DELETE_DEPENDENTS:
        yield Execute(statement, params)
    if (chat := rows[0][0]) is not None:
        for statement in DELETE_EMPTY_CHAT:
            yield Execute(statement, {**params, "for_id": chat})
    scope = record_write.response_scope(params["for_id"], chat)
    removed = record_write.RemovedContent(params["for_owner"], scope, RESPONSE, params["for_id"])
    yield from record_write.record_removals_of(params, [removed])
    return True


def touch_chat(chat_id: str, turn: StoredResponse) -> Operation[None]:
    """Update a chat after one of its turns began or ended."""
    params = {"for_owner": turn.owner, "for_id": chat_id, "touched_at": turn.updated_at, "until": turn.expires_at}
    yield Execute(_TOUCH_CHAT, {**params, "least": math.inf if turn.expires_at is None else turn.expires_at})


read_branch = read_rows(_CHAIN, response_from_row)
read_branch_with_logs = read_rows(_CHAIN_WITH_LOGS, response_from_row)
"""Operations that read a response and its ancestors as far as they are stored, oldest first."""


def _chain(params: Params) -> Operation[list[StoredResponse]]:
    turns = yield from read_branch(params)
    check_branch(turns, "previous_response_id")
    if turns and (missing := turns[0].previous_id) is not None:
        raise PreviousResponseGone(missing)
    return turns


def check_branch(turns: Sequence[StoredResponse], param: str) -> None:
    """Check that a branch that was read does not end at a limit. Raises `RequestError`."""
    if not turns or (next_id := turns[0].previous_id) is None:
        return
    if len(turns) > MAX_CHAIN_LENGTH or any(turn.id == next_id for turn in turns):
        limit = f"{MAX_CHAIN_LENGTH} responses"
    elif sum(len(turn.input) + len(turn.messages) for turn in turns) > MAX_CHAIN_BYTES:
        limit = f"{MAX_CHAIN_BYTES >> 20} MiB"
    else:
        return
    raise RequestError(
        f"this conversation is longer than {limit}; begin a new one", code="conversation_too_long", param=param
    )


_delete = for_each(delete)


class Responses(StoreOperations):
    """Operations on responses: `store.responses`."""

    async def put(
        self, response: StoredResponse, item_ids: Iterable[str] = (), entries: Iterable[ConversationEntry] = ()
    ) -> None:
        """Store a finished response. Idempotent.

        Args:
            response: The response.
            item_ids: Ids of items by which `find_item` finds the response.
            entries: Appended to its conversation, if it has one, except entries whose ids are in it already.

        Raises:
            AlreadyStored: If there is another response with this id.
        """
        new = build_new_response(response, item_ids, 0, self._clock(), self.recording, entries, is_finished=True)
        try:
            await self._write(insert_responses, new)
        except AlreadyStored:
            stored = await self.get(response.owner, response.id, log=True)
            if stored is None or not _are_equal(stored, response, _IMMUTABLE_FIELDS):
                raise

    async def begin(self, response: StoredResponse, fence: int) -> None:
        """Store a response that is about to run, with the fencing token of its driver.

        Raises:
            AlreadyStored: If there is a response with this id.
        """
        new = build_new_response(response, (), fence, self._clock(), self.recording, is_finished=False)
        await self._database.write(insert_responses, new)

    async def finish(
        self,
        response: StoredResponse,
        item_ids: Iterable[str],
        fence: int,
        entries: Iterable[ConversationEntry] = (),
    ) -> bool:
        """Write the end of a response that was begun. Idempotent.

        Args:
            response: The finished response.
            item_ids: As in `put`.
            fence: Fencing token of the driver.
            entries: As in `put`.

        Returns:
            Whether this is the stored end now. False if the response has another end, was deleted, or has a higher
            fencing token.
        """
        new = build_new_response(response, item_ids, fence, self._clock(), self.recording, entries, is_finished=True)
        return await self._write(_write_end, new)

    async def _write(self, op: BulkOperation[NewResponse, R], new: NewResponse) -> R:
        """Write a response: first its items, if they are many."""
        if not new.has_portions:
            return await self._database.write(op, new)
        owner, id = new.response.owner, new.response.id
        try:
            for first in range(0, len(new.item_ids), ITEMS_PER_WRITE):
                items = new.item_ids[first : first + ITEMS_PER_WRITE]
                rows = [{"owner": owner, "item_id": item, "response_id": id, "listed": None} for item in items]
                with suppress(AlreadyStored):  # by an earlier attempt, which wrote the whole portion
                    await self._database.write(_insert_portion, rows)
            return await self._database.write(op, new)
        except BaseException:
            self._database.write_later(_delete_portions, {"for_owner": owner, "for_id": id})
            raise

    @return_if_unstorable(None)
    async def take_over(self, owner: str, id: str, fence: int) -> StoredResponse | None:
        """Set a higher fencing token on an unfinished response, and its `updated_at` to now.

        Returns:
            The response; None if it is finished, was deleted, or has an equal or higher token. So of several callers
            with the same token, one succeeds.
        """
        return await self._database.write(_take_over, {**self._params(owner, id), "to_fence": fence})

    @return_if_unstorable(False)
    async def touch(self, owner: str, id: str, fence: int) -> bool:
        """Set `updated_at` of an unfinished response to now, and its fencing token to `fence`.

        Returns:
            False if the response is finished, was deleted, or has a higher token.
        """
        return await self._database.write(_touch, {**self._params(owner, id), "to_fence": fence})

    async def unfinished(self, before: float) -> list[tuple[str, str, int]]:
        """Return id, owner and fencing token of unfinished responses with `updated_at` < `before`, oldest first.

        There are at most `MAX_UNFINISHED` in one result.
        """
        return await self._database.read(_unfinished, {"before": before, "most": MAX_UNFINISHED, "now": self._clock()})

    @return_if_unstorable(None)
    async def get(self, owner: str, id: str, *, log: bool = False) -> StoredResponse | None:
        """Return a response; its log only if `log` is set. None if it does not exist."""
        return await self._database.read(_get_with_log if log else _get, self._params(owner, id))

    @return_if_unstorable(None)
    async def chain(self, owner: str, id: str) -> list[StoredResponse] | None:
        """Return a response and all its ancestors, oldest first, without logs. None if the response does not exist.

        Raises:
            PreviousResponseGone: If an ancestor is not stored any more.
            RequestError: If there are more than `MAX_CHAIN_LENGTH`, or they have more than `MAX_CHAIN_BYTES`.
        """
        return await self._database.read(_chain, self._params(owner, id)) or None

    @return_if_unstorable(False)
    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response; return whether it existed."""
        return await self._database.write(_delete, self._params(owner, id))

    @return_if_unstorable(None)
    async def find_item(self, owner: str, item_id: str) -> str | None:
        """Return the id of the newest response that contains this item."""
        return await self._database.read(_find_item, self._params(owner, item_id))


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
    """Build the argument of `insert_responses` and `finish`.

    Raises:
        ValueError: If the status of the response does not agree with `is_finished`.
        RequestError: If a name cannot be stored.
    """
    if response.is_finished is not is_finished:
        raise ValueError(
            f"a response that is {response.status} cannot be stored as one that is{' not' * (not is_finished)} over"
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
