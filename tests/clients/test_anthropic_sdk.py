"""Anthropic's client for Python, over a model of another provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock

from tests.clients.clients_kit import ANSWER, THOUGHT, WEATHER, calls, says_not_now, thinks, thinks_for_ever
from tests.scripted import Upstream
from tests.scripted.gateway import Served

TOOLS: Any = [{"name": "get_weather", "input_schema": WEATHER}]
USER: Any = {"role": "user", "content": "Weather?"}


@pytest.fixture
def client(gateway: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as made:
        yield made


def result(call: ToolUseBlock, output: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": output}


def reasoning_of(upstream: Upstream, model: str, call: int) -> list[str]:
    """Return the reasoning that the upstream received in its history."""
    messages = upstream.calls(model)[call].body["messages"]
    texts = [message.get("reasoning_content") or message.get("reasoning") for message in messages]
    return [text for text in texts if text]


def test_the_stream_helper_shows_and_accumulates_reasoning(client: anthropic.Anthropic, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    with client.messages.stream(model=model, max_tokens=999, messages=[USER]) as stream:
        thoughts = [event.thinking for event in stream if event.type == "thinking"]
        message = stream.get_final_message()
    assert "".join(thoughts) == THOUGHT
    [thinking, text] = message.content
    assert isinstance(thinking, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert (thinking.thinking, text.text, message.stop_reason) == (THOUGHT, ANSWER, "end_turn")
    assert thinking.signature


@pytest.mark.parametrize("stream", [True, False])
def test_tools_over_three_turns(client: anthropic.Anthropic, upstream: Upstream, stream: bool) -> None:
    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)
    history: list[Any] = [USER]

    def turn() -> anthropic.types.Message:
        if not stream:
            return client.messages.create(model=model, max_tokens=999, messages=history, tools=TOOLS)
        with client.messages.stream(model=model, max_tokens=999, messages=history, tools=TOOLS) as running:
            return running.get_final_message()

    message = turn()
    for city in ("Oslo", "Rome"):
        [thinking, call] = message.content
        assert isinstance(thinking, ThinkingBlock)
        assert isinstance(call, ToolUseBlock)
        assert (call.input, message.stop_reason) == ({"city": city}, "tool_use")
        history += [message.to_param(), {"role": "user", "content": [result(call, f"rain in {city}")]}]
        message = turn()
    last = upstream.calls(model)[2].body["messages"]
    assert [entry["role"] for entry in last] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [entry["content"] for entry in last if entry["role"] == "tool"] == ["rain in Oslo", "rain in Rome"]
    assert reasoning_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]


@pytest.mark.parametrize("stream", [True, False])
def test_the_tool_runner(client: anthropic.Anthropic, upstream: Upstream, stream: bool) -> None:
    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"rain in {city}"

    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)
    run: Any = client.beta.messages.tool_runner(
        model=model, max_tokens=999, messages=[USER], tools=[get_weather], stream=stream
    )
    messages = [turn.get_final_message() if stream else turn for turn in run]
    assert [message.stop_reason for message in messages] == ["tool_use", "tool_use", "end_turn"]
    assert [message.content[0].thinking for message in messages] == ["First Oslo.", "Then Rome.", THOUGHT]
    assert messages[-1].content[1].text == ANSWER
    last = upstream.calls(model)[2].body["messages"]
    assert [entry["content"] for entry in last if entry["role"] == "tool"] == ["rain in Oslo", "rain in Rome"]
    assert reasoning_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]


def test_a_client_that_sends_no_thinking_back_is_served(client: anthropic.Anthropic, upstream: Upstream) -> None:
    model = upstream.plays(calls("Oslo"), thinks)
    message = client.messages.create(model=model, max_tokens=999, messages=[USER], tools=TOOLS)
    call = next(block for block in message.content if isinstance(block, ToolUseBlock))
    history: Any = [USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result(call, "rain")]}]
    assert client.messages.create(model=model, max_tokens=999, messages=history, tools=TOOLS).stop_reason == "end_turn"
    assert reasoning_of(upstream, model, 1) == []


def test_thinking_may_be_omitted(client: anthropic.Anthropic, upstream: Upstream) -> None:
    model = upstream.plays(thinks, thinks)
    config: Any = {"type": "adaptive", "display": "omitted"}
    message = client.messages.create(model=model, max_tokens=999, messages=[USER], thinking=config)
    [thinking, _] = message.content
    assert isinstance(thinking, ThinkingBlock)
    assert thinking.thinking == ""
    client.messages.create(model=model, max_tokens=999, messages=[USER, message.to_param(), USER])
    assert reasoning_of(upstream, model, 1) == [THOUGHT]


def test_errors_have_the_types_of_the_client(client: anthropic.Anthropic, upstream: Upstream) -> None:
    with pytest.raises(anthropic.RateLimitError) as limited:
        client.messages.create(model=upstream.plays(says_not_now), max_tokens=9, messages=[USER])
    assert limited.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("missing")
    with pytest.raises(anthropic.BadRequestError) as bad:
        client.messages.create(model=upstream.plays(thinks), max_tokens=9, messages=[])
    assert "messages" in str(bad.value)


def test_a_client_that_leaves_ends_the_upstream(client: anthropic.Anthropic, upstream: Upstream) -> None:
    model = upstream.plays(thinks_for_ever)
    with client.messages.stream(model=model, max_tokens=999, messages=[USER]) as stream:
        assert next(event.thinking for event in stream if event.type == "thinking") == "Hm. "


def test_models_and_token_counts(client: anthropic.Anthropic, upstream: Upstream) -> None:
    assert client.messages.count_tokens(model=upstream.plays(thinks), messages=[USER]).input_tokens > 0
    assert [model.type for model in client.models.list()] in ([], ["model"] * len(list(client.models.list())))
