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
from .errors import AccessError, Header, unauthorized
from .jwt import Who

MAX_COOKIE = 4096
"""Bytes; browsers keep no longer ones."""


def cookie(scope: Mapping[str, Any], name: str) -> str | None:
    """Its value. Raises `AccessError` (unauthorized) for two that differ: a neighbour's page can have set one."""
    start, found = name.encode() + b"=", set()
    for header, value in scope["headers"]:
        if header == b"cookie":
            pairs = (pair.strip() for pair in value.split(b";"))
            found |= {pair[len(start) :] for pair in pairs if pair.startswith(start)}
    found.discard(b"")
    if not found:
        return None
    if len(found) > 1:
        raise unauthorized(f"the request brings two different cookies {name}; delete them both", "invalid_credentials")
    value = found.pop()
    return value.decode() if len(value) <= MAX_COOKIE and value.isascii() else None


def cookie_header(
    name: str, value: str, *, path: str, seconds: float, same_site: Literal["Strict", "Lax"], secure: bool
) -> Header:
    """Sets it; with no `seconds`, takes it away."""
    text = f"{name}={value}; Path={path}; Max-Age={int(seconds)}; HttpOnly; SameSite={same_site}"
    return b"set-cookie", (text + "; Secure" if secure else text).encode()


def over_https(scope: Mapping[str, Any]) -> bool:
    """Whether the browser came over https, as far as can be told: what stands before us may have ended it."""
    return scope.get("scheme") == "https" or dict(scope["headers"]).get(b"origin", b"").startswith(b"https://")


COOKIE = "pellucid_session"
PATH = "/api"

_PURPOSE = "session"
_BOUND = tokens.Bound("browser")


class ByKey(msgspec.Struct, frozen=True, tag="key"):
    """A key of `pellucid keys create`."""

    id: str
    digest: bytes
    ends: float


class ByEnv(msgspec.Struct, frozen=True, tag="env"):
    """The key in the environment."""

    mark: bytes
    ends: float


class ByProvider(msgspec.Struct, frozen=True, tag="oidc"):
    """A person whom the provider named."""

    who: Who
    rules: bytes
    ends: float


Session: TypeAlias = ByKey | ByEnv | ByProvider

_decoder: msgspec.json.Decoder[Session] = msgspec.json.Decoder(Session)


class Sessions:
    def __init__(
        self, access: AccessConfig, keys: Callable[[], Keys], env_key: str | None, clock: Callable[[], float]
    ) -> None:
        """`env_key`: the key in the environment."""
        self.seconds = access.session_seconds
        self._keys = keys
        self._clock = clock
        self._env_mark = hmac.digest(env_key.encode(), b"pellucid session", sha256) if env_key is not None else None
        self._rules = _rules(access)

    def write(self, session: Session) -> str:
        """The cookie's value."""
        return tokens.write(msgspec.json.encode(session), self._keys(), _PURPOSE, _BOUND)

    def read(self, text: str) -> Session:
        """The session, which is not over. What it names is still to be asked about. Raises `AccessError`."""
        try:
            session = _decoder.decode(tokens.read(text, self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise over() from None
        if session.ends <= self._clock():
            raise over()
        return session

    @property
    def ends(self) -> float:
        """When a session ends that begins now."""
        return self._clock() + self.seconds

    def by_env(self) -> ByEnv:
        """For whoever brought the key in the environment, which there is."""
        assert self._env_mark is not None
        return ByEnv(self._env_mark, self.ends)

    def by_provider(self, who: Who) -> ByProvider:
        """For whom the provider named."""
        return ByProvider(who, self._rules, self.ends)

    def holds(self, session: ByEnv | ByProvider) -> bool:
        """Whether what it was begun with is as it was."""
        if isinstance(session, ByEnv):
            return self._env_mark is not None and hmac.compare_digest(session.mark, self._env_mark)
        return hmac.compare_digest(session.rules, self._rules)


def over() -> AccessError:
    """What to say to a session that does not count any more, whatever the reason."""
    return unauthorized("your session is over; sign in again", "session_over")


def _rules(access: AccessConfig) -> bytes:
    """Of what a provider's session was given its policy by."""
    jwt, client = access.jwt, access.oidc and access.oidc.client_id
    claims = jwt and (jwt.issuer, jwt.owner_claim, jwt.policy_claim, list(jwt.policies.items()))
    return sha256(msgspec.json.encode((claims, client, access.default_policy))).digest()[:16]
