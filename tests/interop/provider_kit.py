"""Providers for tests of histories: a server that plays whole turns, and the models of both libraries in front of it.

A turn is the body that a provider answers without streaming, in its own form. `Provider.stream` makes the stream of
it. So both libraries read the same turn, streamed or whole, and what each sends in the next request can be compared.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

from pydantic_ai.providers import infer_provider_class

from pellucid.models import infer_model
from pellucid.models.provider import ProviderModel
from tests.event_stream_messages import eventstream_message

Body = dict[str, Any]


class TurnServer:
    """A server on loopback that answers with the next turn, streamed if the request asks for it.

    Args:
        provider: Its form of requests and streams.
        turns: The bodies, in order.
    """

    def __init__(self, provider: Provider, turns: list[Body]) -> None:
        self.requests: list[Body] = []
        """The bodies of the requests so far."""
        self._turns = list(turns)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                data = handler.rfile.read(int(handler.headers["Content-Length"]))
                request = json.loads(data)
                self.requests.append(request)
                turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
                streams = bool(request.get("stream")) or re.search(r"stream", handler.path) is not None
                answer = provider.stream(turn) if streams else json.dumps(turn).encode()
                handler.send_response(200)
                handler.send_header("Content-Type", provider.stream_type if streams else "application/json")
                handler.send_header("Content-Length", str(len(answer)))
                handler.end_headers()
                handler.wfile.write(answer)

            def log_message(handler, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> TurnServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Provider:
    """A provider that both libraries have a model for."""

    name: str
    model: str
    ours: str
    """The name of our profile."""
    theirs: Callable[[str, str], Any]
    """Makes Pydantic AI's model, of a URL and a model's name."""
    turns: list[Body]
    stream: Callable[[Body], bytes]
    stream_type: str = "text/event-stream"
    base_path: str = ""
    """The path of the base URL of our model."""
    secrets: tuple[str, ...] = ()
    """Texts of the turns that the next requests must hold: signatures, ids, reasoning."""
    differences: tuple[str, ...] = ()
    """Names of `DIFFERENCES` (in the test) that apply, in addition to those of all providers."""

    def our_model(self, url: str) -> ProviderModel:
        model = infer_model(f"{self.ours}:{self.model}", base_url=url + self.base_path, api_key="k")
        assert isinstance(model, ProviderModel)
        return model


def sse(*events: Any) -> bytes:
    return b"".join(
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n" for event in events
    )


def named_sse(*events: Body) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


# --- Chat Completions ----------------------------------------------------------------------------------------------


def chat_turn(model: str, message: Body) -> Body:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    message = message if "content" in message else {**message, "content": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764000000,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    }


def chat_call(id: str, city: str, **more: Any) -> Body:
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return {"id": id, "type": "function", "function": function, **more}


def chat_stream(turn: Body) -> bytes:
    [choice] = turn["choices"]
    head = {name: turn[name] for name in ("id", "created", "model") if name in turn} | {
        "object": "chat.completion.chunk"
    }
    head |= {"provider": turn["provider"]} if "provider" in turn else {}

    def chunk(delta: Body, finish: str | None = None) -> Body:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    deltas: list[Body] = []
    message = choice["message"]
    for name in message:
        if name in ("role", "tool_calls") or message[name] is None:
            continue
        value = message[name]
        pieces = [value[:4], value[4:]] if isinstance(value, str) else [[entry] for entry in value]
        deltas += [{"role": "assistant", name: piece} for piece in pieces if piece]
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    deltas += [{"role": "assistant", "tool_calls": [call]} for call in calls]
    return sse(
        *(chunk(delta) for delta in deltas),
        chunk({}, choice["finish_reason"]),
        head | {"choices": [], "usage": turn["usage"]},
        b"[DONE]",
    )


def chat_turns(model: str, **reasoning: Callable[[int], Any]) -> list[Body]:
    """Return five turns: a call, two calls, an answer; a call, an answer. Each has this reasoning."""

    def thought(number: int) -> Body:
        return {name: make(number) for name, make in reasoning.items()}

    return [
        chat_turn(model, {**thought(1), "content": "I look.", "tool_calls": [chat_call("call_a1", "Oslo")]}),
        chat_turn(model, {**thought(2), "tool_calls": [chat_call("call_b1", "Rome"), chat_call("call_b2", "Bonn")]}),
        chat_turn(model, {**thought(3), "content": "Snow in Oslo."}),
        chat_turn(model, {**thought(4), "tool_calls": [chat_call("call_d1", "Kyiv")]}),
        chat_turn(model, {**thought(5), "content": "Rain."}),
        chat_turn(model, {"content": "Done."}),
    ]


# --- OpenAI Responses ----------------------------------------------------------------------------------------------


def responses_turn(model: str, number: int, *output: Body) -> Body:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1764000000,
        "model": model,
        "status": "completed",
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {
                "reasoning_tokens": 3 if any(item["type"] == "reasoning" for item in output) else 0
            },
        },
    }


def reasoning_item(number: str, *summaries: str, **more: Any) -> Body:
    summary = [{"type": "summary_text", "text": text} for text in summaries]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **more}


def function_item(number: str, city: str) -> Body:
    arguments = json.dumps({"city": city})
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "weather",
        "arguments": arguments,
        "status": "completed",
    }


def message_item(number: str, *texts: str, **more: Any) -> Body:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def responses_stream(turn: Body) -> bytes:
    events: list[Body] = [
        {"type": "response.created", "response": turn | {"output": [], "status": "in_progress", "usage": None}}
    ]
    for index, item in enumerate(turn["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty: Body = {"summary": [], "encrypted_content": None} if item["type"] == "reasoning" else {}
        empty |= {"content": []} if item["type"] in ("reasoning", "message") else {}
        empty |= {"arguments": ""} if item["type"] == "function_call" else {}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item | empty})
        for part_index, part in enumerate(item.get("summary", ())):
            place = at | {"summary_index": part_index}
            events += [
                {"type": "response.reasoning_summary_part.added", **place, "part": part | {"text": ""}},
                {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]},
                {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]},
                {"type": "response.reasoning_summary_part.done", **place, "part": part},
            ]
        for part_index, part in enumerate(item.get("content") or ()):
            place = at | {"content_index": part_index}
            kind = {"output_text": "output_text", "reasoning_text": "reasoning_text"}[part["type"]]
            events += [
                {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
                {"type": f"response.{kind}.delta", **place, "delta": part["text"], "logprobs": []},
                {"type": f"response.{kind}.done", **place, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **place, "part": part},
            ]
        if item["type"] == "function_call":
            events += [
                {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]},
                {
                    "type": "response.function_call_arguments.done",
                    **at,
                    "arguments": item["arguments"],
                    "name": item["name"],
                },
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": turn})
    return named_sse(*(event | {"sequence_number": number} for number, event in enumerate(events)))


# --- Anthropic -----------------------------------------------------------------------------------------------------


def anthropic_turn(model: str, *content: Body) -> Body:
    stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


def anthropic_stream(turn: Body) -> bytes:
    events: list[Body] = [{"type": "message_start", "message": turn | {"content": [], "stop_reason": None}}]
    for index, block in enumerate(turn["content"]):
        empty, deltas = _anthropic_deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": block | empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": turn["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]
    return named_sse(*events)


def _anthropic_deltas(block: Body) -> tuple[Body, list[Body]]:
    match block["type"]:
        case "thinking":
            text = {"type": "thinking_delta", "thinking": block["thinking"]}
            return {"thinking": "", "signature": ""}, [
                text,
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "text":
            return {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use" | "server_tool_use":
            return {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return {}, []


# --- Google --------------------------------------------------------------------------------------------------------


def google_turn(model: str, *parts: Body) -> Body:
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
        "modelVersion": model,
        "responseId": "r1",
    }


def google_stream(turn: Body) -> bytes:
    [candidate] = turn["candidates"]
    parts = candidate["content"]["parts"]
    chunks = [
        turn
        | {
            "candidates": [
                {"content": {"role": "model", "parts": [part]}, "index": 0}
                | ({"finishReason": "STOP"} if index == len(parts) - 1 else {})
            ]
        }
        for index, part in enumerate(parts)
    ]
    return sse(*chunks)


# --- Bedrock -------------------------------------------------------------------------------------------------------


def bedrock_turn(*content: Body) -> Body:
    stop = "tool_use" if any("toolUse" in block for block in content) else "end_turn"
    return {
        "output": {"message": {"role": "assistant", "content": list(content)}},
        "stopReason": stop,
        "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
        "metrics": {"latencyMs": 1},
    }


def bedrock_stream(turn: Body) -> bytes:
    def message(kind: str, payload: Body) -> bytes:
        headers = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
        return eventstream_message(json.dumps(payload).encode(), headers)

    out = [message("messageStart", {"role": "assistant"})]
    for index, block in enumerate(turn["output"]["message"]["content"]):
        at = {"contentBlockIndex": index}
        deltas: list[Body] = [block]
        if "toolUse" in block:
            call = block["toolUse"]
            start = {"toolUse": {name: call[name] for name in ("toolUseId", "name")}}
            out.append(message("contentBlockStart", at | {"start": start}))
            deltas = [{"toolUse": {"input": json.dumps(call["input"])}}]
        elif "reasoningText" in block.get("reasoningContent", {}):
            text = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {name: value}} for name, value in text.items()]
        out += [message("contentBlockDelta", at | {"delta": delta}) for delta in deltas]
        out.append(message("contentBlockStop", at))
    out.append(message("messageStop", {"stopReason": turn["stopReason"]}))
    out.append(message("metadata", {"usage": turn["usage"], "metrics": turn["metrics"]}))
    return b"".join(out)


# --- Cohere --------------------------------------------------------------------------------------------------------


def cohere_turn(message: Body) -> Body:
    finish = "TOOL_CALL" if "tool_calls" in message else "COMPLETE"
    usage = {"tokens": {"input_tokens": 5, "output_tokens": 7}}
    return {"id": "c1", "message": {"role": "assistant", **message}, "finish_reason": finish, "usage": usage}


def cohere_stream(turn: Body) -> bytes:
    message = turn["message"]
    events: list[Body] = [
        {"type": "message-start", "id": turn["id"], "delta": {"message": {"role": "assistant", "content": []}}}
    ]
    for index, block in enumerate(message.get("content", ())):
        text = {name: value for name, value in block.items() if name != "type"}
        start = {"type": block["type"], **dict.fromkeys(text, "")}
        events += [
            {"type": "content-start", "index": index, "delta": {"message": {"content": start}}},
            {"type": "content-delta", "index": index, "delta": {"message": {"content": text}}},
            {"type": "content-end", "index": index},
        ]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        start = call | {"function": {"name": function["name"], "arguments": ""}}
        arguments = {"function": {"arguments": function["arguments"]}}
        events += [
            {"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": start}}},
            {"type": "tool-call-delta", "index": index, "delta": {"message": {"tool_calls": arguments}}},
            {"type": "tool-call-end", "index": index},
        ]
    events.append({"type": "message-end", "delta": {"finish_reason": turn["finish_reason"], "usage": turn["usage"]}})
    return named_sse(*events)


# --- Pydantic AI's models ------------------------------------------------------------------------------------------


def _provider_class(name: str) -> Any:
    return infer_provider_class(name)


def _openai_client(url: str) -> Any:
    return import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def _their(module: str, model_class: str, name: str, provider: Any) -> Any:
    return getattr(import_module(f"pydantic_ai.models.{module}"), model_class)(name, provider=provider)


def their_chat(provider: str, url: str, name: str, module: str = "openai", model_class: str = "OpenAIChatModel") -> Any:
    """Return a model with a provider of `pydantic_ai.providers` that takes a client of OpenAI's library."""
    return _their(module, model_class, name, _provider_class(provider)(openai_client=_openai_client(url)))


