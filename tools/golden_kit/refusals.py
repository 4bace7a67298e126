"""Upstreams that fail, requests that are refused, and what is read without a model."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from .captures import Case
from .fixtures import FIXTURES
from .protocols import CLIENTS, QUESTION, Client
from .setting import Cases, Setting, play_of, record_reply, record_requests
from .upstream import Play

# --- upstreams that fail ------------------------------------------------------------------------------------------

_BODY = FIXTURES[0].body
FAILURES: dict[str, Play] = {
    **{
        str(status): Play(
            json.dumps({"error": {"message": f"status {status}", "type": "t", "code": "c"}}).encode(),
            "application/json",
            status,
        )
        for status in (400, 401, 403, 404, 408, 413, 422, 500, 502, 503, 529)
    },
    "429": Play(b'{"error": {"message": "slow down"}}', "application/json", 429, (("Retry-After", "7"),)),
    "context": Play(
        b'{"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}',
        "application/json",
        400,
    ),
    "redirect": Play(b"", "text/plain", 302, (("Location", "http://127.0.0.1:1/"),)),
    "html": Play(b"<html><h1>502 Bad Gateway</h1></html>", "text/html", 502),
    "html-with-200": Play(b"<html><h1>Hello</h1></html>", "text/html"),
    "empty": Play(b""),
    "not-json": Play(b"data: {nonsense\n\n" + _BODY),
    "not-utf-8": Play(_BODY.replace(b"see", b"\xff\xfe")),
    "truncated": Play(_BODY, cut="frames", end="truncate"),
    "truncated-length": Play(_BODY, cut="whole", end="truncate"),
    "reset": Play(_BODY, cut="frames", end="reset"),
    "no-done": Play(_BODY.replace(b"data: [DONE]\n\n", b"")),
    "no-finish": Play(_BODY[: _BODY.index(b'"stop"') - 60]),
    "only-done": Play(b"data: [DONE]\n\n"),
    "long-line": Play(b"data: " + b" " * 200_000 + b"{}\n\n" + _BODY),
    "gzip-named": Play(b"not gzip", headers=(("Content-Encoding", "gzip"),)),
}


def upstream_errors(on: Setting) -> Cases:
    for failure, play in FAILURES.items():
        for client in CLIENTS:
            for stream in (True, False) if client.whole else (True,):
                for view in ("raw", "summary"):
                    name = f"upstream-errors/{failure}/{client.name}/{view}/{'stream' if stream else 'whole'}"
                    yield name, partial(_failure, on, play=play, client=client, view=view, stream=stream)


def _failure(on: Setting, case: Case, play: Play, client: Client, view: str, stream: bool) -> None:
    on.upstream.play("deepseek", play)
    ask = client.ask(_MODEL, client.begin(), stream)
    reply = on.gateway.request("POST", ask.path, ask.body, {**ask.headers, "Pellucid-View": view})
    record_reply(case, "reply", reply)
    case.add("requests", str(len(on.upstream.requests())))


# --- requests that are refused ------------------------------------------------------------------------------------

_RESPONSES, _COMPLETIONS, _AGUI, _CHAT = "/v1/responses", "/v1/chat/completions", "/ag-ui", "/api/chat"
_USER = [{"role": "user", "content": QUESTION}]
_RUN = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": QUESTION}]}
_MODEL = "deepseek:deepseek-reasoner"
BAD_BODIES: list[tuple[str, str, Any]] = [
    *((path, "not JSON", b"{") for path in (_RESPONSES, _COMPLETIONS, _AGUI, _CHAT)),
    *((path, "a list", []) for path in (_RESPONSES, _COMPLETIONS, _AGUI, _CHAT)),
    *((path, "empty", b"") for path in (_RESPONSES, _COMPLETIONS, _AGUI, _CHAT)),
    *((path, "an object", {}) for path in (_RESPONSES, _COMPLETIONS, _AGUI, _CHAT)),
    (_RESPONSES, "unknown model", {"model": "nothing:here", "input": "x"}),
    (_RESPONSES, "wrong type", {"model": _MODEL, "input": 7}),
    (_RESPONSES, "no such previous", {"model": _MODEL, "input": "x", "previous_response_id": "resp_0"}),
    (_RESPONSES, "no such conversation", {"model": _MODEL, "input": "x", "conversation": "conv_0"}),
    (_RESPONSES, "background, not stored", {"model": _MODEL, "input": "x", "background": True, "store": False}),
    (
        _RESPONSES,
        "broken seal",
        {"model": _MODEL, "input": [{"type": "reasoning", "encrypted_content": "eyJ", "summary": []}]},
    ),
    (_RESPONSES, "unknown item", {"model": _MODEL, "input": [{"type": "what"}]}),
    (_RESPONSES, "unknown tool", {"model": _MODEL, "input": "x", "tools": [{"type": "what"}]}),
    (_RESPONSES, "effort", {"model": _MODEL, "input": "x", "reasoning": {"effort": "enormous"}}),
    (_RESPONSES, "temperature", {"model": _MODEL, "input": "x", "temperature": 9}),
    (_RESPONSES, "call without id", {"model": _MODEL, "input": [{"type": "function_call_output", "output": "x"}]}),
    (_RESPONSES, "tool choice", {"model": _MODEL, "input": "x", "tool_choice": {"type": "function", "name": "no"}}),
    (_COMPLETIONS, "no messages", {"model": _MODEL, "messages": []}),
    (_COMPLETIONS, "unknown role", {"model": _MODEL, "messages": [{"role": "king", "content": "x"}]}),
    (_COMPLETIONS, "n", {"model": _MODEL, "messages": _USER, "n": 2}),
    (_COMPLETIONS, "audio", {"model": _MODEL, "messages": _USER, "modalities": ["audio"]}),
    (_COMPLETIONS, "unknown model", {"model": "nothing:here", "messages": _USER}),
    (
        _COMPLETIONS,
        "foreign details",
        {
            "model": _MODEL,
            "messages": [
                *_USER,
                {"role": "assistant", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]},
                *_USER,
            ],
        },
    ),
    (_COMPLETIONS, "result without call", {"model": _MODEL, "messages": [{"role": "tool", "content": "x"}]}),
    (f"{_AGUI}?dialect=2.0", "dialect", _RUN),
    (f"{_AGUI}?model=nothing:here", "unknown model", _RUN),
    (f"{_AGUI}?view=naked", "view", _RUN),
    (_AGUI, "unknown role", _RUN | {"messages": [{"id": "u", "role": "king", "content": "x"}]}),
    (
        _AGUI,
        "broken seal",
        _RUN | {"messages": [{"id": "u", "role": "reasoning", "content": "x", "encryptedValue": "eyJ"}]},
    ),
    (_CHAT, "unknown field", {"text": "x", "mood": "good"}),
    (_CHAT, "unknown chat", {"text": "x", "conversation_id": "chat_0"}),
    (_CHAT, "unknown model", {"text": "x", "model": "nothing:here"}),
    (_CHAT, "AI SDK without text", {"messages": [{"id": "u", "role": "user", "parts": []}]}),
]
PATHS = [
    ("GET", "/nothing"),
    ("POST", "/v1/models"),
    ("GET", "/v1/responses"),
    ("PUT", "/v1/responses"),
    ("GET", "/v1/responses/resp_0"),
    ("DELETE", "/v1/responses/resp_0"),
    ("POST", "/v1/responses/resp_0/cancel"),
    ("GET", "/v1/responses/resp_0/input_items"),
    ("GET", "/v1/conversations/conv_0"),
    ("GET", "/api/chat/evt_0"),
    ("GET", "/api/conversations/chat_0"),
    ("GET", "/api/conversations?limit=0"),
    ("GET", "/ag-ui"),
    ("GET", "/ag-ui?threadId=t&runId=none"),
    ("GET", "/spaces/none"),
    ("OPTIONS", "/v1/responses"),
]


def requests(on: Setting) -> Cases:
    for path, what, body in BAD_BODIES:

        def refused(case: Case, p: str = path, b: Any = body) -> None:
            on.upstream.play("deepseek", play_of(FIXTURES[0]))
            record_reply(case, "reply", on.gateway.request("POST", p, b))
            record_requests(case, on.upstream)

        yield f"requests/{path}/{what}", refused
    for method, path in PATHS:

        def answered(case: Case, m: str = method, p: str = path) -> None:
            record_reply(case, "open", on.gateway.request(m, p))
            record_reply(case, "no key", on.guarded.request(m, p))
            record_reply(case, "wrong key", on.guarded.request(m, p, None, {"Authorization": "Bearer wrong"}))
            record_reply(case, "key", on.guarded.request(m, p, None, _KEY))

        yield f"requests/{method} {path}", answered
    for what, headers, body in GUARDED:

        def guarded(case: Case, h: dict[str, str] = headers, b: dict[str, Any] = body) -> None:
            on.upstream.play("deepseek", play_of(FIXTURES[0]))
            record_reply(case, "reply", on.guarded.request("POST", _RESPONSES, b, _KEY | h))

        yield f"requests/guarded/{what}", guarded


_KEY = {"Authorization": "Bearer gateway-key-gateway-key-0"}
GUARDED_CONFIGURATION = """
[access]
key_env = "GATEWAY_KEY"
key_owner = "acme"
key_policy = "small"

