"""In a real browser: a user signs in at a provider on another site, and other sites cannot use the session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import Browser

from pellucid.server.config import check_config
from tests.access.oidc_kit import CLIENT, SECRET, Provider, providing
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve

ATTACK = """
async ({ gateway, body }) => {
  const told = []
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json", ""]) {
    for (const mode of ["no-cors", "cors"]) {
      for (const path of ["/api/chat", "/api/session"]) {
        try {
          const headers = type ? { "Content-Type": type } : {}
          const reply = await fetch(gateway + path, { method: "POST", mode, credentials: "include", headers, body })
          told.push(reply.type === "opaque" ? "opaque" : String(reply.status))
        } catch {
          told.push("refused")
        }
      }
    }
  }
  for (const path of ["/api/conversations", "/api/session"]) {
    const reply = await fetch(gateway + path, { mode: "cors", credentials: "include" }).catch(() => null)
    told.push(reply === null ? "refused" : String(reply.status))
  }
  return told
}
"""


class Elsewhere(Provider):
    """A hostile page on another site (in the sense of browsers) than the gateway."""

    @property
    def name(self) -> str:
        return f"http://localhost:{self.port}"

    def _add_routes(self, app: web.Application) -> None:
        super()._add_routes(app)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_get("/evil", self._evil)

    async def _authorize(self, request: web.Request) -> web.Response:
        raise web.HTTPFound(self.authorize(f"{self.name}{request.path_qs}"))

    async def _evil(self, request: web.Request) -> web.Response:
        page = '<form method="post" enctype="text/plain" action="{}"><input name=\'{}\' value="x"></form>'
        text = page.format(request.query.get("to", ""), '{"text": "')
        return web.Response(text=f"<!doctype html>{text}", content_type="text/html")


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(Elsewhere) as running:
        yield running


@pytest.fixture(scope="module", params=["keys", "open"])
def served(request: pytest.FixtureRequest, provider: Provider, upstream: Upstream) -> Iterator[Served]:
    access: dict[str, Any] = {}
    if request.param == "keys":
        access = {
            "jwt": {"issuer": provider.name, "audience": "the-api"},
            "oidc": {"client_id": CLIENT, "client_secret_env": "SECRET"},
        }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", SECRET)
        config = {"providers": {"vllm": {"base_url": upstream.url}}, "access": access}
        with serve(check_config(config, {"SECRET": SECRET})) as running:
            yield running


def test_another_site_can_sign_a_person_in_and_nothing_else(
    chrome: Browser, served: Served, provider: Provider, upstream: Upstream
) -> None:
    model = upstream.plays(say())
    context = chrome.new_context()
    try:
        page = context.new_page()
        state = f"fetch('{served.url}/api/session').then(reply => reply.json())"
        needed = served.request("GET", "/api/session").json["needed"]
        if needed:
            page.goto(f"{served.url}/api/session/oidc?next=/c/chat_x")
            assert page.url == f"{served.url}/c/chat_x"
            session = {"signed_in": True, "needed": True, "ways": ["oidc"], "name": "Ada L."}
            assert page.evaluate(state).items() > session.items()
            assert page.evaluate("document.cookie") == ""
            [cookie] = context.cookies()
            assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("pellucid_session", True, "Strict")
        else:
            page.goto(served.url)
        evil = context.new_page()
        evil.goto(f"{provider.name}/evil")
        body = json.dumps({"text": "Why?", "model": model, "key": "x"})
        outcomes = evil.evaluate(ATTACK, {"gateway": served.url, "body": body})
        assert set(outcomes) <= {"opaque", "refused"}, outcomes
        for path in ("/api/chat", "/api/session"):
            evil.goto(f"{provider.name}/evil?to={served.url}{path}")
            with evil.expect_navigation(url=f"{served.url}{path}") as landing:
                evil.evaluate("document.forms[0].submit()")
            assert landing.value.status == 403
        chats = page.evaluate("fetch('/api/conversations').then(reply => reply.json())")
        assert chats["data"] == []
        assert not upstream.calls(model)
        # The user's own page still can.
        ask = "body => fetch('/api/chat', {method: 'POST', headers: {'Content-Type': 'application/json'}, body})"
        own = json.dumps({"text": "Why?", "model": model})
        assert page.evaluate(f"({ask})(JSON.stringify({own})).then(reply => reply.text())").count("message_final") == 2
        if needed:
            page.evaluate("fetch('/api/session', {method: 'DELETE'}).then(reply => reply.json())")
            assert context.cookies() == []
            assert page.evaluate(state)["signed_in"] is False
    finally:
        context.close()
