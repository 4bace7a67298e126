"""What the upstream of a golden comparison can play: hand-written responses of every wire, and recorded ones.

A fixture is the smallest response that has what its name says. Recordings are real responses, in directories with
`response.body`, `meta.json` and `request.json`; they are not part of the repository.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote


class Script(NamedTuple):
    """One response of one provider's model."""

    name: str
    provider: str
    """A row of the profiles."""
    model: str
    body: bytes
    content_type: str = "text/event-stream"


def sse(*frames: Any, names: bool = False) -> bytes:
    """A stream of events; a text is a line of its own. `names`: with an `event:` line from the frame's `type`."""
    out = []
    for frame in frames:
        data = frame if isinstance(frame, str) else f"data: {as_json(frame)}"
        out.append(f"event: {frame['type']}\n{data}\n\n" if names and isinstance(frame, dict) else f"{data}\n\n")
    return "".join(out).encode()


def as_json(value: Any) -> str:
    """JSON with characters as they are, unless one is half of a pair."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value)
    return text


# --- Chat Completions and its relatives --------------------------------------------------------------------------


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice]}


USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 23,
    "total_tokens": 34,
    "completion_tokens_details": {"reasoning_tokens": 9},
    "prompt_tokens_details": {"cached_tokens": 3},
}
END = ({"id": "chatcmpl-1", "choices": [], "usage": USAGE}, "data: [DONE]")
_THOUGHT = ("Let me ", "see… ", "9.9 > 9.11 ✓\n", '\\"<b>"')
_TEXT = ("It is ", "**9.9**", ", 日本 🌊", "\n")


def _call(n: int, *pieces: str) -> list[dict[str, Any]]:
    first = {"index": n, "id": f"call_{n}", "type": "function", "function": {"name": f"tool_{n}", "arguments": ""}}
    return [first, *({"index": n, "function": {"arguments": piece}} for piece in pieces)]


_DETAILS: list[dict[str, Any]] = [
    {"type": "reasoning.text", "text": "why ", "signature": "U0lH", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "RU5D", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    {"type": "reasoning.summary", "summary": "in short", "index": 2},
    {"type": "reasoning.new", "data": "?", "index": 3},
]

_CHAT = [
    Script(
        "fields",
        "deepseek",
        "deepseek-reasoner",
        sse(
            chunk(role="assistant", content=None, reasoning_content=""),
            *(chunk(reasoning_content=text) for text in _THOUGHT),
            *(chunk(content=text) for text in _TEXT),
            chunk("stop"),
            *END,
        ),
    ),
    Script(
        "both-in-one-chunk",
        "vllm",
        "qwen3-32b",
        sse(": keep-alive", chunk(reasoning="so ", content="42"), chunk(reasoning="again"), chunk("length"), *END),
    ),
    Script(
        "tags",
        "llama.cpp",
        "m",
        sse(
            *(chunk(content=text) for text in ("<th", "ink>", "hm ", "</thi", "nk>\n\n", "yes ", "<think>", "no")),
            chunk("stop"),
            *END,
        ),
    ),
    Script(
        "details",
        "openrouter",
        "anthropic/claude-sonnet-4.5",
        sse(
            chunk(reasoning="why ", reasoning_details=_DETAILS[:1]),
            chunk(reasoning_details=_DETAILS[1:]),
            chunk(content="so", annotations=[{"type": "url_citation", "url_citation": {"url": "https://x.example"}}]),
            chunk("stop"),
            *END,
        ),
    ),
    Script(
        "calls",
        "zai",
        "glm-4.7",
        sse(
            chunk(reasoning_content="look it up"),
            chunk(content="I look."),
            *(chunk(tool_calls=[piece]) for piece in _call(0, '{"city":', '"Lyon"}')),
            *(chunk(tool_calls=[piece]) for piece in _call(1, "{}")),
            chunk("tool_calls"),
            *END,
        ),
    ),
    Script("refusal", "openai", "gpt-5.1", sse(chunk(refusal="I cannot."), chunk("content_filter"), *END)),
    Script(
        "logprobs",
        "openai",
        "gpt-4o",
        sse(
            {
                "id": "c",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": "Hi"},
                        "logprobs": {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72], "top_logprobs": []}]},
                    }
                ],
            },
            chunk("stop"),
            "data: [DONE]",
        ),
    ),
    Script(
        "error-in-stream",
        "openrouter",
        "openai/o3",
        sse(chunk(reasoning="hm"), {"id": "c", "error": {"code": 502, "message": "upstream broke"}, "choices": []}),
    ),
    Script("no-end", "groq", "openai/gpt-oss-120b", sse(chunk(reasoning="hm"), chunk(content="cut o"))),
    Script(
        "whole",
        "deepseek",
        "deepseek-chat",
        json.dumps(
            {
                "id": "chatcmpl-2",
                "object": "chat.completion",
                "created": 1,
                "model": "m-1",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "role": "assistant",
                            "content": "I look.",
                            "reasoning_content": "look it up",
                            "tool_calls": [
                                {"id": "call_9", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
                            ],
                        },
                    }
                ],
                "usage": USAGE,
            }
        ).encode(),
        "application/json",
    ),
]


# --- Anthropic ----------------------------------------------------------------------------------------------------


def blocks(*inner: tuple[dict[str, Any], list[dict[str, Any]]], stop: str = "end_turn") -> bytes:
    message = {"id": "msg_1", "model": "claude", "role": "assistant", "usage": {"input_tokens": 11, "output_tokens": 1}}
    frames: list[Any] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for n, (block, deltas) in enumerate(inner):
        frames.append({"type": "content_block_start", "index": n, "content_block": block})
        frames += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        frames.append({"type": "content_block_stop", "index": n})
    frames.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 23}})
    return sse(*frames, {"type": "message_stop"}, names=True)


_SIGNED = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        *({"type": "thinking_delta", "thinking": text} for text in _THOUGHT),
        {"type": "signature_delta", "signature": "U0lHTkFUVVJF"},
    ],
)
_REDACTED: tuple[dict[str, Any], list[dict[str, Any]]] = ({"type": "redacted_thinking", "data": "UkVEQUNURUQ="}, [])
_SAYS = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in _TEXT])
_USES = (
    {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
    [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"city": ', '"Lyon"}')],
)
_SEARCH: tuple[dict[str, Any], list[dict[str, Any]]] = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    [],
)
_SEARCH_RESULT: tuple[dict[str, Any], list[dict[str, Any]]] = (
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"type": "web_search_result", "url": "https://x.example", "title": "X", "encrypted_content": "RQ=="}
        ],
    },
    [],
)

_ANTHROPIC = [
    Script("signed", "anthropic", "claude-sonnet-4-5", blocks(_SIGNED, _SAYS)),
    Script("redacted-and-tool", "anthropic", "claude-opus-4-1", blocks(_REDACTED, _SIGNED, _USES, stop="tool_use")),
    Script("between-texts", "anthropic", "claude-sonnet-5", blocks(_SAYS, _SIGNED, _SEARCH, _SEARCH_RESULT, _SAYS)),
    Script("unknown-block", "anthropic", "claude-sonnet-4-5", blocks(({"type": "new_block", "x": 1}, []), _SAYS)),
    Script("cut-in-thought", "anthropic", "claude-sonnet-4-5", blocks(_SIGNED, _SAYS)[:900]),
]


# --- Responses ----------------------------------------------------------------------------------------------------


def responses(*items: dict[str, Any], status: str = "completed") -> bytes:
    response = {"id": "resp_1", "object": "response", "model": "gpt-5", "created_at": 1, "status": "in_progress"}
    frames: list[Any] = [{"type": "response.created", "response": response | {"output": []}}]
    for n, item in enumerate(items):
        bare = {**item, "summary": [], "content": []} if item["type"] == "reasoning" else item
        bare = {**item, "content": []} if item["type"] == "message" else bare
        bare = {name: value for name, value in bare.items() if name != "encrypted_content"}
        frames.append({"type": "response.output_item.added", "output_index": n, "item": bare})
        for name, kind in (("summary", "reasoning_summary_text"), ("content", "output_text")):
            for k, part in enumerate(item.get(name, [])):
                event = "reasoning_text" if part["type"] == "reasoning_text" else kind
                at = {"item_id": item["id"], "output_index": n, f"{name}_index": k}
                deltas = re.findall(r".{1,7}", part["text"], re.DOTALL)
                frames += [{"type": f"response.{event}.delta", **at, "delta": piece} for piece in deltas]
                frames.append({"type": f"response.{event}.done", **at, "text": part["text"]})
        if item["type"] == "function_call":
            at = {"item_id": item["id"], "output_index": n}
            frames.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
            frames.append({"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]})
        frames.append({"type": "response.output_item.done", "output_index": n, "item": item})
    usage = {
        "input_tokens": 11,
        "output_tokens": 23,
        "total_tokens": 34,
        "output_tokens_details": {"reasoning_tokens": 9},
        "input_tokens_details": {"cached_tokens": 3},
    }
    reason = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
    done = response | {"status": status, "output": list(items), "usage": usage} | reason
    frames.append({"type": f"response.{status}", "response": done})
    return sse(*({**frame, "sequence_number": n} for n, frame in enumerate(frames)), names=True)


_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "**First**\n\nI look."}, {"type": "summary_text", "text": "Then so."}],
    "content": [],
    "encrypted_content": "RU5DUllQVEVE",
}
_RAW = {
    "type": "reasoning",
    "id": "rs_2",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "raw thought"}],
}
_MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "".join(_TEXT), "annotations": []}],
}
_FUNCTION = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look_up",
    "arguments": '{"city":"Lyon"}',
    "status": "completed",
}
_SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}

_RESPONSES = [
    Script("summaries-sealed", "openai-responses", "gpt-5", responses(_REASONING, _MESSAGE)),
    Script("calls-sealed", "openai-responses", "gpt-5.1", responses(_REASONING, _SEARCHED, _REASONING, _FUNCTION)),
    Script("raw-incomplete", "vllm-responses", "gpt-oss-20b", responses(_RAW, _MESSAGE, status="incomplete")),
    Script("unknown-item", "openai-responses", "gpt-5", responses({"type": "new_call", "id": "nc_1"}, _MESSAGE)),
]


# --- Google, Bedrock, Mistral, Cohere, Ollama ---------------------------------------------------------------------


def google(*parts: dict[str, Any], finish: str = "STOP") -> bytes:
    frames = [{"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]} for part in parts]
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 14, "thoughtsTokenCount": 9, "totalTokenCount": 34}
    last = {"candidates": [{"finishReason": finish, "index": 0}], "usageMetadata": usage, "modelVersion": "gemini"}
    return sse(*frames, last).replace(b"\n\n", b"\r\n\r\n")


def event_stream(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Frames of `application/vnd.amazon.eventstream`: events, and exceptions by their names."""
    out = b""
    for name, value in events:
        headers = b""
        kind = "exception" if name.endswith("Exception") else "event"
        for key, text in ((f":{kind}-type", name), (":content-type", "application/json"), (":message-type", kind)):
            headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack("!H", len(text)) + text.encode()
        data = as_json(value).encode()
        prelude = struct.pack("!II", 16 + len(headers) + len(data), len(headers))
        message = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + data
        out += message + struct.pack("!I", binascii.crc32(message))
    return out


