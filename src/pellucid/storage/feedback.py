"""Feedback: what people think of the answers in chats. It is deleted with its answer, whatever deletes that."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import sqlalchemy as sa

from . import tables
from .database import StoreOperations
from .names import return_if_unstorable
from .search import replace_unstorable
from .statement import (
    ID,
    LIMIT,
    NOW,
    OWNER,
    Statement,
    columns_of,
    for_each,
    has_rows,
    param,
    read_rows,
    struct_from_row,
    upsert,
)

Rating = Literal["up", "down"]


class StoredFeedback(msgspec.Struct, frozen=True, kw_only=True):
    """What a person thinks of an answer. `updated_at` is in seconds since 1970."""

    owner: str
    response_id: str
    rating: Rating
    comment: str = ""
    updated_at: float


class FeedbackRow(NamedTuple):
    """Feedback, with the model of the answer."""

    feedback: StoredFeedback
    model: str
    chat_id: str


_F, _R = tables.feedback, tables.responses

_feedback_values = {"rating": param("to_rating"), "comment": param("to_comment"), "updated_at": NOW}
_turn_exists = sa.exists().where(_R.c.owner == OWNER, _R.c.id == ID)
_new_feedback = sa.select(OWNER, ID, *_feedback_values.values()).where(_turn_exists)
_key, _names = [_F.c.owner, _F.c.response_id], ["owner", "response_id", *_feedback_values]
_SET_FEEDBACK = upsert(
    lambda insert: (
        insert(_F)
        .from_select(_names, _new_feedback)
        .on_conflict_do_update(index_elements=_key, set_=_feedback_values)
        .returning(_F.c.response_id)
    )
)
_DELETE_FEEDBACK = Statement(sa.delete(_F).where(_F.c.owner == OWNER, _F.c.response_id == ID).returning(_F.c.owner))
_with_turn = _F.join(_R, sa.and_(_R.c.owner == _F.c.owner, _R.c.id == _F.c.response_id))
_feedback = sa.select(*columns_of(StoredFeedback, _F), _R.c.model, _R.c.conversation_id).select_from(_with_turn)
_FEEDBACK_OF_CHAT = Statement(
    _feedback.where(_F.c.owner == OWNER, _R.c.owner == OWNER, _R.c.conversation_id == param("for_chat"))
)
_since = _F.c.updated_at >= param("since", sa.Double)
_ALL_FEEDBACK = Statement(_feedback.where(_since).order_by(_F.c.updated_at, _F.c.response_id).limit(LIMIT))


def _feedback_from_row(row: tuple[object, ...]) -> FeedbackRow:
    *fields, model, chat_id = row
    return FeedbackRow(struct_from_row(StoredFeedback, tuple(fields)), str(model), str(chat_id or ""))


_set_feedback, _delete_feedback = for_each(has_rows(_SET_FEEDBACK)), for_each(has_rows(_DELETE_FEEDBACK))
_feedback_of_chat = read_rows(_FEEDBACK_OF_CHAT, _feedback_from_row)
_all_feedback = read_rows(_ALL_FEEDBACK, _feedback_from_row)


class Feedback(StoreOperations):
    """Operations on feedback: `store.feedback`."""

    async def set(self, owner: str, response_id: str, rating: Rating | None, comment: str = "") -> bool:
        """Set the feedback on an answer, or with None delete it; return whether the answer (the feedback) existed."""
        return await self._set(owner, response_id, rating, replace_unstorable(comment))

    @return_if_unstorable(False)
    async def _set(self, owner: str, response_id: str, rating: Rating | None, comment: str) -> bool:
        params = self._params(owner, response_id)
        if rating is None:
            return await self._database.write(_delete_feedback, params)
        values = {"to_rating": rating, "to_comment": comment}
        return await self._database.write(_set_feedback, {**params, **values})

    @return_if_unstorable(())
    async def of_chat(self, owner: str, chat_id: str) -> tuple[FeedbackRow, ...]:
        """Return the feedback on all answers of a chat."""
        return tuple(await self._database.read(_feedback_of_chat, {"for_owner": owner, "for_chat": chat_id}))

    async def list(self, since: float, limit: int) -> tuple[FeedbackRow, ...]:
        """Return the feedback of all owners that was set at the time `since` or later, oldest first."""
        return tuple(await self._database.read(_all_feedback, {"since": since, "most": limit}))