def _own_class(module: str, model_class: str) -> dict[str, str]:
    return {"module": module, "model_class": model_class}


their_responses = partial(their_chat, model_class="OpenAIResponsesModel")


def their_anthropic(url: str, name: str) -> Any:
    client = import_module("anthropic").AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
    return _their("anthropic", "AnthropicModel", name, _provider_class("anthropic")(anthropic_client=client))


def their_bedrock(url: str, name: str) -> Any:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    return _their("bedrock", "BedrockConverseModel", name, _provider_class("bedrock")(base_url=url, **keys))


def their_cohere(url: str, name: str) -> Any:
    client = import_module("cohere").AsyncClientV2("k", base_url=url)
    return _their("cohere", "CohereModel", name, _provider_class("cohere")(cohere_client=client))


def their_native(provider: str, model_class: str, url: str, name: str) -> Any:
    """Return a model whose provider takes a base URL."""
    return _their(provider, model_class, name, _provider_class(provider)(api_key="k", base_url=url))


# --- the providers -------------------------------------------------------------------------------------------------


def _blob(text: str) -> str:
    return b64encode(text.encode()).decode()


def _anthropic_turns(model: str) -> list[Body]:
    def call(id: str, city: str) -> Body:
        return {"type": "tool_use", "id": f"toolu_{id}", "name": "weather", "input": {"city": city}}

    def thought(number: int) -> Body:
        return {"type": "thinking", "thinking": f"Thought {number}.", "signature": _blob(f"signature {number}")}

    redacted = {"type": "redacted_thinking", "data": _blob("redacted 1") + "/+="}
    text = {"type": "text", "text": "I look."}
    return [
        anthropic_turn(model, thought(1), redacted, text, call("a1", "Oslo")),
        anthropic_turn(model, thought(2), call("b1", "Rome"), call("b2", "Bonn")),
        anthropic_turn(model, thought(3), {"type": "text", "text": "Snow in Oslo."}),
        anthropic_turn(model, thought(4), call("d1", "Kyiv")),
        anthropic_turn(
            model, {"type": "redacted_thinking", "data": _blob("redacted 5")}, {"type": "text", "text": "Rain."}
        ),
        anthropic_turn(model, {"type": "text", "text": "Done."}),
    ]


