"""An OpenID Connect provider that people sign in with, on a port and a thread of its own; and a browser, as far as it
keeps cookies and goes where it is sent."""

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
    """It lets everybody in as `sub`, and is as strict with its clients as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.secret: str | None = SECRET
        self.about: dict[str, Any] = {}
        """What it says of itself otherwise than it would."""
        self.claims_of: Callable[[dict[str, str]], dict[str, Any]] = lambda asked: {}
        """What its id_tokens say otherwise; it is given what the client asked."""
        self.make_token: Callable[[dict[str, Any]], str] | None = None
        self.redeem: tuple[int, Any] | None = None
        """What its token endpoint answers instead."""
        self.codes: dict[str, dict[str, str]] = {}
        self.authorization_requests: list[dict[str, str]] = []
        self.redeemed: list[tuple[dict[str, str], dict[str, str]]] = []

    def authorize(self, url: str) -> str:
        """What a person's browser does there: the address to which it is sent back."""
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

    async def _about(self, request: web.Request) -> web.Response:
        about = {
            "issuer": self.name,
            "jwks_uri": f"{self.name}/keys",
            "authorization_endpoint": f"{self.name}/authorize",
            "token_endpoint": f"{self.name}/token",
            **self.about,
        }
        return web.json_response(about, status=self.status)

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.redeemed.append((form, dict(request.headers)))
        if self.redeem is not None:
            return web.json_response(self.redeem[1], status=self.redeem[0])
        if not self._known(form, request.headers.get("Authorization")):
            return web.json_response({"error": "invalid_client"}, status=401)
        authorization = self.codes.pop(form.get("code", ""), None)
        verified = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verified).rstrip(b"=").decode()
        if (
            authorization is None
            or form["redirect_uri"] != authorization["redirect_uri"]
            or challenge != authorization["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = {"aud": CLIENT, "nonce": authorization["nonce"], "name": "Ada L.", **self.claims_of(authorization)}
        token = self.make_token(self.claims(**claims)) if self.make_token is not None else self.token(**claims)
        return web.json_response({"access_token": "unused", "token_type": "Bearer", "id_token": token})

    def _known(self, form: dict[str, str], authorization: str | None) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and authorization is None
        if self.about.get("token_endpoint_auth_methods_supported") == ["client_secret_post"]:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)
        # As RFC 6749 §2.3.1 has it: both are form-encoded first.
        both = urlencode({CLIENT: self.secret}).replace("=", ":")
        return authorization == f"Basic {base64.b64encode(both.encode()).decode()}"

    def _routes(self, app: web.Application) -> None:
        app.router.add_post("/token", self._token)


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
    """Its requests come from a page of the gateway's own, unless they are told otherwise."""

    def __init__(self, gateway: Gateway, host: str | None = None) -> None:
        self.gateway = gateway
        self.host = host or f"127.0.0.1:{gateway.port}"
        self.cookies: dict[str, tuple[str, str]] = {}
        """By name: path and value."""
        self.set_cookie_lines: list[str] = []
        """What it was told to keep, word by word."""

    def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """As a page's script does; a header that is "" is left out."""
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
                self._keep(value)
        return reply

    def go(self, path: str, **headers: str) -> Reply:
        """As a link that was followed."""
        navigation = {"Origin": "", "Sec_Fetch_Site": "cross-site", "Accept": "text/html,*/*;q=0.8"}
        return self.fetch("GET", path, **{**navigation, **headers})

    def sign_in_with(self, provider: Provider, query: str = "") -> Reply:
        """To the provider, back, and where that leads."""
        begun = self.go(f"/api/session/oidc{query}")
        assert begun.status == 303, begun
        return self.come_back(provider.authorize(begun.headers["location"]))

    def come_back(self, url: str) -> Reply:
        parts = urlsplit(url)
        assert parts.netloc == self.host
        return self.go(f"{parts.path}?{parts.query}")

    @property
    def state(self) -> Any:
        return self.fetch("GET", "/api/session").json

    def _keep(self, line: str) -> None:
        self.set_cookie_lines.append(line)
        pair, *more = (piece.strip() for piece in line.split(";"))
        name, _, value = pair.partition("=")
        about = dict(piece.partition("=")[::2] for piece in more)
        if about["Max-Age"] == "0":
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = (about["Path"], value)
