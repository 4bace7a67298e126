"""API keys, and the ids of sealed tokens that were revoked.

The store contains the hash, the owner and the policy of each key, and never the key itself. The operator manages keys,
so they are found by hash or id, without an owner. The caller decides whether a key is still valid. Expired and revoked
keys remain stored, so that they can be distinguished from keys that never existed.

A sealed token (a browser's cookie) is not stored. One that must not work any more before it expires is revoked: its id
is stored until then.
"""

from __future__ import annotations

from collections.abc import Collection
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
    json_list,
    json_text,
    param,
    read_first,
    read_rows,
    struct_from_row,
    upsert,
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


_K, _T = tables.keys, tables.revoked_tokens
_keys = sa.select(*columns_of(StoredKey, _K))
_ids = sa.select(json_list("ids").c.value)
_oldest_first = (_K.c.created_at, _K.c.id)

_INSERT = Statement(sa.insert(_K))
_BY_HASH = Statement(_keys.where(_K.c.hash == param("for_hash", sa.LargeBinary)))
_BY_IDS = Statement(_keys.where(_K.c.id.in_(_ids)))
_ALL = Statement(_keys.order_by(*_oldest_first))
_OF_OWNER = Statement(_keys.where(_K.c.owner == OWNER).order_by(*_oldest_first))
_REVOKE = Statement(
    sa.update(_K).where(_K.c.id == ID, _K.c.revoked_at.is_(None)).values(revoked_at=NOW).returning(_K.c.id)
)

_REVOKE_TOKEN = upsert(lambda insert: insert(_T).on_conflict_do_nothing().returning(_T.c.id))
_REVOKED_OF = Statement(sa.select(_T.c.id).where(_T.c.id.in_(_ids)))
_DELETE_EXPIRED = Statement(sa.delete(_T).where(_T.c.expires_at <= NOW), erases=False)


_key_from_row = partial(struct_from_row, StoredKey)
_insert = insert_rows(_INSERT)
_by_hash = read_first(_BY_HASH, _key_from_row)
_by_ids = read_rows(_BY_IDS, _key_from_row)
_all, _of_owner = read_rows(_ALL, _key_from_row), read_rows(_OF_OWNER, _key_from_row)
_revoke = for_each(has_rows(_REVOKE))
_revoke_token = for_each(has_rows(_REVOKE_TOKEN))
_revoked_of = read_rows(_REVOKED_OF, lambda row: str(row[0]))
_delete_expired = for_each(has_rows(_DELETE_EXPIRED))


class KeyStore(StoreOperations):
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

    async def by_ids(self, ids: Collection[str]) -> tuple[StoredKey, ...]:
        """Return the keys with these ids, in any order, also if they are expired or revoked."""
        return tuple(await self._database.read(_by_ids, {"ids": json_text(sorted(ids))}))

    @return_if_unstorable(())
    async def list(self, owner: str | None = None) -> tuple[StoredKey, ...]:
        """Return all keys, or those of one owner, oldest first."""
        return tuple(await self._database.read(_all if owner is None else _of_owner, {"for_owner": owner}))

    @return_if_unstorable(False)
    async def revoke(self, id: str, now: float) -> bool:
        """Revoke a key at the time `now`; return whether it existed and was not revoked before."""
        return await self._database.write(_revoke, {"for_id": id, "now": now})


class RevokedTokens(StoreOperations):
    """Operations on the ids of sealed tokens that were revoked: `store.revoked_tokens`."""

    async def revoke(self, id: str, expires_at: float) -> bool:
        """Revoke a token; return whether it was not revoked before.

        Args:
            id: The token's id, which cannot be guessed.
            expires_at: When the token expires by itself, in seconds since 1970.
        """
        return await self._database.write(_revoke_token, {"id": id, "expires_at": expires_at})

    async def find_revoked(self, ids: Collection[str]) -> frozenset[str]:
        """Return those of the ids that were revoked."""
        return frozenset(await self._database.read(_revoked_of, {"ids": json_text(sorted(ids))}))

    async def delete_expired(self, now: float) -> None:
        """Delete the ids of tokens that have expired at the time `now`."""
        await self._database.write(_delete_expired, {"now": now})
