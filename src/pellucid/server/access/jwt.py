"""Verification of an issuer's tokens (JWT): signature, audience, time, and the owner that they name.

* The algorithm must be one of the configured ones, all asymmetric, and fit the key: neither `none` nor a public key
  used as an HMAC secret is accepted.
* `iss`, `aud`, `exp` and the owner's claim are required; `nbf` and `iat` are checked if present.
* The owner is the issuer and the claim's value, separated by |. So it cannot equal the owner of a key or of another
  issuer.
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

from .backend import BackendUnavailable
from .config import AccessConfig
from .errors import forbidden, unauthorized, unavailable
from .issuer import Issuer
from .jwks import Jwks
from .policy import Principal

MAX_TOKEN_CHARACTERS = 16 * 1024
_MAX_HEADER_BYTES = 4096
_MAX_OWNER_CHARACTERS = 255
_JWT_PATTERN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


class _JOSEHeader(msgspec.Struct):
    """The fields of a JOSE header (RFC 7515 §4) that are used."""

    alg: str
    kid: str | None = None
    crit: Any = None


class _Registry(JWSRegistry):
    max_header_length = _MAX_HEADER_BYTES

    def get_alg(self, name: str) -> Any:
        # Avoids the library's warning about the name EdDSA (RFC 9864), which issuers still use.
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError()
        return self.algorithms[name]


def looks_like_token(text: str) -> bool:
    return _JWT_PATTERN.fullmatch(text) is not None


class Identity(msgspec.Struct, frozen=True):
    """The person or client that a token names.

    `policy` is the name of a policy; None: the default.
    """

    owner: str
    name: str
    policy: str | None


class TokenVerifier:
    """Verifies tokens of the configured issuer. `aclose` it with the server."""

    def __init__(
        self,
        access: AccessConfig,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        assert access.jwt is not None
        self._access = access
        self._config = config = access.jwt
        self.issuer = Issuer(config.issuer)
        self._jwks = Jwks(config, self.issuer, monotonic)
        self._clock = clock
        # Unknown header fields are ignored (RFC 7515 §4). A token with `crit` is refused.
        self._registry = _Registry(algorithms=list(config.algorithms), strict_check_header=False)
        self._audiences = [config.audience] if isinstance(config.audience, str) else config.audience

    async def aclose(self) -> None:
        await self._jwks.aclose()
        await self.issuer.aclose()

    async def verify(self, text: str) -> Principal:
        """Return the principal of a token.

        Raises:
            AccessError: unauthorized; forbidden; or unavailable when the issuer's keys cannot be fetched.
        """
        identity = self.identity_of(await self.verify_claims(text))
        return Principal(identity.owner, None, identity.name, self._access.policy(identity.policy))

    async def verify_claims(self, text: str, audiences: list[str] | None = None) -> dict[str, Any]:
        """Verify a token and return its claims.

        Args:
            text: the token.
            audiences: accepted values of `aud`; by default those of the configuration.

        Raises:
            AccessError: unauthorized; or unavailable when the issuer's keys cannot be fetched.
        """
        registry = self._claims_registry(self._audiences if audiences is None else audiences)
        header = _decode_header(text)
        if header.alg not in self._config.algorithms:
            accepted = ", ".join(self._config.algorithms)
            raise unauthorized(
                f"the token is signed with {header.alg[:20]!r}; this gateway takes {accepted}", "invalid_token"
            )
        try:
            keys = await self._jwks.keys(header.kid, header.alg)
        except BackendUnavailable as error:
            raise unavailable(
                "tokens cannot be verified now, as the issuer's keys could not be fetched; try again in a moment"
            ) from error
        for key in keys:
            try:
                claims = jwt.decode(text, key, registry=self._registry).claims
                registry.validate(claims)
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

    def identity_of(self, claims: dict[str, Any]) -> Identity:
        """Return the identity that verified claims name.

        Raises:
            AccessError: unauthorized if there is no owner; forbidden if no policy matches.
        """
        config = self._config
        owner = _claim_value(claims, config.owner_claim)
        if not isinstance(owner, str) or not 0 < len(owner) <= _MAX_OWNER_CHARACTERS or not owner.isprintable():
            raise unauthorized(f"the token's claim {config.owner_claim} does not name an owner", "invalid_token")
        policy: str | None = None
        if config.policy_claim is not None:
            value = _claim_value(claims, config.policy_claim)
            values = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
            policy = next((name for claim_value, name in config.policies.items() if claim_value in values), None)
            if policy is None and self._access.default_policy is None:
                raise forbidden(
                    f"the token's claim {config.policy_claim} gives no access to this gateway", "no_policy_for_token"
                )
        name = claims.get("name")
        if not isinstance(name, str) or len(name) > _MAX_OWNER_CHARACTERS or not name.isprintable():
            name = ""
        return Identity(f"{config.issuer}|{owner}", name, policy)

    def _claims_registry(self, audiences: list[str]) -> jwt.JWTClaimsRegistry:
        """Return the requirements for claims."""
        return jwt.JWTClaimsRegistry(
            lambda: int(self._clock()),
            self._config.leeway_seconds,
            iss={"essential": True, "value": self._config.issuer},
            aud={"essential": True, "values": audiences},
            exp={"essential": True},
        )


def _decode_header(text: str) -> _JOSEHeader:
    """Decode the JOSE header of a token. It is not verified yet."""
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise unauthorized(f"the token is longer than {MAX_TOKEN_CHARACTERS} characters", "invalid_token")
    first = text.partition(".")[0]
    try:
        header = msgspec.json.decode(urlsafe_b64decode(first + "=" * (-len(first) % 4)), type=_JOSEHeader)
    except (ValueError, RecursionError):
        raise unauthorized("the token is not a JWT", "invalid_token") from None
    if header.crit is not None:
        raise unauthorized("the token asks for extensions (crit) that this gateway does not know", "invalid_token")
    return header


def _claim_value(claims: dict[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path through objects. Names that contain dots are tried first."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