def _responses_turns(model: str) -> list[Body]:
    def thought(number: int, *summaries: str) -> Body:
        return reasoning_item(str(number), *summaries, encrypted_content=_blob(f"encrypted {number}"))

    return [
        responses_turn(model, 1, thought(1, "Thought 1a.", "Thought 1b."), function_item("a1", "Oslo")),
        responses_turn(
            model,
            2,
            thought(2),
            message_item("b0", "I look on."),
            function_item("b1", "Rome"),
            function_item("b2", "Bonn"),
        ),
        responses_turn(model, 3, thought(3, "Thought 3."), message_item("c1", "Snow in Oslo.", phase="final_answer")),
        responses_turn(model, 4, thought(4, "Thought 4."), function_item("d1", "Kyiv")),
        responses_turn(model, 5, message_item("e1", "Rain.")),
        responses_turn(model, 6, message_item("f1", "Done.")),
    ]


def _raw_responses_turns(model: str) -> list[Body]:
    def thought(number: int) -> Body:
        return reasoning_item(str(number), content=[{"type": "reasoning_text", "text": f"Thought {number}."}])

    return [
        responses_turn(model, 1, thought(1), function_item("a1", "Oslo")),
        responses_turn(model, 2, thought(2), function_item("b1", "Rome"), function_item("b2", "Bonn")),
        responses_turn(model, 3, thought(3), message_item("c1", "Snow in Oslo.")),
        responses_turn(model, 4, thought(4), function_item("d1", "Kyiv")),
        responses_turn(model, 5, thought(5), message_item("e1", "Rain.")),
        responses_turn(model, 6, message_item("f1", "Done.")),
    ]


