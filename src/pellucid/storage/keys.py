"""API keys: the store contains the hash, the owner and the policy of each key, and never the key itself.

The operator manages keys, so they are found by hash or id, without an owner. The caller decides whether a key is still
valid. Expired and revoked keys remain stored, so that they can be distinguished from keys that never existed.
"""

from __future__ import annotations

from functools import partial

import msgspec
import sqlalchemy as sa

from . import tables
from .database import StoreOperations
from .names import check_names, return_if_unstorable
from .statement import (
    ID,
    NOW,
    OWNER,
    Statement,
    columns_of,
    for_each,
    has_rows,
    insert_rows,
    param,
    read_first,
    read_rows,
    struct_from_row,
)


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored. Times are in seconds since 1970."""

    id: str
    hash: bytes
    owner: str
    name: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    policy: bytes = b"{}"
    """The policy of the key (JSON)."""


_K = tables.keys
_keys = sa.select(*columns_of(StoredKey, _K))
_oldest_first = (_K.c.created_at, _K.c.id)

_INSERT = Statement(sa.insert(_K))
_BY_HASH = Statement(_keys.where(_K.c.hash == param("for_hash", sa.LargeBinary)))
_ALL = Statement(_keys.order_by(*_oldest_first))
_OF_OWNER = Statement(_keys.where(_K.c.owner == OWNER).order_by(*_oldest_first))
_REVOKE = Statement(
    sa.update(_K).where(_K.c.id == ID, _K.c.revoked_at.is_(None)).values(revoked_at=NOW).returning(_K.c.id)
)

_key_from_row = partial(struct_from_row, StoredKey)
_insert = insert_rows(_INSERT)
_by_hash = read_first(_BY_HASH, _key_from_row)
_all, _of_owner = read_rows(_ALL, _key_from_row), read_rows(_OF_OWNER, _key_from_row)
_revoke = for_each(has_rows(_REVOKE))


class Keys(StoreOperations):
    """Operations on API keys: `store.keys`."""

    async def add(self, key: StoredKey) -> None:
        """Store a new key.

        Raises:
            AlreadyStored: If there is a key with this id or hash.
        """
        check_names(id=key.id, owner=key.owner, name=key.name)
        await self._database.write(_insert, msgspec.structs.asdict(key))

    async def by_hash(self, hash: bytes) -> StoredKey | None:
        """Return the key with this hash, also if it is expired or revoked."""
        return await self._database.read(_by_hash, {"for_hash": hash})

    @return_if_unstorable(())
    async def list(self, owner: str | None = None) -> tuple[StoredKey, ...]:
        """Return all keys, or those of one owner, oldest first."""
        return tuple(await self._database.read(_all if owner is None else _of_owner, {"for_owner": owner}))

    @return_if_unstorable(False)
    async def revoke(self, id: str, now: float) -> bool:
        """Revoke a key at the time `now`; return whether it existed and was not revoked before."""
        return await self._database.write(_revoke, {"for_id": id, "now": now})
