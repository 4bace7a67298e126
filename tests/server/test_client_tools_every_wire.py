"""Tools of coding agents, on every wire and over several turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, Canary, configured, name_of, sent, serving
from tests.server.sockets_kit import opened

USER = {"type": "message", "role": "user", "content": "Why?"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "namespace", "name": "mcp__w", "tools": [{"type": "function", "name": "weather", "parameters": CITY}]}

CALLING = [
    canary._replace(body=canary.body.replace(b'"weather"', b'"mcp__w__weather"'))
    for canary in CANARIES
    if canary.name in ("stream", "whole") and b'"weather"' in canary.body
]


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def test_the_canaries_call_a_function() -> None:
    assert {canary.row for canary in CALLING} >= {"anthropic", "google", "openai-responses"}


@pytest.mark.parametrize("canary", CALLING, ids=lambda canary: f"{canary.row}-{canary.name}")
def test_a_call_in_a_namespace_is_returned_with_its_data(gateway: Served, upstream: Upstream, canary: Canary) -> None:
    model = name_of(upstream, canary)
    common = {"model": model, "tools": [TOOL], "include": ["reasoning.encrypted_content"]}

    def ask(**body: Any) -> dict[str, Any]:
        reply = gateway.post({**common, **body})
        assert reply.status == 200, reply.body
        answer: dict[str, Any] = reply.json
        return answer

    stateful = ask(input=[USER], store=True)
    (call,) = [item for item in stateful["output"] if item["type"] == "function_call"]
    assert (call["name"], call["namespace"]) == ("weather", "mcp__w")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    ask(input=[result], previous_response_id=stateful["id"], store=True)
    stateless = ask(input=[USER], store=False)["output"]
    (again,) = [item for item in stateless if item["type"] == "function_call"]
    ask(input=[USER, *stateless, {**result, "call_id": again["call_id"]}], store=False)
    _, expected, _, got = sent(upstream, model)
    for item in expected.get("input", []):
        if item.get("type") == "function_call":
            del item["id"]  # the only field without a carrier
    assert got == expected


# --- tools that the input adds ---------------------------------------------------------------------------------------

ADDED = {"type": "additional_tools", "tools": [TOOL]}
SEARCHED = [
    {"type": "tool_search_call", "call_id": "c1", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": "c1", "tools": [{"type": "function", "name": "later"}]},
]


def offered(upstream: Upstream, model: str) -> list[str]:
    """The functions of the last call of a model."""
    return [tool["function"]["name"] for tool in upstream.calls(model)[-1].body.get("tools", [])]


def test_tools_that_the_input_adds_stay_in_a_chain_of_responses(gateway: Served, upstream: Upstream) -> None:
    model = f"vllm:{upstream.plays(say('', 'Yes.'), say('', 'Yes.'), say('', 'Yes.'))}"
    first = gateway.post({"model": model, "input": [ADDED, USER], "store": True}).json
    second = gateway.post({"model": model, "input": SEARCHED, "previous_response_id": first["id"]}).json
    redefined = {"type": "function", "name": "later", "description": "of this request"}
    body = {"model": model, "input": "Go on.", "tools": [redefined], "previous_response_id": second["id"]}
    assert gateway.post(body).status == 200
    assert offered(upstream, model[5:]) == ["mcp__w__weather", "later"]
    assert upstream.calls(model[5:])[-1].body["tools"][1]["function"]["description"] == "of this request"


def test_tools_that_the_input_adds_stay_in_a_conversation(gateway: Served, upstream: Upstream) -> None:
    model = f"vllm:{upstream.plays(say('', 'Yes.'), say('', 'Yes.'))}"
    conversation = gateway.request("POST", "/v1/conversations", b"{}").json["id"]
    gateway.post({"model": model, "input": [ADDED, USER], "conversation": conversation})
    gateway.post({"model": model, "input": "Go on.", "conversation": conversation})
    assert offered(upstream, model[5:]) == ["mcp__w__weather"]


@pytest.mark.parametrize("store", [True, False])
def test_tools_that_the_input_adds_stay_on_a_socket(gateway: Served, upstream: Upstream, store: bool) -> None:
    model = f"vllm:{upstream.plays(say('', 'Yes.'), say('', 'Yes.'), say('', 'Yes.'))}"
    with opened(gateway, model) as socket:
        turn = socket.ask(input=[ADDED, USER], store=store)
        for text in ("Go on.", "And on."):
            turn = socket.ask(input=text, previous_response_id=turn.id, store=store)
    assert offered(upstream, model[5:]) == ["mcp__w__weather"]


# --- stored items ----------------------------------------------------------------------------------------------------

CUSTOM = {"type": "custom", "name": "patch"}


def test_stored_calls_keep_their_types(gateway: Served, upstream: Upstream) -> None:
    """In a conversation, in the response, and as a reference."""

    async def calls_patch(call: Call) -> None:
        await call.head()
        function = {"name": "patch", "arguments": '{"input":"add 1"}'}
        await call.event(delta("tool_calls", tool_calls=[{"index": 0, "id": "call_1", "function": function}]))
        await call.event(b"[DONE]")
        await call.end()

    model = f"vllm:{upstream.plays(calls_patch, say('', 'Yes.'))}"
    conversation = gateway.request("POST", "/v1/conversations", b"{}").json["id"]
    first = gateway.post({"model": model, "input": "Go.", "tools": [CUSTOM], "conversation": conversation}).json
    (call,) = first["output"]
    assert (call["type"], call["input"]) == ("custom_tool_call", "add 1")
    result = {"id": "out_1", "type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
    second = gateway.post({"model": model, "input": [result], "tools": [CUSTOM], "conversation": conversation})
    assert second.status == 200, second.body
    items = gateway.request("GET", f"/v1/conversations/{conversation}/items?order=asc").json["data"]
    assert [item["type"] for item in items[:3]] == ["message", "custom_tool_call", "custom_tool_call_output"]
    assert items[1] == call
    assert gateway.request("GET", f"/v1/conversations/{conversation}/items/{call['id']}").json == call
    references = [{"type": "item_reference", "id": id} for id in (call["id"], "out_1")]
    reply = gateway.post({"model": model, "input": [{"role": "user", "content": "Go."}, *references]})
    assert reply.status == 200, reply.body
    roles = [message["role"] for message in upstream.calls(model[5:])[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool"]
