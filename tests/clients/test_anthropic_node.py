"""Anthropic's client for Node, with its helpers that accumulate a stream and run tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.clients_kit import ANSWER, THOUGHT, WEATHER, calls, says_not_now, thinks
from tests.clients.node_kit import Node
from tests.clients.test_anthropic_sdk import reasoning_of
from tests.scripted import Upstream
from tests.scripted.gateway import Served

pytestmark = pytest.mark.needs("node")

TOOLS = [{"name": "get_weather", "input_schema": WEATHER}]
Client = Callable[..., Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("node"))


@pytest.fixture
def client(node: Node, gateway: Served) -> Client:
    def run(function: str, **arguments: Any) -> Any:
        return node.run("anthropic_sdk", function, {"url": gateway.url, **arguments})

    return run


def looping(upstream: Upstream) -> str:
    return upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)


def results_sent(upstream: Upstream, model: str) -> list[str]:
    return [entry["content"] for entry in upstream.calls(model)[2].body["messages"] if entry["role"] == "tool"]


def test_the_helper_shows_and_accumulates_reasoning(client: Client, upstream: Upstream) -> None:
    seen = client("follows_with_the_helper", model=upstream.plays(thinks))
    assert (seen["thinking"], seen["text"]) == (THOUGHT, ANSWER)
    thinking, text = seen["blocks"]
    assert (thinking["thinking"], [thinking["signature"]]) == (THOUGHT, seen["signatures"])
    assert text["text"] == ANSWER
    assert seen["message"]["content"] == seen["blocks"]
    assert seen["message"]["stop_reason"] == "end_turn"


def test_tools_over_three_turns(client: Client, upstream: Upstream) -> None:
    model = looping(upstream)
    contents = client("calls_tools", model=model, tools=TOOLS)
    assert [content[0]["thinking"] for content in contents] == ["First Oslo.", "Then Rome.", THOUGHT]
    assert results_sent(upstream, model) == ["rain in Oslo", "rain in Rome"]
    assert reasoning_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]


@pytest.mark.parametrize("stream", [True, False])
def test_the_tool_runner(client: Client, upstream: Upstream, stream: bool) -> None:
    model = looping(upstream)
    content = client("runs_tools", model=model, tools=TOOLS, stream=stream)
    assert [block.get("thinking") or block["text"] for block in content] == [THOUGHT, ANSWER]
    assert results_sent(upstream, model) == ["rain in Oslo", "rain in Rome"]
    assert reasoning_of(upstream, model, 2) == ["First Oslo.", "Then Rome."]


def test_errors_have_the_types_of_the_client(client: Client, upstream: Upstream) -> None:
    failure = client("fails", model=upstream.plays(says_not_now))
    assert failure == {"name": "RateLimitError", "status": 429, "type": "rate_limit_error"}
