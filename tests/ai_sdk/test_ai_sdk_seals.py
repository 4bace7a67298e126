"""Every wire with every reasoning carrier: a page that returns its messages gives the model its whole history, and a
lesser view has no byte of a thought."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.protocols.ai_sdk.verify import verify
from tests.ai_sdk.ai_sdk_kit import ON, USER, chunks_of, message_of
from tests.cases import Cases
from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, configured, name_of, sent, serving

EVERY = [*CANARIES, *MORE]
WHOLE = [canary for canary in EVERY if canary.answers and canary.name in ("stream", "fields", "reasoning", "details")]
WHOLE += [canary for canary in EVERY if canary.name in ("tags", "server tools", "raw")]
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def named(canary: Canary) -> str:
    return f"{canary.row}-{canary.name}"


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def ask(gateway: Served, model: str, messages: list[Any], **more: Any) -> Reply:
    body = {"id": "chat", "trigger": "submit-message", "messages": messages, "model": model, "effort": "high", **more}
    headers = {"Content-Type": "application/json"}
    return gateway.request("POST", "/api/chat", json.dumps(body).encode(), headers)


def message_in(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body
    assert verify(reply.body) == []
    return message_of(chunks_of(reply.body))


def answered(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message as a page sends it after it ran the calls without a result."""
    for part in message["parts"]:
        if part["type"] == "dynamic-tool" and part["state"] == "input-available" and not part.get("providerExecuted"):
            part |= {"state": "output-available", "output": "rain"}
    return message


def stateful(gateway: Served, model: str) -> None:
    """Run the same conversation over a protocol with stored responses."""
    more = {"model": model, "tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "high"}}
    first = gateway.post({**more, "input": [{"type": "message", "role": "user", "content": "Why?"}]}).json
    calls = [item["call_id"] for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls]
    on = {"type": "message", "role": "user", "content": "And?"}
    gateway.post({**more, "input": [*results, on], "previous_response_id": first["id"]})


def history(body: dict[str, Any]) -> Any:
    messages = body.get("messages") or body.get("contents") or body["input"]
    for item in messages:
        if isinstance(item, dict) and item.get("type") == "function_call":
            item.pop("id", None)  # no provider asks for it
    return messages


def test_a_page_returns_the_whole_history(gateway: Served, upstream: Upstream) -> None:
    with Cases() as case:
        for canary in WHOLE:
            for view in ["raw", "sealed"]:
                with case(f"{named(canary)}, {view}"):
                    model = name_of(upstream, canary)
                    stateful(gateway, model)
                    message = message_in(ask(gateway, model, [USER], view=view))
                    reply = ask(gateway, model, [USER, answered(message), ON], view=view)
                    assert "sealed" not in reply.headers.get("pellucid-warning", "")
                    message_in(reply)
                    _, expected, _, got = sent(upstream, model)
                    assert history(got) == history(expected)


def test_a_page_without_metadata_is_served(gateway: Served, upstream: Upstream) -> None:
    with Cases() as case:
        for canary in WHOLE:
            with case(named(canary)):
                model = name_of(upstream, canary)
                message = answered(message_in(ask(gateway, model, [USER], view="hidden")))
                message_in(ask(gateway, model, [USER, message, ON]))
                assert SECRET not in json.dumps(history(sent(upstream, model)[-1]))


def test_no_byte_of_a_thought_leaves_in_a_lesser_view(gateway: Served, upstream: Upstream) -> None:
    with Cases() as case:
        for canary in CANARIES:
            for view in ["summary", "sealed", "hidden"]:
                with case(f"{named(canary)}, {view}"):
                    reply = ask(gateway, name_of(upstream, canary), [USER], view=view)
                    if reply.status == 200:
                        assert verify(reply.body) == []
                        assert view != "hidden" or b'"reasoning-' not in reply.body
                    assert SECRET.encode() not in reply.body


def test_a_changed_seal_is_refused_and_a_foreign_seal_causes_a_warning(gateway: Served, upstream: Upstream) -> None:
    [claude] = [canary for canary in CANARIES if (canary.row, canary.name) == ("anthropic", "stream")]
    model, other = name_of(upstream, claude), name_of(upstream, claude)
    message = answered(message_in(ask(gateway, model, [USER])))
    reply = ask(gateway, other, [USER, message, ON])
    assert reply.status == 200
    assert "another model" in reply.headers["pellucid-warning"]
    thought = next(part for part in message["parts"] if part["type"] == "reasoning")
    ours = thought["providerMetadata"]["pellucid"]
    ours["sealed"] = ours["sealed"][:-8] + ("AAAAAAAA" if ours["sealed"][-8:] != "AAAAAAAA" else "BBBBBBBB")
    refused = ask(gateway, model, [USER, message, ON])
    assert refused.status == 400
    assert refused.headers["content-type"] == "text/plain; charset=utf-8"
    assert refused.body.decode().startswith("messages[1].parts[1].providerMetadata.pellucid.sealed: ")