def _google_turns(model: str) -> list[Body]:
    def call(city: str, id: str | None = None, signature: str | None = None) -> Body:
        body: Body = {"functionCall": {"name": "weather", "args": {"city": city}} | ({"id": id} if id else {})}
        return body | ({"thoughtSignature": _blob(signature)} if signature else {})

    def thought(number: int) -> Body:
        return {"text": f"Thought {number}.", "thought": True}

    return [
        google_turn(model, thought(1), call("Oslo", "g1", "signature 1")),
        google_turn(model, thought(2), call("Rome", "g2", "signature 2"), call("Bonn", "g3")),
        google_turn(model, thought(3), {"text": "Snow in Oslo.", "thoughtSignature": _blob("signature 3")}),
        google_turn(model, thought(4), call("Kyiv", "g4", "signature 4")),
        google_turn(model, {"text": "Rain."}, {"text": "", "thoughtSignature": _blob("signature 5")}),
        google_turn(model, {"text": "Done."}),
    ]


def _bedrock_turns(sign: Callable[[int], Body], *, redacted: bool = True) -> list[Body]:
    def call(id: str, city: str) -> Body:
        return {"toolUse": {"toolUseId": f"tooluse_{id}", "name": "weather", "input": {"city": city}}}

    def thought(number: int) -> Body:
        return {"reasoningContent": {"reasoningText": {"text": f"Thought {number}.", **sign(number)}}}

    def blob(number: int) -> list[Body]:
        return [{"reasoningContent": {"redactedContent": _blob(f"redacted {number}")}}] if redacted else []

    return [
        bedrock_turn(thought(1), *blob(1), {"text": "I look."}, call("a1", "Oslo")),
        bedrock_turn(thought(2), call("b1", "Rome"), call("b2", "Bonn")),
        bedrock_turn(thought(3), {"text": "Snow in Oslo."}),
        bedrock_turn(thought(4), call("d1", "Kyiv")),
        bedrock_turn(*blob(5), {"text": "Rain."}),
        bedrock_turn({"text": "Done."}),
    ]


