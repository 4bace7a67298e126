"""The examples of the Pydantic AI guide to thinking, unchanged except for the package's name.

The providers' usual environment variables point to one server that plays all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import pellucid
from tests.scripted import Call, Upstream, delta

THOUGHT, ANSWER = "17 * 20 is 340, 17 * 3 is 51.", "391"


def anthropic(thinks: bool) -> list[dict[str, Any]]:
    thought = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": THOUGHT}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 0},
    ]
    return [
        {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "model": "claude", "content": []}},
        *(thought if thinks else []),
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def openai_responses() -> list[dict[str, Any]]:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    summary = {"type": "summary_text", "text": THOUGHT}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    at, text = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}, {"type": "output_text", "text": ANSWER}
    place = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    response = {"id": "resp_1", "model": "gpt-5", "status": "in_progress", "output": []}
    done = {**reasoning, "summary": [summary], "encrypted_content": "ZW5j"}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning},
        {"type": "response.reasoning_summary_part.added", **at, "part": {**summary, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **at, "delta": THOUGHT},
        {"type": "response.reasoning_summary_text.done", **at, "text": THOUGHT},
        {"type": "response.reasoning_summary_part.done", **at, "part": summary},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.output_item.added", "output_index": 1, "item": message},
        {"type": "response.content_part.added", **place, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": ANSWER},
        {"type": "response.content_part.done", **place, "part": text},
        {"type": "response.output_item.done", "output_index": 1, "item": {**message, "content": [text]}},
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]


def google() -> list[dict[str, Any]]:
    def chunk(finish: dict[str, Any], **part: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}, **finish}]}

    return [chunk({}, text=THOUGHT, thought=True), chunk({"finishReason": "STOP"}, text=ANSWER)]


async def provider(call: Call) -> None:
    """Play the provider to which the path belongs."""
    if call.path.endswith("/messages"):
        events = anthropic(call.body.get("thinking", {}).get("type") == "enabled")
    elif call.path.endswith("/responses"):
        events = openai_responses()
    elif "generateContent" in call.path or "streamGenerateContent" in call.path:
        events = google()
    else:
        events = [delta(reasoning=THOUGHT), delta(content=ANSWER), delta("stop")]
    await call.head()
    for event in events:
        await call.event(event)
    if call.path.endswith("/chat/completions"):
        await call.event(b"[DONE]")
    await call.end()


class AllModels(dict[str, Any]):
    def get(self, name: str, default: Any = None) -> Any:
        return provider


@pytest.fixture
def guide_upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream._scripts = AllModels()
        host = f"http://127.0.0.1:{upstream.port}"
        for provider_, address in (
            ("OPENAI", f"{host}/v1"),
            ("ANTHROPIC", host),
            ("GROQ", host),
            ("GOOGLE_GEMINI", host),
        ):
            monkeypatch.setenv(f"{provider_}_BASE_URL", address)
        for name in ("OPENAI", "ANTHROPIC", "GROQ", "GOOGLE", "GEMINI"):
            monkeypatch.setenv(f"{name}_API_KEY", "key")
        yield upstream


def run(code: str, **variables: Any) -> dict[str, Any]:
    names = {**variables}
    exec(compile(code, "<guide>", "exec"), names)
    return names


ENABLE_OPENAI = """
from pellucid import Agent
from pellucid.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings

model = OpenAIResponsesModel('gpt-5')
settings = OpenAIResponsesModelSettings(
    openai_reasoning_effort='low',          # or 'medium', 'high'
    openai_reasoning_summary='detailed',    # or 'concise'
)
agent = Agent(model, model_settings=settings)
"""

ENABLE_ANTHROPIC = """
from pellucid import Agent
from pellucid.models.anthropic import AnthropicModel, AnthropicModelSettings

model = AnthropicModel('claude-sonnet-4-0')
settings = AnthropicModelSettings(
    anthropic_thinking={
        'type': 'enabled',
        'budget_tokens': 1024  # Maximum tokens for thinking
    }
)
agent = Agent(model, model_settings=settings)
"""

ENABLE_GOOGLE = """
from pellucid import Agent
from pellucid.models.google import GoogleModel, GoogleModelSettings

model = GoogleModel('gemini-2.5-pro')
settings = GoogleModelSettings(
    google_thinking_config={'include_thoughts': True}
)
agent = Agent(model, model_settings=settings)
"""

ENABLE_GROQ = """
from pellucid import Agent
from pellucid.models.groq import GroqModel, GroqModelSettings

model = GroqModel('qwen-qwq-32b')
settings = GroqModelSettings(groq_reasoning_format='parsed')
agent = Agent(model, model_settings=settings)
"""


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (ENABLE_OPENAI, {"reasoning": {"effort": "low", "summary": "detailed"}}),
        (ENABLE_ANTHROPIC, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (ENABLE_GOOGLE, {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}),
        (ENABLE_GROQ, {"reasoning_format": "parsed"}),
    ],
)
def test_enabling_thinking(guide_upstream: Upstream, code: str, fields: dict[str, Any]) -> None:
    agent = run(code)["agent"]
    result = agent.run_sync("17 * 23?")
    assert (result.thinking, result.output) == (THOUGHT, ANSWER)
    [call] = [call for calls in guide_upstream._calls.values() for call in calls]
    for name, value in fields.items():
        assert call.body[name] == value, json.dumps(call.body)


RUN_TIME_OVERRIDE = """
from pellucid import Agent
from pellucid.models.anthropic import AnthropicModelSettings

