"""Verification of an issuer's tokens (JWT): signature, audience, time, and the owner that they name.

* The algorithm must be one of the configured ones, all asymmetric, and fit the key: neither `none` nor a public key
  used as an HMAC secret is accepted.
* `iss`, `aud`, `exp` and the owner's claim are required; `nbf` and `iat` are checked if present.
* The owner is the issuer and the claim's value, separated by |. So it cannot equal the owner of a key or of another
  issuer.

The issuer's public keys (JWKS) are fetched, cached, and fetched again for a token with an unknown key id.

* Keys older than `refresh_seconds` are fetched in the background; requests use the old ones meanwhile.
* An unknown key id causes one fetch, for which all requests that need it wait. Two fetches are at least `retry_seconds`
  apart, so that invented key ids cannot overload the issuer.
* While the issuer is down or does not send a valid key set, the last valid set is used.
* Redirects, and keys or addresses that a token brings along, are not followed.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError, UnsupportedAlgorithmError
from joserfc.jwk import Key, RSAKey, import_key
from joserfc.jws import JWSRegistry

from ...errors import ConfigError
from ...telemetry import error_location, log
from .config import AccessConfig, JwtConfig
from .errors import TIMEOUT_SECONDS, BackendUnavailable, forbidden, unauthorized, unavailable
from .issuer import (
    REQUEST_ERRORS,
    InvalidIssuerResponse,
    Issuer,
    decode_json,
    describe_issuer_error,
    url_from_configuration,
)
from .policy import Principal

MAX_KEYS = 100
MAX_TOKEN_CHARACTERS = 16 * 1024
_MAX_HEADER_BYTES = 4096
_MAX_OWNER_CHARACTERS = 255
_JWT_PATTERN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_MIN_RSA_BITS = 2048
_OTHER_CURVES = ("Ed448", "X25519", "X448")
"""Curves that are refused. The name EdDSA does not define the curve (RFC 8037); here it means Ed25519."""


class Jwks:
    """The cached key set of one issuer."""

    def __init__(self, config: JwtConfig, issuer: Issuer, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._issuer = issuer
        self._monotonic = monotonic
        self._keys: list[Key] = []
        self._fetched_at = -1e18
        self._attempted_at = -1e18
        self._fetch_task: asyncio.Task[None] | None = None

    async def keys(self, kid: str | None, algorithm: str) -> list[Key]:
        """Return the keys that may have made a signature.

        Args:
            kid: The key id of the token, if it has one.
            algorithm: The signature algorithm of the token.

        Returns:
            The keys; empty if the issuer has none that fits.

        Raises:
            BackendUnavailable: No key set is known.
        """
        matching = self._matching_keys(kid, algorithm)
        if matching and self._monotonic() - self._fetched_at > self._config.refresh_seconds:
            self._begin_fetch()
        if not matching:
            fetch = self._begin_fetch()
            if fetch is not None:
                await asyncio.shield(fetch)
                matching = self._matching_keys(kid, algorithm)
            if not self._keys:
                raise BackendUnavailable
        return matching

    async def aclose(self) -> None:
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.gather(self._fetch_task, return_exceptions=True)

    def _matching_keys(self, kid: str | None, algorithm: str) -> list[Key]:
        candidates = (key for key in self._keys if kid in (None, key.kid) and key.get("crv") not in _OTHER_CURVES)
        return [key for key in candidates if JWSRegistry.filter_algorithms(key, [algorithm])]

    def _begin_fetch(self) -> asyncio.Task[None] | None:
        """Return the running fetch, or a new one if enough time has passed since the last."""
        if self._fetch_task is None and self._monotonic() - self._attempted_at >= self._config.retry_seconds:
            self._attempted_at = self._monotonic()
            self._fetch_task = asyncio.create_task(self._refresh())
        return self._fetch_task

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                self._keys = _verification_keys(await self._fetch_document())
            self._fetched_at = self._monotonic()
        except (*REQUEST_ERRORS, InvalidIssuerResponse) as error:
            log.warning(
                "the keys of the issuer %s could not be fetched: %s", self._config.issuer, describe_issuer_error(error)
            )
        except Exception as error:
            log.error("a fault while fetching an issuer's keys: %s", error_location(error))
        finally:
            self._fetch_task = None

    async def _fetch_document(self) -> Any:
        if self._config.jwks_file is not None:
            return decode_json(await asyncio.to_thread(_read_file, self._config.jwks_file))
        url = self._config.jwks_url
        if url is None:
            url = url_from_configuration(await self._issuer.fetch_configuration(), "jwks_uri", "keys")
        return await self._issuer.get_json(url)


def check_jwks_file(path: str) -> None:
    """Check that a file holds keys that can verify a signature. Raises `ConfigError`."""
    try:
        _verification_keys(decode_json(_read_file(path)))
    except (OSError, InvalidIssuerResponse) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError([f"access.jwt.jwks_file: {path}: {reason}"]) from error


def _read_file(path: str) -> bytes:
    return Path(path).expanduser().read_bytes()


def _verification_keys(document: Any) -> list[Key]:
    """Return the keys of a set that can verify signatures. Keys that are not understood are ignored (RFC 7517 §5).

    Raises:
        InvalidIssuerResponse: It is not a key set, or holds no such key.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise InvalidIssuerResponse(f"it is not a set of at most {MAX_KEYS} keys")
    keys = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use") not in (None, "sig") or entry.get("kty") == "oct":
            continue
        if entry.get("kty") == "RSA" and len(str(entry.get("n"))) * 6 < _MIN_RSA_BITS:
            continue
        try:
            key = import_key(entry)
            if isinstance(key, RSAKey) and key.raw_value.key_size < _MIN_RSA_BITS:
                continue
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        keys.append(key)
    if not keys:
        raise InvalidIssuerResponse("there is no key in it that can verify a signature")
    return keys


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
            AccessError: Unauthorized; forbidden; or unavailable when the issuer's keys cannot be fetched.
        """
        identity = self.identity_of(await self.verify_claims(text))
        return Principal(identity.owner, None, identity.name, self._access.policy(identity.policy))

    async def verify_claims(self, text: str, audiences: list[str] | None = None) -> dict[str, Any]:
        """Verify a token and return its claims.

        Args:
            text: The token.
            audiences: Accepted values of `aud`; by default those of the configuration.

        Raises:
            AccessError: Unauthorized; or unavailable when the issuer's keys cannot be fetched.
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
            AccessError: Unauthorized if there is no owner; forbidden if no policy matches.
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
