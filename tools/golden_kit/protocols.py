"""The clients of a golden comparison: how each protocol asks, and how it sends back what it got.

A row for each protocol and dialect. `ask` gives the request for a conversation; `echo` gives the conversation after a
reply, as a client that only returns what it was given would continue it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .gateway import Reply

Conversation = list[Any]
"""What the client holds: messages or items, in its protocol's form."""

QUESTION = "Which is larger, 9.11 or 9.9?"
NEXT = "And which is smaller?"
FUNCTION = {
    "name": "look_up",
    "description": "Look up a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


class Ask(NamedTuple):
    path: str
    body: dict[str, Any]
    headers: Mapping[str, str] = MappingProxyType({})


class Client(NamedTuple):
    """One way to speak to the gateway."""

    name: str
    ask: Callable[[str, Conversation, bool], Ask]
    """The request for a model, a conversation, and a stream or a whole response."""
    echo: Callable[[Conversation, Reply, bool], Conversation | None]
    """The conversation with the reply in it and the next question; None if there is nothing to go on from."""
    begin: Callable[[], Conversation]
    whole: bool = False
    """Whether a whole response can be asked for."""


# --- OpenResponses -----------------------------------------------------------------------------------------------


def _openresponses(dialect: str) -> Client:
    def ask(model: str, input: Conversation, stream: bool) -> Ask:
        body = {
            "model": model,
            "input": input,
            "stream": stream,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [{"type": "function", **FUNCTION}],
        }
        return Ask("/v1/responses", body, {"OpenResponses-Reasoning-Events": dialect})

    def echo(input: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        response = reply.events[-1].get("response", {}) if stream and reply.events else reply.json if not stream else {}
        output = response.get("output")
        if not output:
            return None
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "found"} for call in calls]
        return [*input, *output, *results, {"type": "message", "role": "user", "content": NEXT}]

    return Client(
        f"openresponses/{dialect}",
        ask,
        echo,
        lambda: [{"type": "message", "role": "user", "content": QUESTION}],
        whole=True,
    )


# --- Chat Completions --------------------------------------------------------------------------------------------


