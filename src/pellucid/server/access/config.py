"""`[access]` in the configuration: who is let in, and with which policy."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ...unicode import did_you_mean
from .policy import Policy

MIN_ENV_KEY_CHARACTERS = 24
"""Characters. A key that people can choose must not be one that others can guess."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""Asymmetric ones alone: where a verifier also takes HMAC, an issuer's public key can be used as the secret."""


class JwtConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of an OpenID Connect provider, or of any issuer that publishes its keys."""

    issuer: str
    audience: str | list[str]
    """What stands in `aud` when a token is meant for this gateway; of several, one is enough."""
    jwks_url: str | None = None
    """By default what the issuer's `/.well-known/openid-configuration` names."""
    jwks_file: str | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "Ed25519", "EdDSA")
    owner_claim: str = "sub"
    """Whose the tenant is: the claim's value, behind the issuer's name."""
    policy_claim: str | None = None
    """Such as `roles`, or `realm_access.roles`: text, words separated by spaces, or a list."""
    policies: dict[str, str] = {}
    """From a value of that claim to a policy's name; the first that fits counts."""
    leeway_seconds: Annotated[int, Meta(ge=0, le=300)] = 30
    """How far the issuer's clock may be off."""
    refresh_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """How old the issuer's keys may get before they are fetched again."""
    retry_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 10.0
    """The shortest time between two fetches, whatever key a token names."""


class OidcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """People who sign in to the page with the provider of `[access.jwt]`."""

    client_id: str
    """What the provider knows this gateway as; its id_tokens have it in `aud`."""
    client_secret_env: str | None = None
    """The environment variable with the client's secret, where the provider gave it one."""
    scopes: tuple[str, ...] = ("openid", "profile")
    redirect_base: str | None = None
    """Where browsers find this gateway, such as `https://chat.example.com`; by default where they asked."""


class CorsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Web pages of other origins that may use the gateway. None, unless they are named."""

    origins: list[str] = []
    """Such as `https://app.example.com`; `*` for all."""
    credentials: bool = False
    """Whether their browsers may send what they know by heart (cookies, client certificates) to a proxy before us."""


class AccessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: bool | None = None
    """Whether to ask for keys made by `pellucid keys create`. By default as soon as there is one."""
    key_env: str | None = None
    """The environment variable that holds one more key, for a set-up that needs no more than one."""
    key_owner: str = "local"
    """Whose that key is."""
    key_policy: str | None = None
    pepper_file: str | None = None
    key_seconds: Annotated[float, Meta(ge=0, le=300)] = 5.0
    """How long what is known of a key is believed: a revocation takes effect within it."""
    default_policy: str | None = None
    """The policy of whoever has no other; by default, everything is allowed to them."""
    policies: dict[str, Policy] = {}
    session_seconds: Annotated[float, Meta(ge=60, le=366 * 86_400)] = 7 * 86_400.0
    """How long who signed in with a browser stays so."""
    jwt: JwtConfig | None = None
    oidc: OidcConfig | None = None
    cors: CorsConfig = CorsConfig()
    limits_when_down: Literal["refuse", "allow"] = "refuse"
    """What becomes of a request with limits when nobody can count it."""

    @property
    def requires_credentials(self) -> bool:
        """Whether credentials are asked for, whatever the store holds."""
        return bool(self.keys) or self.key_env is not None or self.jwt is not None

    def policy(self, name: str | None = None) -> Policy:
        """The policy of that name, or the default one."""
        name = name if name is not None else self.default_policy
        return self.policies[name] if name is not None else Policy()


def check_access(access: AccessConfig, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Every mistake, with its key and what would be right."""
    mistakes: list[str] = []

    def check_policy_name(key: str, policy: str | None) -> None:
        if policy is not None and policy not in access.policies:
            mistakes.append(f"access.{key}: no policy {policy!r}; {did_you_mean(policy, access.policies)}")

    check_policy_name("default_policy", access.default_policy)
    check_policy_name("key_policy", access.key_policy)
    if access.key_env is not None:
        key = environ.get(access.key_env, "").strip()
        if not key:
            mistakes.append(f"access.key_env: the environment has no {access.key_env}")
        elif len(key) < MIN_ENV_KEY_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
            mistakes.append(
                f"access.key_env: {access.key_env} must hold at least {MIN_ENV_KEY_CHARACTERS} ASCII characters without spaces; "
                "`openssl rand -hex 32` makes good ones"
            )
    if not is_owner_name(access.key_owner):
        mistakes.append(f"access.key_owner: {OWNER_RULE}")
    for origin in access.cors.origins:
        mistakes += [f"access.cors.origins: {mistake}" for mistake in _origin_mistakes(origin)]
    if access.cors.credentials and "*" in access.cors.origins:
        mistakes.append("access.cors.credentials: not with every origin (*); name the origins")
    if access.jwt is not None:
        mistakes += [f"access.jwt{mistake}" for mistake in _jwt_mistakes(access.jwt)]
        for value, policy in access.jwt.policies.items():
            check_policy_name(f"jwt.policies.{value}", policy)
    if access.oidc is not None:
        mistakes += [f"access.oidc{mistake}" for mistake in _oidc_mistakes(access.oidc, access.jwt, environ)]
    return mistakes