def _mistral_turns(model: str) -> list[Body]:
    def content(number: int, text: str = "") -> list[Body]:
        thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": f"Thought {number}."}]}]
        return [*thinking, {"type": "text", "text": text}] if text else thinking

    return [
        chat_turn(model, {"content": content(1, "I look."), "tool_calls": [chat_call("aaaaaaaa1", "Oslo")]}),
        chat_turn(
            model,
            {"content": content(2), "tool_calls": [chat_call("bbbbbbbb1", "Rome"), chat_call("bbbbbbbb2", "Bonn")]},
        ),
        chat_turn(model, {"content": content(3, "Snow in Oslo.")}),
        chat_turn(model, {"content": content(4), "tool_calls": [chat_call("dddddddd1", "Kyiv")]}),
        chat_turn(model, {"content": content(5, "Rain.")}),
        chat_turn(model, {"content": "Done."}),
    ]


def _cohere_turns() -> list[Body]:
    def content(number: int, text: str = "") -> list[Body]:
        thinking = [{"type": "thinking", "thinking": f"Thought {number}."}]
        return [*thinking, {"type": "text", "text": text}] if text else thinking

    return [
        cohere_turn({"content": content(1), "tool_calls": [chat_call("weather_a1", "Oslo")]}),
        cohere_turn(
            {"content": content(2), "tool_calls": [chat_call("weather_b1", "Rome"), chat_call("weather_b2", "Bonn")]}
        ),
        cohere_turn({"content": content(3, "Snow in Oslo.")}),
        cohere_turn({"content": content(4), "tool_calls": [chat_call("weather_d1", "Kyiv")]}),
        cohere_turn({"content": content(5, "Rain.")}),
        cohere_turn({"content": [{"type": "text", "text": "Done."}]}),
    ]


