"""The official OpenAI client, in its usual ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import (
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseReasoningItem,
    ToolParam,
)

from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS

THINKS = say("Let me see.", "It is 42.")


async def calls_a_tool(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Ask the weather."))
    function = {"name": "get_weather", "arguments": ""}
    await call.event(delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": function}]))
    for piece in ('{"city"', ': "Oslo"}'):
        await call.event(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]))
    await call.event(delta("tool_calls"))
    await call.event(b"[DONE]")
    await call.end()


async def refuses(call: Call) -> None:
    await call.head()
    await call.event(delta(refusal="I would rather not."))
    await call.event(delta("stop"))
    await call.event(b"[DONE]")
    await call.end()


async def is_cut(call: Call) -> None:
    await call.head()
    await call.event(delta(content="It is"))
    await call.event(delta("length"))
    await call.event(b"[DONE]")
    await call.end()


async def fails(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    await call.event({"error": {"message": "out of memory"}})
    await call.wait_for_disconnect()


FAILED = "the provider reported an error: out of memory"
"""The message of the error in the `raw` view."""


async def refuses_with_429(call: Call) -> None:
    await call.answer(
        429, json.dumps({"error": {"message": "slow down", "code": "rate_limit"}}).encode(), Retry_After="60"
    )


@pytest.fixture(params=["openresponses", "openai"])
def headers(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"OpenResponses-Reasoning-Events": request.param}


@pytest.fixture
def client(gateway: Served, headers: dict[str, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, default_headers=headers) as made:
        yield made


def test_a_response_without_streaming(client: openai.OpenAI, upstream: Upstream) -> None:
    response = client.responses.create(model=upstream.plays(THINKS), input="Why?")
    assert response.status == "completed"
    assert response.output_text == "It is 42. "
    reasoning = response.output[0]
    assert isinstance(reasoning, ResponseReasoningItem)
    assert [part.text for part in reasoning.content or []] == ["Let me see. "]
    assert response.usage is not None
    assert response.usage.output_tokens == 9


def test_a_stream(client: openai.OpenAI, upstream: Upstream, headers: dict[str, str]) -> None:
    stream = client.responses.create(model=upstream.plays(THINKS), input="Why?", stream=True)
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    name = {"openresponses": "response.reasoning", "openai": "response.reasoning_text"}[
        headers["OpenResponses-Reasoning-Events"]
    ]
    # The SDK has no classes for the names of OpenResponses.
    thought = [str(event.to_dict()["delta"]) for event in events if event.type == f"{name}.delta"]
    assert "".join(thought) == "Let me see. "
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "It is 42. "


def test_the_stream_helper(client: openai.OpenAI, upstream: Upstream) -> None:
    with client.responses.stream(model=upstream.plays(THINKS), input="Why?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "It is 42. "


def test_a_call_and_its_result(client: openai.OpenAI, upstream: Upstream) -> None:
    tools: list[ToolParam] = [
        {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
    ]
    model = upstream.plays(calls_a_tool, THINKS)
    with client.responses.stream(model=model, input="Weather?", tools=tools) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    reasoning, call = first.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (reasoning.type, call.name) == ("reasoning", "get_weather")
    assert json.loads(call.arguments) == {"city": "Oslo"}
    # A client sends back what the SDK's objects dump.
    history: list[Any] = [
        {"role": "user", "content": "Weather?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
    ]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    second = client.responses.create(model=model, input=history, tools=tools)
    assert second.output_text == "It is 42. "
    messages = upstream.calls(model)[1].body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]


def test_a_refusal(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(refuses)
    events = list(client.responses.create(model=model, input="Why?", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.refusal.delta") == "I would rather not."
    message = client.responses.create(model=model, input="Why?").output[0]
    assert isinstance(message, ResponseOutputMessage)
    content = message.content[0]
    assert isinstance(content, ResponseOutputRefusal)
    assert content.refusal == "I would rather not."


def test_an_incomplete_response(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(is_cut)
    last = list(client.responses.create(model=model, input="Why?", stream=True))[-1]
    assert last.type == "response.incomplete"
    whole = client.responses.create(model=model, input="Why?")
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output_text == "It is"


def test_a_failed_stream(client: openai.OpenAI, upstream: Upstream, headers: dict[str, str]) -> None:
    """In OpenAI's dialect the error is an event; in that of OpenResponses the SDK raises it."""
    stream = client.responses.create(model=upstream.plays(fails), input="Why?", stream=True)
    if headers["OpenResponses-Reasoning-Events"] == "openai":
        *_, error, last = stream
        assert isinstance(error, ResponseErrorEvent)
        assert isinstance(last, ResponseFailedEvent)
        assert error.message == FAILED
        assert last.response.error is not None
        assert last.response.error.message == FAILED
    else:
        with pytest.raises(openai.APIError, match="out of memory"):
            list(stream)


def test_a_failed_response(client: openai.OpenAI, upstream: Upstream) -> None:
    response = client.responses.create(model=upstream.plays(fails), input="Why?")
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message == FAILED


@pytest.mark.parametrize("stream", [False, True])
def test_errors_raise_the_exceptions_of_the_sdk(client: openai.OpenAI, upstream: Upstream, stream: bool) -> None:
    with pytest.raises(openai.RateLimitError, match="slow down") as limited:
        client.responses.create(model=upstream.plays(refuses_with_429), input="Why?", stream=stream)
    assert limited.value.code == "rate_limit"
    assert limited.value.response.headers["retry-after"] == "60"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(model="any", input="Why?", temperature=9, stream=stream)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="", input="Why?", stream=stream)


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert "unused" in [model.id for model in client.models.list()]


def test_closing_a_stream_closes_the_upstream(client: openai.OpenAI, upstream: Upstream) -> None:
    async def for_ever(call: Call) -> None:
        await call.head()
        await call.event(delta(content="Hi"))
        await call.wait_for_disconnect()

    model = upstream.plays(for_ever)
    with client.responses.create(model=model, input="Why?", stream=True) as stream:
        next(event for event in stream if event.type == "response.output_text.delta")
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)


def test_the_async_client(gateway: Served, upstream: Upstream, headers: dict[str, str]) -> None:
    model = upstream.plays(THINKS)

    async def texts(client: openai.AsyncOpenAI) -> AsyncIterator[str]:
        yield (await client.responses.create(model=model, input="Why?")).output_text
        stream = await client.responses.create(model=model, input="Why?", stream=True)
        yield "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        async with client.responses.stream(model=model, input="Why?") as helped:
            yield (await helped.get_final_response()).output_text

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, default_headers=headers
        ) as client:
            return [text async for text in texts(client)]

    assert asyncio.run(main()) == ["It is 42. "] * 3