def _chat_completions() -> Client:
    def ask(model: str, messages: Conversation, stream: bool) -> Ask:
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "stream": stream,
            "tools": [{"type": "function", "function": FUNCTION}],
        }
        return Ask("/v1/chat/completions", body | ({"stream_options": {"include_usage": True}} if stream else {}))

    def echo(messages: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        message = _added_up(reply.events) if stream else (reply.json.get("choices") or [{}])[0].get("message")
        if not message:
            return None
        calls = [call["id"] for call in message.get("tool_calls") or []]
        results = [{"role": "tool", "tool_call_id": call, "content": "found"} for call in calls]
        return [*messages, message, *results, {"role": "user", "content": NEXT}]

    return Client("chat_completions", ask, echo, lambda: [{"role": "user", "content": QUESTION}], whole=True)


# --- Messages ----------------------------------------------------------------------------------------------------


def _messages() -> Client:
    tool = {"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}

    def ask(model: str, messages: Conversation, stream: bool) -> Ask:
        body = {"model": model, "max_tokens": 4000, "messages": messages, "stream": stream, "tools": [tool]}
        return Ask("/v1/messages", body, {"anthropic-version": "2023-06-01"})

    def echo(messages: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        content = _blocks_of(reply.events) if stream else reply.json.get("content")
        if not content:
            return None
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "found"}
            for block in content
            if block["type"] == "tool_use"
        ]
        question = {"type": "text", "text": NEXT}
        return [
            *messages,
            {"role": "assistant", "content": content},
            {"role": "user", "content": [*results, question]},
        ]

    return Client("messages", ask, echo, lambda: [{"role": "user", "content": QUESTION}], whole=True)


def _blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that the events of a stream add up to."""
    blocks: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] += delta[name]
            inputs[event["index"]] = inputs.get(event["index"], "") + delta.get("partial_json", "")
    for index, text in inputs.items():
        if text:
            with contextlib.suppress(ValueError):
                blocks[index]["input"] = json.loads(text)
    return blocks


def _added_up(chunks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The message that the chunks of a stream add up to, as OpenAI's client adds them."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for chunk in chunks:
        for choice in chunk.get("choices", []):
            for name, value in choice["delta"].items():
                if name == "tool_calls" or name == "reasoning_details":
                    for piece in value:
                        entries = message.setdefault(name, [])
                        while len(entries) <= piece["index"]:
                            entries.append({})
                        _add(entries[piece["index"]], piece)
                elif isinstance(value, str) and name != "role":
                    message[name] = (message.get(name) or "") + value
    return message if len(message) > 2 or message["content"] else None


def _add(entry: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        if isinstance(value, dict):
            _add(entry.setdefault(name, {}), value)
        elif isinstance(value, str) and name not in ("type", "id", "format") and entry.get(name):
            entry[name] += value
        else:
            entry[name] = value


# --- AG-UI -------------------------------------------------------------------------------------------------------


def _agui(dialect: str, *, chunks: bool = False) -> Client:
    query = f"?dialect={dialect}&snapshot=true" + ("&chunks=true" if chunks else "")

    def ask(model: str, messages: Conversation, stream: bool) -> Ask:
        run = f"run-{len(messages)}"
        tools = [{**FUNCTION}]
        return Ask(
            f"/ag-ui{query}&model={model.replace('/', '%2F')}",
            {"threadId": "thread", "runId": run, "messages": messages, "tools": tools, "context": [], "state": {}},
        )

    def echo(messages: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        snapshots = [event["messages"] for event in reply.events if event.get("type") == "MESSAGES_SNAPSHOT"]
        if not snapshots:
            return None
        after: Conversation = list(snapshots[-1])
        results = {message.get("toolCallId") for message in after if message["role"] == "tool"}
        for message in snapshots[-1]:
            for call in message.get("toolCalls") or []:
                if call["id"] not in results:
                    after.append(
                        {"id": f"t-{call['id']}", "role": "tool", "toolCallId": call["id"], "content": "found"}
                    )
        return [*after, {"id": f"u{len(after) + 1}", "role": "user", "content": NEXT}]

    name = f"agui/{dialect}" + ("+chunks" if chunks else "")
    return Client(name, ask, echo, lambda: [{"id": "u1", "role": "user", "content": QUESTION}])


# --- the AI SDK --------------------------------------------------------------------------------------------------


def _ai_sdk() -> Client:
    def ask(model: str, messages: Conversation, stream: bool) -> Ask:
        body = {"id": "page", "messages": messages, "trigger": "submit-message", "model": model}
        return Ask("/api/chat?protocol=ai-sdk", body)

    def echo(messages: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        parts = _parts(reply.events)
        if not parts:
            return None
        answer = {"id": f"a{len(messages)}", "role": "assistant", "parts": parts}
        return [
            *messages,
            answer,
            {"id": f"u{len(messages)}", "role": "user", "parts": [{"type": "text", "text": NEXT}]},
        ]

    return Client(
        "ai_sdk",
        ask,
        echo,
        lambda: [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}],
    )


def _parts(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts that a page has of a message after these chunks."""
    parts: list[dict[str, Any]] = []
    open_texts: dict[str, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        kind = chunk["type"]
        metadata = {"providerMetadata": chunk["providerMetadata"]} if "providerMetadata" in chunk else {}
        if kind == "start-step":
            parts.append({"type": "step-start"})
        elif kind in ("text-start", "reasoning-start"):
            open_texts[chunk["id"]] = {"type": kind.removesuffix("-start"), "text": "", "state": "streaming"} | metadata
            parts.append(open_texts[chunk["id"]])
        elif kind in ("text-delta", "reasoning-delta"):
            open_texts[chunk["id"]]["text"] += chunk["delta"]
            open_texts[chunk["id"]] |= metadata
        elif kind in ("text-end", "reasoning-end"):
            open_texts[chunk["id"]] |= {"state": "done"} | metadata
        elif kind == "tool-input-available":
            call = {
                "type": "dynamic-tool",
                "toolName": chunk["toolName"],
                "toolCallId": chunk["toolCallId"],
                "state": "output-available",
                "input": chunk["input"],
                "output": "found",
            }
            call |= {"callProviderMetadata": chunk["providerMetadata"]} if metadata else {}
            calls[chunk["toolCallId"]] = call
            parts.append(call)
        elif kind == "tool-output-available" and chunk["toolCallId"] in calls:
            calls[chunk["toolCallId"]]["output"] = chunk["output"]
        elif kind.startswith("data-"):
            parts.append({"type": kind, "data": chunk["data"]})
        elif kind == "file":
            parts.append({"type": "file", "mediaType": chunk["mediaType"], "url": chunk["url"]} | metadata)
    return parts


# --- the chat ----------------------------------------------------------------------------------------------------


def _chat() -> Client:
    def ask(model: str, conversation: Conversation, stream: bool) -> Ask:
        body = {"text": NEXT if conversation else QUESTION, "model": model}
        return Ask("/api/chat", body | ({"conversation_id": conversation[0]} if conversation else {}))

    def echo(conversation: Conversation, reply: Reply, stream: bool) -> Conversation | None:
        started = [event for event in reply.events if event["type"] == "message_started"]
        return [started[0]["conversation_id"]] if started else None

    return Client("chat", ask, echo, list)


CLIENTS = [
    _openresponses("openresponses"),
    _openresponses("openai"),
    _chat_completions(),
    _messages(),
    _agui("1.0"),
    _agui("1.0", chunks=True),
    _agui("0.x"),
    _agui("thinking"),
    _agui("proposal"),
    _ai_sdk(),
    _chat(),
]
VIEWS = ("raw", "summary", "sealed", "hidden")