def _details(number: int) -> list[Body]:
    return [
        {
            "type": "reasoning.text",
            "text": f"Thought {number}.",
            "signature": _blob(f"signature {number}"),
            "format": "anthropic-claude-v1",
            "index": 0,
        },
        {
            "type": "reasoning.encrypted",
            "data": _blob(f"encrypted {number}"),
            "id": f"rs_{number}",
            "format": "openai-responses-v1",
            "index": 1,
        },
    ]


def _router_turns(model: str) -> list[Body]:
    turns = chat_turns(model, reasoning_details=_details)
    for turn in turns:
        turn["provider"] = "Anthropic"
        turn["choices"][0]["native_finish_reason"] = turn["choices"][0]["finish_reason"]
        turn["choices"][0]["message"].setdefault("reasoning", None)
        turn["id"] = "gen-1"
    return turns


def _gemini_chat_turns(model: str) -> list[Body]:
    turns = chat_turns(model)
    for turn in turns:
        for index, call in enumerate(turn["choices"][0]["message"].get("tool_calls", ())):
            if index == 0:
                call["extra_content"] = {"google": {"thought_signature": _blob(f"signature {call['id']}")}}
    return turns


def _thoughts(*numbers: int) -> tuple[str, ...]:
    return tuple(f"Thought {number}." for number in numbers)


CLAUDE, GPT, GEMINI = "claude-sonnet-4-6", "gpt-5", "gemini-3-flash-preview"
BEDROCK_CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def _signed(number: int) -> Body:
    return {"signature": _blob(f"signature {number}")}


