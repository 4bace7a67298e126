"""The example: three agents review a change as in the seed's multi-agent flow, with scripted models."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.envelopes import Envelope, text_of
from pellucid.messages import ModelMessage
from pellucid.models.function import AgentInfo, DeltaThinkingPart, FunctionModel
from pellucid.spaces import Participant
from tests.participants.agents_kit import agent_of, calling
from tests.scripted import Upstream, say

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "space_review"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import the example's module `review`, which imports its neighbour `tools`; other modules are not affected."""
    names = ("review", "tools")
    before = {name: module for name in names if (module := sys.modules.pop(name, None)) is not None}
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("review")
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


async def test_three_agents_review_a_change(
    example: Any, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pellucid.spaces.agents.bridge.DISCOVERY_SECONDS", 0.3)
    scripts = {
        "security": (
            calling("security_scan", reasoning="Auth changes need careful review", path="auth/"),
            say("Found vulnerabilities in token handling", "Do not deploy. Critical vulnerabilities found."),
        ),
        "performance": (
            calling("load_test", reasoning="Checking latency impact", requests=500),
            say("Minimal performance impact detected", "Safe to deploy. Minimal impact on latency."),
        ),
        "release": (
            say("One says no, and it is critical", '{"reason": "Expired tokens stay valid.", "deploy": false}'),
        ),
    }
    models: dict[str, Any] = {name: agent_of(upstream, *played)._model for name, played in scripts.items()}
    seen: list[Envelope] = []
    async with example.a_gateway(tmp_path) as (url, tokens):
        decision = await example.review(url, tokens, models, seen.append)
    assert text_of(decision) == "We do not deploy. Expired tokens stay valid."

    question = next(one for one in seen if one.sender == "user")
    starts = {one.sender: one for one in seen if one.kind == "reasoning/start"}
    assert set(starts) == {"security", "performance", "release"}
    for name, thought, tool, result, conclusion in (
        ("security", "Auth changes need careful review", "security_scan", "CRITICAL", "Do not deploy."),
        ("performance", "Checking latency impact", "load_test", "500 requests", "Safe to deploy."),
    ):
        start = starts[name]
        assert (start.context, start.correlation_id) == (None, (question.id,))
        inside = [one for one in seen if one.context == start.id]
        assert [(one.sender, one.kind) for one in inside] == [
            (name, "reasoning/thought"),
            (name, "mcp/request"),
            ("tools", "mcp/response"),
            (name, "reasoning/thought"),
            (name, "reasoning/conclusion"),
        ]
        assert text_of(inside[0]) == thought
        assert inside[1].payload["params"]["name"] == tool
        assert result in inside[2].payload["result"]["content"][0]["text"]
        assert text_of(inside[4]).startswith(conclusion)
        answer = next(one for one in seen if one.kind == "chat" and one.sender == name)
        assert answer.correlation_id == (question.id, start.id)
    prompt = upstream.calls(models["release"].name)[0].body["messages"][-1]["content"]
    assert "security: Do not deploy. Critical vulnerabilities found." in prompt
    assert "Safe to deploy. Minimal impact on latency." in prompt
    assert not any(one.replayed for one in seen)


async def test_a_review_without_a_decision_ends_with_the_reason(example: Any, tmp_path: Path) -> None:
    released = asyncio.Event()

    async def hang(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaThinkingPart]]:
        yield {0: DeltaThinkingPart(content="Hm.\n\n")}
        await released.wait()

    seen: list[Envelope] = []
    async with example.a_gateway(tmp_path) as (url, tokens):
        model = FunctionModel(stream_function=hang)
        reason = await example.review(url, tokens, model, seen.append, limit_seconds=3)
        assert text_of(reason) == "No decision: security, performance, release did not answer within 3 s."
        question = next(one for one in seen if one.sender == "user")
        assert reason.correlation_id == (question.id,)
        async with Participant(url, token=tokens["user"], after_seq=0) as user:
            opened: set[str] = set()
            async for envelope in user:
                if envelope.kind == "reasoning/start":
                    opened.add(envelope.id)
                elif envelope.kind == "reasoning/cancel" and envelope.context is not None:
                    opened.discard(envelope.context)
                if envelope.seq > reason.seq and not opened:
                    break
