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
from .issuer import FAILURES, Unfit, address, why
from .jwt import Tokens, Who

COOKIE = "pellucid_sign_in"
PATH = "/api/session/oidc"
CALLBACK = f"{PATH}/callback"
SECONDS = 600.0
"""How long a person may take at the provider."""

_ENDPOINTS = {"authorization_endpoint": "signing in", "token_endpoint": "tokens"}
_PURPOSE = "oidc sign-in"
_BOUND = tokens.Bound("browser")
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_PATH_OF_OURS = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1000}")


class _Begun(msgspec.Struct, frozen=True):
    """An attempt: what its end must fit."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    next: str
    until: float


_begun = msgspec.json.Decoder(_Begun)


class Oidc:
    """Its requests go through `tokens`' issuer, which closes with them."""

    def __init__(
        self,
        access: AccessConfig,
        tokens: Tokens,
        keys: Callable[[], Keys],
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        assert access.oidc is not None
        assert access.jwt is not None
        self._config = config = access.oidc
        self._refresh, self._retry = access.jwt.refresh_seconds, access.jwt.retry_seconds
        self._tokens = tokens
        self._keys = keys
        secret = config.client_secret_env
        self._secret = environ[secret].strip() if secret is not None else None
        self._clock = clock
        self._ticks = ticks
        self._about: dict[str, Any] | None = None
        self._about_at = self._tried_at = -1e18
        self._asking = asyncio.Lock()

    async def begin(self, base: str, next_: str | None) -> tuple[str, str]:
        """Where to send the browser, and the cookie's value. `base`: the origin at which it asked.

        Raises `AccessError` (unavailable).
        """
        about = await self._description()
        begun = _Begun(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            redirect=(self._config.redirect_base or base) + CALLBACK,
            next=path_of(next_),
            until=self._clock() + SECONDS,
        )
        challenge = urlsafe_b64encode(sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": begun.redirect,
            "scope": " ".join(self._config.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        there = about["authorization_endpoint"]
        value = tokens.write(msgspec.json.encode(begun), self._keys(), _PURPOSE, _BOUND)
        return f"{there}{'&' if '?' in there else '?'}{urlencode(asked)}", value

    async def finish(self, query: Mapping[str, str], value: str | None) -> tuple[Who, str]:
        """Who signed in, and the path to go on with. Raises `RequestError` and `AccessError`, in words for people."""
        begun = self._read(value)
        if not hmac.compare_digest(query.get("state", "").encode(), begun.state.encode()):
            raise _failed("this answer does not belong to the sign-in that your browser began last")
        about = await self._description()
        issuer = query.get("iss")
        told = about.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._tokens.issuer.name and (issuer is not None or told):
            raise _failed("this answer comes from another provider")
        if "code" not in query:
            said = query.get("error", "")
            raise _failed(f"the provider did not let you in ({said if _CODE.fullmatch(said) else 'it sent no code'})")
        token = await self._redeem(about, query["code"], begun)
        return await self._verified(token, begun.nonce), begun.next

    # --- one step after the other ------------------------------------------------------------------------------

    def _read(self, value: str | None) -> _Begun:
        try:
            begun = _begun.decode(tokens.read(value or "", self._keys(), _PURPOSE, _BOUND))
        except (SealError, msgspec.DecodeError):
            raise _failed("your browser did not begin it here, or keeps no cookies") from None
        if begun.until <= self._clock():
            raise _failed("it took too long")
        return begun

    async def _redeem(self, about: Mapping[str, Any], code: str, begun: _Begun) -> str:
        """The id_token for the code."""
        client, secret = self._config.client_id, self._secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect,
            "code_verifier": begun.verifier,
        }
        headers: dict[str, str] = {}
        ways = about.get("token_endpoint_auth_methods_supported")
        if secret is None:
            form["client_id"] = client
        elif isinstance(ways, list) and "client_secret_post" in ways and "client_secret_basic" not in ways:
            form |= {"client_id": client, "client_secret": secret}
        else:
            both = f"{quote_plus(client)}:{quote_plus(secret)}"  # RFC 6749 §2.3.1
            headers["authorization"] = f"Basic {b64encode(both.encode()).decode()}"
        try:
            status, reply = await self._tokens.issuer.post(about["token_endpoint"], form, headers)
        except (*FAILURES, Unfit) as error:
            self._log("could not be asked for a token", why(error))
            raise _down() from error
        reply = reply if isinstance(reply, dict) else {}
        token = reply.get("id_token")
        if status == 200 and isinstance(token, str):
            return token
        said = reply.get("error")
        code = said if isinstance(said, str) and _CODE.fullmatch(said) else "no id_token"
        self._log("gave no token", f"it answered {status} ({code})")
        raise _down() if status >= 500 else _failed("the provider did not confirm it; its code may have been used up")

    async def _verified(self, token: str, nonce: str) -> Who:
        client = self._config.client_id
        try:
            claims = await self._tokens.read(token, [client])
        except AccessError as error:
            if error.info.kind != "unauthorized":
                raise
            self._log("gave a token that is not right", error.info.message)
            raise _failed("what the provider says of you cannot be verified") from error
        given, party = claims.get("nonce"), claims.get("azp")
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if party != client and (party is not None or several):
            self._log("gave a token that is not right", "it was issued to another client (azp)")
            raise _failed("what the provider says of you was said to somebody else")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
            self._log("gave a token that is not right", "its nonce is not that of the request")
            raise _failed("what the provider says of you belongs to another sign-in")
        return self._tokens.who(claims)

    async def _description(self) -> dict[str, Any]:
        """The provider's. One that was good stays while it is down; raises `AccessError` (unavailable) without any."""
        async with self._asking:
            now = self._ticks()
            if now - self._about_at > self._refresh and now - self._tried_at > self._retry:
                self._tried_at = now
                try:
                    about = await self._tokens.issuer.about()
                    for name, what in _ENDPOINTS.items():
                        address(about, name, what)
                    self._about, self._about_at = about, now
                except (*FAILURES, Unfit) as error:
                    self._log("could not be asked how to sign in", why(error))
        if self._about is None:
            raise _down()
        return self._about

    def _log(self, what: str, told: str) -> None:
        log.warning("signing in: the provider %s %s: %s", self._tokens.issuer.name, what, told)


def path_of(text: str | None) -> str:
    """A path of this gateway's pages, or `/` for anything else: another host, however it is written, or the API."""
    if text is None or not _PATH_OF_OURS.fullmatch(text) or text.startswith("/api"):
        return "/"
    return text


def _failed(reason: str) -> RequestError:
    return RequestError(f"signing in did not work: {reason}. Please begin again.", code="sign_in_failed")


def _down() -> AccessError:
    return unavailable("signing in does not work now, as the provider does not answer as it should; try again later")
