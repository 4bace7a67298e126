"""A history goes back to its provider as from the library that made it: compared in the requests that leave.

For each provider that both libraries have a model for, three runs with functions make a history, in four ways: with
Pydantic AI's model, whole and streamed; with our model and agent; and with `PellucidModel`. Then each library sends the
next request. Both must be the same, but for what `DIFFERENCES` has.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import pydantic_ai
import pytest
from pydantic_ai import AgentRunResultEvent

import pellucid
from pellucid.interop.pydantic_ai import PellucidModel, from_pydantic, to_pydantic
from pellucid.models import close_shared_pool
from tests.interop.provider_kit import PROVIDERS, Body, Provider, TurnServer

PROMPTS = ("What is the weather in Oslo, Rome and Bonn?", "And in Kyiv?", "Thanks.")


def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: The city.
    """
    return f"snow in {city}"


# --- the agents of both libraries --------------------------------------------------------------------------------


async def _their_run(model: Any, prompt: str, history: list[Any], *, streamed: bool = False) -> list[Any]:
    agent = pydantic_ai.Agent(model, tools=[weather])
    if not streamed:
        return (await agent.run(prompt, message_history=history)).all_messages()
    async with agent.run_stream_events(prompt, message_history=history) as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, AgentRunResultEvent)
    return last.result.all_messages()


async def _our_run(model: Any, prompt: str, history: list[Any]) -> list[Any]:
    return (await pellucid.Agent(model, tools=[weather]).run(prompt, message_history=history)).all_messages()


class Way(NamedTuple):
    """A way to run an agent."""

    is_ours: bool
    """Whether the history is a list of our messages."""
    run: Callable[[Any, Any, str, list[Any]], Awaitable[list[Any]]]
    """Runs it with one of the two models: `(their model, our model, prompt, history)`."""


WAYS: dict[str, Way] = {
    "theirs": Way(False, lambda their, our, *run: _their_run(their, *run)),
    "theirs, streamed": Way(False, lambda their, our, *run: _their_run(their, *run, streamed=True)),
    "ours": Way(True, lambda their, our, *run: _our_run(our, *run)),
    "PellucidModel": Way(False, lambda their, our, *run: _their_run(PellucidModel(our), *run)),
    "PellucidModel, streamed": Way(False, lambda their, our, *run: _their_run(PellucidModel(our), *run, streamed=True)),
}


async def _last_requests(provider: Provider, made: str) -> dict[str, Body]:
    """Make a history in one way, and return the request that each way sends with it."""
    try:
        with TurnServer(provider, provider.turns) as server:
            models = provider.theirs(server.url, provider.model), provider.our_model(server.url)
            history: list[Any] = []
            for prompt in PROMPTS[:2]:
                history = await WAYS[made].run(*models, prompt, history)
            assert len(server.requests) == 5
            for way in ("theirs", "ours", "PellucidModel"):
                converted: list[Any] = history
                if WAYS[made].is_ours and not WAYS[way].is_ours:
                    converted = [*to_pydantic(history)]
                elif WAYS[way].is_ours and not WAYS[made].is_ours:
                    converted = [*from_pydantic(history)]
                await WAYS[way].run(*models, PROMPTS[2], converted)
            return dict(zip(("theirs", "ours", "PellucidModel"), server.requests[5:], strict=True))
    finally:
        await close_shared_pool()


# --- what may differ ---------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A difference between the requests of both libraries that means the same to the provider."""

    why: str
    normal: Callable[[Any], Any]
    """Returns the normal form of an object of the request."""


def _with(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value | {name: change(value[name])} if name in value else value


def _without(name: str, *values: Any) -> Callable[[Any], Any]:
    """Remove a field if it has one of the values; without values, in any case."""
    return lambda value: {key: entry for key, entry in value.items() if key != name or (values and entry not in values)}


def _tags_to_field(message: Body) -> Body:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str) or "<think>\n" not in content:
        return message
    thought, _, text = content.removeprefix("<think>\n").partition("\n</think>")
    rest: Body = _without("content")(message)
    return rest | {"reasoning": thought} | ({"content": text.strip()} if text.strip() else {})


