"""A Messages client that sends content back as it came: the model gets the same history as from a stateful client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pellucid.protocols.messages.verify import verify
from tests.messages.messages_kit import accumulate, events_of
from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, configured, name_of, sent, serving

TOOL = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
WHOLE = [
    canary
    for canary in [*CANARIES, *MORE]
    if canary.name in ("stream", "whole", "fields", "reasoning", "details", "tags", "server tools")
]

each = pytest.mark.parametrize("canary", WHOLE, ids=lambda canary: f"{canary.row}-{canary.name}")


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("seals") / "keys.json"
    with serving(configured(upstream, sealing={"keys_file": str(keys)})) as running:
        yield running


def ask(gateway: Served, model: str, messages: list[Any], headers: dict[str, str] | None = None, **more: Any) -> Reply:
    body = {"model": model, "max_tokens": 4000, "messages": messages, "tools": [TOOL], **more}
    headers = {"Content-Type": "application/json", **(headers or {})}
    reply = gateway.request("POST", "/v1/messages", json.dumps(body).encode(), headers)
    assert reply.status == 200, reply.body
    return reply


def streamed(gateway: Served, model: str, messages: list[Any]) -> dict[str, Any]:
    reply = ask(gateway, model, messages, stream=True)
    assert verify(reply.body) == []
    return accumulate(events_of(reply.body))


def whole(gateway: Served, model: str, messages: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = ask(gateway, model, messages).json
    return message


def results(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "rain"}
        for block in content
        if block["type"] == "tool_use"
    ]


def expected_history(gateway: Served, upstream: Upstream, canary: Canary) -> dict[str, Any]:
    """The model's second request from a stateful client of Responses."""
    model = name_of(upstream, canary)
    function = {"type": "function", "name": "weather", "parameters": TOOL["input_schema"]}
    common = {"model": model, "tools": [function], "store": True}
    first = gateway.post({**common, "input": "Why?"}).json
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "rain"}
        for item in first["output"]
        if item["type"] == "function_call"
    ]
    prompt = {"type": "message", "role": "user", "content": "And?"}
    second = {**common, "input": [*outputs, prompt], "previous_response_id": first["id"]}
    assert gateway.post(second).status == 200
    return sent(upstream, model)[1]


def history_of(body: dict[str, Any]) -> Any:
    return body.get("messages") or body.get("contents") or body.get("input")


@each
@pytest.mark.parametrize("get", [streamed, whole])
def test_content_that_is_sent_back_restores_the_history(
    gateway: Served, upstream: Upstream, canary: Canary, get: Callable[..., dict[str, Any]]
) -> None:
    model = name_of(upstream, canary)
    user = {"role": "user", "content": "Why?"}
    content = get(gateway, model, [user])["content"]
    again = {"role": "user", "content": [*results(content), {"type": "text", "text": "And?"}]}
    get(gateway, model, [user, {"role": "assistant", "content": content}, again])
    expected, got = history_of(expected_history(gateway, upstream, canary)), history_of(sent(upstream, model)[1])
    for item in expected:
        if isinstance(item, dict) and item.get("type") == "function_call":
            item.pop("id", None)
    assert got == expected


@each
def test_a_client_that_drops_reasoning_is_served(gateway: Served, upstream: Upstream, canary: Canary) -> None:
    model = name_of(upstream, canary)
    user = {"role": "user", "content": "Why?"}
    content = [block for block in whole(gateway, model, [user])["content"] if block["type"] in ("text", "tool_use")]
    history = [user, {"role": "assistant", "content": content}] if content else [user]
    whole(
        gateway, model, [*history, {"role": "user", "content": [*results(content), {"type": "text", "text": "And?"}]}]
    )
    assert SECRET not in str(history_of(sent(upstream, model)[1])).replace("encrypted_content", "")


@each
def test_a_reader_without_the_text_gets_blocks_that_restore_it(
    gateway: Served, upstream: Upstream, canary: Canary
) -> None:
    model = name_of(upstream, canary)
    user = {"role": "user", "content": "Why?"}
    content = ask(gateway, model, [user], {"Pellucid-View": "sealed"}).json["content"]
    assert {block["type"] for block in content} <= {"redacted_thinking", "text", "tool_use"}
    assert SECRET not in str(content)
    again = {"role": "user", "content": [*results(content), {"type": "text", "text": "And?"}]}
    whole(gateway, model, [user, {"role": "assistant", "content": content}, again])
    expected, got = history_of(expected_history(gateway, upstream, canary)), history_of(sent(upstream, model)[1])
    for item in expected:
        if isinstance(item, dict) and item.get("type") == "function_call":
            item.pop("id", None)
    assert got == expected
