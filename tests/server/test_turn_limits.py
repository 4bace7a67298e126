"""Upstreams that never stop: the turn ends as incomplete, in each protocol's form, and the upstream is closed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Call, Script, Upstream, delta, event, serve
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS

LIMITS = {
    "turn_bytes": 2_000_000,
    "turn_characters": 200_000,
    "turn_items": 40,
    "tool_argument_characters": 100_000,
}
MAX_SENT_BYTES = 40_000_000
"""What the buffers of two sockets hold at most, and some more."""


@pytest.fixture(scope="module")
def limited(upstream: Upstream) -> Iterator[Served]:
    with serve({"providers": {"vllm": {"base_url": upstream.url, "limits": LIMITS}}}) as gateway:
        yield gateway


def endless(*first: bytes, then: bytes) -> Script:
    async def script(call: Call) -> None:
        await call.head()
        for piece in first:
            await call.data(piece)
        while True:
            await call.data(then)

    return script


async def bomb(call: Call) -> None:
    """A body of 1 MB, which is 1 GB when it is decompressed."""
    await call.head(Content_Encoding="gzip")
    await call.data(gzip.compress(event(delta(content="x" * 1000)) * 900_000))
    await call.wait_for_disconnect()


FUNCTION = {"name": "f", "arguments": '{"text": "'}
CALL = delta(tool_calls=[{"index": 0, "id": "c", "function": FUNCTION}])
MORE = delta(tool_calls=[{"index": 0, "function": {"arguments": "x" * 500}}])


async def opens_calls(call: Call) -> None:
    await call.head()
    number = 0
    while True:
        number += 1
        one = {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        await call.event(delta(tool_calls=[one]))


class Endless(NamedTuple):
    """An upstream that never stops, and the type of the last item of the response."""

    script: Script
    item: str


UPSTREAMS = {
    "text": Endless(endless(then=event(delta(content="word " * 20)) * 50), "message"),
    "thoughts": Endless(endless(then=event(delta(reasoning_content="word " * 20)) * 50), "reasoning"),
    "comments": Endless(endless(event(delta(content="So.")), then=b": nothing\n\n" * 500), "message"),
    "arguments": Endless(endless(event(CALL), then=event(MORE) * 50), "function_call"),
    "calls": Endless(opens_calls, "function_call"),
}


def assert_left(upstream: Upstream, model: str) -> None:
    [call] = upstream.calls(model)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    assert call.connection.written < MAX_SENT_BYTES


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_response_is_incomplete(limited: Served, upstream: Upstream, name: str, store: bool, stream: bool) -> None:
    model = upstream.plays(UPSTREAMS[name].script)
    reply = limited.ask(model, stream=stream, store=store)
    assert reply.status == 200
    if stream:
        assert verify(reply.body) == []
        assert reply.events[-1]["type"] == "response.incomplete"
    response = reply.events[-1]["response"] if stream else reply.json
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][-1]["type"] == UPSTREAMS[name].item
    assert response["error"] is None
    assert_left(upstream, model)
    if store:
        stored = limited.request("GET", f"/v1/responses/{response['id']}").json
        assert stored["output"] == response["output"]


class Protocol(NamedTuple):
    """A client protocol: its path, its request, and what a response that was cut off contains."""

    path: str
    body: dict[str, Any]
    streamed: str
    whole: str | None


MESSAGES = [{"role": "user", "content": "Why?"}]
PROTOCOLS = {
    "chat completions": Protocol(
        "/v1/chat/completions", {"messages": MESSAGES}, '"finish_reason":"length"', '"finish_reason":"length"'
    ),
    "messages": Protocol(
        "/v1/messages",
        {"messages": MESSAGES, "max_tokens": 1000},
        '"stop_reason":"max_tokens"',
        '"stop_reason":"max_tokens"',
    ),
    "ai sdk": Protocol(
        "/api/chat?protocol=ai-sdk",
        {"messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}]},
        '"finishReason":"length"',
        None,
    ),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_other_protocols_have_their_own_form(limited: Served, upstream: Upstream, name: str, stream: bool) -> None:
    protocol = PROTOCOLS[name]
    expected = protocol.streamed if stream else protocol.whole
    if expected is None:
        pytest.skip("the protocol has streams only")
    model = upstream.plays(UPSTREAMS["text"].script)
    body = json.dumps({"model": model, "stream": stream, **protocol.body}).encode()
    reply = limited.request("POST", protocol.path, body, {"Content-Type": "application/json"})
    assert reply.status == 200, reply.body[:500]
    assert expected in reply.body.decode().replace('": ', '":')
    assert_left(upstream, model)


def test_a_decompression_bomb_ends(limited: Served, upstream: Upstream) -> None:
    model = upstream.plays(bomb)
    reply = limited.ask(model, stream=False, store=False)
    assert (reply.status, reply.json["status"]) == (200, "incomplete")
    assert_left(upstream, model)


def test_time_is_limited(upstream: Upstream) -> None:
    async def drips(call: Call) -> None:
        await call.head()
        await call.event(delta(content="So."))
        await call.wait_for_disconnect()

    limits = {"turn_seconds": 0.2}
    model = upstream.plays(drips)
    with serve({"providers": {"vllm": {"base_url": upstream.url, "limits": limits}}}) as gateway:
        reply = gateway.ask(model, stream=True)
    last = reply.events[-1]
    assert last["type"] == "response.incomplete"
    [message] = last["response"]["output"]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "So.")
    assert_left(upstream, model)


def test_the_log_names_the_limit(limited: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    limited.ask(upstream.plays(UPSTREAMS["text"].script), stream=True)
    assert "a turn of a model was ended at limits.turn_characters" in caplog.text
