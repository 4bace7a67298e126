"""Authentication and limits: who sends a request, and whether they may.

    principal = await guard.admit(scope)               # HTTP and WebSocket; again for each turn of a socket
    principal.policy.check_model(name)
    headers = await guard.spend(principal)             # for the response
    async with guard.stream_slot(principal):
        ...
    await guard.charge(principal, usage)

Nothing here is called for an event of a stream.

* Without keys, tokens or a configured key, a client on this machine is the principal `local`, and other clients are
  refused, unless the operator allows them (`allow_unauthenticated`). When the first key is created, credentials are
  required from then on, within `key_seconds` and for good.
* When a credential cannot be checked, the request is refused: a store or an issuer that is down gives a 503.
* What was admitted and is open longer than a moment is checked again (`open_requests`).
* Under `/api`, a person who signed in with a browser sends a cookie (`session`), and requests of browsers are checked
  more closely (`origins`). A credential in a header takes precedence over the cookie.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...asgi.host import HostRule, host_of
from ...parts import Usage
from ...relay import Relay
from ...sealing import Keys
from ...storage import KeyStore, RevokedTokens
from . import origins
from .budgets import Budgets
from .config import AccessConfig, is_loopback
from .credentials import credential
from .errors import AccessError, HTTPHeader, forbidden, unauthorized
from .jwt import TokenVerifier, looks_like_token
from .key_cache import KeyCache
from .keys import KeyHasher, ensure_pepper, looks_like_key
from .limits import LoginThrottle, RateLimiter, StreamSlot, rate_limit_headers
from .oidc import OIDCClient
from .origins import Cors
from .policy import ENV_KEY_ID, Principal
from .revocation import OpenRequests, RevocationList
from .session import (
    COOKIE,
    BrowserSession,
    BrowserSessions,
    KeySession,
    ProviderSession,
    read_cookie,
    read_cookies,
    session_over,
)

LOCAL_OWNER = "local"
"""The owner of data that is created where no credentials are required."""

_PROXY_HEADERS = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""Request headers that proxies add: the client may be on another machine, although the connection is from this one."""

SignInMethod = Literal["key", "oidc"]
"""A way in which a person can sign in."""