agent = Agent('anthropic:claude-sonnet-4-0')

result = agent.run_sync(
    'Analyze this complex problem',
    model_settings=AnthropicModelSettings(
        anthropic_thinking={
            'type': 'enabled',
            'budget_tokens': 2048
        }
    )
)
"""


def test_a_run_time_override(guide_upstream: Upstream) -> None:
    result = run(RUN_TIME_OVERRIDE)["result"]
    assert result.thinking == THOUGHT
    [call] = guide_upstream.calls("claude-sonnet-4-0")
    assert call.body["thinking"]["budget_tokens"] == 2048


def test_thinking_is_off_by_default(guide_upstream: Upstream) -> None:
    result = pellucid.Agent("anthropic:claude-sonnet-4-0").run_sync("17 * 23?")
    assert (result.thinking, result.output) == (None, ANSWER)


STREAMING = """
import asyncio
from pellucid import Agent, PartDeltaEvent, ThinkingPartDelta

agent = Agent('anthropic:claude-sonnet-4-0'SETTINGS)

async def handle_event(event):
    if isinstance(event, PartDeltaEvent):
        if isinstance(event.delta, ThinkingPartDelta):
            print(f'Thinking delta: {event.delta.content_delta}')

async def main():
    async with agent.run_stream(
        'Complex problem',
        event_stream_handler=handle_event
    ) as response:
        # Process streamed response
        pass

asyncio.run(main())
"""


def test_streaming_thinking(guide_upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    run(STREAMING.replace("SETTINGS", ""))
    assert capsys.readouterr().out == "", "thinking is off by default"
    on = ", model_settings={'anthropic_thinking': {'type': 'enabled', 'budget_tokens': 1024}}"
    run(STREAMING.replace("SETTINGS", on))
    assert f"Thinking delta: {THOUGHT}" in capsys.readouterr().out


# The guide has this as a fragment that begins with `elif`.
STREAM_EVENTS = """
from pellucid import Agent, AgentStreamEvent, PartDeltaEvent, PartStartEvent, ThinkingPartDelta

output_messages = []

async def handle_event(event: AgentStreamEvent):
    if isinstance(event, PartStartEvent):
        pass
    elif isinstance(event, PartDeltaEvent):
        if isinstance(event.delta, ThinkingPartDelta):
            output_messages.append(f'[Request] Part {event.index} thinking delta: {event.delta.content_delta!r}')
"""


def test_stream_events(guide_upstream: Upstream) -> None:
    names = run(STREAM_EVENTS)
    agent = run(ENABLE_ANTHROPIC)["agent"]
    agent.run_sync("17 * 23?", event_stream_handler=names["handle_event"])
    assert names["output_messages"][0] == f"[Request] Part 0 thinking delta: {THOUGHT!r}"


BASIC = """
from pellucid import Agent
from pellucid.models.anthropic import AnthropicModelSettings

agent = Agent('anthropic:claude-sonnet-4-0')

result = agent.run_sync(
    'Solve this math problem: 17 * 23 = ?',
    model_settings=AnthropicModelSettings(
        anthropic_thinking={'type': 'enabled', 'budget_tokens': 1024}
    )
)

# Access thinking from the result
for message in result.all_messages():
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            print(f"Model was thinking: {part.content}")
        elif isinstance(part, TextPart):
            print(f"Model answered: {part.content}")
"""


def test_pattern_1_basic_thinking(guide_upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    run(BASIC, ThinkingPart=pellucid.ThinkingPart, TextPart=pellucid.TextPart)
    assert capsys.readouterr().out == f"Model was thinking: {THOUGHT}\nModel answered: {ANSWER}\n"


STREAMING_EVENTS = """
from pellucid import Agent, AgentStreamEvent, PartDeltaEvent, ThinkingPartDelta

agent = Agent('anthropic:claude-sonnet-4-0')

async def event_handler(ctx, event_stream):
    async for event in event_stream:
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta):
            print(f"Thinking: {event.delta.content_delta}")

async def main():
    async with agent.run_stream(
        'Complex query',
        event_stream_handler=event_handler,
        model_settings=AnthropicModelSettings(
            anthropic_thinking={'type': 'enabled', 'budget_tokens': 2048}
        )
    ) as response:
        async for text in response.stream_text():
            print(f"Response: {text}")
"""


def test_pattern_2_streaming_thinking_events(guide_upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from pellucid.models.anthropic import AnthropicModelSettings

    asyncio.run(run(STREAMING_EVENTS, AnthropicModelSettings=AnthropicModelSettings)["main"]())
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"Thinking: {THOUGHT}"
    assert out[-1] == f"Response: {ANSWER}"


RESPONSES = """
from pellucid import Agent
from pellucid.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings

model = OpenAIResponsesModel('gpt-5')
agent = Agent(
    model,
    model_settings=OpenAIResponsesModelSettings(
        openai_reasoning_effort='high',
        openai_reasoning_summary='detailed',
    )
)

result = agent.run_sync('Analyze this complex scenario...')
"""


def test_pattern_3_openai_responses_with_reasoning(guide_upstream: Upstream) -> None:
    result = run(RESPONSES)["result"]
    assert result.thinking == THOUGHT
    thought = result.response.parts[0]
    assert (thought.id, thought.signature, thought.form) == ("rs_1", "ZW5j", "summary")
