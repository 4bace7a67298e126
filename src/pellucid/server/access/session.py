"""Who signed in with a browser: what the cookie holds, sealed, so that no replica has to remember anybody.

* A session names a key, and is none: it holds the key's id and keyed hash (or a mark of the key in the environment),
  and each request asks the key book about it, so that a key that is revoked or has expired ends its sessions as soon
  as itself. One by a provider holds the owner and the policy's name.
* It opens with the seal keys that the replicas share, for this purpose alone, and until it ends.
* A session that was begun under other rules is over: the provider, its claims, the policies they lead to.

Cookies: read from a request, and written for its answer. No script can read one.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec

from ...sealing import Keys, SealError
from ...sealing import token as tokens
from .config import AccessConfig
from .errors import AccessError, HTTPHeader, unauthorized
from .jwt import Identity

MAX_COOKIE_BYTES = 4096
"""Bytes; browsers keep no longer ones."""


def read_cookie(scope: Mapping[str, Any], name: str) -> str | None:
    """Its value. Raises `AccessError` (unauthorized) for two that differ: a neighbour's page can have set one."""
    prefix, values = name.encode() + b"=", set()
    for header, value in scope["headers"]:
        if header == b"cookie":
            pairs = (pair.strip() for pair in value.split(b";"))
            values |= {pair[len(prefix) :] for pair in pairs if pair.startswith(prefix)}
    values.discard(b"")
    if not values:
        return None
    if len(values) > 1:
        raise unauthorized(f"the request brings two different cookies {name}; delete them both", "invalid_credentials")
    value = values.pop()
    return value.decode() if len(value) <= MAX_COOKIE_BYTES and value.isascii() else None


def cookie_header(
    name: str, value: str, *, path: str, max_age_seconds: float, same_site: Literal["Strict", "Lax"], secure: bool
) -> HTTPHeader:
    """Sets it; with no `seconds`, takes it away."""
    text = f"{name}={value}; Path={path}; Max-Age={int(max_age_seconds)}; HttpOnly; SameSite={same_site}"
    return b"set-cookie", (text + "; Secure" if secure else text).encode()


def is_https(scope: Mapping[str, Any]) -> bool:
    """Whether the browser came over https, as far as can be told: what stands before us may have ended it."""
    return scope.get("scheme") == "https" or dict(scope["headers"]).get(b"origin", b"").startswith(b"https://")


COOKIE = "pellucid_session"
PATH = "/api"

_PURPOSE = "session"
_BOUND = tokens.Binding("browser")


class KeySession(msgspec.Struct, frozen=True, tag="key"):
    """A key of `pellucid keys create`."""

    id: str
    digest: bytes
    ends: float


class EnvKeySession(msgspec.Struct, frozen=True, tag="env"):
    """The key in the environment."""

    mark: bytes
    ends: float


class ProviderSession(msgspec.Struct, frozen=True, tag="oidc"):
    """A person whom the provider named."""

    who: Identity
    rules: bytes
    ends: float


BrowserSession: TypeAlias = KeySession | EnvKeySession | ProviderSession

_session_decoder: msgspec.json.Decoder[BrowserSession] = msgspec.json.Decoder(BrowserSession)


class BrowserSessions:
    def __init__(
        self, access: AccessConfig, keys: Callable[[], Keys], env_key: str | None, clock: Callable[[], float]
    ) -> None:
        """`env_key`: the key in the environment."""
        self.lifetime_seconds = access.session_seconds
        self._keys = keys
        self._clock = clock
        self._env_mark = hmac.digest(env_key.encode(), b"pellucid session", sha256) if env_key is not None else None
        self._rules_digest = _digest_rules(access)

    def encode(self, session: BrowserSession) -> str:
        """The cookie's value."""
        return tokens.write(msgspec.json.encode(session), self._keys(), _PURPOSE, _BOUND)

    def decode(self, text: str) -> BrowserSession:
        """The session, which is not over. What it names is still to be asked about. Raises `AccessError`."""
        try:
            session = _session_decoder.decode(tokens.read(text, self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise session_over() from None
        if session.ends <= self._clock():
            raise session_over()
        return session

    @property
    def expiry(self) -> float:
        """When a session ends that begins now."""
        return self._clock() + self.lifetime_seconds

    def for_env_key(self) -> EnvKeySession:
        """For whoever brought the key in the environment, which there is."""
        assert self._env_mark is not None
        return EnvKeySession(self._env_mark, self.expiry)

    def for_provider(self, identity: Identity) -> ProviderSession:
        """For whom the provider named."""
        return ProviderSession(identity, self._rules_digest, self.expiry)

    def is_current(self, session: EnvKeySession | ProviderSession) -> bool:
        """Whether what it was begun with is as it was."""
        if isinstance(session, EnvKeySession):
            return self._env_mark is not None and hmac.compare_digest(session.mark, self._env_mark)
        return hmac.compare_digest(session.rules, self._rules_digest)


def session_over() -> AccessError:
    """What to say to a session that does not count any more, whatever the reason."""
    return unauthorized("your session is over; sign in again", "session_over")


def _digest_rules(access: AccessConfig) -> bytes:
    """Of what a provider's session was given its policy by."""
    jwt, client = access.jwt, access.oidc and access.oidc.client_id
    claims = jwt and (jwt.issuer, jwt.owner_claim, jwt.policy_claim, list(jwt.policies.items()))
    return sha256(msgspec.json.encode((claims, client, access.default_policy))).digest()[:16]
