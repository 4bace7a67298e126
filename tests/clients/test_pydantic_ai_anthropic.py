"""Pydantic AI's Anthropic model, over a model of another provider: it runs the loop of tools itself."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider

from tests.clients.clients_kit import ANSWER, THOUGHT, calls, thinks
from tests.clients.test_anthropic_sdk import reasoning_of
from tests.scripted import Upstream
from tests.scripted.gateway import Served

SETTINGS = AnthropicModelSettings(
    max_tokens=4000, anthropic_thinking={"type": "enabled", "budget_tokens": 2000}, anthropic_cache=True
)


@pytest.fixture
def provider(gateway: Served) -> AnthropicProvider:
    return AnthropicProvider(
        anthropic_client=anthropic.AsyncAnthropic(base_url=gateway.url, api_key="any", max_retries=0)
    )


def agent_of(provider: AnthropicProvider, model: str) -> Any:
    agent = Agent(AnthropicModel(model, provider=provider), model_settings=SETTINGS)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return f"rain in {city}"

    return agent


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_tools_over_three_turns_with_thinking(
    provider: AnthropicProvider, upstream: Upstream, stream: bool
) -> None:
    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks, thinks)
    agent = agent_of(provider, model)
    if stream:
        async with agent.run_stream_events("Weather?") as events:
            result = [event async for event in events][-1].result
    else:
        result = await agent.run("Weather?", usage_limits=UsageLimits(count_tokens_before_request=True))
    assert result.output == ANSWER
    parts = [part for message in result.all_messages() if isinstance(message, ModelResponse) for part in message.parts]
    thoughts = [part for part in parts if isinstance(part, ThinkingPart)]
    assert [thought.content for thought in thoughts] == ["First Oslo.", "Then Rome.", THOUGHT]
    assert all(thought.signature for thought in thoughts)
    assert [part.args_as_dict() for part in parts if isinstance(part, ToolCallPart)] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]
    assert reasoning_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]
    # The history of a finished run, in the next one.
    again = await agent.run("And?", message_history=result.all_messages())
    assert again.output == ANSWER
    assert reasoning_of(upstream, model, 3)[-1] == THOUGHT