PROVIDERS: tuple[Provider, ...] = (
    Provider(
        "openai-chat",
        GPT,
        "openai-chat",
        partial(their_chat, "openai"),
        chat_turns("gpt-5-2025-08-07"),
        chat_stream,
        base_path="/v1",
        secrets=("call_a1", "call_b2"),
    ),
    Provider(
        "openai",
        "gpt-5.5",
        "openai",
        partial(their_responses, "openai"),
        _responses_turns("gpt-5.5-2026-04-23"),
        responses_stream,
        base_path="/v1",
        secrets=(
            *(_blob(f"encrypted {n}") for n in (1, 2, 3, 4)),
            "rs_2",
            "fc_b2",
            "msg_c1",
            "Thought 1b.",
            "final_answer",
        ),
    ),
    Provider(
        "azure",
        "gpt-5.5",
        "azure-responses",
        partial(their_responses, "azure"),
        _responses_turns("gpt-5.5-2026-04-23"),
        responses_stream,
        base_path="/v1",
        secrets=(*(_blob(f"encrypted {n}") for n in (1, 2, 3, 4)), "rs_2", "fc_b2", "msg_c1"),
    ),
    Provider(
        "openrouter-responses",
        "openai/gpt-oss-120b",
        "openrouter-responses",
        partial(their_responses, "openrouter"),
        _raw_responses_turns("openai/gpt-oss-120b"),
        responses_stream,
        base_path="/v1",
        secrets=(*_thoughts(1, 2, 3, 4, 5), "rs_2"),
        differences=("ids", "raw text"),
    ),
    Provider(
        "anthropic",
        CLAUDE,
        "anthropic",
        their_anthropic,
        _anthropic_turns("claude-sonnet-4-6-20260115"),
        anthropic_stream,
        base_path="/v1",
        secrets=(*(_blob(f"signature {n}") for n in (1, 2, 3, 4)), _blob("redacted 1") + "/+=", *_thoughts(1, 4)),
        differences=("is_error",),
    ),
    Provider(
        "google",
        GEMINI,
        "google",
        partial(their_native, "google", "GoogleModel"),
        _google_turns(GEMINI),
        google_stream,
        base_path="/v1beta",
        secrets=tuple(_blob(f"signature {n}") for n in (1, 2, 3, 4, 5)),
        differences=("results",),
    ),
    Provider(
        "bedrock-claude",
        BEDROCK_CLAUDE,
        "bedrock",
        their_bedrock,
        _bedrock_turns(_signed),
        bedrock_stream,
        "application/vnd.amazon.eventstream",
        secrets=(*(_blob(f"signature {n}") for n in (1, 2, 3, 4)), _blob("redacted 1"), *_thoughts(1, 4)),
    ),
    Provider(
        "deepseek",
        "deepseek-reasoner",
        "deepseek",
        partial(their_chat, "deepseek"),
        chat_turns("deepseek-v4-flash", reasoning_content=lambda number: f"Thought {number}."),
        chat_stream,
        base_path="/v1",
        secrets=_thoughts(1, 2, 3, 4, 5),
    ),
    Provider(
        "openrouter",
        "anthropic/claude-sonnet-4.5",
        "openrouter",
        partial(their_chat, "openrouter", module="openrouter", model_class="OpenRouterModel"),
        _router_turns("anthropic/claude-4.5-sonnet-20250929"),
        chat_stream,
        base_path="/v1",
        secrets=(
            *(_blob(f"signature {n}") for n in (1, 2, 3, 4, 5)),
            *(_blob(f"encrypted {n}") for n in (1, 2, 3, 4, 5)),
            "rs_4",
        ),
        differences=("empty reasoning",),
    ),
    Provider(
        "groq",
        "openai/gpt-oss-120b",
        "groq",
        partial(their_native, "groq", "GroqModel"),
        chat_turns("openai/gpt-oss-120b", reasoning=lambda number: f"Thought {number}."),
        chat_stream,
        base_path="/openai/v1",
        secrets=_thoughts(1, 2, 3, 4, 5),
        differences=("groq",),
    ),
    Provider(
        "mistral",
        "magistral-medium-latest",
        "mistral",
        partial(their_native, "mistral", "MistralModel"),
        _mistral_turns("magistral-medium-latest"),
        chat_stream,
        base_path="/v1",
        secrets=_thoughts(1, 2, 3, 4, 5),
        differences=("mistral",),
    ),
    Provider(
        "cohere",
        "command-a-reasoning-08-2025",
        "cohere",
        their_cohere,
        _cohere_turns(),
        cohere_stream,
        secrets=_thoughts(1, 2, 3, 4, 5),
    ),
    Provider(
        "bedrock-gpt-oss",
        "openai.gpt-oss-120b-1:0",
        "bedrock",
        their_bedrock,
        _bedrock_turns(lambda number: {}, redacted=False),
        bedrock_stream,
        "application/vnd.amazon.eventstream",
        secrets=_thoughts(1, 2, 3, 4),
        differences=("unsigned",),
    ),
    Provider(
        "deepseek-responses",
        "deepseek-v4-flash",
        "deepseek-responses",
        partial(their_responses, "deepseek"),
        _raw_responses_turns("deepseek-v4-flash"),
        responses_stream,
        base_path="/v1",
        secrets=_thoughts(1, 2, 3, 4, 5),
        differences=("ids", "raw text"),
    ),
    *(
        Provider(
            name,
            model,
            ours,
            partial(their_chat, name, **of),
            chat_turns(model, **{field_name: lambda number: f"Thought {number}."}),
            chat_stream,
            base_path="/v1",
            secrets=_thoughts(1, 2, 3, 4, 5),
            differences=("both fields",) if name == "vllm" else (),
        )
        for name, model, ours, field_name, of in (
            ("moonshotai", "kimi-k2-thinking", "kimi", "reasoning_content", {}),
            ("ollama", "gpt-oss:20b", "ollama", "reasoning", {}),
            ("together", "deepseek-ai/DeepSeek-R1", "together", "reasoning_content", {}),
            ("fireworks", "accounts/fireworks/models/glm-4p6", "fireworks", "reasoning_content", {}),
            ("cerebras", "gpt-oss-120b", "cerebras", "reasoning", _own_class("cerebras", "CerebrasModel")),
            ("zai", "glm-4.7", "zai", "reasoning_content", _own_class("zai", "ZaiModel")),
            ("crusoe", "zai/GLM-5.2", "crusoe", "reasoning", _own_class("crusoe", "CrusoeModel")),
            ("vllm", "qwen3-32b", "vllm", "reasoning", {}),
        )
    ),
)
