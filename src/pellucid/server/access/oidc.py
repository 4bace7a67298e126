"""Signing in with an OpenID Connect provider: its authorization code, with PKCE (OpenID Connect Core §3.1, RFC 9700).

    location, value = await oidc.begin(base, next)      # the browser goes there, and keeps `value` as a cookie
    who, next = await oidc.finish(query, value)         # it comes back with what the provider says

* What an attempt must come back with (state, nonce, verifier, address) is sealed in a cookie of its own for ten
  minutes: nothing is kept here, and an answer is taken only by the browser that asked. A code is good once; the
  provider sees to that, and the verifier makes it worthless to others.
* The id_token comes from the provider itself, and is verified all the same as every other token is: its signature and
  algorithm, issuer, client, time; and the nonce.
* The way back leads to a path of this gateway (`path_of`), never elsewhere.
* What a person is told is ours. What the provider said goes to the operator's log, as far as it is a code.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec

from ...errors import RequestError
from ...sealing import Keys, SealError
from ...sealing import token as tokens
from ...telemetry import log
from .config import AccessConfig
from .errors import AccessError, unavailable
from .issuer import REQUEST_ERRORS, InvalidIssuerResponse, describe_issuer_error, url_from_configuration
from .jwt import Identity, TokenVerifier

COOKIE = "pellucid_sign_in"
PATH = "/api/session/oidc"
CALLBACK = f"{PATH}/callback"
ATTEMPT_SECONDS = 600.0
"""How long a person may take at the provider."""

_ENDPOINTS = {"authorization_endpoint": "signing in", "token_endpoint": "tokens"}
_PURPOSE = "oidc sign-in"
_BOUND = tokens.Binding("browser")
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_RETURN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1000}")


class _SignInAttempt(msgspec.Struct, frozen=True):
    """An attempt: what its end must fit."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    next: str
    until: float


_attempt_decoder = msgspec.json.Decoder(_SignInAttempt)


