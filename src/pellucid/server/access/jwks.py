"""An issuer's public keys (JWKS): fetched, cached, and fetched again for a token with an unknown key id.

* Keys older than `refresh_seconds` are fetched in the background; requests use the old ones meanwhile.
* An unknown key id causes one fetch, for which all requests that need it wait. Two fetches are at least `retry_seconds`
  apart, so that invented key ids cannot overload the issuer.
* While the issuer is down or does not send a valid key set, the last valid set is used.
* Redirects, and keys or addresses that a token brings along, are not followed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import Key, RSAKey, import_key
from joserfc.jws import JWSRegistry

from ...errors import ConfigError
from ...telemetry import error_location, log
from .backend import TIMEOUT_SECONDS, BackendUnavailable
from .config import JwtConfig
from .issuer import (
    REQUEST_ERRORS,
    InvalidIssuerResponse,
    Issuer,
    decode_json,
    describe_issuer_error,
    url_from_configuration,
)

MAX_KEYS = 100

_MIN_RSA_BITS = 2048
_OTHER_CURVES = ("Ed448", "X25519", "X448")
"""Curves that are refused. The name EdDSA does not define the curve (RFC 8037); here it means Ed25519."""


class Jwks:
    """The cached key set of one issuer."""

    def __init__(self, config: JwtConfig, issuer: Issuer, monotonic: Callable[[], float] = time.monotonic) -> None:
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
            kid: the key id of the token, if it has one.
            algorithm: the signature algorithm of the token.

        Returns:
            The keys; empty if the issuer has none that fits.

        Raises:
            BackendUnavailable: no key set is known.
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
        InvalidIssuerResponse: it is not a key set, or holds no such key.
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
