"""The warning about changed reasoning over HTTP: the same words in every protocol, also for the gateway's summaries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.view import View
from tests.agui import agui_client, agui_kit
from tests.ai_sdk import ai_sdk_kit
from tests.scripted import Upstream, say, serve
from tests.scripted.gateway import Reply, Served
from tests.sealing.test_edited_reasoning import (
    Place,
    agui_places,
    completion_places,
    messages_places,
    page_places,
    responses_places,
)

WARNING = "the text of 1 sealed item(s) of reasoning was changed: the sealed text is used"
JSON = {"Content-Type": "application/json"}
ASK, ON = {"role": "user", "content": "Why?"}, {"role": "user", "content": "And?"}


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    author = upstream.plays(say("", "In short."))
    vllm = {"profile": "vllm", "base_url": upstream.url}
    with serve(
        {"limits": {"retries": 0}, "summaries": {"model": f"vllm:{author}"}, "providers": {"vllm": vllm}}
    ) as running:
        yield running


class Client:
    """A client of one protocol: what it has of an answer, where its reasoning is, and what it sends back."""

    def __init__(self, gateway: Served, model: str, view: View) -> None:
        self._gateway, self._model, self._view = gateway, model, view

    def _post(self, path: str, body: dict[str, Any]) -> Reply:
        reply = self._gateway.request("POST", path, json.dumps(body).encode(), {**JSON, "Pellucid-View": self._view})
        assert reply.status == 200, reply.body
        return reply

    def ask(self, *history: Any) -> tuple[Reply, Any]:
        raise NotImplementedError

    def places(self, answer: Any) -> list[Place]:
        raise NotImplementedError


class Responses(Client):
    def ask(self, *history: Any) -> tuple[Reply, Any]:
        items = [item for entry in history for item in (entry if isinstance(entry, list) else [entry])]
        body = {"model": self._model, "input": [{"type": "message", **ASK}, *items], "store": False}
        reply = self._post("/v1/responses", {**body, "include": ["reasoning.encrypted_content"]})
        return reply, reply.json["output"]

    def places(self, answer: Any) -> list[Place]:
        return list(responses_places(answer))


class Messages(Client):
    def ask(self, *history: Any) -> tuple[Reply, Any]:
        reply = self._post("/v1/messages", {"model": self._model, "max_tokens": 99, "messages": [ASK, *history]})
        return reply, {"role": "assistant", "content": reply.json["content"]}

    def places(self, answer: Any) -> list[Place]:
        return list(messages_places(answer))


class Completions(Client):
    def ask(self, *history: Any) -> tuple[Reply, Any]:
        reply = self._post("/v1/chat/completions", {"model": self._model, "messages": [ASK, *history]})
        return reply, reply.json["choices"][0]["message"]

    def places(self, answer: Any) -> list[Place]:
        return list(completion_places(answer))


class AGUI(Client):
    def ask(self, *history: Any) -> tuple[Reply, Any]:
        messages = [one for entry in history for one in (entry if isinstance(entry, list) else [entry])]
        messages = [{"id": f"u{number}", **one} for number, one in enumerate([ASK, *messages])]
        body = {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": messages}
        reply = self._post(f"/ag-ui?model={self._model}", body)
        return reply, list(agui_client.messages_from_events(agui_kit.events_of(reply.body)).values())

    def places(self, answer: Any) -> list[Place]:
        return list(agui_places(answer))


class AISDK(Client):
    def ask(self, *history: Any) -> tuple[Reply, Any]:
        messages = [one if "parts" in one else {"id": "u2", **ai_sdk_kit.ON} for one in history]
        body = {"id": "c", "trigger": "submit-message", "model": self._model, "messages": [ai_sdk_kit.USER, *messages]}
        reply = self._post("/api/chat", body)
        return reply, ai_sdk_kit.message_of(ai_sdk_kit.chunks_of(reply.body))

    def places(self, answer: Any) -> list[Place]:
        return list(page_places(answer))


@pytest.mark.parametrize("view", ["raw", "summary"])
@pytest.mark.parametrize("protocol", [Responses, Messages, Completions, AGUI, AISDK])
def test_a_changed_text_causes_the_warning(
    gateway: Served, upstream: Upstream, protocol: type[Client], view: View
) -> None:
    client = protocol(gateway, f"vllm:{upstream.plays(say())}", view)
    _, answer = client.ask()
    shown = "Let me see." if view == "raw" else "In short."
    assert shown in json.dumps(answer)
    again, _ = client.ask(answer, ON)
    assert "pellucid-warning" not in again.headers
    for where, name in client.places(answer):
        where[name] = str(where[name]).replace(shown, "No.")
    changed, _ = client.ask(answer, ON)
    assert changed.headers["pellucid-warning"] == WARNING


def test_a_changed_text_in_a_conversation_causes_the_warning(gateway: Served, upstream: Upstream) -> None:
    client = Responses(gateway, f"vllm:{upstream.plays(say())}", "raw")
    _, [thought, *_] = client.ask()
    for text, expected in (("Let me see.", None), ("No.", WARNING)):
        item = {**thought, "content": [{"type": "reasoning_text", "text": text}]}
        reply = gateway.request("POST", "/v1/conversations", json.dumps({"items": [ASK, item]}).encode(), JSON)
        assert (reply.status, reply.headers.get("pellucid-warning")) == (200, expected), reply.body
