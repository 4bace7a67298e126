"""In a real browser: a page whose name its owner points at this machine (DNS rebinding) reads and starts nothing.

For the browser such a page has the same origin as the gateway: no CORS and no foreign `Origin` stop it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from pellucid import Agent
from pellucid.models import Model
from pellucid.providers.profiles import builtin_profiles
from pellucid.upstream import Limits
from tests.agent.agui_app_kit import USER, serving
from tests.page.page_kit import ARGUMENTS, chromium
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve

NAME = "evil.test"

REQUESTS = """
async (requests) => {
  const replies = []
  for (const [method, path, body] of requests) {
    const headers = body === null ? {} : { "Content-Type": "application/json" }
    try {
      const reply = await fetch(path, { method, headers, body: body === null ? undefined : JSON.stringify(body) })
      const text = await reply.text()
      replies.push([reply.status, text])
    } catch (error) {
      replies.push([0, String(error)])
    }
  }
  return replies
}
"""
SOCKET = """
(path) => new Promise((resolve) => {
  const socket = new WebSocket(`ws://${location.host}${path}`)
  socket.onopen = () => resolve("open")
  socket.onclose = () => resolve("refused")
})
"""


@pytest.fixture(scope="module")
def served(upstream: Upstream) -> Iterator[Served]:
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}) as running:
        yield running


@pytest.fixture
def rebound(chrome: Browser) -> Iterator[Browser]:
    """A browser for which the name leads to this machine."""
    rule = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
    running = chrome.browser_type.launch(executable_path=chromium(), args=[*ARGUMENTS, rule])
    try:
        yield running
    finally:
        running.close()


@contextmanager
def page_of(browser: Browser, host: str, port: int) -> Iterator[Page]:
    """Open a page of this origin, in which a test runs scripts as its owner would after the name was pointed here.

    The document itself is a response of the server: for one from elsewhere, newer browsers ask before they let it use
    this machine.
    """
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"http://{host}:{port}/health")
        assert page.evaluate("location.host") == f"{host}:{port}"
        yield page
    finally:
        context.close()


def test_a_rebound_page_reads_and_starts_nothing_at_the_gateway(
    rebound: Browser, served: Served, upstream: Upstream
) -> None:
    thoughts, model = upstream.plays(say("A secret thought.", "Yes.")), upstream.plays(say())
    response_id = served.ask(thoughts, store=True).json["id"]
    reads = [
        ("GET", path, None)
        for path in (
            "/metrics",
            "/v1/models",
            "/spaces",
            f"/v1/responses/{response_id}",
            f"/v1/responses/{response_id}/input_items",
            "/api/conversations",
            "/api/session",
            "/openapi.json",
            "/",
            "/nowhere",
        )
    ]
    writes = [
        ("POST", "/v1/responses", {"model": model, "input": "Why?"}),
        ("POST", "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Why?"}]}),
        ("POST", "/api/chat", {"model": model, "text": "Why?"}),
        ("POST", "/v1/conversations", {}),
        ("DELETE", f"/v1/responses/{response_id}", None),
    ]
    with page_of(rebound, NAME, served.port) as evil:
        for (method, path, _), (status, text) in zip(
            [*reads, *writes], evil.evaluate(REQUESTS, [*reads, *writes]), strict=True
        ):
            assert status == 403, (method, path, text)
            assert "secret" not in text
            assert f"{NAME}:{served.port}" in text, path
            assert "access.hosts" in text, path
        for path in ("/v1/responses", "/spaces/review/ws", "/ws?space=review"):
            assert evil.evaluate(SOCKET, path) == "refused", path
        assert [status for status, _ in evil.evaluate(REQUESTS, [("GET", "/health", None)])] == [200]
    assert not upstream.calls(model)
    # The same requests from a page of this machine's own name succeed: the browser hinders none of them.
    with page_of(rebound, "localhost", served.port) as own:
        replies = own.evaluate(REQUESTS, [*reads[:5], *writes[:1]])
        assert [status for status, _ in replies] == [200] * 6
        assert "A secret thought." in replies[3][1]
        assert own.evaluate(SOCKET, "/v1/responses") == "open"
    assert len(upstream.calls(model)) == 1


def test_a_rebound_page_runs_no_agent(rebound: Browser, upstream: Upstream) -> None:
    name = upstream.plays(say("Hm.", "Yes."))
    agent: Agent[Any, Any] = Agent(
        Model(name, builtin_profiles()["vllm"], base_url=upstream.url, limits=Limits(retries=0))
    )
    run = [("POST", "/", {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [USER]})]
    with serving(agent) as app:
        with page_of(rebound, NAME, app.port) as evil:
            [[status, text]] = evil.evaluate(REQUESTS, run)
            assert (status, json.loads(text)["code"]) == (403, "foreign_host")
        assert not upstream.calls(name)
        with page_of(rebound, "127.0.0.1", app.port) as own:
            [[status, text]] = own.evaluate(REQUESTS, run)
            assert (status, "Yes." in text) == (200, True)
