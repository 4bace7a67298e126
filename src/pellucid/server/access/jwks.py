"""An issuer's public keys: fetched, kept, and fetched again when a token names one that is not among them.

* Keys older than `refresh_seconds` are fetched again behind the requests, which go on with the old ones meanwhile.
* A key that is not known is worth one fetch, on which all wait who need it; but no two fetches begin within
  `retry_seconds`, so that made-up key ids cannot hammer the issuer.
* While the issuer is down, or says something that is no set of keys, the last good set stays.
* Nothing is followed anywhere: no redirects, no key or address that a token brings along.
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
"""The name EdDSA says no curve (RFC 8037); here it means Ed25519."""


class Jwks:
    def __init__(self, config: JwtConfig, issuer: Issuer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._issuer = issuer
        self._monotonic = monotonic
        self._keys: list[Key] = []
        self._fetched_at = -1e18
        self._attempted_at = -1e18
        self._fetch_task: asyncio.Task[None] | None = None

    async def keys(self, kid: str | None, algorithm: str) -> list[Key]:
        """The keys that may have signed; empty if the issuer has none such. Raises `BackendUnavailable` when no key is known."""
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
        """The fetch that is under way, or a new one if it is time for one."""
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
    """Raises `ConfigError` for a file that holds no keys to verify with."""
    try:
        _verification_keys(decode_json(_read_file(path)))
    except (OSError, InvalidIssuerResponse) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError([f"access.jwt.jwks_file: {path}: {reason}"]) from error


def _read_file(path: str) -> bytes:
    return Path(path).expanduser().read_bytes()


def _verification_keys(document: Any) -> list[Key]:
    """The keys that can verify; one that is not understood hides no other (RFC 7517 §5). Raises `InvalidIssuerResponse`."""
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
