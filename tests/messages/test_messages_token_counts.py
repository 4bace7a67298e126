"""`POST /v1/messages/count_tokens`: the provider's own count, or an estimate that says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases import Cases
from tests.messages.test_messages_request import BODY, HEADERS
from tests.scripted import Call, Script, Upstream
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, configured, name_of, serving


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def count(gateway: Served, model: str, path: str = "/v1/messages/count_tokens", **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": "Why is that?"}], **more}
    headers = {"Content-Type": "application/json", **HEADERS}
    reply = gateway.request("POST", path, json.dumps(body).encode(), headers)
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = reply.json
    return answer


def answers(status: int, body: bytes) -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, body)

    return script


async def leaves(call: Call) -> None:
    call.close()


[CLAUDE] = [canary for canary in CANARIES if (canary.row, canary.name) == ("anthropic", "stream")]
DEEPSEEK = next(canary for canary in CANARIES if canary.row == "deepseek")


def test_a_provider_that_counts_gets_the_request(gateway: Served, upstream: Upstream) -> None:
    model = name_of(upstream, CLAUDE, answers(200, b'{"input_tokens": 2095}'))
    fields = ("system", "messages", "tools", "thinking", "output_config", "context_management")
    wanted = {name: BODY[name] for name in fields}
    assert count(gateway, model, max_tokens=4000, metadata=BODY["metadata"], **wanted) == {"input_tokens": 2095}
    [call] = upstream.calls(model.partition(":")[2])
    assert call.path == "/v1/messages/count_tokens"
    assert call.body == {"model": model.partition(":")[2], **wanted}
    assert {"a-1", "b-2"} <= set(call.headers["anthropic-beta"].split(","))
    assert call.headers["anthropic-version"] == "2023-06-01"


def test_responses_get_the_same_count(gateway: Served, upstream: Upstream) -> None:
    model = name_of(upstream, CLAUDE, answers(200, b'{"input_tokens": 2095}'))
    body = {"model": model, "input": "Why?"}
    reply = gateway.request(
        "POST", "/v1/responses/input_tokens", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    assert reply.json == {"object": "response.input_tokens", "input_tokens": 2095}


def test_anything_else_is_an_estimate(gateway: Served, upstream: Upstream) -> None:
    scripts = {
        "not found": answers(404, b'{"error": {"message": "no"}}'),
        "no number": answers(200, b'{"input_tokens": "many"}'),
        "no JSON": answers(200, b"<html>"),
        "negative": answers(200, b'{"input_tokens": -1}'),
        "no answer": leaves,
    }
    with Cases() as case:
        for name, script in scripts.items():
            with case(name):
                assert count(gateway, name_of(upstream, CLAUDE, script)) == {"input_tokens": 3, "estimated": True}
        with case("a provider that does not count"):
            model = name_of(upstream, DEEPSEEK)
            assert count(gateway, model) == {"input_tokens": 3, "estimated": True}
            assert upstream.calls(model.partition(":")[2]) == []
