"""Tools of coding agents, on every wire: the model's own data of a call comes back with the call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, Canary, configured, name_of, sent, serving

USER = {"type": "message", "role": "user", "content": "Why?"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "namespace", "name": "mcp__w", "tools": [{"type": "function", "name": "weather", "parameters": CITY}]}

CALLING = [
    canary._replace(body=canary.body.replace(b'"weather"', b'"mcp__w__weather"'))
    for canary in CANARIES
    if canary.name in ("stream", "whole") and b'"weather"' in canary.body
]


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def test_the_canaries_call_a_function() -> None:
    assert {canary.row for canary in CALLING} >= {"anthropic", "google", "openai-responses"}


@pytest.mark.parametrize("canary", CALLING, ids=lambda canary: f"{canary.row}-{canary.name}")
def test_a_call_in_a_namespace_is_returned_with_its_data(gateway: Served, upstream: Upstream, canary: Canary) -> None:
    model = name_of(upstream, canary)
    common = {"model": model, "tools": [TOOL], "include": ["reasoning.encrypted_content"]}

    def ask(**body: Any) -> dict[str, Any]:
        reply = gateway.post({**common, **body})
        assert reply.status == 200, reply.body
        answer: dict[str, Any] = reply.json
        return answer

    stateful = ask(input=[USER], store=True)
    (call,) = [item for item in stateful["output"] if item["type"] == "function_call"]
    assert (call["name"], call["namespace"]) == ("weather", "mcp__w")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    ask(input=[result], previous_response_id=stateful["id"], store=True)
    stateless = ask(input=[USER], store=False)["output"]
    (again,) = [item for item in stateless if item["type"] == "function_call"]
    ask(input=[USER, *stateless, {**result, "call_id": again["call_id"]}], store=False)
    _, expected, _, got = sent(upstream, model)
    for item in expected.get("input", []):
        if item.get("type") == "function_call":
            del item["id"]  # the only field without a carrier
    assert got == expected
