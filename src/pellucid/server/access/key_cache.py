"""The keys that are known: looked up by their hash, and believed for some seconds.

* What the store said of a key is believed for `seconds`: a revocation takes effect within them, and for as long the
  keys that were just used go on while the store is down. After that nobody is let in who cannot be looked up.
* Expiry needs no store: it is checked at each use.
* A thousand requests with one key ask the store once; nobody's unknown keys push out the known ones.
* That a key was used is written nowhere: it would be a write for every request.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ...errors import ConfigError
from ...storage import StoredKey
from ...telemetry import log
from .backend import BackendUnavailable, call_backend
from .errors import forbidden, unauthorized, unavailable
from .keys import KeyHasher, key_id_of
from .policy import Policy, Principal, read_policy

MAX_KNOWN = 10_000
MAX_UNKNOWN = 1_000


class KeyStore(Protocol):
    """The store's keys (`pellucid.storage.Keys`), as far as they are needed here."""

    async def by_hash(self, hash: bytes) -> StoredKey | None: ...

    async def list(self, owner: str | None = None) -> Sequence[StoredKey]: ...


class _Entry(msgspec.Struct, frozen=True):
    until: float
    row: StoredKey | None
    policy: Policy | None


class KeyCache:
    def __init__(
        self,
        keys: KeyStore,
        make_hasher: Callable[[], KeyHasher],
        ttl_seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._make_hasher = make_hasher
        self._hasher: KeyHasher | None = None
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()
        self._unknown: OrderedDict[bytes, _Entry] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[_Entry]] = {}
        self._has_keys: bool | None = None
        self._has_keys_until = 0.0

    async def authenticate(self, text: str) -> Principal:
        """Whose key it is. Raises `AccessError`: unauthorized, or unavailable when that cannot be known."""
        return await self.authenticate_digest(key_id_of(text), self.digest(text))

    def digest(self, text: str) -> bytes:
        """The keyed hash of a key. Raises `AccessError` (unavailable)."""
        return self._require_hasher().digest(text)

    async def authenticate_digest(self, key_id: str, digest: bytes) -> Principal:
        """Whose key it is that has this id and this hash. Raises as `find` does."""
        if not self._require_hasher().is_own_hash(digest):
            raise unauthorized("the key was made under another pepper", "invalid_api_key")
        entry = self._known.get(digest) or self._unknown.get(digest)
        if entry is None or entry.until <= self._monotonic():
            entry = await self._look_up(digest)
        row = entry.row
        if row is None or row.id != key_id:
            raise unauthorized("there is no such API key", "invalid_api_key")
        if row.revoked_at is not None:
            raise unauthorized("this API key was revoked", "key_revoked")
        if row.expires_at is not None and row.expires_at <= self._clock():
            raise unauthorized("this API key has expired", "key_expired")
        if entry.policy is None:
            raise forbidden(
                "what this API key may do was written by a newer version of the gateway, and this one cannot keep to "
                "it; bring the gateway up to date, or make the key again",
                "key_policy_unreadable",
            )
        return Principal(row.owner, row.id, row.name, entry.policy)

    def hasher(self) -> KeyHasher:
        """Made when the first key comes: who uses none needs no pepper. Raises `ConfigError`."""
        if self._hasher is None:
            self._hasher = self._make_hasher()
        return self._hasher

    def _require_hasher(self) -> KeyHasher:
        try:
            return self.hasher()
        except ConfigError as error:
            log.error("no API key can be checked: %s", error)
            raise unavailable("API keys cannot be checked now; the operator's log says why") from error

    async def log_foreign_keys(self) -> None:
        """Log how many keys were made under another pepper, which are unknown here. Never fails."""
        try:
            rows = await call_backend(self._keys.list())
            foreign = sum(not self.hasher().is_own_hash(row.hash) for row in rows) if rows else 0
        except (BackendUnavailable, ConfigError):
            return
        if foreign:
            log.warning("%d of %d API keys were made under another pepper and are unknown here", foreign, len(rows))

    async def has_keys(self) -> bool:
        """Whether a key was ever made. Once it was, the answer stays.

        While the store is down no key can be made, so the last answer holds. Raises `AccessError` (unavailable) when
        there is none.
        """
        if self._has_keys or self._monotonic() < self._has_keys_until:
            return bool(self._has_keys)
        try:
            self._has_keys = bool(await call_backend(self._keys.list()))
        except BackendUnavailable as error:
            if self._has_keys is None:
                raise _store_unavailable() from error
        self._has_keys_until = self._monotonic() + self._ttl_seconds
        return bool(self._has_keys)

    async def _look_up(self, digest: bytes) -> _Entry:
        task = self._lookups.get(digest)
        if task is None:
            task = self._lookups[digest] = asyncio.create_task(self._query_store(digest))
            task.add_done_callback(lambda done: self._end_lookup(digest, done))
        try:
            # Who leaves must not take the answer from those who wait for the same one.
            return await asyncio.shield(task)
        except BackendUnavailable as error:
            raise _store_unavailable() from error

    def _end_lookup(self, digest: bytes, task: asyncio.Task[_Entry]) -> None:
        del self._lookups[digest]
        if not task.cancelled():
            task.exception()  # seen, also when everybody who waited has left

    async def _query_store(self, digest: bytes) -> _Entry:
        # Counted from the question: what the store said may have been true only then.
        until = self._monotonic() + self._ttl_seconds
        row = await call_backend(self._keys.by_hash(digest))
        if row is not None and not hmac.compare_digest(row.hash, digest):
            row = None
        entry = _Entry(until, row, _policy_of(row))
        cache, other_cache, max_entries = (
            (self._unknown, self._known, MAX_UNKNOWN) if row is None else (self._known, self._unknown, MAX_KNOWN)
        )
        other_cache.pop(digest, None)
        cache[digest] = entry
        cache.move_to_end(digest)
        if len(cache) > max_entries:
            cache.popitem(last=False)
        return entry


def _policy_of(row: StoredKey | None) -> Policy | None:
    try:
        return None if row is None else read_policy(row.policy)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _store_unavailable() -> Exception:
    return unavailable("who is asking cannot be looked up now, as the store does not answer; try again in a moment")
