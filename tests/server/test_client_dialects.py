"""Which dialect a request to `/v1/responses` gets, and what the summary dialect means for a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.server.config import check_config
from tests.scripted import Upstream, say
from tests.scripted.gateway import Gateway, Served, serve

THINKS = say("Let me see.", "It is 42.")
LANGCHAIN = {"User-Agent": "OpenAI/Python 3.57.0", "X-Stainless-Lang": "python"}
NODE = {"User-Agent": "OpenAI/JS 6.49.0", "X-Stainless-Lang": "js"}
KEY, ENV = "a-key-that-nobody-can-guess-0123456789", "PELLUCID_TEST_DIALECTS_KEY"
EVENTS = "OpenResponses-Reasoning-Events"


def names_of(events: list[dict[str, Any]]) -> set[str]:
    return {event["type"].removeprefix("response.") for event in events if event["type"].endswith(".delta")}


def names(gateway: Gateway, upstream: Upstream, headers: dict[str, str]) -> set[str]:
    """Return the names of the deltas of a stream, except those of the answer."""
    body = {"model": upstream.plays(THINKS), "input": "Why?", "stream": True}
    return names_of(gateway.post(body, headers).events) - {"output_text.delta"}


@pytest.fixture(scope="module")
def keyed(upstream: Upstream) -> Iterator[Served]:
    """Gateway with a key that has a dialect, and with another default."""
    config = {
        "server": {"reasoning_events": "summary"},
        "access": {"key_env": ENV, "key_policy": "p", "policies": {"p": {"reasoning_events": "openai"}}},
        "providers": {"vllm": {"base_url": upstream.url}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV, KEY)
        with serve(check_config(config, {ENV: KEY})) as running:
            yield running


def test_the_request_comes_first_then_the_client_then_the_default(gateway: Served, upstream: Upstream) -> None:
    assert names(gateway, upstream, {}) == {"reasoning.delta"}
    assert names(gateway, upstream, {"User-Agent": "curl/8.5.0"}) == {"reasoning.delta"}
    assert names(gateway, upstream, NODE) == {"reasoning_text.delta"}
    assert names(gateway, upstream, LANGCHAIN) == {"reasoning_summary_text.delta"}
    assert names(gateway, upstream, {**LANGCHAIN, EVENTS: "openresponses"}) == {"reasoning.delta"}
    assert names(gateway, upstream, {**NODE, EVENTS: "summary"}) == {"reasoning_summary_text.delta"}


def test_the_key_comes_before_the_client(keyed: Served, upstream: Upstream) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    assert names(keyed, upstream, {**key, **LANGCHAIN}) == {"reasoning_text.delta"}
    assert names(keyed, upstream, {**key, **LANGCHAIN, EVENTS: "summary"}) == {"reasoning_summary_text.delta"}


def test_the_default_is_for_clients_that_are_not_known(upstream: Upstream) -> None:
    provider = {"base_url": upstream.url}
    with serve({"server": {"reasoning_events": "summary"}, "providers": {"vllm": provider}}) as gateway:
        assert names(gateway, upstream, {}) == {"reasoning_summary_text.delta"}
        assert names(gateway, upstream, NODE) == {"reasoning_text.delta"}


def test_a_stored_response_keeps_its_dialect_unless_the_reader_names_another(
    gateway: Served, upstream: Upstream
) -> None:
    created = gateway.post({"model": upstream.plays(THINKS), "input": "Why?"}, LANGCHAIN).json
    path = f"/v1/responses/{created['id']}"
    assert created["output"][0]["summary"] == [{"type": "summary_text", "text": "Let me see. "}]
    assert gateway.request("GET", path, headers=NODE).json["output"] == created["output"]
    assert gateway.request("GET", path, headers={EVENTS: "openai"}).json["output"][0]["summary"] == []
    for headers, name in ((NODE, "reasoning_summary_text.delta"), ({EVENTS: "openai"}, "reasoning_text.delta")):
        events = gateway.request("GET", f"{path}?stream=true", headers=headers).events
        assert name in names_of(events)
        after = gateway.request("GET", f"{path}?stream=true&starting_after=4", headers=headers).events
        assert after == events[5:]


@pytest.mark.parametrize("include", [[], ["reasoning.encrypted_content"]], ids=["text", "seal"])
def test_reasoning_that_comes_back_as_a_summary_reaches_the_model(
    gateway: Served, upstream: Upstream, include: list[str]
) -> None:
    model = upstream.plays(THINKS, THINKS)
    body = {"model": model, "store": False, "include": include}
    [reasoning, message] = gateway.post({**body, "input": "Why?"}, LANGCHAIN).json["output"]
    del reasoning["content"]  # as a client returns it that has read the stream
    history = [{"role": "user", "content": "Why?"}, reasoning, message, {"role": "user", "content": "And?"}]
    reply = gateway.post({**body, "input": history}, LANGCHAIN)
    assert (reply.status, reply.headers.get("pellucid-warning")) == (200, None)
    assistant = upstream.calls(model)[1].body["messages"][1]
    assert (assistant.get("reasoning_content") or assistant["reasoning"]) == "Let me see. "


def test_a_summary_from_another_client_is_no_raw_text(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(THINKS)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Gist."}]}
    history = [{"role": "user", "content": "Why?"}, reasoning, {"role": "assistant", "content": "42"}]
    gateway.post({"model": model, "input": [*history, {"role": "user", "content": "And?"}]}, NODE)
    assert "Gist." not in str(upstream.calls(model)[0].body)


def test_requested_summaries_replace_the_raw_text_if_the_operator_names_their_model(
    upstream: Upstream,
) -> None:
    wanted = {"input": "Why?", "reasoning": {"summary": "auto"}}

    def summaries(gateway: Gateway, body: dict[str, Any], headers: dict[str, str]) -> list[str]:
        [reasoning, _] = gateway.post({"model": upstream.plays(THINKS), **body}, headers).json["output"]
        return [part["text"] for part in reasoning["summary"]]

    writer = upstream.plays(*[say("Hm.", "In short.")] * 9)
    provider = {"profile": "vllm", "base_url": upstream.url}
    with serve({"summaries": {"model": f"vllm:{writer}"}, "providers": {"vllm": provider}}) as gateway:
        assert summaries(gateway, wanted, LANGCHAIN) == ["In short."]
        assert summaries(gateway, {"input": "Why?"}, LANGCHAIN) == ["Let me see. "]
        assert summaries(gateway, wanted, {**LANGCHAIN, "Pellucid-View": "raw"}) == ["Let me see. "]
        assert summaries(gateway, wanted, NODE) == ["In short."]
