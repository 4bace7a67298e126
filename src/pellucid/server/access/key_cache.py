"""Cache of API keys, by their hash. An entry is valid for some seconds.

* A row that was read from the store is used for `ttl_seconds`. So a revocation takes effect within that time, and keys
  that were just used keep working for as long while the store is down. After that, a key that cannot be looked up is
  refused.
* Expiry needs no store: it is checked at each use.
* Concurrent requests with one key share one query. Unknown keys have a cache of their own, so they cannot evict known
  ones.
* The time of the last use of a key is not stored: it would cost a write for every request.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Callable, Collection

import msgspec

from ...errors import ConfigError
from ...storage import KeyStore, StoredKey
from ...telemetry import log
from .errors import AccessError, BackendUnavailable, call_backend, forbidden, unauthorized, unavailable
from .keys import KeyHasher, key_id_of
from .policy import Policy, Principal, read_policy

MAX_KNOWN = 10_000
MAX_UNKNOWN = 1_000


class _Entry(msgspec.Struct, frozen=True):
    """One lookup: what the store returned, and until when (monotonic seconds) it is used."""

    until: float
    row: StoredKey | None
    policy: Policy | None


class KeyCache:
    """Finds the principal of an API key."""

    def __init__(
        self,
        keys: KeyStore,
        make_hasher: Callable[[], KeyHasher],
        ttl_seconds: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """Create an empty cache.

        Args:
            keys: The store's keys.
            make_hasher: Creates the hasher. Called when the first key is used.
            ttl_seconds: How long a lookup is used.
            clock: Wall clock, in seconds since 1970; for the expiry of keys.
            monotonic: Monotonic clock in seconds; for the age of entries.
        """
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
        """Return the principal of an API key.

        Raises:
            AccessError: Unauthorized for a key that is not valid; unavailable when it cannot be looked up.
        """
        return await self.authenticate_digest(key_id_of(text), self.digest(text))

    def digest(self, text: str) -> bytes:
        """Return the keyed hash of an API key.

        Raises:
            AccessError: Unavailable when the pepper cannot be read.
        """
        return self._require_hasher().digest(text)

    async def authenticate_digest(self, key_id: str, digest: bytes) -> Principal:
        """Return the principal of the API key with this id and this keyed hash. Raises as `authenticate` does."""
        if not self._require_hasher().is_own_hash(digest):
            raise unauthorized("the key was made under another pepper", "invalid_api_key")
        entry = self._known.get(digest) or self._unknown.get(digest)
        if entry is None or entry.until <= self._monotonic():
            entry = await self._look_up(digest)
        return self._principal_of(entry, key_id)

    async def look_up_ids(self, key_ids: Collection[str]) -> dict[str, Principal | AccessError]:
        """Query the store for keys that are in use, and return for each id its principal now, or why it has none.

        Raises:
            BackendUnavailable: The store does not answer.
        """
        until = self._monotonic() + self._ttl_seconds
        rows = {row.id: row for row in await call_backend(self._keys.by_ids(key_ids))}
        current: dict[str, Principal | AccessError] = {}
        for key_id in key_ids:
            row = rows.get(key_id)
            entry = _Entry(until, row, _policy_of(row))
            if row is not None and row.hash in self._known:
                self._known[row.hash] = entry
            try:
                current[key_id] = self._principal_of(entry, key_id)
            except AccessError as error:
                current[key_id] = error
        return current

    def _principal_of(self, entry: _Entry, key_id: str) -> Principal:
        """Return the principal of a key that was looked up. Raises `AccessError` if it is not valid."""
        row = entry.row
        if row is None or row.id != key_id:
            raise unauthorized("there is no such API key", "invalid_api_key")
        if row.revoked_at is not None:
            raise unauthorized("this API key was revoked", "key_revoked")
        if row.expires_at is not None and row.expires_at <= self._clock():
            raise unauthorized("this API key has expired", "key_expired")
        if entry.policy is None:
            raise forbidden(
                "the policy of this API key was written by a newer version of the gateway, and this version cannot "
                "apply it; update the gateway, or make the key again",
                "key_policy_unreadable",
            )
        return Principal(row.owner, row.id, row.name, entry.policy)

    def hasher(self) -> KeyHasher:
        """Return the hasher, created at the first use: a gateway without API keys needs no pepper.

        Raises:
            ConfigError: The pepper cannot be used.
        """
        if self._hasher is None:
            self._hasher = self._make_hasher()
        return self._hasher

    def _require_hasher(self) -> KeyHasher:
        """Return the hasher, or raise `AccessError` (unavailable) if there is no usable pepper."""
        try:
            return self.hasher()
        except ConfigError as error:
            log.error("no API key can be checked: %s", error)
            raise unavailable("API keys cannot be checked now; the operator's log says why") from error

    async def log_foreign_keys(self) -> None:
        """Log how many keys were made under another pepper, and are therefore unknown here. Never raises."""
        try:
            rows = await call_backend(self._keys.list())
            foreign = sum(not self.hasher().is_own_hash(row.hash) for row in rows) if rows else 0
        except (BackendUnavailable, ConfigError):
            return
        if foreign:
            log.warning("%d of %d API keys were made under another pepper and are unknown here", foreign, len(rows))

    async def has_keys(self) -> bool:
        """Return whether a key was ever created. A positive answer is final.

        While the store is down, no key can be created, so the last answer holds.

        Raises:
            AccessError: Unavailable when the store is down and there is no last answer.
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
        """Query the store, or join the query for this hash that is already running."""
        task = self._lookups.get(digest)
        if task is None:
            task = self._lookups[digest] = asyncio.create_task(self._query_store(digest))
            task.add_done_callback(lambda done: self._end_lookup(digest, done))
        try:
            # Cancelling one waiter must not cancel the query for the others.
            return await asyncio.shield(task)
        except BackendUnavailable as error:
            raise _store_unavailable() from error

    def _end_lookup(self, digest: bytes, task: asyncio.Task[_Entry]) -> None:
        del self._lookups[digest]
        if not task.cancelled():
            task.exception()  # mark it as retrieved, also when no waiter is left

    async def _query_store(self, digest: bytes) -> _Entry:
        # The time counts from the start of the query: the row may be as old as that.
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
    return unavailable("the credential cannot be looked up now, as the store does not answer; try again in a moment")
