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
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...parts import Usage
from .book import KeyBook, KeyStore
from .config import AccessConfig, is_loopback
from .cors import Cors
from .credentials import credential
from .errors import Header, unauthorized
from .jwt import Tokens, looks_like_token
from .keys import Hasher, looks_like_key
from .limits import Counting, Rates, counted, tokens_of
from .pepper import find_pepper
from .policy import Principal

LOCAL = "local"
"""The owner of what is made where nobody needs a key."""


class Guard:
    """One for the whole process; `start` and `aclose` it with the server. Making it may raise `ConfigError`.

    `keys` are the store's (`store.keys`); None where there is no store.
    """

    def __init__(
        self,
        access: AccessConfig,
        keys: KeyStore | None,
        relay: Counting,
        *,
        allow_unauthenticated: bool = False,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cors = Cors(access.cors)
        self._guarded = access.guarded
        self._all = allow_unauthenticated
        self._rates = Rates(relay, access.limits_when_down)
        self._tokens = Tokens(access, clock) if access.jwt is not None else None
        self._book: KeyBook | None = None
        if keys is not None and access.keys is not False:
            path = Path(access.pepper_file) if access.pepper_file is not None else None

            def hasher() -> Hasher:
                return Hasher(find_pepper(path, environ))

            self._book = KeyBook(keys, hasher, access.key_seconds, clock)
            if access.keys:
                self._book.hasher()
        self._one: tuple[bytes, Principal] | None = None
        if access.key_env is not None:
            principal = Principal(access.key_owner, "env", access.key_env, access.policy(access.key_policy))
            self._one = (_digest(environ[access.key_env].strip()), principal)
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
        """Who is asking. Raises `AccessError`: unauthorized, forbidden, or unavailable when it cannot be known."""
        closed = self._guarded or (self._book is not None and await self._book.any())
        self.cors.check(scope, open_door=not closed and not self._all)
        if not closed:
            self._refuse_others(scope)
            return self._local
        text = credential(scope)
        if text is None:
            raise unauthorized(
                "this gateway asks for an API key or a token; send it as Authorization: Bearer …",
                "missing_credentials",
            )
        if self._one is not None and hmac.compare_digest(_digest(text), self._one[0]):
            return self._one[1]
        if self._book is not None and looks_like_key(text):
            return await self._book.find(text)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.verify(text)
        raise unauthorized("the credential is not one that this gateway knows", "invalid_api_key")

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