class OIDCClient:
    """Its requests go through `tokens`' issuer, which closes with them."""

    def __init__(
        self,
        access: AccessConfig,
        tokens: TokenVerifier,
        keys: Callable[[], Keys],
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        assert access.oidc is not None
        assert access.jwt is not None
        self._config = config = access.oidc
        self._refresh_seconds, self._retry_seconds = access.jwt.refresh_seconds, access.jwt.retry_seconds
        self._tokens = tokens
        self._keys = keys
        secret = config.client_secret_env
        self._secret = environ[secret].strip() if secret is not None else None
        self._clock = clock
        self._monotonic = monotonic
        self._cached_configuration: dict[str, Any] | None = None
        self._fetched_at = self._attempted_at = -1e18
        self._lock = asyncio.Lock()

    async def begin(self, base_url: str, next_path: str | None) -> tuple[str, str]:
        """Where to send the browser, and the cookie's value. `base`: the origin at which it asked.

        Raises `AccessError` (unavailable).
        """
        configuration = await self._configuration()
        attempt = _SignInAttempt(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            redirect=(self._config.redirect_base or base_url) + CALLBACK,
            next=safe_return_path(next_path),
            until=self._clock() + ATTEMPT_SECONDS,
        )
        challenge = urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": attempt.redirect,
            "scope": " ".join(self._config.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = configuration["authorization_endpoint"]
        cookie_value = tokens.write(msgspec.json.encode(attempt), self._keys(), _PURPOSE, _BOUND)
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}", cookie_value

    async def finish(self, query: Mapping[str, str], cookie_value: str | None) -> tuple[Identity, str]:
        """Who signed in, and the path to go on with. Raises `RequestError` and `AccessError`, in words for people."""
        attempt = self._read_attempt(cookie_value)
        if not hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise _sign_in_failed("this answer does not belong to the sign-in that your browser began last")
        configuration = await self._configuration()
        issuer = query.get("iss")
        sends_issuer = configuration.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._tokens.issuer.name and (issuer is not None or sends_issuer):
            raise _sign_in_failed("this answer comes from another provider")
        if "code" not in query:
            error_code = query.get("error", "")
            raise _sign_in_failed(
                f"the provider did not let you in ({error_code if _ERROR_CODE.fullmatch(error_code) else 'it sent no code'})"
            )
        token = await self._redeem_code(configuration, query["code"], attempt)
        return await self._verify_id_token(token, attempt.nonce), attempt.next

    # --- one step after the other ------------------------------------------------------------------------------

    def _read_attempt(self, cookie_value: str | None) -> _SignInAttempt:
        try:
            attempt = _attempt_decoder.decode(tokens.read(cookie_value or "", self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise _sign_in_failed("your browser did not begin it here, or keeps no cookies") from None
        if attempt.until <= self._clock():
            raise _sign_in_failed("it took too long")
        return attempt

    async def _redeem_code(self, configuration: Mapping[str, Any], code: str, attempt: _SignInAttempt) -> str:
        """The id_token for the code."""
        client, secret = self._config.client_id, self._secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect,
            "code_verifier": attempt.verifier,
        }
        headers: dict[str, str] = {}
        auth_methods = configuration.get("token_endpoint_auth_methods_supported")
        if secret is None:
            form["client_id"] = client
        elif (
            isinstance(auth_methods, list)
            and "client_secret_post" in auth_methods
            and "client_secret_basic" not in auth_methods
        ):
            form |= {"client_id": client, "client_secret": secret}
        else:
            credentials = f"{quote_plus(client)}:{quote_plus(secret)}"  # RFC 6749 §2.3.1
            headers["authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
        try:
            status, reply = await self._tokens.issuer.post_form(configuration["token_endpoint"], form, headers)
        except (*REQUEST_ERRORS, InvalidIssuerResponse) as error:
            self._log("could not be asked for a token", describe_issuer_error(error))
            raise _provider_unavailable() from error
        reply = reply if isinstance(reply, dict) else {}
        token = reply.get("id_token")
        if status == 200 and isinstance(token, str):
            return token
        reply_error = reply.get("error")
        code = reply_error if isinstance(reply_error, str) and _ERROR_CODE.fullmatch(reply_error) else "no id_token"
        self._log("gave no token", f"it answered {status} ({code})")
        raise (
            _provider_unavailable()
            if status >= 500
            else _sign_in_failed("the provider did not confirm it; its code may have been used up")
        )

    async def _verify_id_token(self, token: str, nonce: str) -> Identity:
        client = self._config.client_id
        try:
            claims = await self._tokens.verify_claims(token, [client])
        except AccessError as error:
            if error.info.kind != "unauthorized":
                raise
            self._log("gave a token that is not right", error.info.message)
            raise _sign_in_failed("what the provider says of you cannot be verified") from error
        token_nonce, authorized_party = claims.get("nonce"), claims.get("azp")
        has_several_audiences = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if authorized_party != client and (authorized_party is not None or has_several_audiences):
            self._log("gave a token that is not right", "it was issued to another client (azp)")
            raise _sign_in_failed("what the provider says of you was said to somebody else")
        if not isinstance(token_nonce, str) or not hmac.compare_digest(token_nonce.encode(), nonce.encode()):
            self._log("gave a token that is not right", "its nonce is not that of the request")
            raise _sign_in_failed("what the provider says of you belongs to another sign-in")
        return self._tokens.identity_of(claims)

    async def _configuration(self) -> dict[str, Any]:
        """The provider's. One that was good stays while it is down; raises `AccessError` (unavailable) without any."""
        async with self._lock:
            now = self._monotonic()
            if now - self._fetched_at > self._refresh_seconds and now - self._attempted_at > self._retry_seconds:
                self._attempted_at = now
                try:
                    configuration = await self._tokens.issuer.fetch_configuration()
                    for name, what in _ENDPOINTS.items():
                        url_from_configuration(configuration, name, what)
                    self._cached_configuration, self._fetched_at = configuration, now
                except (*REQUEST_ERRORS, InvalidIssuerResponse) as error:
                    self._log("could not be asked how to sign in", describe_issuer_error(error))
        if self._cached_configuration is None:
            raise _provider_unavailable()
        return self._cached_configuration

    def _log(self, failure: str, reason: str) -> None:
        log.warning("signing in: the provider %s %s: %s", self._tokens.issuer.name, failure, reason)


def safe_return_path(text: str | None) -> str:
    """A path of this gateway's pages, or `/` for anything else: another host, however it is written, or the API."""
    if text is None or not _RETURN_PATH.fullmatch(text) or text.startswith("/api"):
        return "/"
    return text


def _sign_in_failed(reason: str) -> RequestError:
    return RequestError(f"signing in did not work: {reason}. Please begin again.", code="sign_in_failed")


def _provider_unavailable() -> AccessError:
    return unavailable("signing in does not work now, as the provider does not answer as it should; try again later")
