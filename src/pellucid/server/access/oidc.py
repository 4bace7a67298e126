"""Sign-in with an OpenID Connect provider: authorization code flow with PKCE (OpenID Connect Core §3.1, RFC 9700).

    location, value = await oidc.begin(base_url, next_path)  # redirect the browser; set `value` as a cookie
    identity, next_path = await oidc.finish(query, value)    # the browser comes back with the provider's answer

* The state, nonce, verifier and redirect address of an attempt are sealed in a cookie for ten minutes, and only the
  browser that began the attempt can finish it, once: then its state is stored until it expires. The provider accepts a
  code once, and without the verifier it is worthless.
* The id_token comes from the provider directly, and is still verified like every other token: signature, algorithm,
  issuer, client and time; and its nonce.
* After the sign-in, the browser is sent to a path of this gateway (`safe_return_path`), never to another site.
* Messages for people are our own. Error codes of the provider go to the operator's log; its texts do not.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
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
from .revocation import RevocationList

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
    """What the end of a sign-in attempt must match."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    next: str
    until: float


_attempt_decoder = msgspec.json.Decoder(_SignInAttempt)


class OIDCClient:
    """Client of the provider. Its requests use the issuer of `tokens`, which is closed with `tokens`."""

    def __init__(
        self,
        access: AccessConfig,
        tokens: TokenVerifier,
        revocations: RevocationList | None,
        keys: Callable[[], Keys],
        environ: Mapping[str, str],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        assert access.oidc is not None
        assert access.jwt is not None
        self._config = config = access.oidc
        self._refresh_seconds, self._retry_seconds = access.jwt.refresh_seconds, access.jwt.retry_seconds
        self._tokens = tokens
        self._revocations = revocations
        self._keys = keys
        secret = config.client_secret_env
        self._secret = environ[secret].strip() if secret is not None else None
        self._clock = clock
        self._monotonic = monotonic
        self._cached_configuration: dict[str, Any] | None = None
        self._fetched_at = self._attempted_at = -1e18
        self._lock = asyncio.Lock()

    async def begin(self, base_url: str, next_path: str | None) -> tuple[str, str]:
        """Begin a sign-in attempt.

        Args:
            base_url: The origin at which the browser reached the gateway.
            next_path: Where to go after the sign-in.

        Returns:
            The address to which the browser is redirected, and the value of the attempt's cookie.

        Raises:
            AccessError: Unavailable.
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
        """Finish a sign-in attempt.

        Args:
            query: The query with which the browser came back.
            cookie_value: The attempt's cookie.

        Returns:
            The identity of the person, and the path to go to.

        Raises:
            RequestError: The attempt failed. The message is written for people.
            AccessError: As above, where the provider is unavailable or allows no access.
        """
        attempt = self._read_attempt(cookie_value)
        if not hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise _sign_in_failed("this answer does not belong to the sign-in that your browser began last")
        configuration = await self._configuration()
        issuer = query.get("iss")
        sends_issuer = configuration.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._tokens.issuer.name and (issuer is not None or sends_issuer):
            raise _sign_in_failed("this answer comes from another provider")
        if self._revocations is not None and not await self._revocations.revoke(attempt.state, attempt.until):
            raise _sign_in_failed("this sign-in was finished before")
        if "code" not in query:
            error_code = query.get("error", "")
            raise _sign_in_failed(
                f"the provider refused the sign-in ({error_code if _ERROR_CODE.fullmatch(error_code) else 'no code'})"
            )
        token = await self._redeem_code(configuration, query["code"], attempt)
        return await self._verify_id_token(token, attempt.nonce), attempt.next

    # --- one step after the other ------------------------------------------------------------------------------

    def _read_attempt(self, cookie_value: str | None) -> _SignInAttempt:
        try:
            attempt = _attempt_decoder.decode(tokens.read(cookie_value or "", self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise _sign_in_failed("your browser did not begin it here, or stores no cookies") from None
        if attempt.until <= self._clock():
            raise _sign_in_failed("it took too long")
        return attempt

    async def _redeem_code(self, configuration: Mapping[str, Any], code: str, attempt: _SignInAttempt) -> str:
        """Exchange the code for the id_token."""
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
            self._log("did not answer the request for a token", describe_issuer_error(error))
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
            self._log("sent an invalid token", error.info.message)
            raise _sign_in_failed("the token of the provider cannot be verified") from error
        token_nonce, authorized_party = claims.get("nonce"), claims.get("azp")
        has_several_audiences = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if authorized_party != client and (authorized_party is not None or has_several_audiences):
            self._log("sent an invalid token", "it was issued to another client (azp)")
            raise _sign_in_failed("the token of the provider was issued to another client")
        if not isinstance(token_nonce, str) or not hmac.compare_digest(token_nonce.encode(), nonce.encode()):
            self._log("sent an invalid token", "its nonce is not that of the request")
            raise _sign_in_failed("the token of the provider belongs to another sign-in")
        return self._tokens.identity_of(claims)

    async def _configuration(self) -> dict[str, Any]:
        """Return the provider's configuration. The last valid one is used while the provider is down.

        Raises:
            AccessError: Unavailable when there is none.
        """
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
                    self._log("sent no usable configuration", describe_issuer_error(error))
        if self._cached_configuration is None:
            raise _provider_unavailable()
        return self._cached_configuration

    def _log(self, failure: str, reason: str) -> None:
        log.warning("signing in: the provider %s %s: %s", self._tokens.issuer.name, failure, reason)


def safe_return_path(text: str | None) -> str:
    """Return a path of this gateway's pages; `/` for anything else, such as another host or a path of the API."""
    if text is None or not _RETURN_PATH.fullmatch(text) or text.startswith("/api"):
        return "/"
    return text


def _sign_in_failed(reason: str) -> RequestError:
    return RequestError(f"signing in did not work: {reason}. Please begin again.", code="sign_in_failed")


def _provider_unavailable() -> AccessError:
    return unavailable("signing in does not work now, as the provider does not answer as it should; try again later")
