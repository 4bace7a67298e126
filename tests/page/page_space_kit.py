# ruff: noqa: E501 (long texts of messages)
"""A space for the page: a gateway, participants on real sockets, and a scripted review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.page.page_kit import Tab
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Client, joined, served, token

SPACE = "review"
EVERYTHING = ["*"]
AGENTS = ("coordinator", "security-agent", "perf-agent", "docs-agent", "test-runner")
PEOPLE = ("mara", "ops")
QUESTION = "Should we deploy this change to the authentication system?"


FAST = {"per_second": 100_000, "burst": 1_000_000}
PARTICIPANTS = {**dict.fromkeys((*AGENTS, "mara"), EVERYTHING), "ops": ["chat"], "reader": ["chat/acknowledge"]}


@contextmanager
def gateway_with_spaces(folder: Path, names: Iterable[str] = (SPACE,), **settings: Any) -> Iterator[Served]:
    """A gateway with these spaces, with the same participants and high rate limits."""
    fast = dict.fromkeys(("reasoning", "chat", "mcp", "other"), FAST)
    limits = {"limits": {**fast, "frame_bytes": 20_000}}
    space = {"participants": PARTICIPANTS, **limits, **settings}
    with served(folder, dict.fromkeys(names, space)) as gateway:
        yield gateway


class ScriptedParticipants:
    """The participants; each joins with its first message."""

    def __init__(self, gateway: Served, space: str = SPACE) -> None:
        self._gateway = gateway
        self._space = space
        self._open = ExitStack()
        self._clients: dict[str, Client] = {}
        self._count = 0

    def client(self, who: str) -> Client:
        if who not in self._clients:
            self._clients[who] = self._open.enter_context(joined(self._gateway, self._space, who, max_queue=None))
        return self._clients[who]

    def send(self, who: str, kind: str, context: str | None = None, about: str | None = None, **more: Any) -> str:
        """Send an envelope, wait for its echo, return its id. `more`: its payload, and `id`, `to`."""
        self._count += 1
        fields: dict[str, Any] = {"id": more.pop("id", f"{who}-{self._count}"), "kind": kind}
        if "to" in more:
            fields["to"] = more.pop("to")
        if context is not None:
            fields["context"] = context
        if about is not None:
            fields["correlation_id"] = [about]
        echo = self.client(who).say(**fields, payload=more)
        assert echo["kind"] == kind, echo
        return str(fields["id"])

    def call(self, who: str, tool: str, context: str | None = None, about: str | None = None, **arguments: Any) -> str:
        params = {"name": tool, "arguments": arguments}
        return self.send(
            who, "mcp/request", context, about, jsonrpc="2.0", method="tools/call", params=params, to=["test-runner"]
        )

    def respond(self, request: str, text: str, context: str | None = None, error: bool = False) -> str:
        result = {"content": [{"type": "text", "text": text}], "isError": error}
        return self.send("test-runner", "mcp/response", context, request, jsonrpc="2.0", result=result)

    def send_all(self, who: str, frames: Iterable[dict[str, Any]]) -> None:
        """Send all frames, then wait for the echo of the last one."""
        client, last = self.client(who), ""
        for frame in frames:
            self._count += 1
            last = frame.setdefault("id", f"{who}-{self._count}")
            client.send(**frame)
        if last:
            client.answer(last)

    def close(self) -> None:
        self._open.close()


def play_review(participants: ScriptedParticipants) -> dict[str, str]:
    """Play a review by five agents and a person; return the ids that tests use."""
    send, call, respond = participants.send, participants.call, participants.respond
    ask = send("mara", "chat", text=QUESTION)
    plan = send(
        "coordinator",
        "reasoning/start",
        about=ask,
        message="Who should look at this?",
        metadata={"approach": "divide and ask", "estimated_duration": "1 min", "confidence": 0.7},
    )
    send(
        "coordinator",
        "reasoning/thought",
        plan,
        message="It touches **OAuth2 token validation**, so security first; the cache is on the hot path, so performance too.",
    )
    send(
        "coordinator",
        "chat",
        about=ask,
        text="I ask three of us to look at it: security, performance and the documentation.",
    )
    safe = send(
        "security-agent",
        "reasoning/start",
        about=ask,
        message="Evaluate deployment safety for auth system changes",
        metadata={"approach": "security-first analysis"},
    )
    fast = send("perf-agent", "reasoning/start", about=ask, message="What does it cost per login?")
    send(
        "security-agent",
        "reasoning/question",
        safe,
        questions=[
            "What specific auth components are modified?",
            "Are there breaking changes to the API?",
            "Have security tests passed?",
            "Is there a rollback plan?",
        ],
    )
    diff = call("security-agent", "git_diff", safe, files="auth/*")
    send(
        "perf-agent",
        "reasoning/thought",
        fast,
        message="The new check reads the session twice. Let me measure before I guess.",
    )
    respond(
        diff,
        "auth/oauth2.py | 84 +++++++++++-----\nauth/session.py | 31 ++++--\n2 files changed, 71 insertions(+), 44 deletions(-)",
        safe,
    )
    load = call("perf-agent", "load_test", fast, users=500, seconds=30)
    send(
        "security-agent",
        "reasoning/observation",
        safe,
        content="Changes affect OAuth2 token validation and session management",
        severity="high",
        components=["oauth2", "sessions"],
    )
    deep = send("security-agent", "reasoning/start", safe, message="Deep dive: do tokens still expire?")
    path = f"{safe}/{deep}"
    tests = call("security-agent", "test_results", path, suite="security")
    respond(tests, "2 failed: test_expiry_at_midnight, test_refresh_after_logout", path, error=True)
    send(
        "security-agent",
        "reasoning/observation",
        path,
        content="Security tests show 2 failures in token expiration handling",
        severity="critical",
        details="Tokens may not expire correctly under edge conditions",
    )
    send(
        "security-agent",
        "reasoning/hypothesis",
        path,
        hypothesis="The change introduces a regression in token expiration",
        confidence=0.85,
        evidence=["test_failures", "oauth2_changes"],
        uncertainty={"low": 0.7, "high": 0.95, "source": "tests"},
    )
    send(
        "perf-agent",
        "reasoning/thought",
        path,
        about=deep,
        message="Have you considered the cache? It keeps the expiry of the first token.",
    )
    send(
        "security-agent",
        "reasoning/conclusion",
        path,
        message="Yes: the cache keeps an expired token alive for up to a minute.",
        confidence=0.9,
    )
    respond(load, "p50 11 ms, p95 19 ms, p99 42 ms (before: 10, 18, 40)", fast)
    send(
        "perf-agent",
        "reasoning/conclusion",
        fast,
        message="Minimal impact: one more millisecond at the median.",
        confidence=0.95,
    )
    send(
        "perf-agent",
        "chat",
        about=ask,
        text="Performance perspective: **safe to deploy**. One more millisecond at the median, and nothing beyond that:\n\n| login | before | after |\n|---|---:|---:|\n| p50 | 10 ms | 11 ms |\n| p99 | 40 ms | 42 ms |",
    )
    send(
        "security-agent",
        "reasoning/thought",
        safe,
        message="Even with a rollback plan, deploying with known auth bugs is too risky.",
    )
    end = send(
        "security-agent",
        "reasoning/conclusion",
        safe,
        decision="do_not_deploy",
        confidence=0.92,
        key_factors=["Failed security tests", "Critical auth components affected", "Token expiration regression"],
        recommendation="Fix token expiration issues and re-test before deployment",
    )
    answer = send(
        "security-agent",
        "chat",
        about=ask,
        text="I strongly recommend **not** deploying this change. The security tests show critical failures in token expiration that could compromise authentication. Please fix these issues first.",
    )
    issue = {
        "name": "create_issue",
        "arguments": {"title": "Fix token expiration regression before deployment", "priority": "critical"},
    }
    proposal = send("security-agent", "mcp/proposal", about=safe, method="tools/call", params=issue)
    docs = send(
        "docs-agent",
        "reasoning/start",
        about=ask,
        message="Which pages mention token lifetimes?",
        metadata={"estimated_duration": "30 s"},
    )
    send(
        "docs-agent",
        "reasoning/thought",
        docs,
        message="The guide for operators says *one hour*, and the reference says *sixty minutes or less*.\n\n1. `docs/operators.md`\n2. `docs/reference/tokens.md`",
    )
    grep = call("docs-agent", "search_docs", docs, query="token lifetime")
    send(
        "coordinator",
        "reasoning/thought",
        plan,
        message="Security says no, performance says yes. A no in security weighs more; I wait for the documentation before I sum up.",
    )
    return {
        "ask": ask,
        "safe": safe,
        "deep": path,
        "fast": fast,
        "docs": docs,
        "plan": plan,
        "answer": answer,
        "proposal": proposal,
        "grep": grep,
        "end": end,
    }


def join_space(tab: Tab, who: str = "mara", space: str = SPACE) -> Page:
    """Join the space with the form."""
    tab.page.goto(f"{tab.url}/spaces/{space}")
    tab.element("join-token").fill(token(space, who))
    tab.element("join-send").click()
    tab.page.locator("[data-testid=room][data-phase=open]").wait_for()
    return tab.page


def lane(tab: Tab, who: str) -> Locator:
    return tab.page.locator(f"[data-testid=lane][data-pane='{who}']")


__all__ = [
    "AGENTS",
    "EVERYTHING",
    "PEOPLE",
    "QUESTION",
    "SPACE",
    "Client",
    "ScriptedParticipants",
    "gateway_with_spaces",
    "join_space",
    "joined",
    "lane",
    "play_review",
    "served",
    "token",
]


@pytest.fixture
def participants(gateway: Served, space: str) -> Iterator[ScriptedParticipants]:
    made = ScriptedParticipants(gateway, space)
    yield made
    made.close()


@pytest.fixture
def model_script() -> None:
    """No model is used here."""
