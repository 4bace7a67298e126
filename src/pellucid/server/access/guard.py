"""Who is asking, and whether they may: the server's one door.

    principal = await guard.admit(scope)               # HTTP and WebSocket alike; again for each turn of a socket
    principal.policy.check_model(name)
    headers = await guard.spend(principal)             # for the answer
    async with guard.stream(principal):
        ...
    await guard.charge(principal, usage)

It stands beside the streams, not around them: nothing here is called for an event.

* Without keys, tokens or a configured key, whoever asks from this machine is the principal `local`; from elsewhere,
  nobody is, unless the operator says so (`allow_unauthenticated`). The first key that is made closes that door, within
  `key_seconds` and for good.
* What cannot be found out admits nobody: a store or an issuer that is down is a 503, never a guess.
* Under `/api`, who signed in with a browser brings a cookie (`session`), and what browsers send is looked at more
  closely (`same_origin`). A credential in a header goes before the cookie.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from ...parts import Usage
from ...sealing import Keys
from . import same_origin
from .attempts import Attempts
from .book import KeyBook, KeyStore
from .config import AccessConfig, is_loopback
from .cors import Cors
from .credentials import credential
from .errors import AccessError, Header, forbidden, unauthorized
from .jwt import Tokens, looks_like_token
from .keys import Hasher, looks_like_key
from .limits import Counting, Rates, counted, tokens_of
from .oidc import Oidc
from .pepper import find_pepper
from .policy import Principal
from .session import COOKIE, ByKey, ByProvider, Session, Sessions, cookie, over

LOCAL = "local"
"""The owner of what is made where nobody needs a key."""

Way = Literal["key", "oidc"]
"""How a person can sign in."""


class Guard:
    """One for the whole process; `start` and `aclose` it with the server. Making it may raise `ConfigError`.

    `keys` are the store's (`store.keys`); None where there is no store. `seal_keys`: those of sealing, now; without
    them nobody signs in with a browser.
    """

    def __init__(
        self,
        access: AccessConfig,
        keys: KeyStore | None,
        relay: Counting,
        *,
        allow_unauthenticated: bool = False,
        seal_keys: Callable[[], Keys] | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cors = Cors(access.cors)
        self._guarded = access.guarded
        self._all = allow_unauthenticated
        self._rates = Rates(relay, access.limits_when_down)
        self._tokens = Tokens(access, clock, ticks) if access.jwt is not None else None
        self._book: KeyBook | None = None
        if keys is not None and access.keys is not False:
            path = Path(access.pepper_file) if access.pepper_file is not None else None

            def hasher() -> Hasher:
                return Hasher(find_pepper(path, environ))

            self._book = KeyBook(keys, hasher, access.key_seconds, clock, ticks)
            if access.keys:
                self._book.hasher()
        self._one: tuple[bytes, Principal] | None = None
        one: str | None = None
        if access.key_env is not None:
            one = environ[access.key_env].strip()
            principal = Principal(access.key_owner, "env", access.key_env, access.policy(access.key_policy))
            self._one = (_digest(one), principal)
        self._access = access
        self.attempts = Attempts(relay)
        self.sessions: Sessions | None = None
        self.oidc: Oidc | None = None
        if seal_keys is not None:
            self.sessions = Sessions(access, seal_keys, one, clock)
            if access.oidc is not None and self._tokens is not None:
                self.oidc = Oidc(access, self._tokens, seal_keys, environ, clock, ticks)
        self._local = Principal(LOCAL, None, LOCAL, access.policy())

    async def start(self) -> None:
        """Tell the operator of keys that cannot work here. A store that is down is found out later."""
        if self._book is not None:
            await self._book.tell_foreign()

    async def aclose(self) -> None:
        await self._rates.aclose()
        if self._tokens is not None:
            await self._tokens.aclose()

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        """Who is asking. Raises `AccessError`: unauthorized, forbidden, or unavailable when it cannot be known; and
        `RequestError` for what no browser is to send."""
        closed = await self.check(scope)
        if not closed:
            self._refuse_others(scope)
            return self._local
        text = credential(scope)
        if text is not None:
            return await self._known(text)
        if self.sessions is not None and same_origin.is_api(scope):
            held = cookie(scope, COOKIE)
            if held is not None:
                same_origin.check_own(scope)
                return await self._signed_in(self.sessions.read(held))
        raise unauthorized(
            "this gateway asks for an API key or a token; send it as Authorization: Bearer …",
            "missing_credentials",
        )

    async def check(self, scope: Mapping[str, Any]) -> bool:
        """Whether a credential is asked for; and that no foreign page sends this where none is. Raises as `admit`."""
        closed = self._guarded or (self._book is not None and await self._book.any())
        self.cors.check(scope, open_door=not closed and not self._all)
        if same_origin.is_api(scope):
            if not closed and not self.cors.names(scope):
                same_origin.check_not_foreign(scope)
            same_origin.check_body(scope)
        return closed

    async def _known(self, text: str) -> Principal:
        if self._one is not None and hmac.compare_digest(_digest(text), self._one[0]):
            return self._one[1]
        if self._book is not None and looks_like_key(text):
            return await self._book.find(text)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.verify(text)
        raise unauthorized("the credential is not one that this gateway knows", "invalid_api_key")

    # --- browsers ----------------------------------------------------------------------------------------------

    async def ways(self) -> list[Way]:
        """How a person can sign in."""
        if self.sessions is None:
            return []
        keys = self._one is not None or (self._book is not None and (self._access.keys or await self._book.any()))
        found: dict[Way, bool] = {"key": bool(keys), "oidc": self.oidc is not None}
        return [way for way, there in found.items() if there]

    async def sign_in(self, text: str) -> tuple[Principal, str]:
        """Whose the key is, and the session's cookie. Raises `AccessError`, the same for every key that is not one."""
        if self.sessions is None:
            raise forbidden("nobody can sign in with a browser here", "no_sign_in")
        text = text.strip()
        if self._one is not None and hmac.compare_digest(_digest(text), self._one[0]):
            return self._one[1], self.sessions.write(self.sessions.by_env())
        if self._book is not None and looks_like_key(text):
            try:
                principal = await self._book.find(text)
            except AccessError as error:
                if error.info.kind != "unauthorized":
                    raise
            else:
                assert principal.key_id is not None
                session = ByKey(principal.key_id, self._book.digest(text), self.sessions.ends)
                return principal, self.sessions.write(session)
        raise unauthorized(
            "this is not a key that works here; it may be mistyped, or not valid any more", "no_such_key"
        )

    async def _signed_in(self, session: Session) -> Principal:
        """Who that is now."""
        assert self.sessions is not None
        if isinstance(session, ByKey):
            if self._book is None:
                raise over()
            try:
                return await self._book.look(session.id, session.digest)
            except AccessError as error:
                if error.info.kind != "unauthorized":
                    raise
                raise over() from error
        if not self.sessions.holds(session):
            raise over()
        if isinstance(session, ByProvider):
            who = session.who
            return Principal(who.owner, None, who.name, self._access.policy(who.policy))
        assert self._one is not None
        return self._one[1]

    # --- limits ------------------------------------------------------------------------------------------------

    async def spend(self, principal: Principal, requests: int = 1) -> list[Header]:
        """Count a request; gives the `x-ratelimit-*` headers of its answer. Raises `AccessError`."""
        return await self._rates.spend(principal, requests)

    def counts(self, principal: Principal) -> bool:
        """Whether `charge` and `stream` do anything for this principal."""
        return counted(principal.policy)

    async def charge(
        self, principal: Principal, usage: Usage, *, characters: int = 0, reasoning_characters: int = 0
    ) -> None:
        """Count the tokens of a run that is over, however it ended (see `limits.tokens_of`). Never fails."""
        await self._rates.charge(principal, tokens_of(usage, characters, reasoning_characters))

    def stream(self, principal: Principal) -> AbstractAsyncContextManager[None]:
        """A place among the responses under way, for the time of the block. Raises `AccessError` on entering it."""
        return self._rates.stream(principal)

    def _refuse_others(self, scope: Mapping[str, Any]) -> None:
        """An application can be served in other ways than its configuration says; where from is what counts."""
        client = scope.get("client")
        # A Unix socket has no addresses; who may use it is the file system's matter.
        if self._all or client is None or not _is_remote(client[0]):
            return
        raise unauthorized(
            "this gateway knows no keys, so it serves its own machine alone; its operator can make keys with "
            "`pellucid keys create`",
            "missing_credentials",
        )


def _is_remote(host: str) -> bool:
    return any(c in host for c in ".:") and not is_loopback(host)


def _digest(text: str) -> bytes:
    """Of one length, whatever the text's: a comparison then tells nothing about it."""
    return sha256(text.encode()).digest()
