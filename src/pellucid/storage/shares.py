"""Links that share chats.

* A share names the answer that ends what it shows. The store contains a hash of its token, and never the token.
* A share is deleted with its chat, whatever deletes it.
* A share is found by its token, without an owner. The caller then reads the chat as that owner, so a chat that expired
  cannot be read.
"""

from __future__ import annotations

from functools import partial

import msgspec
import sqlalchemy as sa

from . import tables
from .database import StoreOperations
from .names import return_if_unstorable
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


_S, _H = tables.shares, tables.chats

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

_share_from_row = partial(struct_from_row, StoredShare)
_by_token, _shares_of = read_first(_BY_TOKEN, _share_from_row), read_rows(_SHARES_OF, _share_from_row)
_insert_share, _delete_share = for_each(has_rows(_INSERT_SHARE)), for_each(has_rows(_DELETE_SHARE))
_delete_expired = for_each(has_rows(_DELETE_EXPIRED))

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
