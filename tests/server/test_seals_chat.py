"""Seals over Chat Completions: a client that echoes the assistant's message restores the model's whole history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, configured, name_of, sent, serving

WHOLE = [canary for canary in [*CANARIES, *MORE] if canary.name in ("stream", "fields", "reasoning", "details")]
WHOLE += [canary for canary in [*CANARIES, *MORE] if canary.name in ("tags", "server tools")]
each = pytest.mark.parametrize("canary", WHOLE, ids=lambda canary: f"{canary.row}-{canary.name}")

FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
USER = {"role": "user", "content": "Why?"}
ON = {"role": "user", "content": "And?"}


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def chat(gateway: Served, model: str, messages: list[Any], **more: Any) -> Reply:
    tools = [{"type": "function", "function": FUNCTION}]
    body = {"model": model, "messages": messages, "tools": tools, "reasoning_effort": "high", **more}
    head = {"Content-Type": "application/json"}
    reply = gateway.request("POST", "/v1/chat/completions", json.dumps(body).encode(), head)
    assert reply.status == 200, reply.body
    return reply


def merged_message(reply: Reply) -> dict[str, Any]:
    """Join the deltas of a stream into the assistant's message, as clients do."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_details": [], "tool_calls": []}
    for block in reply.body.decode().split("\n\n"):
        data = block.removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        for choice in json.loads(data)["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_details"] += delta.get("reasoning_details") or []
            for call in delta.get("tool_calls") or []:
                if call.get("id"):
                    message["tool_calls"].append({**call, "function": {**call["function"]}})
                else:
                    message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return {name: value for name, value in message.items() if value}


def continuation(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [call["id"] for call in message.get("tool_calls") or []]
    return [USER, message, *({"role": "tool", "tool_call_id": id, "content": "rain"} for id in calls), ON]


def history(body: dict[str, Any]) -> Any:
    messages = body.get("messages") or body.get("contents") or body["input"]
    for item in messages:
        if isinstance(item, dict) and item.get("type") == "function_call":
            item.pop("id", None)  # no provider requires it
    return messages


def stateful(gateway: Served, model: str) -> None:
    tools = [{"type": "function", **FUNCTION}]
    more = {"model": model, "tools": tools, "reasoning": {"effort": "high"}}
    first = gateway.post({**more, "input": [{"type": "message", **USER}]}).json
    calls = [item["call_id"] for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls]
    gateway.post({**more, "input": [*results, {"type": "message", **ON}], "previous_response_id": first["id"]})


def whole_message(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = reply.json["choices"][0]["message"]
    return message


@each
@pytest.mark.parametrize("how", [whole_message, merged_message])
def test_an_echoed_message_restores_the_history(
    gateway: Served, upstream: Upstream, canary: Canary, how: Callable[[Reply], dict[str, Any]]
) -> None:
    model = name_of(upstream, canary)
    stateful(gateway, model)
    message = how(chat(gateway, model, [USER], stream=how is merged_message))
    chat(gateway, model, continuation(message))
    _, expected, _, got = sent(upstream, model)
    assert history(got) == history(expected)


@each
def test_a_client_that_echoes_no_reasoning_is_served(gateway: Served, upstream: Upstream, canary: Canary) -> None:
    model = name_of(upstream, canary)
    message = whole_message(chat(gateway, model, [USER]))
    echoed = {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)}
    chat(gateway, model, continuation(echoed))
    # Nothing of the reasoning is left, but for tags that a template keeps.
    assert SECRET not in json.dumps(history(sent(upstream, model)[-1]))


def test_a_changed_token_is_refused_and_a_foreign_one_gives_a_warning(gateway: Served, upstream: Upstream) -> None:
    [claude] = [canary for canary in CANARIES if (canary.row, canary.name) == ("anthropic", "stream")]
    model, other = name_of(upstream, claude), name_of(upstream, claude)
    message = whole_message(chat(gateway, model, [USER]))
    reply = chat(gateway, other, continuation(message))
    assert "another model" in reply.headers["pellucid-warning"]
    text = json.dumps(message)
    for detail in message["reasoning_details"]:
        for name in ("data", "signature"):
            if token := detail.get(name):
                text = text.replace(token, token[:-8] + ("AAAAAAAA" if token[-8:] != "AAAAAAAA" else "BBBBBBBB"))
    body = {"model": model, "messages": continuation(json.loads(text))}
    headers = {"Content-Type": "application/json"}
    refused = gateway.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
    assert 400 <= refused.status < 500, refused.body
    assert refused.json["error"]["code"] == "seal_broken"
    assert refused.json["error"]["param"].startswith("messages[1].reasoning_details[")
