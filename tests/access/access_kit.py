"""Requests, a token issuer on its own port, and keys in a store."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, RSAKey

from pellucid.errors import ErrorKind
from pellucid.relay.memory import MemoryRelay
from pellucid.server.access.config import AccessConfig, check_access
from pellucid.server.access.errors import AccessError
from pellucid.server.access.guard import Guard
from pellucid.server.access.keys import KeyHasher, new_key
from pellucid.server.access.policy import Policy, Principal, write_policy
from pellucid.storage import Store, StoredKey

PEPPER = "5a" * 32
ENVIRON = {"PELLUCID_KEY_PEPPER": PEPPER}
HASHER = KeyHasher(bytes.fromhex(PEPPER))
AUDIENCE = "pellucid"


def scope(
    token: str | None = None, *, kind: str = "http", client: str | None = "127.0.0.1", **headers: str
) -> dict[str, Any]:
    """Build an ASGI scope. Underscores in the names of `headers` stand for hyphens."""
    raw_headers = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    if token is not None:
        raw_headers.append((b"authorization", f"Bearer {token}".encode("latin-1")))
    if b"host" not in dict(raw_headers):
        raw_headers.append((b"host", b"127.0.0.1:8080"))
    return {
        "type": kind,
        "method": "POST",
        "path": "/v1/responses",
        "headers": raw_headers,
        "client": None if client is None else (client, 40000),
    }


def guard(config: dict[str, Any], store: Store | None = None, relay: Any = None, **more: Any) -> Guard:
    """Create a guard for the `[access]` table `config`."""
    access = msgspec.convert(config, AccessConfig)
    environ = {**ENVIRON, **more.pop("environ", {})}
    assert not check_access(access, environ)
    return Guard(access, store.keys if store else None, relay or MemoryRelay(), environ=environ, **more)


async def refusal(guard: Guard, scope: dict[str, Any], kind: ErrorKind = "unauthorized") -> AccessError:
    """Return the error with which the guard refuses a request."""
    with pytest.raises(AccessError) as caught:
        await guard.admit(scope)
    error = caught.value
    assert error.info.kind == kind, error.info
    assert (kind == "unauthorized") == any(name == b"www-authenticate" for name, _ in error.headers)
    return error


async def make_key(store: Store, may: Policy | None = None, owner: str = "acme", **fields: Any) -> tuple[str, str]:
    """Store a new key as `pellucid keys create` does, and return its text and id."""
    key = new_key()
    row = StoredKey(
        id=key.id,
        owner=owner,
        name="a test",
        created_at=time.time(),
        **{"hash": HASHER.digest(key.text), "policy": write_policy(may or Policy()), **fields},
    )
    await store.keys.add(row)
    return key.text, key.id


class Clock:
    """Clock that advances only when a test adds seconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """OpenID Connect provider that serves metadata and keys."""

    def __init__(self) -> None:
        self.keys: list[Key] = [rsa("first")]
        self.fetches = 0
        self.status = 200
        self.body: bytes | None = None
        """Body that replaces the key set."""
        self.delay = 0.0
        self.answers = asyncio.Event()
        """The key set is not sent until this is set."""
        self.answers.set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def __aenter__(self) -> Issuer:
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._serve_metadata)
        app.router.add_get("/keys", self._serve_jwks)
        self._add_routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def name(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def config(self, **more: Any) -> dict[str, Any]:
        return {"issuer": self.name, "audience": AUDIENCE, "retry_seconds": 0.05, **more}

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        known = {"iss": self.name, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, **claims}
        return {name: value for name, value in known.items() if value is not None}

    def token(self, key: Key | None = None, alg: str = "RS256", header: Any = None, **claims: Any) -> str:
        """Sign a token with the newest key, or another one. A claim that is None is left out."""
        key = key or self.keys[-1]
        return jwt.encode({"alg": alg, "kid": key.kid, **(header or {})}, self.claims(**claims), key, [alg])

    def _add_routes(self, app: web.Application) -> None:
        """Add further routes."""

    async def _serve_metadata(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.name, "jwks_uri": f"{self.name}/keys"}, status=self.status)

    async def _serve_jwks(self, request: web.Request) -> web.Response:
        self.fetches += 1
        await asyncio.sleep(self.delay)
        await self.answers.wait()
        if self.body is not None:
            return web.Response(body=self.body, status=self.status)
        return web.json_response(KeySet(self.keys).as_dict(private=False), status=self.status)


_rsa_keys: dict[str, RSAKey] = {}


def rsa(kid: str) -> RSAKey:
    """Return an RSA key; cached by name, because generating one is slow."""
    if kid not in _rsa_keys:
        _rsa_keys[kid] = RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})
    return _rsa_keys[kid]


def ec(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})


def principal(**policy: Any) -> Principal:
    return Principal("acme", "key_test", "a test", Policy(**policy))
