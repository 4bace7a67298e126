"""What people add to a chat: links that share it, and feedback on its answers.

* A share names the answer that ends what it shows. The store contains a hash of its token, and never the token.
* A share is deleted with its chat, and feedback with its answer, whatever deletes them.
* A share is found by its token, without an owner. The caller then reads the chat as that owner, so a chat that expired
  cannot be read.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

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
    not_expired,
    param,
    read_first,
    read_rows,
    struct_from_row,
)

Rating = Literal["up", "down"]


class StoredShare(msgspec.Struct, frozen=True, kw_only=True):
    """A link that shares a chat. Times are in seconds since 1970."""

    owner: str
    id: str
    chat_id: str
    head: str
    """The last turn that it shows."""
    view: str
    token_hash: bytes
    created_at: float
    expires_at: float | None = None


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


_S, _F, _R, _H = tables.shares, tables.feedback, tables.responses, tables.chats

_shares = sa.select(*columns_of(StoredShare, _S)).where(not_expired(_S))
_of_chat = sa.and_(_S.c.owner == OWNER, _S.c.chat_id == param("for_chat"))
_INSERT_SHARE = Statement(
    # Only while the chat exists: no link remains of one that was deleted meanwhile.
    sa.insert(_S)
    .from_select(
        list(StoredShare.__struct_fields__),
        sa.select(*(param(f"to_{name}", type(_S.c[name].type)) for name in StoredShare.__struct_fields__)).where(
            sa.exists().where(_H.c.owner == OWNER, _H.c.id == param("for_chat"))
        ),
    )
    .returning(_S.c.id)
)
_BY_TOKEN = Statement(_shares.where(_S.c.token_hash == param("for_hash", sa.LargeBinary)))
_SHARES_OF = Statement(_shares.where(_of_chat).order_by(_S.c.created_at, _S.c.id).limit(LIMIT))
_DELETE_SHARE = Statement(sa.delete(_S).where(_of_chat, _S.c.id == ID).returning(_S.c.id))
_DELETE_EXPIRED = Statement(sa.delete(_S).where(_S.c.expires_at <= NOW), erases=False)

_feedback_values = {"rating": param("to_rating"), "comment": param("to_comment"), "updated_at": NOW}
_turn_exists = sa.exists().where(_R.c.owner == OWNER, _R.c.id == ID)
_new_feedback = sa.select(OWNER, ID, *_feedback_values.values()).where(_turn_exists)
_key, _names = [_F.c.owner, _F.c.response_id], ["owner", "response_id", *_feedback_values]
_SET_FEEDBACK = Statement(
    postgresql.insert(_F)
    .from_select(_names, _new_feedback)
    .on_conflict_do_update(index_elements=_key, set_=_feedback_values)
    .returning(_F.c.response_id),
    sqlite=sqlite.insert(_F)
    .from_select(_names, _new_feedback)
    .on_conflict_do_update(index_elements=_key, set_=_feedback_values)
    .returning(_F.c.response_id),
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


_share_from_row = partial(struct_from_row, StoredShare)
_by_token, _shares_of = read_first(_BY_TOKEN, _share_from_row), read_rows(_SHARES_OF, _share_from_row)
_insert_share, _delete_share = for_each(has_rows(_INSERT_SHARE)), for_each(has_rows(_DELETE_SHARE))
_delete_expired = for_each(has_rows(_DELETE_EXPIRED))
_set_feedback, _delete_feedback = for_each(has_rows(_SET_FEEDBACK)), for_each(has_rows(_DELETE_FEEDBACK))
_feedback_of_chat = read_rows(_FEEDBACK_OF_CHAT, _feedback_from_row)
_all_feedback = read_rows(_ALL_FEEDBACK, _feedback_from_row)

MAX_LISTED_SHARES = 100
"""Maximum number of links that are listed for one chat."""


class Shares(StoreOperations):
    """Operations on links that share chats: `store.shares`."""

    async def add(self, share: StoredShare) -> bool:
        """Store a link; return whether its chat exists."""
        values = {f"to_{name}": value for name, value in msgspec.structs.asdict(share).items()}
        return await self._database.write(
            _insert_share, {**values, "for_owner": share.owner, "for_chat": share.chat_id}
        )

    async def by_token(self, token_hash: bytes) -> StoredShare | None:
        """Return the link whose token has this hash; None if there is none, or if it has expired."""
        return await self._database.read(_by_token, {"for_hash": token_hash, "now": self._clock()})

    @return_if_unstorable(())
    async def list(self, owner: str, chat_id: str) -> tuple[StoredShare, ...]:
        """Return the links of a chat, oldest first, at most `MAX_LISTED_SHARES`."""
        params = {**self._params(owner, ""), "for_chat": chat_id, "most": MAX_LISTED_SHARES}
        return tuple(await self._database.read(_shares_of, params))

    @return_if_unstorable(False)
    async def delete(self, owner: str, chat_id: str, id: str) -> bool:
        """Delete a link; return whether it existed."""
        return await self._database.write(_delete_share, {**self._params(owner, id), "for_chat": chat_id})

    async def delete_expired(self, now: float) -> None:
        """Delete the links that have expired at the time `now`."""
        await self._database.write(_delete_expired, {"now": now})


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
