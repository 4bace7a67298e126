"""Tokens of an issuer (JWT): who signed them, for whom, until when, and whose they are.

* The algorithm is one of the configured ones, all asymmetric, and fits the key: neither `none` nor a public key used
  as an HMAC secret can pass.
* `iss`, `aud`, `exp` and the owner's claim must be there; `nbf` and `iat` are kept to where they are.
* The owner is the issuer and the claim's value, with a | between: no key's owner can be the same, nor another
  issuer's.
"""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from .backing import Down
from .config import AccessConfig
from .errors import forbidden, unauthorized, unavailable
from .jwks import Jwks
from .policy import Principal

MAX_TOKEN = 16 * 1024
_MAX_HEADER = 4096
_MAX_OWNER = 255
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: Any = None


class _Registry(JWSRegistry):
    max_header_length = _MAX_HEADER

    def get_alg(self, name: str) -> Any:
        # Without the library's warning about the name EdDSA (RFC 9864), under which issuers still sign.
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError()
        return self.algorithms[name]


def looks_like_token(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


class Tokens:
    """Verifies tokens. `aclose` when the server ends."""

    def __init__(
        self,
        access: AccessConfig,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        assert access.jwt is not None
        self._access = access
        self._config = config = access.jwt
        self._jwks = Jwks(config, ticks)
        # A header that nobody knows is to be ignored (RFC 7515 §4), but for those in `crit`, which we refuse.
        self._registry = _Registry(algorithms=list(config.algorithms), strict_check_header=False)
        audiences = [config.audience] if isinstance(config.audience, str) else config.audience
        self._claims = jwt.JWTClaimsRegistry(
            lambda: int(clock()),
            config.leeway_seconds,
            iss={"essential": True, "value": config.issuer},
            aud={"essential": True, "values": audiences},
            exp={"essential": True},
        )

    async def aclose(self) -> None:
        await self._jwks.aclose()

    async def verify(self, text: str) -> Principal:
        """Whose token it is. Raises `AccessError`: unauthorized, forbidden, or unavailable when it cannot be known."""
        return self._principal(await self._read(text))

    async def _read(self, text: str) -> dict[str, Any]:
        header = _header(text)
        if header.alg not in self._config.algorithms:
            taken = ", ".join(self._config.algorithms)
            raise unauthorized(
                f"the token is signed with {header.alg[:20]!r}; this gateway takes {taken}", "invalid_token"
            )
        try:
            keys = await self._jwks.keys(header.kid, header.alg)
        except Down as error:
            raise unavailable(
                "tokens cannot be verified now, as the issuer's keys could not be fetched; try again in a moment"
            ) from error
        for key in keys:
            try:
                claims = jwt.decode(text, key, registry=self._registry).claims
                self._claims.validate(claims)
            except BadSignatureError:
                continue
            except ExpiredTokenError as error:
                raise unauthorized("the token has expired", "token_expired") from error
            except ClaimError as error:
                raise unauthorized(
                    f"the token's claim {error.claim} does not fit this gateway", "invalid_token"
                ) from error
            except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                raise unauthorized("the token is not one that can be verified", "invalid_token") from error
            return claims
        raise unauthorized("no key of the issuer has signed this token", "invalid_token")

    def _principal(self, claims: dict[str, Any]) -> Principal:
        config = self._config
        owner = _claim(claims, config.owner_claim)
        if not isinstance(owner, str) or not 0 < len(owner) <= _MAX_OWNER or not owner.isprintable():
            raise unauthorized(f"the token's claim {config.owner_claim} does not name anybody", "invalid_token")
        policy: str | None = None
        if config.policy_claim is not None:
            value = _claim(claims, config.policy_claim)
            values = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
            policy = next((name for held, name in config.policies.items() if held in values), None)
            if policy is None and self._access.default_policy is None:
                raise forbidden(
                    f"the token's claim {config.policy_claim} gives no access to this gateway", "no_policy_for_token"
                )
        name = claims.get("name")
        if not isinstance(name, str) or len(name) > _MAX_OWNER or not name.isprintable():
            name = ""
        return Principal(f"{config.issuer}|{owner}", None, name, self._access.policy(policy))


def _header(text: str) -> _Header:
    """What the token says about itself, none of which is believed yet."""
    if len(text) > MAX_TOKEN:
        raise unauthorized(f"the token is longer than {MAX_TOKEN} characters", "invalid_token")
    first = text.partition(".")[0]
    try:
        header = msgspec.json.decode(urlsafe_b64decode(first + "=" * (-len(first) % 4)), type=_Header)
    except (ValueError, RecursionError):
        raise unauthorized("the token is not a JWT", "invalid_token") from None
    if header.crit is not None:
        raise unauthorized("the token asks for extensions (crit) that this gateway does not know", "invalid_token")
    return header


def _claim(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name, or by a path through objects: names with dots in them exist, too."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