class Guard:
    """Authenticates requests and applies limits. One for the process.

    `start` and `aclose` it with the server.
    """

    def __init__(
        self,
        access: AccessConfig,
        keys: KeyStore | None,
        relay: Relay,
        *,
        revoked_tokens: RevokedTokens | None = None,
        budgets: Budgets | None = None,
        allow_unauthenticated: bool = False,
        seal_keys: Callable[[], Keys] | None = None,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a guard.

        Args:
            access: `[access]` of the configuration.
            keys: The store's keys (`store.keys`); None where there is no store.
            relay: Counts requests, tokens and slots.
            revoked_tokens: The store's list of sessions that were signed out; None where there is no store.
            budgets: The budgets of policies; None: they are not applied.
            allow_unauthenticated: Whether clients of other machines are admitted while no credentials are required.
            seal_keys: Returns the current seal keys; without them, signing in with a browser is not possible.
            environ: The environment, which holds secrets.
            clock: Wall clock, in seconds since 1970.
            monotonic: Monotonic clock in seconds.

        Raises:
            ConfigError: A secret cannot be used.
        """
        self.cors = Cors(access.cors)
        self._host_rule = HostRule(access.hosts, access.cors.origins, "access.hosts", "access.cors.origins")
        self._requires_credentials = access.requires_credentials
        self._allow_unauthenticated = allow_unauthenticated
        self._budgets = budgets
        self._rates = RateLimiter(relay, access.limits_when_down)
        self._tokens = TokenVerifier(access, clock, monotonic) if access.jwt is not None else None
        self._key_cache: KeyCache | None = None
        if keys is not None and access.keys is not False:
            path = Path(access.pepper_file) if access.pepper_file is not None else None

            def hasher() -> KeyHasher:
                return KeyHasher(ensure_pepper(path, environ))

            self._key_cache = KeyCache(keys, hasher, access.key_seconds, clock, monotonic)
            if access.keys:
                self._key_cache.hasher()
        self._env_principal: tuple[bytes, Principal] | None = None
        env_key: str | None = None
        if access.key_env is not None:
            env_key = environ[access.key_env].strip()
            policy = access.policy(access.key_policy)
            if access.key_policy is None:  # who sets the environment is the operator
                policy = msgspec.structs.replace(policy, operator=True)
            principal = Principal(access.key_owner, ENV_KEY_ID, access.key_env, policy)
            self._env_principal = (_digest(env_key), principal)
        self._access = access
        self.login_throttle = LoginThrottle(relay)
        self._revocations = (
            RevocationList(revoked_tokens, access.key_seconds, monotonic) if revoked_tokens is not None else None
        )
        self._checking_task: asyncio.Task[None] | None = None
        self.browser_sessions: BrowserSessions | None = None
        self.oidc: OIDCClient | None = None
        if seal_keys is not None:
            self.browser_sessions = BrowserSessions(access, seal_keys, env_key, clock)
            if access.oidc is not None and self._tokens is not None:
                self.oidc = OIDCClient(access, self._tokens, self._revocations, seal_keys, environ, clock, monotonic)
        # Without credentials, the operator and other clients are the same principal.
        self._local = Principal(LOCAL_OWNER, None, LOCAL_OWNER, msgspec.structs.replace(access.policy(), operator=True))
        self.open_requests = OpenRequests(self._key_cache, self._revocations, access.key_seconds, self._local)

    async def start(self) -> None:
        """Log keys that cannot work here, and begin to check open requests. A store that is down is noticed later."""
        self._checking_task = asyncio.create_task(self.open_requests.run())
        if self._key_cache is not None:
            await self._key_cache.log_foreign_keys()

    async def aclose(self) -> None:
        if self._checking_task is not None:
            self._checking_task.cancel()
        await self._rates.aclose()
        if self._tokens is not None:
            await self._tokens.aclose()

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        """Return the principal of a request.

        Args:
            scope: The ASGI scope, of HTTP or of a WebSocket.

        Raises:
            AccessError: Unauthorized; forbidden; or unavailable when the credential cannot be checked.
            RequestError: A request under `/api` that browsers must not send.
        """
        if not await self.requires_credential(scope):
            self._refuse_remote(scope)
            return self._local
        text = credential(scope)
        if text is not None:
            return await self._authenticate(text)
        if self.browser_sessions is not None and origins.is_api(scope):
            cookie_value = read_cookie(scope, COOKIE)
            if cookie_value is not None:
                origins.check_own_page(scope)
                return await self._principal_of_session(self.browser_sessions.decode(cookie_value))
        raise unauthorized(
            "this gateway requires an API key or a token; send it as Authorization: Bearer …",
            "missing_credentials",
        )

    async def requires_credential(self, scope: Mapping[str, Any]) -> bool:
        """Return whether this request needs a credential.

        Where it needs none, requests of foreign pages are refused here. Raises as `admit` does.
        """
        needs_credential = await self._needs_credential()
        self.cors.check(scope)
        if origins.is_api(scope):
            if not needs_credential and not self.cors.is_from_named_origin(scope):
                origins.check_not_foreign(scope)
            origins.check_json_body(scope)
        return needs_credential

    async def check_host(self, scope: Mapping[str, Any]) -> None:
        """Refuse a Host that a page may have chosen, and a foreign page, where no credentials are required.

        Raises `RequestError`. A preflight request is not refused: its response allows a foreign page nothing.
        """
        if await self._needs_credential():
            host_of(scope)
        else:
            self._host_rule.check_host(scope)
            if self.cors.preflight(scope) is None:
                self._host_rule.check_origin(scope)

    async def _needs_credential(self) -> bool:
        return self._requires_credentials or (self._key_cache is not None and await self._key_cache.has_keys())

    async def _authenticate(self, text: str) -> Principal:
        """Return the principal of a credential: the key in the environment, an API key, or a token."""
        if (principal := self._principal_of_env_key(text)) is not None:
            return principal
        if self._key_cache is not None and looks_like_key(text):
            return await self._key_cache.authenticate(text)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.verify(text)
        raise unauthorized("the credential is not one that this gateway knows", "invalid_api_key")

    def _principal_of_env_key(self, text: str) -> Principal | None:
        if self._env_principal is None or not hmac.compare_digest(_digest(text), self._env_principal[0]):
            return None
        return self._env_principal[1]

    # --- browsers ----------------------------------------------------------------------------------------------

    async def sign_in_methods(self) -> list[SignInMethod]:
        """Return the ways in which a person can sign in."""
        if self.browser_sessions is None:
            return []
        keys = self._env_principal is not None or (
            self._key_cache is not None and (self._access.keys or await self._key_cache.has_keys())
        )
        available: dict[SignInMethod, bool] = {"key": bool(keys), "oidc": self.oidc is not None}
        return [method for method, is_available in available.items() if is_available]

    async def sign_in(self, text: str) -> tuple[Principal, str]:
        """Sign a person in with an API key.

        Returns:
            The principal of the key, and the value of the session's cookie.

        Raises:
            AccessError: The same for every key that is not valid.
        """
        if self.browser_sessions is None:
            raise forbidden("signing in with a browser is not possible here", "no_sign_in")
        text = text.strip()
        if (env_principal := self._principal_of_env_key(text)) is not None:
            return env_principal, self.browser_sessions.encode(self.browser_sessions.for_env_key())
        if self._key_cache is not None and looks_like_key(text):
            try:
                principal = await self._key_cache.authenticate(text)
            except AccessError as error:
                if error.info.kind != "unauthorized":
                    raise
            else:
                assert principal.key_id is not None
                session = self.browser_sessions.for_key(principal.key_id, self._key_cache.digest(text))
                return principal, self.browser_sessions.encode(session)
        raise unauthorized(
            "this is not a key that works here; it may be mistyped, or not valid any more", "no_such_key"
        )

    async def sign_out(self, scope: Mapping[str, Any]) -> None:
        """Revoke the browser session of a request, so that no copy of its cookie works at any replica.

        Raises:
            AccessError: Unavailable when the store is down: copies of the cookie still work.
        """
        if self.browser_sessions is None or self._revocations is None:
            return
        for value in read_cookies(scope, COOKIE):
            try:
                session = self.browser_sessions.decode(value.decode("latin-1"))
            except AccessError:
                continue  # not valid, or not any more
            await self._revocations.revoke(session.session_id, session.ends)

    async def _principal_of_session(self, session: BrowserSession) -> Principal:
        """Return the current principal of a browser session."""
        assert self.browser_sessions is not None
        if self._revocations is not None and await self._revocations.is_revoked(session.session_id):
            raise session_over()
        if isinstance(session, KeySession):
            if self._key_cache is None:
                raise session_over()
            try:
                principal = await self._key_cache.authenticate_digest(session.id, session.digest)
            except AccessError as error:
                if error.info.kind != "unauthorized":
                    raise
                raise session_over() from error
        elif not self.browser_sessions.is_current(session):
            raise session_over()
        elif isinstance(session, ProviderSession):
            identity = session.who
            principal = Principal(identity.owner, None, identity.name, self._access.policy(identity.policy))
        else:
            assert self._env_principal is not None
            principal = self._env_principal[1]
        return msgspec.structs.replace(principal, session_id=session.session_id)

    # --- limits ------------------------------------------------------------------------------------------------

    async def spend(self, principal: Principal, requests: int = 1) -> list[HTTPHeader]:
        """Count requests, and check the budgets.

        Returns:
            The `x-ratelimit-*` headers of the response.

        Raises:
            AccessError: `too_many_requests`; or unavailable when the relay or the store cannot count.
        """
        if self._budgets is not None:
            await self._budgets.check(principal)
        result = await self._rates.spend(principal, requests)
        return rate_limit_headers(principal.policy, result) if result is not None else []

    async def charge(self, principal: Principal, usage: Usage) -> None:
        """Count tokens that were used. Never raises."""
        await self._rates.charge(principal, usage)

    def stream_slot(self, principal: Principal) -> StreamSlot:
        """Return one of the principal's concurrent streams, which is not yet acquired."""
        return self._rates.stream_slot(principal)

    def may_connect(self, scope: Mapping[str, Any], principal: Principal) -> bool:
        """Return whether the client of a request may connect models (see `check_may_connect`)."""
        return principal.policy.operator and self._why_not_connect(scope, principal) is None

    def check_may_connect(self, scope: Mapping[str, Any], principal: Principal) -> None:
        """Check that a request may connect models: that of an operator. Raises `AccessError` (forbidden).

        Without credentials, it must come from this machine: not from another one that reaches a public gateway or its
        proxy, and not from another page, also not from one that may use the models.
        """
        principal.policy.check_operator()
        if (reason := self._why_not_connect(scope, principal)) is not None:
            raise forbidden(
                f"{reason}, so it cannot know that this request is yours; connect models in its configuration file, or "
                "create an operator's key (`pellucid keys create`) and sign in with it",
                "operator_only",
            )
        if principal is self._local:
            origins.check_not_foreign(scope)

    def _why_not_connect(self, scope: Mapping[str, Any], principal: Principal) -> str | None:
        """Return why a request without credentials may come from another machine; None if it does not."""
        if principal is not self._local:
            return None
        if self._allow_unauthenticated:
            return "this gateway serves everybody who reaches it (server.allow_unauthenticated)"
        if self._access.hosts:
            return "this gateway has other names than this machine (access.hosts), as behind a proxy"
        if any(name in _PROXY_HEADERS for name, _ in scope["headers"]):
            return "this request came to the gateway through a proxy"
        return None

    def _refuse_remote(self, scope: Mapping[str, Any]) -> None:
        """Refuse a client of another machine.

        The application may be served at another address than the configured one, so the client's address is checked.
        """
        client = scope.get("client")
        # A Unix socket has no addresses; the file system decides who may use it.
        if self._allow_unauthenticated or client is None or not _is_remote(client[0]):
            return
        raise unauthorized(
            "this gateway has no keys, so it serves only its own machine; its operator can make keys with "
            "`pellucid keys create`",
            "missing_credentials",
        )


def _is_remote(host: str) -> bool:
    return any(c in host for c in ".:") and not is_loopback(host)


def _digest(text: str) -> bytes:
    """Return a hash of fixed length, so that a comparison reveals nothing about the text."""
    return sha256(text.encode()).digest()
