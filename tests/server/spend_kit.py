"""Requests in every client protocol, and where each shows the cost of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.scripted.gateway import Gateway, Reply

USER = {"role": "user", "content": "Why?"}
PRICES = {"input": 1.5, "output": 6.0, "cached_input": 0.15, "reasoning": 3.0}
USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 500,
    "prompt_tokens_details": {"cached_tokens": 200},
    "completion_tokens_details": {"reasoning_tokens": 100},
}
COST = 0.00393
"""Of a run with that usage and these prices: 800 · 1.5 + 200 · 0.15 + 400 · 6 + 100 · 3 millionths."""
REASONING_COST = 0.0003


def _json(reply: Reply) -> Any:
    return reply.json["usage"]


def _last_event(reply: Reply) -> dict[str, Any]:
    data = [line[6:] for line in reply.body.decode().splitlines() if line.startswith("data: {")]
    event: dict[str, Any] = json.loads(data[-1])
    return event


class ProtocolRow(NamedTuple):
    """One way to ask a model."""

    path: str
    body: dict[str, Any]
    usage_of: Callable[[Reply], Any]
    """Returns the object that has the cost."""
    error_of: Callable[[Reply], Any] = lambda reply: reply.json["error"]

    def ask(self, gateway: Gateway, model: str, key: str | None = None) -> Reply:
        """Send the request; returns the complete response."""
        headers = {"Content-Type": "application/json", "Host": "localhost"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        body = dict(self.body)
        if self.path == "/ag-ui":
            body["forwardedProps"] = {"pellucid": {"model": model}}
        else:
            body["model"] = model
        return gateway.request("POST", self.path, json.dumps(body).encode(), headers)


def _without_code(reply: Reply) -> dict[str, Any]:
    """Return an error of a protocol in which errors have no code: the type of Anthropic's API, or a text."""
    if reply.headers["content-type"].startswith("text/plain"):
        return {"message": reply.body.decode(), "code": "budget_exceeded"}
    assert reply.json["error"]["type"] == "rate_limit_error"
    return {**reply.json["error"], "code": "budget_exceeded"}


_CHAT = {"messages": [USER]}
_MESSAGES = {"messages": [USER], "max_tokens": 1000}
_AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "u", **USER}], "tools": [], "context": [], "state": {}}
_AI_SDK = {"id": "c", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}]}

PROTOCOLS = {
    "responses": ProtocolRow("/v1/responses", {"input": "Why?", "store": False}, _json),
    "responses, stored": ProtocolRow("/v1/responses", {"input": "Why?", "store": True}, _json),
    "responses, streamed": ProtocolRow(
        "/v1/responses", {"input": "Why?", "stream": True}, lambda reply: _last_event(reply)["response"]["usage"]
    ),
    "chat completions": ProtocolRow("/v1/chat/completions", _CHAT, _json),
    "chat completions, streamed": ProtocolRow(
        "/v1/chat/completions",
        {**_CHAT, "stream": True, "stream_options": {"include_usage": True}},
        lambda reply: _last_event(reply)["usage"],
    ),
    "messages": ProtocolRow("/v1/messages", _MESSAGES, _json, error_of=_without_code),
    "messages, streamed": ProtocolRow(
        "/v1/messages",
        {**_MESSAGES, "stream": True},
        lambda reply: [
            json.loads(line[6:])["usage"] for line in reply.body.decode().splitlines() if '"message_delta"' in line[6:]
        ][-1],
        error_of=_without_code,
    ),
    "ag-ui": ProtocolRow(
        "/ag-ui", _AGUI, lambda reply: _last_event(reply)["metadata"]["pellucid"], error_of=lambda reply: reply.json
    ),
    "chat": ProtocolRow("/api/chat", {"text": "Why?"}, lambda reply: _last_event(reply)["event"]["usage"]),
    "ai sdk": ProtocolRow(
        "/api/chat",
        _AI_SDK,
        lambda reply: _last_event(reply)["messageMetadata"]["usage"],
        error_of=_without_code,
    ),
}
