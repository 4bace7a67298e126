"""Successful responses, streamed and whole."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.waiting import LIMIT_SECONDS


def test_a_stream_is_a_legal_sequence(gateway: Served, upstream: Upstream) -> None:
    reply = gateway.ask(upstream.plays(say("Let me see.", "It is 42.")), stream=True)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert verify(reply.body) == []
    assert reply.body.endswith(b"data: [DONE]\n\n")
    thought = "".join(x["delta"] for x in reply.events if x["type"] == "response.reasoning.delta")
    text = "".join(x["delta"] for x in reply.events if x["type"] == "response.output_text.delta")
    assert (thought, text) == ("Let me see. ", "It is 42. ")
    assert reply.events[-1]["response"]["usage"]["output_tokens"] == 9


def test_a_response_equals_the_one_at_the_end_of_its_stream(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(say())
    whole = gateway.ask(model).json
    streamed = gateway.ask(model, stream=True).events[-1]["response"]

    def without_ids(response: dict[str, Any]) -> dict[str, Any]:
        output = [{**item, "id": ""} for item in response["output"]]
        return {**response, "id": "", "created_at": 0, "completed_at": 0, "output": output}

    assert without_ids(whole) == without_ids(streamed)
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("openresponses", "response.reasoning"),
        ("openai", "response.reasoning_text"),
        (" OpenAI ", "response.reasoning_text"),
    ],
)
def test_the_header_chooses_the_names_of_reasoning_events(
    gateway: Served, upstream: Upstream, header: str, name: str
) -> None:
    body = {"model": upstream.plays(say()), "input": "Why?", "stream": True}
    reply = gateway.post(body, {"OpenResponses-Reasoning-Events": header})
    assert {x["type"] for x in reply.events if "reasoning" in x["type"]} == {f"{name}.delta", f"{name}.done"}


def test_the_upstream_receives_a_streaming_chat_completions_request(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(say())
    gateway.ask(model, temperature=0.5, max_output_tokens=100)
    [call] = upstream.calls(model)
    assert (call.method, call.path) == ("POST", "/v1/chat/completions")
    assert call.headers["content-type"] == "application/json"
    assert call.headers["accept-encoding"] == "identity"
    assert call.body["stream"] is True
    assert call.body["messages"] == [{"role": "user", "content": "Why?"}]
    assert (call.body["temperature"], call.body["max_tokens"]) == (0.5, 100)


def test_connections_to_the_upstream_are_reused(upstream: Upstream) -> None:
    model = upstream.plays(say())
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}) as gateway:
        for _ in range(3):
            gateway.ask(model, stream=True)
    assert len({call.connection for call in upstream.calls(model)}) == 1


def test_a_delta_is_forwarded_as_soon_as_it_arrives(gateway: Served, upstream: Upstream) -> None:
    """A delta does not wait for the next one, or for a full buffer."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="first"))
        await call.wait_for_disconnect()

    with gateway.open(upstream.plays(script)) as stream:
        stream.until('"delta":"first"')


def test_events_split_at_any_byte_are_decoded(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        for at in range(0, len(text), 3):
            await call.data(text[at : at + 3])
        await call.end()

    text = b'data: {"choices":[{"index":0,"delta":{"content":"gr\xc3\xbc\xc3\x9fe"}}]}\r\n\r\ndata: [DONE]\r\n\r\n'
    reply = gateway.ask(upstream.plays(script), stream=True)
    assert reply.events[-1]["response"]["output"][0]["content"][0]["text"] == "grüße"


def test_the_stream_ends_at_done_even_if_the_upstream_stays_open(gateway: Served, upstream: Upstream) -> None:
    """`[DONE]` is the end: a connection that the server then keeps open is closed."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta("stop", content="Hi"))
        await call.event(b"[DONE]")
        await call.wait_for_disconnect()

    model = upstream.plays(script)
    reply = gateway.ask(model, stream=True)
    assert reply.events[-1]["type"] == "response.completed"
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