def bedrock_delta(n: int, **delta: Any) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": n, "delta": delta}


def mistral(content: Any, finish: str | None = None) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}


def cohere(kind: str, n: int | None = None, **delta: Any) -> dict[str, Any]:
    return {"type": kind} | ({} if n is None else {"index": n}) | ({"delta": delta} if delta else {})


_OTHERS = [
    Script(
        "thoughts-signed",
        "google",
        "gemini-3-flash-preview",
        google(
            {"text": "I look. ", "thought": True},
            {"text": "Then so.", "thought": True},
            {"text": "It is ", "thoughtSignature": "U0lH"},
            {"text": "9.9"},
            {"functionCall": {"name": "look_up", "args": {"city": "Lyon"}}, "thoughtSignature": "Q0FMTA=="},
        ),
    ),
    Script("cut-by-limit", "google", "gemini-2.5-pro", google({"text": "hm", "thought": True}, finish="MAX_TOKENS")),
    Script(
        "signed",
        "bedrock",
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
        event_stream(
            ("messageStart", {"role": "assistant"}),
            *(bedrock_delta(0, reasoningContent={"text": text}) for text in _THOUGHT),
            bedrock_delta(0, reasoningContent={"signature": "U0lH"}),
            ("contentBlockStop", {"contentBlockIndex": 0}),
            bedrock_delta(1, text="It is "),
            bedrock_delta(1, text="9.9"),
            ("contentBlockStop", {"contentBlockIndex": 1}),
            ("contentBlockStart", {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t1", "name": "f"}}}),
            bedrock_delta(2, toolUse={"input": '{"a":'}),
            bedrock_delta(2, toolUse={"input": "1}"}),
            ("contentBlockStop", {"contentBlockIndex": 2}),
            ("messageStop", {"stopReason": "tool_use"}),
            ("metadata", {"usage": {"inputTokens": 11, "outputTokens": 23, "totalTokens": 34}}),
        ),
        "application/vnd.amazon.eventstream",
    ),
    Script(
        "thinking-chunks",
        "mistral",
        "magistral-medium-latest",
        sse(
            mistral([{"type": "thinking", "thinking": [{"type": "text", "text": "hm "}]}]),
            mistral([{"type": "thinking", "thinking": [{"type": "text", "text": "so"}], "closed": True}]),
            mistral("It is "),
            mistral([{"type": "text", "text": "9.9"}]),
            {**mistral("", "stop"), "usage": {"prompt_tokens": 11, "completion_tokens": 23, "total_tokens": 34}},
            "data: [DONE]",
        ),
    ),
    Script(
        "thinking",
        "cohere",
        "command-a-reasoning-08-2025",
        sse(
            {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}},
            cohere("content-start", 0, message={"content": {"type": "thinking", "thinking": ""}}),
            cohere("content-delta", 0, message={"content": {"thinking": "hm "}}),
            cohere("content-delta", 0, message={"content": {"thinking": "so"}}),
            cohere("content-end", 0),
            cohere("content-start", 1, message={"content": {"type": "text", "text": ""}}),
            cohere("content-delta", 1, message={"content": {"text": "9.9"}}),
            cohere("content-end", 1),
            cohere(
                "message-end", finish_reason="COMPLETE", usage={"tokens": {"input_tokens": 11, "output_tokens": 23}}
            ),
            names=True,
        ),
    ),
    Script(
        "thinking",
        "ollama-native",
        "qwen3",
        b"".join(
            json.dumps({"model": "qwen3", "created_at": "2024-01-01T00:00:00Z", **line}).encode() + b"\n"
            for line in (
                {"message": {"role": "assistant", "content": "", "thinking": "hm "}, "done": False},
                {"message": {"role": "assistant", "content": "", "thinking": "so"}, "done": False},
                {"message": {"role": "assistant", "content": "9.9"}, "done": False},
                {
                    "message": {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
                    },
                    "done": False,
                },
                {
                    "message": {"role": "assistant", "content": ""},
                    "done": True,
                    "done_reason": "stop",
                    "prompt_eval_count": 11,
                    "eval_count": 23,
                },
            )
        ),
        "application/x-ndjson",
    ),
]

FIXTURES = [
    script._replace(name=f"fixture:{script.provider}:{script.name}")
    for script in [*_CHAT, *_ANTHROPIC, *_RESPONSES, *_OTHERS]
]


def recorded(root: Path) -> list[Script]:
    """The recordings below a directory. The model is the request's, or the one that its address names."""
    scripts = []
    for body in sorted(root.glob("*/*/response.body")):
        meta = json.loads((body.parent / "meta.json").read_bytes())
        request = json.loads((body.parent / "request.json").read_bytes())
        named = re.search(r"/models?/([^/:]+(?:%3A\d+)?)", meta["uri"])
        model = request.get("model") or (unquote(named[1]) if named else "m")
        provider = body.parts[-3]
        scripts.append(Script(f"{provider}:{body.parts[-2]}", provider, model, body.read_bytes(), meta["content_type"]))
    return scripts
