"""An answer on every wire with a marker in each reasoning carrier: texts, signatures, ids, unknown fields."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, NamedTuple

from tests.event_stream_messages import eventstream_message
from tests.view.view_kit import SECRET, SUMMARY, sse

ANSWER = "The answer."
ARGS = '{"city":"Lyon"}'
ERROR = {"message": f"bad: {SECRET}", "type": SECRET, "code": SECRET, "param": SECRET, "metadata": {"raw": SECRET}}


class Canary(NamedTuple):
    name: str
    row: str
    body: bytes
    content_type: str = "text/event-stream"
    model: str = "m"
    answers: bool = True
    """Whether it says the answer."""


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": SECRET, "object": "chat.completion.chunk", "created": 1, "model": SECRET, "choices": [choice]}


def _tagged(text: str) -> dict[str, Any]:
    chunk = _chunk(content=text)
    tops = [{"token": text, "logprob": -1.0, "bytes": None}]
    chunk["choices"][0]["logprobs"] = {"content": [{**tops[0], "top_logprobs": tops}]}
    return chunk


_DETAILS: list[dict[str, Any]] = [
    {"type": "reasoning.text", "text": SECRET, "signature": SECRET, "id": SECRET, "format": SECRET, "index": 0},
    {"type": "reasoning.encrypted", "data": SECRET, "id": SECRET, "index": 1},
    {"type": "reasoning.summary", "summary": SUMMARY, "id": SECRET, "index": 2},
    {"type": "reasoning.new", "data": SECRET, "index": 3},
]
_CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGS}}
_SIGNED = {**_CALL, "extra_content": {"google": {"thought_signature": SECRET}}}
_CHAT_USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, SECRET: 7}
_CHAT_END = [_chunk("stop"), {"id": "x", "choices": [], "usage": _CHAT_USAGE}, "[DONE]"]

_CHAT = [
    Canary("fields", "deepseek", sse(_chunk(reasoning_content=SECRET), _chunk(content=ANSWER), *_CHAT_END)),
    Canary("reasoning", "vllm", sse(_chunk(reasoning=SECRET), _chunk(content=ANSWER), *_CHAT_END)),
    Canary(
        "details",
        "openrouter",
        sse(
            _chunk(reasoning=SECRET, reasoning_details=_DETAILS),
            _chunk(content=ANSWER, reasoning_details=[{**_DETAILS[0], "text": None}]),
            _chunk(tool_calls=[_SIGNED], reasoning_details=[_DETAILS[1]]),
            *_CHAT_END,
        ),
    ),
    Canary(
        "tags",
        "vllm",
        sse(*map(_tagged, ("<think>", f"{SECRET} ", SECRET, "</think>", "\n\n", "The ", "answer.")), *_CHAT_END),
    ),
    Canary(
        "error",
        "openrouter",
        sse(_chunk(reasoning=SECRET), _chunk(content=ANSWER), {"id": "x", "error": ERROR, "choices": []}),
    ),
    Canary("gave up", "deepseek", sse(_chunk(content=ANSWER), _chunk(SECRET), "[DONE]")),
    Canary("not json", "deepseek", f"<html>{SECRET}</html>".encode(), answers=False),
    Canary(
        "whole",
        "deepseek",
        json.dumps(
            {
                "id": SECRET,
                "model": SECRET,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": ANSWER, "reasoning_content": SECRET},
                        "finish_reason": "stop",
                    }
                ],
            }
        ).encode(),
        "application/json",
    ),
]


def _event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def _item(index: int, item: dict[str, Any], *between: dict[str, Any]) -> list[dict[str, Any]]:
    started = {name: [] if isinstance(value, list) else value for name, value in item.items()}
    events = [{"item_id": item["id"], "output_index": index, **one} for one in between]
    return [
        _event("response.output_item.added", output_index=index, item=started),
        *events,
        _event("response.output_item.done", output_index=index, item=item),
    ]


_REASONING = {
    "type": "reasoning",
    "id": f"rs_{SECRET}",
    "summary": [{"type": "summary_text", "text": SUMMARY}],
    "content": [{"type": "reasoning_text", "text": SECRET}],
    "encrypted_content": SECRET,
    "status": "completed",
    "new_field": SECRET,
}
_MESSAGE = {
    "type": "message",
    "id": f"msg_{SECRET}",
    "role": "assistant",
    "status": "completed",
    "phase": SECRET,
    "content": [{"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": [{"token": SECRET}]}],
}
_UNKNOWN = {"type": f"{SECRET}_call", "id": SECRET, "status": "completed", "thoughts": SECRET}
_COMPACT = {"type": "compaction", "id": SECRET, "encrypted_content": SECRET}
_FUNCTION = {"type": "function_call", "id": SECRET, "call_id": "call_1", "name": "weather", "arguments": ARGS}
_OUTPUT = [_REASONING, _MESSAGE, _UNKNOWN, _COMPACT, _FUNCTION]


def _response(status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": SECRET, "model": SECRET, "status": status, "output": _OUTPUT, **more}


_RESPONSES_STREAM = [
    _event("response.created", response={"id": SECRET, "status": "in_progress", "model": SECRET, "output": []}),
    *_item(
        0,
        _REASONING,
        _event("response.reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""}),
        _event("response.reasoning_summary_text.delta", summary_index=0, delta=SUMMARY),
        _event("response.reasoning_summary_text.done", summary_index=0, text=SUMMARY),
        _event("response.reasoning_text.delta", content_index=0, delta=SECRET),
        _event("response.reasoning_text.done", content_index=0, text=SECRET),
    ),
    *_item(
        1,
        _MESSAGE,
        _event("response.content_part.added", content_index=0, part={"type": "output_text", "text": ""}),
        _event("response.output_text.delta", content_index=0, delta=ANSWER, logprobs=[{"token": SECRET}]),
        _event("response.output_text.done", content_index=0, text=ANSWER),
    ),
    *_item(2, _UNKNOWN),
    *_item(3, _COMPACT),
    *_item(4, _FUNCTION, _event("response.function_call_arguments.delta", delta=ARGS)),
]
_RESPONSES = [
    Canary("stream", "openai-responses", sse(*_RESPONSES_STREAM, _event("response.completed", response=_response()))),
    Canary(
        "failed",
        "openai-responses",
        sse(*_RESPONSES_STREAM[:-3], _event("response.failed", response=_response("failed", error=ERROR))),
    ),
    Canary("error", "openai-responses", sse(*_RESPONSES_STREAM[:-3], {**ERROR, "type": "error"})),
    Canary("whole", "openai-responses", json.dumps(_response()).encode(), "application/json"),
]


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _event("content_block_start", index=index, content_block=block),
        *[_event("content_block_delta", index=index, delta=delta) for delta in deltas],
        _event("content_block_stop", index=index),
    ]


def _claude(thought: str) -> list[dict[str, Any]]:
    return [
        _event("message_start", message={"id": SECRET, "model": SECRET, "content": [], "usage": {"input_tokens": 1}}),
        *_block(
            0,
            {"type": "thinking", "thinking": "", "signature": "", "new": SECRET},
            {"type": "thinking_delta", "thinking": thought},
            {"type": "signature_delta", "signature": SECRET},
        ),
        *_block(1, {"type": "redacted_thinking", "data": SECRET}),
        *_block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": ANSWER}),
        *_block(3, {"type": SECRET, "data": SECRET}),
        *_block(4, {"type": "compaction", "content": SECRET, "encrypted_content": SECRET}),
        *_block(
            5,
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}, "caller": {"type": SECRET}},
            {"type": "input_json_delta", "partial_json": ARGS},
        ),
    ]


_CLAUDE = _claude(SUMMARY)  # the text of Claude's thinking blocks is a summary already
_ANTHROPIC = [
    Canary(
        "stream",
        "anthropic",
        sse(
            *_CLAUDE,
            _event(
                "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": SECRET}, usage={"output_tokens": 9}
            ),
            _event("message_stop"),
        ),
    ),
    Canary("error", "anthropic", sse(*_CLAUDE[:-3], _event("error", error=ERROR))),
    Canary("cut", "anthropic", sse(*_CLAUDE[:-3])),
    Canary("raw", "deepseek-anthropic", sse(*_claude(SECRET))),
]


def _google(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **candidate}],
        "responseId": SECRET,
        "modelVersion": SECRET,
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 3},
    }


_GEMINI = [
    _google({"text": SUMMARY, "thought": True, "thoughtSignature": SECRET}),
    _google({"inlineData": {"mimeType": "image/png", "data": SECRET}, "thought": True, "thoughtSignature": SECRET}),
    _google({"text": ANSWER, "thoughtSignature": SECRET}),
    _google({"newKind": {"thoughts": SECRET}, "thoughtSignature": SECRET}),
    _google(
        {"functionCall": {"name": "weather", "args": json.loads(ARGS), "id": "call_1"}, "thoughtSignature": SECRET}
    ),
]
_GOOGLE = [
    Canary("stream", "google", sse(*_GEMINI, _google({"text": ""}, finishReason="STOP"))),
    Canary("broke off", "google", sse(*_GEMINI, _google(finishReason="MALFORMED_RESPONSE", finishMessage=SECRET))),
    Canary("error", "google", sse(*_GEMINI, {"error": ERROR | {"code": 400, "status": SECRET}})),
]


def _mistral(content: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content, **more}, "finish_reason": finish}
    return {"id": SECRET, "model": SECRET, "object": "chat.completion.chunk", "choices": [choice]}


_THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": SECRET}, {"type": SECRET, "x": SECRET}]}
_MISTRAL = [
    Canary(
        "stream",
        "mistral",
        sse(
            _mistral([_THINKING, {**_THINKING, "closed": True}]),
            _mistral([{"type": "text", "text": ANSWER}]),
            _mistral([{"type": SECRET, "data": SECRET}]),
            _mistral("", "stop"),
            "[DONE]",
        ),
    ),
    Canary("error", "mistral", sse(_mistral([_THINKING]), _mistral(ANSWER), {"object": "error", **ERROR})),
]


def _cohere(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {"type": kind, **place, **({"delta": {"message": message}} if message else {})}


_COMMAND = [
    {"id": SECRET, "type": "message-start", "delta": {"message": {"role": "assistant", "content": []}}},
    _cohere("content-start", 0, content={"type": "thinking", "thinking": ""}),
    _cohere("content-delta", 0, content={"thinking": SECRET}),
    _cohere("content-end", 0),
    _cohere("tool-plan-delta", tool_plan=SECRET),
    _cohere("content-start", 1, content={"type": "text", "text": ""}),
    _cohere("content-delta", 1, content={"text": ANSWER}),
    _cohere("content-end", 1),
    _cohere("content-start", 2, content={"type": SECRET, SECRET: SECRET}),
    _cohere("content-end", 2),
]
_COHERE = [
    Canary("stream", "cohere", sse(*_COMMAND, {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}})),
    Canary(
        "error", "cohere", sse(*_COMMAND, {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": SECRET}})
    ),
]


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _ollama(done: bool = False, **message: Any) -> dict[str, Any]:
    return {"model": SECRET, "created_at": "x", "message": {"role": "assistant", **message}, "done": done}


_NDJSON = "application/x-ndjson"
_OLLAMA = [
    Canary(
        "stream",
        "ollama-native",
        _lines(
            _ollama(content="", thinking=SECRET),
            _ollama(content=ANSWER),
            {**_ollama(True, content=""), "done_reason": "stop"},
        ),
        _NDJSON,
    ),
    Canary(
        "tags",
        "ollama-native",
        _lines(
            *(
                {**_ollama(content=text), "logprobs": [{"token": text}]}
                for text in ("<think>", SECRET, "</think>", ANSWER)
            ),
            {**_ollama(True, content=""), "done_reason": "stop"},
        ),
        _NDJSON,
    ),
    Canary(
        "error", "ollama-native", _lines(_ollama(thinking=SECRET), _ollama(content=ANSWER), {"error": SECRET}), _NDJSON
    ),
]


def _message(name: str, value: Any) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return eventstream_message(json.dumps(value).encode(), headers)


def _piece(index: int, **delta: Any) -> bytes:
    return _message("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def _stop(index: int) -> bytes:
    return _message("contentBlockStop", {"contentBlockIndex": index})


_EVENTSTREAM = "application/vnd.amazon.eventstream"
_CONVERSE = b"".join(
    [
        _message("messageStart", {"role": "assistant"}),
        _piece(0, reasoningContent={"text": SUMMARY}),
        _piece(0, reasoningContent={"signature": SECRET}),
        _stop(0),
        _piece(1, reasoningContent={"redactedContent": b64encode(SECRET.encode() * 3).decode()}),
        _stop(1),
        _piece(2, text=ANSWER),
        _stop(2),
        _piece(3, newKind={"thoughts": SECRET}),
        _stop(3),
    ]
)
_BEDROCK = [
    Canary(
        "stream",
        "bedrock",
        _CONVERSE
        + _message("messageStop", {"stopReason": "end_turn", "additionalModelResponseFields": {"x": SECRET}})
        + _message("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}, "trace": {"x": SECRET}}),
        _EVENTSTREAM,
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
    ),
    Canary(
        "exception",
        "bedrock",
        _CONVERSE
        + eventstream_message(
            json.dumps({"message": SECRET, "originalMessage": SECRET, "originalStatusCode": 400}).encode(),
            {":exception-type": "modelStreamErrorException", ":message-type": "exception"},
        ),
        _EVENTSTREAM,
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
    ),
]

CANARIES = [*_CHAT, *_RESPONSES, *_ANTHROPIC, *_GOOGLE, *_MISTRAL, *_COHERE, *_OLLAMA, *_BEDROCK]
