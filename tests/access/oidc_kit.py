"""OpenID Connect provider for sign-in, on its own port and thread; and a browser that stores cookies and follows
redirects."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web

from tests.access.access_kit import Issuer
from tests.scripted.gateway import Gateway, Reply

CLIENT, SECRET = "the-page", "s&cret/of the+page"


class Provider(Issuer):
    """Provider that signs every person in as `sub` and checks its clients strictly."""

    def __init__(self) -> None:
        super().__init__()
        self.secret: str | None = SECRET
        self.metadata: dict[str, Any] = {}
        """Changes to the metadata document."""
        self.extra_claims: Callable[[dict[str, str]], dict[str, Any]] = lambda authorization: {}
        """Returns changes to the claims of an id_token, from the authorization request."""
        self.make_token: Callable[[dict[str, Any]], str] | None = None
        self.token_response: tuple[int, Any] | None = None
        """Status and body that replace the response of the token endpoint."""
        self.codes: dict[str, dict[str, str]] = {}
        self.authorization_requests: list[dict[str, str]] = []
        self.token_requests: list[tuple[dict[str, str], dict[str, str]]] = []

    def authorize(self, url: str) -> str:
        """Answer an authorization request as a person's browser would, and return the redirect URL."""
        query = {name: value for name, [value] in parse_qs(urlsplit(url).query, strict_parsing=True).items()}
        assert url.startswith(f"{self.name}/authorize?")
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert "openid" in query["scope"].split()
        assert query["code_challenge_method"] == "S256"
        self.authorization_requests.append(query)
        code = secrets.token_urlsafe(12)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    async def _serve_metadata(self, request: web.Request) -> web.Response:
        metadata = {
            "issuer": self.name,
            "jwks_uri": f"{self.name}/keys",
            "authorization_endpoint": f"{self.name}/authorize",
            "token_endpoint": f"{self.name}/token",
            **self.metadata,
        }
        return web.json_response(metadata, status=self.status)

    async def _serve_token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.token_requests.append((form, dict(request.headers)))
        if self.token_response is not None:
            return web.json_response(self.token_response[1], status=self.token_response[0])
        if not self._is_authenticated_client(form, request.headers.get("Authorization")):
            return web.json_response({"error": "invalid_client"}, status=401)
        authorization = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            authorization is None
            or form["redirect_uri"] != authorization["redirect_uri"]
            or challenge != authorization["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = {"aud": CLIENT, "nonce": authorization["nonce"], "name": "Ada L.", **self.extra_claims(authorization)}
        token = self.make_token(self.claims(**claims)) if self.make_token is not None else self.token(**claims)
        return web.json_response({"access_token": "unused", "token_type": "Bearer", "id_token": token})

    def _is_authenticated_client(self, form: dict[str, str], authorization: str | None) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and authorization is None
        if self.metadata.get("token_endpoint_auth_methods_supported") == ["client_secret_post"]:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)
        # RFC 6749 §2.3.1: both values are form-encoded first.
        credentials = urlencode({CLIENT: self.secret}).replace("=", ":")
        return authorization == f"Basic {base64.b64encode(credentials.encode()).decode()}"

    def _add_routes(self, app: web.Application) -> None:
        app.router.add_post("/token", self._serve_token)


@contextmanager
def providing(kind: type[Provider] = Provider) -> Iterator[Provider]:
    provider, ready, done = kind(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with provider:
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="provider")
    thread.start()
    assert ready.wait(60)
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()


class Browser:
    """Browser whose requests come from a page of the gateway, unless headers say otherwise."""

    def __init__(self, gateway: Gateway, host: str | None = None) -> None:
        self.gateway = gateway
        self.host = host or f"127.0.0.1:{gateway.port}"
        self.cookies: dict[str, tuple[str, str]] = {}
        """Name to (path, value)."""
        self.set_cookie_lines: list[str] = []
        """Every Set-Cookie header, unchanged."""

    def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request as a page's script does; a header that is "" is left out."""
        sent = {
            "Host": self.host,
            "Origin": "" if method == "GET" else f"http://{self.host}",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "" if body is None else "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        cookies = [f"{name}={value}" for name, (at, value) in self.cookies.items() if path.startswith(at)]
        if cookies and "Cookie" not in sent:
            sent["Cookie"] = "; ".join(cookies)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
        try:
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            received = response.getheaders()
            reply = Reply(response.status, {name.lower(): value for name, value in received}, response.read())
        finally:
            connection.close()
        for name, value in received:
            if name.lower() == "set-cookie":
                self._store_cookie(value)
        return reply

    def go(self, path: str, **headers: str) -> Reply:
        """Follow a link."""
        navigation = {"Origin": "", "Sec_Fetch_Site": "cross-site", "Accept": "text/html,*/*;q=0.8"}
        return self.fetch("GET", path, **{**navigation, **headers})

    def sign_in_with(self, provider: Provider, query: str = "") -> Reply:
        """Sign in at the provider and follow the redirect back."""
        redirect = self.go(f"/api/session/oidc{query}")
        assert redirect.status == 303, redirect
        return self.come_back(provider.authorize(redirect.headers["location"]))

    def come_back(self, url: str) -> Reply:
        parts = urlsplit(url)
        assert parts.netloc == self.host
        return self.go(f"{parts.path}?{parts.query}")

    @property
    def state(self) -> Any:
        return self.fetch("GET", "/api/session").json

    def _store_cookie(self, line: str) -> None:
        self.set_cookie_lines.append(line)
        pair, *more = (piece.strip() for piece in line.split(";"))
        name, _, value = pair.partition("=")
        attributes = dict(piece.partition("=")[::2] for piece in more)
        if attributes["Max-Age"] == "0":
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = (attributes["Path"], value)
