"""OpenAI's client for Node, and the AI SDK with its providers for OpenResponses and for Anthropic's API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.clients_kit import ANSWER, KEY, THOUGHT, WEATHER, calls, says_not_now, thinks, thinks_for_ever, waits
from tests.clients.node_kit import Node
from tests.scripted import Upstream
from tests.scripted.gateway import Served

pytestmark = pytest.mark.needs("node")

TOOLS = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]

Client = Callable[..., Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("node"))


@pytest.fixture
def openai(node: Node, gateway: Served) -> Client:
    def run(function: str, on_progress: Any = print, **arguments: Any) -> Any:
        return node.run("openai_sdk", function, {"url": f"{gateway.url}/v1", **arguments}, on_progress)

    return run


@pytest.fixture(params=["openresponses", "messages"])
def ai_sdk(node: Node, gateway: Served, request: pytest.FixtureRequest) -> Client:
    def run(function: str, on_progress: Any = print, **arguments: Any) -> Any:
        arguments = {"protocol": request.param, "url": f"{gateway.url}/v1", **arguments}
        return node.run("ai_sdk", function, arguments, on_progress)

    return run


def thoughts_of(upstream: Upstream, model: str, call: int) -> list[str]:
    """Return the reasoning that the upstream received in its history."""
    messages = upstream.calls(model)[call].body["messages"]
    return [
        thought for message in messages if (thought := message.get("reasoning_content") or message.get("reasoning"))
    ]


# --- OpenAI's ---------------------------------------------------------------------------------------------------------


def test_openai_streams(openai: Client, upstream: Upstream) -> None:
    seen = openai("streams", model=upstream.plays(thinks))
    assert seen["numbers"] == list(range(len(seen["numbers"])))
    assert (seen["thought"], seen["text"]) == (THOUGHT, ANSWER)
    assert (seen["last"], seen["output"]) == ("response.completed", ["reasoning", "message"])


def test_openai_s_helper_follows_a_stream_with_a_call(openai: Client, upstream: Upstream) -> None:
    seen = openai("follows_with_the_helper", model=upstream.plays(calls("Oslo")), tools=TOOLS)
    assert "response.reasoning_text.delta" in seen["kinds"]
    reasoning, call = seen["output"]
    assert reasoning["content"][0]["text"] == "Ask the weather."
    assert call["arguments"] == '{"city": "Oslo"}'


@pytest.mark.parametrize(
    ("by", "include"), [("id", []), ("echo", []), ("echo", ["reasoning.encrypted_content"])], ids=["id", "echo", "seal"]
)
@pytest.mark.parametrize("view", ["raw", "sealed"])
def test_openai_calls_tools(openai: Client, upstream: Upstream, by: str, include: list[str], view: str) -> None:
    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)
    headers = {"Pellucid-View": view}
    text = openai("calls_tools", model=model, tools=TOOLS, by=by, include=include, headers=headers)
    assert text == ANSWER
    assert [m["role"] for m in upstream.calls(model)[2].body["messages"]] == [
        *("user", "assistant", "tool", "assistant", "tool")
    ]
    assert thoughts_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]


def test_openai_resumes(openai: Client, upstream: Upstream) -> None:
    may_answer = threading.Event()
    seen = openai("resumes", model=upstream.plays(waits(may_answer)), on_progress=lambda what: may_answer.set())
    assert seen["numbers"] == list(range(len(seen["numbers"])))
    assert (seen["thought"], seen["text"], seen["stored"]) == (THOUGHT, ANSWER, ANSWER)
    assert seen["same"]


def test_openai_cancels(openai: Client, upstream: Upstream) -> None:
    model = upstream.plays(thinks_for_ever)
    assert openai("cancels", model=model) == ["cancelled", "cancelled"]


def test_openai_keeps_lists_and_deletes(openai: Client, upstream: Upstream) -> None:
    seen = openai("lists_and_deletes", model=upstream.plays(thinks))
    assert seen == {"listed": [f"number {n}" for n in range(1, 6)], "missing": 404}


def test_openai_converses(openai: Client, upstream: Upstream) -> None:
    assert openai("converses", model=upstream.plays(thinks)) == {
        "kinds": ["message", "message", "reasoning", "message"],
        "metadata": {"topic": "people"},
        "deleted": True,
    }


def test_openai_s_chat_completions(openai: Client, upstream: Upstream) -> None:
    seen = openai("completes", model=upstream.plays(thinks))
    assert seen == {"complete": [THOUGHT, ANSWER], "streamed": [THOUGHT, ANSWER]}


def test_openai_s_client_raises_its_own_errors(openai: Client, guarded: Served, upstream: Upstream) -> None:
    limited = upstream.plays(says_not_now)
    assert openai("fails", requests=[{"model": limited}, {"model": "nobody"}, {"model": ""}]) == [
        {"name": "RateLimitError", "status": 429, "code": "rate_limit", "retry": "60"},
        {"name": "InternalServerError", "status": 503, "code": "unreachable", "retry": None},
        {"name": "NotFoundError", "status": 404, "code": "model_not_found", "retry": None},
    ]
    denied = [{"key": "wrong"}, {"key": KEY, "model": "gpt-5"}]
    assert openai("fails", url=f"{guarded.url}/v1", requests=denied) == [
        {"name": "AuthenticationError", "status": 401, "code": "invalid_api_key", "retry": None},
        {"name": "PermissionDeniedError", "status": 403, "code": "model_not_allowed", "retry": None},
    ]


# --- the AI SDK -------------------------------------------------------------------------------------------------------


def test_the_ai_sdk_generates(ai_sdk: Client, upstream: Upstream) -> None:
    seen = ai_sdk("generates", model=upstream.plays(thinks))
    assert seen == {"text": ANSWER, "reasoningText": THOUGHT, "finishReason": "stop", "output": 9}


def test_the_ai_sdk_gets_reasoning_before_the_answer(ai_sdk: Client, upstream: Upstream) -> None:
    may_answer = threading.Event()
    seen = ai_sdk("streams", model=upstream.plays(waits(may_answer)), on_progress=lambda what: may_answer.set())
    assert (seen["thought"], seen["text"], seen["finish"]) == (THOUGHT, ANSWER, "stop")
    assert seen["kinds"] == [
        *("start", "start-step", "reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end", "finish-step", "finish"),
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_ai_sdk_calls_tools_until_there_is_an_answer(ai_sdk: Client, upstream: Upstream, streamed: bool) -> None:
    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)
    seen = ai_sdk("calls_tools", model=model, schema=WEATHER, streamed=streamed)
    assert seen["text"] == ANSWER
    assert seen["steps"] == [["reasoning", "tool-call", "tool-result"]] * 2 + [["reasoning", "text"]]
    assert seen["thoughts"] == ["First Oslo.", "Then Rome.", THOUGHT]
    messages = upstream.calls(model)[2].body["messages"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["rain in Oslo", "rain in Rome"]


def test_the_ai_sdk_raises_its_own_errors(ai_sdk: Client, guarded: Served, upstream: Upstream) -> None:
    limited, down = ai_sdk("fails", requests=[{"model": upstream.plays(says_not_now)}, {"model": "nobody"}])
    assert (limited["isAPICallError"], limited["statusCode"], limited["isRetryable"]) == (True, 429, True)
    assert (down["isAPICallError"], down["isRetryable"]) == (True, True)
    assert down["statusCode"] in (503, 529)  # Anthropic's API has a status of its own
    denied = [{"key": "wrong", "model": "any"}, {"key": KEY, "model": "gpt-5"}]
    unknown, forbidden = ai_sdk("fails", url=f"{guarded.url}/v1", requests=denied)
    assert (unknown["statusCode"], unknown["isRetryable"]) == (401, False)
    assert (forbidden["statusCode"], forbidden["isRetryable"]) == (403, False)
    # The SDK reads the message of errors with a parameter; it cannot read the specification's `"param": null`.
    assert "you may not use 'gpt-5'" in forbidden["message"]
