"""API keys: the store contains the hash, the owner and the policy of each key, and never the key itself.

The operator manages keys, so they are found by hash or id, without an owner. The caller decides whether a key is still
valid. Expired and revoked keys remain stored, so that they can be distinguished from keys that never existed.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from . import tables
from .names import check_names, return_if_unstorable
from .statement import Database, Execute, Operation, Params, Row, Statement, for_each, param


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
_COLUMNS = [_K.c[name] for name in StoredKey.__struct_fields__]
_oldest_first = (_K.c.created_at, _K.c.id)

_INSERT = Statement(sa.insert(_K))
_BY_HASH = Statement(sa.select(*_COLUMNS).where(_K.c.hash == param("for_hash", sa.LargeBinary)))
_ALL = Statement(sa.select(*_COLUMNS).order_by(*_oldest_first))
_OF_OWNER = Statement(sa.select(*_COLUMNS).where(_K.c.owner == param("for_owner")).order_by(*_oldest_first))
_REVOKE = Statement(
    sa.update(_K)
    .where(_K.c.id == param("for_id"), _K.c.revoked_at.is_(None))
    .values(revoked_at=param("at", sa.Double))
    .returning(_K.c.id)
)


def _insert(rows: list[Params]) -> Operation[list[None]]:
    yield Execute(_INSERT, rows)
    return [None] * len(rows)


def _by_hash(hash: bytes) -> Operation[StoredKey | None]:
    rows = yield Execute(_BY_HASH, {"for_hash": hash})
    return _key_from_row(rows[0]) if rows else None


def _list(owner: str | None) -> Operation[list[StoredKey]]:
    return [_key_from_row(row) for row in (yield Execute(_ALL if owner is None else _OF_OWNER, {"for_owner": owner}))]


def _revoke(params: Params) -> Operation[bool]:
    return bool((yield Execute(_REVOKE, params)))


_REVOKE_EACH = for_each(_revoke)


class Keys:
    """Operations on API keys: `store.keys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: StoredKey) -> None:
        """Store a new key.

        Raises:
            AlreadyStored: if there is a key with this id or hash.
        """
        check_names(id=key.id, owner=key.owner, name=key.name)
        await self._database.write(_insert, msgspec.structs.asdict(key))

    async def by_hash(self, hash: bytes) -> StoredKey | None:
        """Return the key with this hash, also if it is expired or revoked."""
        return await self._database.read(_by_hash, hash)

    @return_if_unstorable(())
    async def list(self, owner: str | None = None) -> tuple[StoredKey, ...]:
        """Return all keys, or those of one owner, oldest first."""
        return tuple(await self._database.read(_list, owner))

    @return_if_unstorable(False)
    async def revoke(self, id: str, now: float) -> bool:
        """Revoke a key at the time `now`; return whether it existed and was not revoked before."""
        return await self._database.write(_REVOKE_EACH, {"for_id": id, "at": now})


def _key_from_row(row: Row) -> StoredKey:
    return StoredKey(**dict(zip(StoredKey.__struct_fields__, row, strict=True)))
