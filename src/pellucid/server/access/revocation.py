"""What ends before its time: browser sessions that were signed out, sign-ins that were finished, and open requests.

* Browser sessions and attempts to sign in are sealed in cookies, and not stored. The store has the ids of those that
  must not be used any more (`RevocationList`), for all replicas. A session that was looked up is valid for some seconds
  without another query, like a key.
* A request that streams, and a socket, are admitted once and open for minutes. One task looks up the keys and sessions
  of all of them together, and interrupts those whose key or session is not valid any more, or has another policy
  (`OpenRequests`). While the store is down, they continue: only what is known to have ended is interrupted.
* A detached run belongs to the owner, and not to the key that began it: its readers are interrupted, and it continues.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection

import msgspec

from ...storage import RevokedTokens
from ...telemetry import error_location, log
from .errors import AccessError, BackendUnavailable, call_backend, unauthorized, unavailable
from .key_cache import KeyCache
from .policy import ENV_KEY_ID, Principal
from .session import session_over

MAX_CACHED_SESSIONS = 10_000

MIN_CHECK_SECONDS = 0.5
"""Minimum interval of the checks of open requests, if keys are cached for less."""


class RevocationList:
    """The ids of sessions and of attempts to sign in that must not be used any more."""

    def __init__(self, store: RevokedTokens, ttl_seconds: float, monotonic: Callable[[], float]) -> None:
        """Create the list.

        Args:
            store: The store's list, which replicas share.
            ttl_seconds: How long an id that was not revoked needs no other query.
            monotonic: Monotonic clock in seconds.
        """
        self._store = store
        self._ttl_seconds = ttl_seconds
        self._monotonic = monotonic
        self._valid_until: OrderedDict[str, float] = OrderedDict()

    async def revoke(self, id: str, expires_at: float) -> bool:
        """Add an id; return whether it was not in the list before.

        Args:
            id: The id.
            expires_at: When it expires by itself, in seconds since 1970.

        Raises:
            AccessError: Unavailable when the store is down.
        """
        self._valid_until.pop(id, None)
        try:
            return await call_backend(self._store.revoke(id, expires_at))
        except BackendUnavailable as error:
            raise _store_unavailable() from error

    async def is_revoked(self, id: str) -> bool:
        """Return whether an id is in the list. Raises `AccessError` (unavailable) when the store is down."""
        now = self._monotonic()
        if self._valid_until.get(id, 0.0) > now:
            return False
        try:
            revoked = await self.find_revoked([id])
        except BackendUnavailable as error:
            raise _store_unavailable() from error
        if revoked:
            return True
        self._valid_until[id] = now + self._ttl_seconds
        self._valid_until.move_to_end(id)
        if len(self._valid_until) > MAX_CACHED_SESSIONS:
            self._valid_until.popitem(last=False)
        return False

    async def find_revoked(self, ids: Collection[str]) -> frozenset[str]:
        """Return those of the ids that are in the list. Raises `BackendUnavailable`."""
        revoked = await call_backend(self._store.find_revoked(ids))
        for id in revoked:
            self._valid_until.pop(id, None)
        return revoked


class OpenRequest(msgspec.Struct, eq=False):
    """A request that is open, or a socket."""

    principal: Principal
    """Who sent it. A socket replaces it with each turn."""
    interrupt: Callable[[AccessError], None]
    """Ends it with an error, now. It must not raise."""


class OpenRequests:
    """The open requests of this process."""

    def __init__(
        self, keys: KeyCache | None, revocations: RevocationList | None, key_seconds: float, anonymous: Principal
    ) -> None:
        """Create an empty set.

        Args:
            keys: Looks up API keys.
            revocations: Looks up browser sessions.
            key_seconds: The interval of the checks.
            anonymous: The principal of requests without credentials, until there is a key.
        """
        self._keys = keys
        self._anonymous = anonymous
        self._revocations = revocations
        self._interval_seconds = max(key_seconds, MIN_CHECK_SECONDS)
        self._requests: set[OpenRequest] = set()

    def add(self, request: OpenRequest) -> None:
        """Add a request, until `discard`."""
        principal = request.principal
        is_checked = principal.key_id not in (None, ENV_KEY_ID) or principal.session_id is not None
        if is_checked or (principal is self._anonymous and self._keys is not None):
            self._requests.add(request)

    def discard(self, request: OpenRequest) -> None:
        """Remove a request, if it is there."""
        self._requests.discard(request)

    async def run(self) -> None:
        """Check the open requests periodically, until the task is cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self.check()
            except BackendUnavailable:
                log.warning("the keys of open requests cannot be looked up, as the store does not answer")
            except Exception as error:
                log.error("a fault while checking open requests: %s", error_location(error))

    async def check(self) -> None:
        """Interrupt the requests whose key or session is not valid any more, or which need one now.

        Raises:
            BackendUnavailable: The store does not answer.
        """
        principals = [request.principal for request in self._requests]
        key_ids = {one.key_id for one in principals if one.key_id not in (None, ENV_KEY_ID)}
        session_ids = {one.session_id for one in principals if one.session_id is not None}
        current: dict[str, Principal | AccessError] = {}
        if key_ids and self._keys is not None:
            current = await self._keys.look_up_ids([id for id in key_ids if id is not None])
        ended: frozenset[str] = frozenset()
        if session_ids and self._revocations is not None:
            ended = await self._revocations.find_revoked(session_ids)
        is_anonymous_over = (
            self._keys is not None and any(one is self._anonymous for one in principals) and await self._keys.has_keys()
        )
        for request in list(self._requests):
            if request.principal is self._anonymous:
                error = _credentials_needed() if is_anonymous_over else None
            else:
                error = _reason_to_end(request.principal, current, ended)
            if error is not None:
                self._requests.discard(request)
                request.interrupt(error)


def _reason_to_end(
    principal: Principal, current: dict[str, Principal | AccessError], ended: frozenset[str]
) -> AccessError | None:
    """Return the error with which a request of this principal ends; None if it continues."""
    if principal.session_id in ended:
        return session_over()
    now = current.get(principal.key_id or "")
    if isinstance(now, AccessError):
        return now if principal.session_id is None else session_over()
    if now is not None and now.policy != principal.policy:
        return AccessError(
            "the policy of this API key has changed since this request began; send it again",
            kind="unavailable",
            code="key_changed",
            retry_after=1.0,
        )
    return None


def _credentials_needed() -> AccessError:
    return unauthorized("this gateway has keys now; send one as Authorization: Bearer …", "missing_credentials")


def _store_unavailable() -> AccessError:
    return unavailable("the session cannot be looked up now, as the store does not answer; try again in a moment")
