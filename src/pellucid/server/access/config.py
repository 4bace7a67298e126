"""`[access]` in the configuration: who may use the gateway, and with which policy."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ...asgi.host import is_host
from ...unicode import did_you_mean
from .policy import Policy

MIN_ENV_KEY_CHARACTERS = 24
"""Minimum length of a key that the operator chooses: it must not be possible to guess it."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""Signature algorithms of tokens, asymmetric ones only.

A verifier that also accepts HMAC could be given a token whose secret is the issuer's public key.
"""


class JwtConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[access.jwt]`: tokens of an OpenID Connect provider, or of any issuer that publishes its keys."""

    issuer: str
    """The `iss` of its tokens; its keys are found from here."""
    audience: str | list[str]
    """The `aud` of tokens that are meant for this gateway; if there are several, a token needs one of them."""
    jwks_url: str | None = None
    """Address of the issuer's keys; by default the one that its `/.well-known/openid-configuration` names."""
    jwks_file: str | None = None
    """The file with its keys, instead of an address."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "Ed25519", "EdDSA")
    """The algorithms of signatures that are accepted."""
    owner_claim: str = "sub"
    """The claim that names the owner. The owner is the issuer's name and the value of this claim."""
    policy_claim: str | None = None
    """The claim that selects the policy, such as `roles` or `realm_access.roles`: words separated by spaces, or a list.
    """
    policies: dict[str, str] = {}
    """Policy names by the value of that claim; the first entry that matches is used."""
    leeway_seconds: Annotated[int, Meta(ge=0, le=300)] = 30
    """How far the issuer's clock may differ from ours."""
    refresh_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """Age of the issuer's keys at which they are fetched again."""
    retry_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 10.0
    """Minimum time between two fetches of keys, also for tokens with unknown key ids."""


class OidcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[access.oidc]`: people who sign in to the page with the provider of `[access.jwt]`."""

    client_id: str
    """The id of this gateway at the provider; its id_tokens have it in `aud`."""
    client_secret_env: str | None = None
    """The environment variable that holds the client's secret, if the provider gave one."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """What is requested when a person signs in."""
    redirect_base: str | None = None
    """The gateway's origin for browsers, such as `https://chat.example.com`; by default the requested one."""


class CorsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[access.cors]`: web pages of other origins that may use the gateway. By default there are none."""

    origins: list[str] = []
    """Origins such as `https://app.example.com`; `*` for all."""
    credentials: bool = False
    """Whether browsers may send their own credentials (cookies, certificates) to a proxy in front of the gateway."""


class AccessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[access]`: API keys, policies, and how people sign in."""

    keys: bool | None = None
    """Whether keys made by `pellucid keys create` are required; by default as soon as there is one."""
    key_env: str | None = None
    """The environment variable that holds one additional key, for a set-up that needs only one."""
    key_owner: str = "local"
    """The owner of that key."""
    key_policy: str | None = None
    """The policy of that key; by default the default policy, and its holder is an operator."""
    pepper_file: str | None = None
    """The secret under which keys are hashed; by default a file in the user's data directory. PELLUCID_KEY_PEPPER in
    the environment takes precedence."""
    key_seconds: Annotated[float, Meta(ge=0, le=300)] = 5.0
    """How long a key that was looked up stays valid without another look-up.

    A revocation takes effect within this time.
    """
    default_policy: str | None = None
    """The policy of principals without another one; by default it allows everything."""
    policies: dict[str, Policy] = {}
    session_seconds: Annotated[float, Meta(ge=60, le=366 * 86_400)] = 7 * 86_400.0
    """Lifetime of a browser session."""
    jwt: JwtConfig | None = None
    oidc: OidcConfig | None = None
    cors: CorsConfig = CorsConfig()
    hosts: list[str] = []
    """Names under which the gateway may be used without keys, besides addresses, localhost and the machine's name."""
    limits_when_down: Literal["refuse", "allow"] = "refuse"
    """What happens to requests with limits while the relay, and to those with budgets while the store, cannot count."""

    @property
    def requires_credentials(self) -> bool:
        """Whether requests need credentials even if the store has no key."""
        return bool(self.keys) or self.key_env is not None or self.jwt is not None

    def policy(self, name: str | None = None) -> Policy:
        """Return the policy with this name, or the default policy."""
        name = name if name is not None else self.default_policy
        return self.policies[name] if name is not None else Policy()


def check_access(access: AccessConfig, environ: Mapping[str, str]) -> list[str]:
    """Return every mistake in `[access]`, each with its key and what would be right."""
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
        elif len(key) < MIN_ENV_KEY_CHARACTERS or not is_secret_text(key):
            mistakes.append(
                f"access.key_env: {access.key_env} must hold at least {MIN_ENV_KEY_CHARACTERS} ASCII characters "
                "without spaces; `openssl rand -hex 32` makes good ones"
            )
    if not is_owner_name(access.key_owner):
        mistakes.append(f"access.key_owner: {OWNER_RULE}")
    for origin in access.cors.origins:
        mistakes += [f"access.cors.origins: {mistake}" for mistake in _origin_mistakes(origin)]
    mistakes += [
        f"access.hosts: {host!r} is not the name of a host, such as 'gw.example.com'"
        for host in access.hosts
        if host != "*" and not is_host(host)
    ]
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
    "server.host: {host!r} can be reached from other machines, and no credentials are required: set access.keys = true "
    "(and make keys with `pellucid keys create`), or access.key_env, or [access.jwt]; or allow every client that can "
    "reach it, with server.allow_unauthenticated = true"
)
"""The mistake of listening at a public address (`host`) without `AccessConfig.requires_credentials`."""

OWNER_RULE = "an owner has 1 to 128 letters, digits and . _ @ + -"


def is_secret_text(text: str) -> bool:
    """Return whether a text has only ASCII characters without spaces, so that a header can contain it."""
    return text.isascii() and text.isprintable() and " " not in text


def is_owner_name(owner: str) -> bool:
    """Return whether a text can name the owner of a key.

    The owner of a token always contains a |, so no key's owner can equal one.
    """
    return 0 < len(owner) <= 128 and all(c.isascii() and (c.isalnum() or c in "._@+-") for c in owner)


def _jwt_mistakes(jwt: JwtConfig) -> list[str]:
    mistakes = []
    if not jwt.audience:
        mistakes.append(".audience: required: without it, tokens meant for others would be taken")
    if not jwt.algorithms:
        mistakes.append(".algorithms: at least one")
    if "|" in jwt.issuer or not jwt.issuer:
        mistakes.append(".issuer: must be equal to the iss of its tokens, and must not contain |")
    elif jwt.jwks_url is None and jwt.jwks_file is None:
        mistakes += [f".issuer: {mistake}" for mistake in fetch_url_mistakes(jwt.issuer)]
    if jwt.jwks_url is not None:
        mistakes += [f".jwks_url: {mistake}" for mistake in fetch_url_mistakes(jwt.jwks_url)]
        if jwt.jwks_file is not None:
            mistakes.append(".jwks_file: either a file or jwks_url, not both")
    if jwt.jwks_file is not None and not Path(jwt.jwks_file).expanduser().is_file():
        mistakes.append(f".jwks_file: there is no file {jwt.jwks_file!r}")
    if jwt.policies and jwt.policy_claim is None:
        mistakes.append(".policies: needs policy_claim, the claim whose values these are")
    return mistakes


def _oidc_mistakes(oidc: OidcConfig, jwt: JwtConfig | None, environ: Mapping[str, str]) -> list[str]:
    mistakes = []
    if jwt is None:
        mistakes.append(": needs [access.jwt], which names the provider (issuer) and what its tokens allow")
    elif fetch_url_mistakes(jwt.issuer):
        mistakes.append(": access.jwt.issuer must be the provider's https:// address, under which it describes itself")
    if not oidc.client_id:
        mistakes.append(".client_id: required: the id of this gateway at the provider")
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
    """Return the mistakes in an address from which keys or tokens are fetched.

    It must be https, or on this machine: who can change a response on its way could admit any caller.
    """
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
    """Return whether only this machine can reach the address."""
    if host in ("127.0.0.1", "::1"):  # nearly all loopback clients; parsing an address is slow
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
        return [f"{origin!r}: leave out the default port, as browsers do"]
    return []