PUBLIC_HOST_WITHOUT_KEYS = (
    "server.host: {host!r} can be reached by others, and nothing says who may ask: set access.keys = true (and make "
    "keys with `pellucid keys create`), or access.key_env, or [access.jwt]; or let in everybody who reaches it, with "
    "server.allow_unauthenticated = true"
)
"""The mistake of listening where others are (`host`) without `AccessConfig.requires_credentials`."""

OWNER_RULE = "an owner has 1 to 128 letters, digits and . _ @ + -"


def is_owner_name(owner: str) -> bool:
    """Whether a name is one for an owner of keys. None of them can be an owner by a token: those have a | in them."""
    return 0 < len(owner) <= 128 and all(c.isascii() and (c.isalnum() or c in "._@+-") for c in owner)


def _jwt_mistakes(jwt: JwtConfig) -> list[str]:
    mistakes = []
    if not jwt.audience:
        mistakes.append(".audience: required: without it, tokens meant for others would be taken")
    if not jwt.algorithms:
        mistakes.append(".algorithms: at least one")
    if "|" in jwt.issuer or not jwt.issuer:
        mistakes.append(".issuer: must be the text that stands in a token's iss, and no | in it")
    elif jwt.jwks_url is None and jwt.jwks_file is None:
        mistakes += [f".issuer: {mistake}" for mistake in fetch_url_mistakes(jwt.issuer)]
    if jwt.jwks_url is not None:
        mistakes += [f".jwks_url: {mistake}" for mistake in fetch_url_mistakes(jwt.jwks_url)]
        if jwt.jwks_file is not None:
            mistakes.append(".jwks_file: either a file or jwks_url, not both")
    if jwt.jwks_file is not None and not Path(jwt.jwks_file).expanduser().is_file():
        mistakes.append(f".jwks_file: there is no file {jwt.jwks_file!r}")
    if jwt.policies and jwt.policy_claim is None:
        mistakes.append(".policies: of which claim? Set policy_claim")
    return mistakes


def _oidc_mistakes(oidc: OidcConfig, jwt: JwtConfig | None, environ: Mapping[str, str]) -> list[str]:
    mistakes = []
    if jwt is None:
        mistakes.append(": whose? Name the provider in [access.jwt]: issuer, and what its tokens allow")
    elif fetch_url_mistakes(jwt.issuer):
        mistakes.append(": access.jwt.issuer must be the provider's https:// address, under which it describes itself")
    if not oidc.client_id:
        mistakes.append(".client_id: required: what the provider knows this gateway as")
    if oidc.client_secret_env is not None and not environ.get(oidc.client_secret_env, "").strip():
        mistakes.append(f".client_secret_env: the environment has no {oidc.client_secret_env}")
    if "openid" not in oidc.scopes or any(" " in scope or not scope for scope in oidc.scopes):
        mistakes.append('.scopes: a list of words with "openid" among them')
    if oidc.redirect_base is not None and (
        _origin_mistakes(oidc.redirect_base) or fetch_url_mistakes(oidc.redirect_base)
    ):
        mistakes.append(
            f".redirect_base: {oidc.redirect_base!r} must look like https://chat.example.com, without a path "
            "(http:// is for this machine alone)"
        )
    return mistakes


def fetch_url_mistakes(url: str) -> list[str]:
    """Who can change an answer on its way could let anybody in: https, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_valid = bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
    except ValueError:
        is_valid = False
    if not is_valid or "@" in parts.netloc or not url.isprintable() or " " in url:
        return [f"{url!r} is not an https:// address (http:// is for this machine alone)"]
    return []


def is_loopback(host: str) -> bool:
    if host in ("127.0.0.1", "::1"):  # as good as all there are, and taking addresses apart is slow
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _origin_mistakes(origin: str) -> list[str]:
    if origin == "*":
        return []
    scheme, _, rest = origin.partition("://")
    try:
        parts = urlsplit(origin)
        is_valid = bool(scheme and parts.hostname) and rest == parts.netloc and "@" not in rest and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or origin != origin.lower() or not origin.isprintable() or " " in origin or "*" in origin:
        return [f"{origin!r} is no origin; it looks like https://app.example.com, in lower case, without a path"]
    if parts.port is not None and parts.port == {"http": 80, "https": 443}.get(scheme):
        return [f"{origin!r}: browsers leave out the usual port; so must this"]
    return []
