"""Requests that are changed and sent again, because their provider refused something in the history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid import Agent
from pellucid.errors import ModelError
from pellucid.models import Model
from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, Origin, TextPart, ThinkingPart, UserPromptPart
from pellucid.providers.profiles import builtin_profiles
from pellucid.settings import ModelSettings
from pellucid.upstream import Limits
from tests.scripted import Call, Upstream

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


STALE = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation prefix.",
    },
}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Blue."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
BETA = "thinking-binding-controls-2026-08-01"


async def refuse_stale(call: Call) -> None:
    """Answer as Claude does that binds thoughts to what came before them."""
    binding = call.body.get("thinking", {}).get("block_binding")
    betas = call.headers.get("anthropic-beta", "").split(",") + call.body.get("anthropic_beta", [])
    if binding is None:
        await call.answer(400, json.dumps(STALE).encode())
    else:
        assert BETA in betas
        await call.answer(200, json.dumps(ANSWER).encode())


def history(row: str, model: str) -> list[ModelMessage]:
    origin = Origin(row, "anthropic", model)
    thought = ThinkingPart("Light.", signature="sig", provider_name=row)
    return [
        ModelRequest([UserPromptPart("Why?")], instructions="Be brief."),
        ModelResponse([thought, TextPart("Rayleigh.")], origin=origin),
    ]


def model_of(upstream: Upstream, row: str, name: str) -> Model:
    return Model(name, builtin_profiles()[row], base_url=upstream.url, api_key="k", limits=Limits(retries=0))


async def test_a_thought_that_is_bound_to_something_else_is_left_out(upstream: Upstream) -> None:
    name = upstream.plays(refuse_stale, refuse_stale)
    agent = Agent(model_of(upstream, "anthropic", name), instructions="Be verbose.")
    result = await agent.run("And in the evening?", message_history=history("anthropic", name))
    assert result.output == "Blue."
    refused, answered = (call.body for call in upstream.calls(name))
    assert "block_binding" not in refused.get("thinking", {})
    assert answered["thinking"].pop("block_binding") == {"prefix_mismatch_behavior": "drop_block"}
    assert answered["thinking"] == refused.get("thinking", {"type": "adaptive"})
    assert {**answered, "thinking": None} == {**refused, "thinking": None}


@pytest.mark.parametrize(
    "settings",
    [
        {"anthropic_thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
        {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}},
    ],
)
async def test_a_request_that_decides_it_itself_is_sent_once(upstream: Upstream, settings: ModelSettings) -> None:
    async def refuse(call: Call) -> None:
        await call.answer(400, json.dumps(STALE).encode())

    name = upstream.plays(refuse, refuse)
    agent = Agent(model_of(upstream, "anthropic", name), model_settings=settings)
    with pytest.raises(ModelError, match="bound to a different"):
        await agent.run("And?", message_history=history("anthropic", name))
    assert len(upstream.calls(name)) == 1


async def test_another_refusal_is_not_answered_with_a_second_request(upstream: Upstream) -> None:
    async def refuse(call: Call) -> None:
        error: dict[str, Any] = {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}
        await call.answer(400, json.dumps(error).encode())

    name = upstream.plays(refuse, refuse)
    with pytest.raises(ModelError):
        await Agent(model_of(upstream, "anthropic", name)).run("Why?")
    assert len(upstream.calls(name)) == 1