[access.policies.small]
models = ["deepseek:*"]
view = "summary"
counts = false
max_output_tokens = 100
requests_per_minute = 100_000
tokens_per_minute = 100_000_000
"""
GUARDED: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("its own view", {}, {"model": _MODEL, "input": "x", "stream": True}),
    ("less than its view", {"Pellucid-View": "hidden"}, {"model": _MODEL, "input": "x"}),
    ("more than its view", {"Pellucid-View": "raw"}, {"model": _MODEL, "input": "x"}),
    ("a model of others", {}, {"model": "anthropic:claude", "input": "x"}),
    ("more tokens", {}, {"model": _MODEL, "input": "x", "max_output_tokens": 1000}),
    ("another origin", {"Origin": "https://evil.example"}, {"model": _MODEL, "input": "x"}),
]


# --- what is there without a model --------------------------------------------------------------------------------


def pages(on: Setting) -> Cases:
    for path in ("/health", "/ready", "/v1/models", "/api/models", "/api/session", "/openapi.json", "/"):
        yield f"pages{path}", partial(_page, on, path=path)

    def metrics(case: Case) -> None:
        text = on.gateway.request("GET", "/metrics").body.decode()
        refusals = {
            re.sub(r"(le|status|model|provider)=\"[^\"]*\"", r"\1", line.split(" ")[0]) for line in text.split("\n")
        }
        case.add("metrics", "\n".join(sorted({name.partition("{")[0] for name in refusals if name and name[0] != "#"})))

    yield "pages/metrics", metrics


def _page(on: Setting, case: Case, path: str) -> None:
    record_reply(case, "reply", on.gateway.request("GET", path))
