"""Browser sessions: a sealed cookie holds who signed in, so that no replica stores a session.

* A session refers to a key: it holds the key's id and keyed hash (or a mark of the key in the environment). Each
  request looks the key up, so a key that is revoked or expired ends its sessions at once. A session of a provider holds
  the owner and the name of the policy.
* The cookie is sealed with the seal keys that the replicas share, for this purpose only, and has an expiry.
* A session has an id, with which signing out revokes it (`revocation`).
* A session ends when the rules change under which it began: the provider, its claims, or the policies that they select.

Cookies are read from a request, and written for its response. No script can read one.
"""

from __future__ import annotations

import hmac
import secrets
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
"""Maximum size of a cookie; browsers store no longer ones."""


def read_cookie(scope: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a cookie, or None.

    Raises:
        AccessError: Unauthorized for two different values: a page of a sibling domain may have set one of them.
    """
    values = read_cookies(scope, name)
    if len(values) > 1:
        raise unauthorized(f"the request brings two different cookies {name}; delete them both", "invalid_credentials")
    value = values.pop() if values else b""
    return value.decode() if value and len(value) <= MAX_COOKIE_BYTES and value.isascii() else None


def read_cookies(scope: Mapping[str, Any], name: str) -> set[bytes]:
    """Return the different values of all cookies with this name."""
    prefix, values = name.encode() + b"=", set[bytes]()
    for header, value in scope["headers"]:
        if header == b"cookie":
            pairs = (pair.strip() for pair in value.split(b";"))
            values |= {pair[len(prefix) :] for pair in pairs if pair.startswith(prefix)}
    values.discard(b"")
    return values


def cookie_header(
    name: str, value: str, *, path: str, max_age_seconds: float, same_site: Literal["Strict", "Lax"], secure: bool
) -> HTTPHeader:
    """Return the header that sets a cookie. `max_age_seconds=0` deletes the cookie."""
    text = f"{name}={value}; Path={path}; Max-Age={int(max_age_seconds)}; HttpOnly; SameSite={same_site}"
    return b"set-cookie", (text + "; Secure" if secure else text).encode()


def is_https(scope: Mapping[str, Any]) -> bool:
    """Return whether the browser used https, as far as the request shows it.

    A proxy in front of the gateway may have ended the TLS connection.
    """
    return scope.get("scheme") == "https" or dict(scope["headers"]).get(b"origin", b"").startswith(b"https://")


COOKIE = "pellucid_session"
PATH = "/api"

_PURPOSE = "session"
_BOUND = tokens.Binding("browser")


class KeySession(msgspec.Struct, frozen=True, tag="key"):
    """A session of a key that `pellucid keys create` made."""

    id: str
    """The key's id."""
    digest: bytes
    ends: float
    session_id: str


class EnvKeySession(msgspec.Struct, frozen=True, tag="env"):
    """A session of the key in the environment."""

    mark: bytes
    ends: float
    session_id: str


class ProviderSession(msgspec.Struct, frozen=True, tag="oidc"):
    """A session of a person that the provider identified."""

    who: Identity
    rules: bytes
    ends: float
    session_id: str


BrowserSession: TypeAlias = KeySession | EnvKeySession | ProviderSession

_session_decoder: msgspec.json.Decoder[BrowserSession] = msgspec.json.Decoder(BrowserSession)


class BrowserSessions:
    """Encodes and decodes the cookies of browser sessions."""

    def __init__(
        self, access: AccessConfig, keys: Callable[[], Keys], env_key: str | None, clock: Callable[[], float]
    ) -> None:
        """Create the codec.

        Args:
            access: `[access]` of the configuration.
            keys: Returns the current seal keys.
            env_key: The key in the environment, if there is one.
            clock: Wall clock, in seconds since 1970.
        """
        self.lifetime_seconds = access.session_seconds
        self._keys = keys
        self._clock = clock
        self._env_mark = hmac.digest(env_key.encode(), b"pellucid session", sha256) if env_key is not None else None
        self._rules_digest = _digest_rules(access)

    def encode(self, session: BrowserSession) -> str:
        """Return the value of the session's cookie."""
        return tokens.write(msgspec.json.encode(session), self._keys(), _PURPOSE, _BOUND)

    def decode(self, text: str) -> BrowserSession:
        """Decode a cookie of a session that has not expired. What it refers to must still be looked up.

        Raises:
            AccessError: The cookie is not valid, or the session has expired.
        """
        try:
            session = _session_decoder.decode(tokens.read(text, self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise session_over() from None
        if session.ends <= self._clock():
            raise session_over()
        return session

    @property
    def expiry(self) -> float:
        """When a session that begins now expires, in seconds since 1970."""
        return self._clock() + self.lifetime_seconds

    def for_key(self, key_id: str, digest: bytes) -> KeySession:
        """Return a new session of an API key."""
        return KeySession(key_id, digest, self.expiry, _new_session_id())

    def for_env_key(self) -> EnvKeySession:
        """Return a new session of the key in the environment, which must exist."""
        assert self._env_mark is not None
        return EnvKeySession(self._env_mark, self.expiry, _new_session_id())

    def for_provider(self, identity: Identity) -> ProviderSession:
        """Return a new session of a person that the provider identified."""
        return ProviderSession(identity, self._rules_digest, self.expiry, _new_session_id())

    def is_current(self, session: EnvKeySession | ProviderSession) -> bool:
        """Return whether the key or the rules with which the session began are unchanged."""
        if isinstance(session, EnvKeySession):
            return self._env_mark is not None and hmac.compare_digest(session.mark, self._env_mark)
        return hmac.compare_digest(session.rules, self._rules_digest)


def _new_session_id() -> str:
    return secrets.token_urlsafe(16)


def session_over() -> AccessError:
    """Return the error for a session that is not valid any more, whatever the reason."""
    return unauthorized("your session is over; sign in again", "session_over")


def _digest_rules(access: AccessConfig) -> bytes:
    """Return a digest of the configuration that gives a provider's session its policy."""
    jwt, client = access.jwt, access.oidc and access.oidc.client_id
    claims = jwt and (jwt.issuer, jwt.owner_claim, jwt.policy_claim, list(jwt.policies.items()))
    return sha256(msgspec.json.encode((claims, client, access.default_policy))).digest()[:16]