def _unsigned_to_field(block: Body) -> Body:
    match = re.fullmatch(r"<think>\n(.*)\n</think>", block.get("text", ""))
    return {"reasoningContent": {"reasoningText": {"text": match[1]}}} if match else block


def _without_repeated_summary(item: Body) -> Body:
    if item.get("type") != "reasoning":
        return item
    summary, content = ([part["text"] for part in item.get(name) or ()] for name in ("summary", "content"))
    return item | {"summary": []} if summary == content else item


def _plain_message(item: Body) -> Body:
    if item.get("type") == "reasoning" or ("role" in item and item.get("type") != "message"):
        return item
    if item.get("type") == "message" and isinstance(item["content"], list):
        return {"role": item["role"], "content": "".join(part["text"] for part in item["content"])}
    return {name: value for name, value in item.items() if name != "id"}


DIFFERENCES: dict[str, Difference] = {
    "arguments": Difference(
        "We send the arguments as the model wrote them; Pydantic AI writes the JSON anew.",
        _with("arguments", lambda text: json.loads(text) if isinstance(text, str) else text),
    ),
    "nulls": Difference(
        "A field that is null is not there.",
        lambda value: {name: entry for name, entry in value.items() if entry is not None},
    ),
    "is_error": Difference("Anthropic's default.", _without("is_error", False)),
    "results": Difference(
        "Google documents no key for a result that is not an object: `output` in its guide, `return_value` there.",
        lambda value: (
            value | {"response": {"output": next(iter(value["response"].values()))}}
            if "functionResponse" not in value and "response" in value
            else value
        ),
    ),
    "empty reasoning": Difference("The details hold the reasoning.", _without("reasoning", "")),
    "groq": Difference(
        "Groq documents the field `reasoning` for messages; Pydantic AI sends the text between tags.", _tags_to_field
    ),
    "unsigned": Difference(
        "Bedrock takes the reasoning of models that do not sign it; Pydantic AI sends the text between tags.",
        _unsigned_to_field,
    ),
    "both fields": Difference(
        "Releases of vLLM read one or the other field, so we send both.", _without("reasoning_content")
    ),
    "mistral": Difference(
        "Defaults of Mistral's library, and the function's name, which its API takes with a result.",
        lambda value: {
            name: entry
            for name, entry in value.items()
            if (name, entry) not in (("prefix", False), ("tool_calls", []))
            and not (name == "index" and "function" in value)
            and not (name == "name" and value.get("role") == "tool")
        },
    ),
    "ids": Difference(
        "We return the ids of items, as we got them; Pydantic AI sends them to OpenAI and some others only.",
        _plain_message,
    ),
    "raw text": Difference(
        "`PellucidModel` shows raw reasoning while it streams, as the content of its part, which is the summary for "
        "Pydantic AI; servers with raw reasoning ignore summaries.",
        _without_repeated_summary,
    ),
}


def _normal(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_normal(entry, names) for entry in value]
    if isinstance(value, dict):
        for name in names:
            value = DIFFERENCES[name].normal(value)
        return {name: _normal(entry, names) for name, entry in value.items()}
    return value


def _messages(body: Body) -> list[Body]:
    [messages] = [body[name] for name in ("messages", "input", "contents") if name in body]
    assert isinstance(messages, list)
    return messages


# --- the tests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", WAYS)
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_both_libraries_send_the_same(provider: Provider, made: str) -> None:
    requests = asyncio.run(_last_requests(provider, made))
    normal = partial(_normal, names=("arguments", "nulls", *provider.differences))
    for way, body in requests.items():
        missing = [text for text in provider.secrets if text not in json.dumps(body)]
        assert not missing, f"{way} does not send {missing}"
    assert _messages(requests["PellucidModel"]) == _messages(requests["ours"])
    assert normal(_messages(requests["ours"])) == normal(_messages(requests["theirs"]))
