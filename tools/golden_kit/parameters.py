"""What a request may hold besides its question: every row of the profiles × protocol × setting.

A case is a row and a protocol; each of its settings is sent alone, and what is answered, with its warnings, and what
reaches the upstream are recorded. The gateway is this group's own: it has all rows, models under names of their own,
and may fetch files from the upstream. Settings that only the library takes are those of `own_settings`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from .captures import Case
from .contents import MP4, PDF, PNG, PROTOCOLS, WAV, Address, Protocol, Settings, thinking
from .fixtures import FIXTURES, Script
from .gateway import KEY_VARIABLE, Gateway
from .own_settings import own_settings, without_calls
from .protocols import CLIENTS, NEXT, QUESTION, Client
from .setting import NO_TITLES, STORE, Cases, Setting, play_of, record_reply, record_requests
from .upstream import Play, Upstream


class Row(NamedTuple):
    """A row of the profiles."""

    wire: str
    model: str
    others: tuple[str, ...] = ()
    """Models for which the row has other values."""


_GPT = (
    *("gpt-3.5-turbo", "gpt-4o", "chatgpt-4o-latest", "gpt-5-chat-latest", "o3", "gpt-5-pro", "gpt-5.2-pro"),
    *("gpt-5.1-chat-latest", "gpt-5.1-codex", "gpt-5", "gpt-5-mini", "gpt-6-astra", "gpt-6.1-sol", "gpt-5.2"),
    *("gpt-5.5", "gpt-5.9", "gpt-7", "gpt-6-rosalind", "chat-latest", "gpt-5.4"),
)
_CLAUDE = (
    *("claude-fable-5-1", "claude-mythos-5-2", "claude-fable-5", "claude-mythos-5", "claude-opus-5-5"),
    *("claude-sonnet-5-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5", "claude-opus-4-8"),
    *("claude-opus-4-1", "claude-sonnet-4-0", "claude-4-opus", "claude-3-7-sonnet", "claude-3-5-haiku"),
)
_GEMINI = (
    *("gemini-2.5-flash-image", "gemini-2.5-flash-lite", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-2.0-flash"),
    *("gemini-1.5-pro", "gemini-3-pro-preview", "gemini-3-flash-preview", "gemini-3.1-flash-lite", "gemma-3-27b-it"),
    *("gemini-3.1-flash-lite-image", "gemini-3.5-flash", "gemini-4-hydrogen"),
)
_CHAT, _RESPONSES = "openai_chat", "openai_responses"
ROWS: dict[str, Row] = {
    "openai-compat": Row(_CHAT, "m"),
    "openai": Row(_CHAT, "gpt-5.1", _GPT),
    "azure": Row(_CHAT, "gpt-5.1", ("gpt-4o", "o3")),
    "deepseek": Row(_CHAT, "deepseek-reasoner", ("deepseek-chat", "deepseek-v4-flash")),
    "groq": Row(
        _CHAT,
        "m",
        (
            *("qwen/qwen3-32b", "openai/gpt-oss-120b", "qwen/qwen3.8-27b", "llama-3.3-70b-versatile"),
            *("moonshotai/kimi-k2-instruct", "gemma2-9b-it", "groq/compound"),
        ),
    ),
    "huggingface": Row(_CHAT, "Qwen/Qwen3-32B"),
    "openrouter": Row(
        _CHAT,
        "anthropic/claude-sonnet-4.5",
        (
            *("anthropic/claude-sonnet-5.5", "anthropic/claude-opus-latest", "google/gemini-3.5-flash"),
            *(
                "moonshotai/kimi-k2-thinking",
                "openai/gpt-oss-120b",
                "openai/gpt-5.2-codex",
                "moonshotai/kimi-k2.7-code",
            ),
            *("minimax/minimax-m2.5", "qwen/qwen3.8-max", "x-ai/grok-build", "z-ai/glm-5.3"),
            *("perplexity/sonar-deep-research", "anthropic/claude-fable-5", "anthropic/claude-mythos-5"),
            *("anthropic/claude-opus-5.5", "deepseek/deepseek-r1", "meta/muse-1", "stepfun/step-3", "openai/gpt-5"),
            *("openai/gpt-5-chat", "openai/gpt-5-mini", "openai/gpt-6-astra", "openai/gpt-6.1-sol", "openai/o3"),
            *("openai/gpt-6.1-terra-pro", "x-ai/grok-4.5", "x-ai/grok-4.20-multi-agent", "moonshotai/kimi-k3"),
            *("minimax/minimax-m3.1", "mistralai/mistral-large-4", "qwen/qwen3.8-2.4t-a60b"),
            *("perplexity/sonar-reasoning-pro", "perplexity/sonar-pro-search"),
        ),
    ),
    "snowflake": Row(_CHAT, "claude-4-sonnet"),
    "together": Row(
        _CHAT, "m", ("openai/gpt-oss-120b", "deepseek-ai/deepseek-v4-pro", "zai-org/glm-5.3", "moonshotai/kimi-k3")
    ),
    "fireworks": Row(
        _CHAT, "m", ("kimi-k3", "kimi-k2p7-code", "glm-5p3", "gpt-oss-120b", "glm-5p2", "deepseek-v4-pro")
    ),
    "cerebras": Row(_CHAT, "zai-glm-4.7", ("gpt-oss-120b", "kimi-k3", "zai-glm-5.3", "qwen-3.8-27b")),
    "qwen": Row(
        _CHAT,
        "qwen3-max",
        (
            *("qwen3-coder-plus", "qwen3-30b-instruct", "qwen3-30b-thinking", "kimi-k3", "qwen3.8-max", "qwen3.7-plus"),
            *("qwen3.6-plus", "qwen3.6-max"),
        ),
    ),
    "kimi": Row(_CHAT, "kimi-k2-thinking", ("kimi-k3", "kimi-k2.6", "kimi-k2.7-code")),
    "zai": Row(_CHAT, "glm-4.7", ("glm-5.3", "glm-5.2", "glm-5.1", "glm-5", "glm-5-turbo", "glm-4-plus")),
    "minimax": Row(_CHAT, "MiniMax-M2", ("minimax-m3.1",)),
    "xai": Row(
        _CHAT,
        "grok-4",
        (
            *("grok-3-mini", "grok-4.6", "grok-build-latest", "grok-4.7", "grok-4.3", "grok-latest"),
            *("grok-4.20-multi-agent", "grok-4.20-reasoning", "grok-build-1", "grok-code-fast-1", "composer-2"),
            "grok-3-fast",
        ),
    ),
    "perplexity": Row(_CHAT, "sonar-reasoning"),
    "crusoe": Row(_CHAT, "m", ("openai/gpt-oss-120b",)),
    "bedrock-mantle-chat": Row(_CHAT, "openai.gpt-oss-120b"),
    "copilot": Row(_CHAT, "gpt-5.1", ("claude-sonnet-4.5", "claude-opus-4.6", "claude-sonnet-5")),
    "vllm": Row(_CHAT, "qwen3-32b"),
    "sglang": Row(_CHAT, "qwen3-32b"),
    "llama.cpp": Row(_CHAT, "m"),
    "ollama": Row(_CHAT, "qwen3"),
    "lmstudio": Row(_CHAT, "m"),
    "google": Row("google", "gemini-3.5-pro", _GEMINI),
    "google-vertex": Row("google", "gemini-3.5-pro", ("gemini-2.5-pro",)),
    "openai-responses": Row(_RESPONSES, "gpt-5.1", _GPT),
    "azure-responses": Row(_RESPONSES, "gpt-5.1", ("gpt-4o", "o3")),
    "bedrock-mantle": Row(_RESPONSES, "openai.gpt-5.1", ("openai.gpt-oss-120b",)),
    "copilot-responses": Row(_RESPONSES, "gpt-5.1", ("gpt-4o", "o3")),
    "xai-responses": Row(_RESPONSES, "grok-4"),
    "openresponses": Row(_RESPONSES, "m"),
    "deepseek-responses": Row(_RESPONSES, "deepseek-reasoner"),
    "openrouter-responses": Row(_RESPONSES, "openai/o3"),
    "vllm-responses": Row(_RESPONSES, "gpt-oss-20b"),
    "lmstudio-responses": Row(_RESPONSES, "m"),
    "anthropic": Row("anthropic", "claude-sonnet-5", _CLAUDE),
    "anthropic-vertex": Row("anthropic", "claude-sonnet-5", ("claude-opus-4-1", "claude-3-5-haiku")),
    "anthropic-compat": Row("anthropic", "m"),
    "deepseek-anthropic": Row("anthropic", "deepseek-reasoner"),
    "minimax-anthropic": Row("anthropic", "MiniMax-M2", ("minimax-m3.1", "minimax-m3")),
    "kimi-anthropic": Row("anthropic", "kimi-k2-thinking", ("kimi-k3",)),
    "mistral": Row(
        "mistral",
        "mistral-medium-latest",
        (
            *("magistral-small-2506", "magistral-medium-latest", "mistral-large-4-0", "magistral-medium-2509"),
            *("codestral-2508", "ministral-8b-2410", "devstral-small-2507", "pixtral-12b", "open-mistral-nemo"),
            *("mistral-large-2411", "glm-5-2", "glm-5-3"),
        ),
    ),
    "cohere": Row("cohere", "command-a-reasoning-08-2025"),
    "ollama-native": Row(
        "ollama", "qwen3", ("gpt-oss:20b", "deepseek-v4:cloud", "glm-5.2:cloud", "glm-5.3", "kimi-k3")
    ),
    "bedrock": Row(
        "bedrock",
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
        (
            *(f"anthropic.{name}" for name in (*_CLAUDE[:8], "claude-opus-4-7", "claude-3-7-sonnet", "claude-3-haiku")),
            *("anthropic.claude-sonnet-5", "openai.gpt-oss-120b-1:0", "openai.gpt-5.4", "xai.grok-4", "qwen.qwen3-32b"),
            *("openai.gpt-6-astra", "openai.gpt-6.1-sol", "qwen.qwen3-coder-30b-a3b-v1:0", "zai.glm-5.3"),
            *("deepseek.r1-v1:0", "deepseek.v3-v1:0", "zai.glm-4.7", "moonshot.kimi-k2", "minimax.minimax-m2"),
            *("amazon.nova-2-lite-v1:0", "amazon.nova-pro-v1:0", "meta.llama4", "cohere.command-a-v1:0"),
            *("mistral.mistral-large-2407-v1:0", "writer.palmyra-x5-v1:0"),
        ),
    ),
}
IN_SHORT = ("openai", "openai-responses", "anthropic", "google", "mistral", "cohere", "bedrock", "ollama-native")
"""One row of each wire, for the short form."""


def in_short(row: str, *rest: str) -> bool:
    """Whether a case of this group belongs to the short form."""
    if row in ("wrong", "models", "names"):
        return True
    if rest[0] in ("agui", "ai_sdk", "chat"):  # which have no settings but the effort
        return row == IN_SHORT[0]
    if rest[0] == "library":
        return row in ("openai-responses", "anthropic")
    return row in IN_SHORT and rest[0] != "model"


_BY_NAME = {script.name: script for script in FIXTURES}
ANSWERS: dict[str, Script] = {
    wire: _BY_NAME[f"fixture:{name}"]
    for wire, name in {
        _CHAT: "vllm:both-in-one-chunk",
        _RESPONSES: "openai-responses:summaries-sealed",
        "anthropic": "anthropic:signed",
        "google": "google:cut-by-limit",
        "mistral": "mistral:thinking-chunks",
        "cohere": "cohere:thinking",
        "bedrock": "bedrock:signed",
        "ollama": "ollama-native:thinking",
    }.items()
}
"""A short response of each wire."""
CALLS = ANSWERS | {
    _CHAT: _BY_NAME["fixture:zai:calls"],
    _RESPONSES: _BY_NAME["fixture:openai-responses:calls-sealed"],
    "anthropic": _BY_NAME["fixture:anthropic:redacted-and-tool"],
    "google": _BY_NAME["fixture:google:thoughts-signed"],
}
"""One with reasoning and a call, where there is one."""
FILES = {
    "png": Play(bytes.fromhex("89504e470d0a1a0a") + PNG.encode(), "image/png"),
    "pdf": Play(PDF.encode(), "application/pdf"),
    "wav": Play(WAV.encode(), "audio/wav"),
    "mp4": Play(MP4.encode(), "video/mp4"),
}
"""What the upstream has for a gateway that fetches files."""

# --- models under names of their own ------------------------------------------------------------------------------

EXTRA: dict[str, dict[str, Any]] = {
    "tuned": {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 3000,
        "seed": 7,
        "presence_penalty": 0.5,
        "stop_sequences": ["END"],
        "parallel_tool_calls": False,
        "verbosity": "low",
        "service_tier": "default",
        "user": "u-1",
        "cache_key": "k-1",
        "logit_bias": {"50256": -100},
    },
    "thinker": {"thinking": "high", "thinking_budget": 2000, "thinking_summary": "detailed"},
    "thinks": {"thinking": True},
    "quick": {"thinking": False, "temperature": 0.2},
    "extra": {
        "metadata": {"a": "b"},
        "timeout": 30.0,
        "extra_headers": {"X-Extra": "yes", "Anthropic-Beta": "x-1"},
        "extra_body": {"mood": "good", "temperature": 0.9},
    },
}
"""Settings of configured models."""
_OVER: Settings = {
    "nothing": {},
    "temperature": {"temperature": 1.5},
    "effort none": {"reasoning_effort": "none"},
    "effort low": {"reasoning_effort": "low"},
    "budget": {"reasoning": {"max_tokens": 1500}},
    "few tokens": {"max_completion_tokens": 100},
    "other stop": {"stop": ["x"], "user": "u-2"},
}
"""What a request changes of them."""
_OWN_ROWS = """
[profiles.own-details]
extends = "openrouter"
title = "Of our own"
replay = "field"
replay_field = "thoughts"
knows = ["top_k", "metadata", "user"]
budget_field = "thinking_budget"
efforts = ["low", "max"]
system_role = "developer"
stream_usage = false
models = [{ match = "small*", thinking = "none", max_tokens = "max_completion_tokens" }]

[profiles.own-tags]
tags = ["<reflect>", "</reflect>"]
auth = "api-key"
path = "/custom"
thinking = "reasoning_switch"
media = "inline"
sampling = "never"
replay = "carrier"
foreign = "field"
lost = "sentinel"
sentinel = "(lost)"
lost_on = "all"
merge = "cumulative"

[profiles.own-claude]
extends = "anthropic"
betas = ["b-1", "b-2"]
api_version = "v-1"
max_tokens_default = 777
budgets = { low = 1111, high = 2222, on = 1500 }
thinking_mode = "budget"
sampling = "without_thinking"
forced_calls = "without_thinking"
"""
OWN_ROWS = {
    "own-details": Row(_CHAT, "m", ("small-1",)),
    "own-tags": Row(_CHAT, "m"),
    "own-claude": Row("anthropic", "claude-x"),
}


def configuration(upstream: Upstream) -> str:
    """The TOML of this group's gateway."""
    lines = [STORE, '[egress]\nallow = ["127.0.0.1"]\n\n[limits]\nretry_wait = 0.01\n', _OWN_ROWS, NO_TITLES]
    for name, row in {**ROWS, **OWN_ROWS}.items():
        lines.append(_provider(upstream, name, name, f"models = {json.dumps([row.model, *row.others])}\n"))
        for alias, settings in EXTRA.items():
            lines.append(_model(f"{name}/{alias}", provider=name, model=row.model, settings=settings))
    lines.append(
        _provider(upstream, "limited", "deepseek", 'view = "summary"\naccount = "acme"\nheaders = { X-A = "b" }\n')
    )
    lines.append(_model("seen", provider="limited", model="deepseek-chat", view="raw"))
    lines.append(_model("sealed", provider="deepseek", model="deepseek-chat", view="sealed"))
    lines.append(_model("narrow", provider="deepseek", model="deepseek-chat", context=300))
    lines.append(_model("deepseek-chat", provider="deepseek"))
    return "\n".join(lines)


def _provider(upstream: Upstream, name: str, profile: str, more: str = "") -> str:
    at = f'base_url = "{upstream.url(name)}"\napi_key_env = "{KEY_VARIABLE}"\n'
    return f'[providers."{name}"]\nprofile = "{profile}"\n{at}{more}'


def _model(name: str, **fields: Any) -> str:
    return f'[models."{name}"]\n' + "".join(f"{key} = {_toml(value)}\n" for key, value in fields.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(inner)}' for key, inner in value.items()) + " }"
    return json.dumps(value)


class _Own:
    """This group's gateway, from the first case that needs it to the end of the group."""

    def __init__(self, on: Setting, stack: contextlib.ExitStack) -> None:
        self._on = on
        self._stack = stack
        self._gateway: Gateway | None = None
        self.upstream = on.upstream

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            data: Path = self._on.gateway.data.with_name(f"{self._on.gateway.data.name}-settings")
            gateway = Gateway(self._on.checkout, data, configuration(self.upstream))
            self._gateway = self._stack.enter_context(gateway)
            for kind, play in FILES.items():
                self.upstream.play(kind, play)
        return self._gateway


# --- the cases ----------------------------------------------------------------------------------------------------


def settings(on: Setting) -> Cases:
    """See the module. Short: one row of each wire, and no other models."""
    with contextlib.ExitStack() as stack:
        yield from _cases(_Own(on, stack), on.short)
    answers = {name: (row.model, without_calls(ANSWERS[row.wire])) for name, row in ROWS.items()}
    yield from own_settings(on, answers)


def _cases(own: _Own, short: bool) -> Cases:
    rows = {name: row for name, row in {**ROWS, **OWN_ROWS}.items() if not short or name in IN_SHORT}
    for name, row in rows.items():
        for protocol in PROTOCOLS:
            some = partial(_settings_of, protocol, f"{name}/{protocol.name}", own.upstream)
            yield f"settings/{name}/{protocol.name}", partial(_each, own, name, row.model, row.wire, protocol, some)
        yield f"settings/{name}/configured", partial(_configured_models, own, name, row)
        for client in CLIENTS:
            if client.name in ("openresponses/openresponses", "chat_completions"):
                yield f"settings/{name}/second-turn/{client.name}", partial(_second_turn, own, name, row, client)
        yield f"settings/{name}/chain", partial(_chain, own, name, row)
        for model in () if short else row.others:
            yield (
                f"settings/{name}/model/{model}",
                partial(_each, own, name, model, row.wire, PROTOCOLS[0], thinking),
            )
    for protocol in PROTOCOLS:
        wrong = partial(_each, own, "deepseek", "deepseek-chat", _CHAT, protocol, protocol.wrong)
        yield f"settings/wrong/{protocol.name}", wrong
    yield "settings/models", partial(_models, own)
    yield "settings/names", partial(_names, own)


def _settings_of(protocol: Protocol, place: str, upstream: Upstream) -> Settings:
    return protocol.settings(_addresses(upstream, place))


def _addresses(upstream: Upstream, place: str) -> Address:
    """Each file is another one, so that none was fetched before."""
    number = count(1)
    return lambda kind: f"{upstream.url(kind)}/{place}/{next(number)}.{kind}"


def _each(
    own: _Own,
    provider: str,
    model: str,
    wire: str,
    protocol: Protocol,
    some: Callable[[], Settings],
    case: Case,
) -> None:
    """Every setting alone."""
    for label, fields in some().items():
        _one(own, case, label, provider, wire, protocol, f"{provider}:{model}", fields)


def _one(
    own: _Own,
    case: Case,
    label: str,
    provider: str,
    wire: str,
    protocol: Protocol,
    model: str,
    fields: Mapping[str, Any],
) -> None:
    gateway = own.gateway
    own.upstream.play(provider, play_of(ANSWERS[wire]))
    ask = protocol.ask(model, fields)
    record = Case()  # its ids are counted from one, so that a difference shows where it is, and nowhere else
    record_reply(record, label, gateway.request("POST", ask.path, ask.body, ask.headers))
    record_requests(record, own.upstream, f"{label}: upstream")
    case.records += record.records


def _configured_models(own: _Own, name: str, row: Row, case: Case) -> None:
    """The row's models of other names: as they are, and with settings over their own."""
    for alias in EXTRA:
        for label, fields in _OVER.items():
            model = f"{name}/{alias}"
            _one(own, case, f"{alias}, {label}", name, row.wire, PROTOCOLS[0], model, fields)
        _one(own, case, f"{alias}, a response", name, row.wire, PROTOCOLS[1], f"{name}/{alias}", {})


def _second_turn(own: _Own, name: str, row: Row, client: Client, case: Case) -> None:
    """A call with its reasoning, given back with its result, to a model that is to think more or less."""
    gateway, model = own.gateway, f"{name}:{row.model}"
    own.upstream.play(name, play_of(CALLS[row.wire]))
    ask = client.ask(model, client.begin(), False)
    reply = gateway.request("POST", ask.path, ask.body, ask.headers)
    record_reply(case, "first", reply)
    conversation = client.echo(client.begin(), reply, False)
    if conversation is None:
        return
    ask = client.ask(model, conversation, False)
    for effort in (None, "none", "low", "high"):
        own.upstream.play(name, play_of(ANSWERS[row.wire]))
        key, value = ("reasoning_effort", effort) if "messages" in ask.body else ("reasoning", {"effort": effort})
        body = ask.body if effort is None else {**ask.body, key: value}
        record_reply(case, f"effort {effort}", gateway.request("POST", ask.path, body, ask.headers))
        record_requests(case, own.upstream, f"effort {effort}: upstream")


def _chain(own: _Own, name: str, row: Row, case: Case) -> None:
    """Responses that are stored, and go on from each other with other settings."""
    body: dict[str, Any] = {
        "model": f"{name}:{row.model}",
        "input": QUESTION,
        "store": True,
        "instructions": "Be brief.",
    }
    gateway = own.gateway
    more: Settings = {
        "next": {"include": ["reasoning.encrypted_content"]},
        "instructions": {"instructions": "Be kind."},
        "effort": {"reasoning": {"effort": "high"}},
        "no effort": {"reasoning": {"effort": "none"}, "truncation": "auto"},
        "another tool": {"tools": [{"type": "function", "name": "other"}], "tool_choice": "required"},
    }
    for label, fields in {"first": {}, **more}.items():
        own.upstream.play(name, play_of((CALLS if label == "first" else ANSWERS)[row.wire]))
        reply = gateway.request("POST", "/v1/responses", {**body, **fields})
        record_reply(case, label, reply)
        record_requests(case, own.upstream, f"{label}: upstream")
        if reply.status != 200:
            continue
        calls = [item["call_id"] for item in reply.json["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "found"} for call in calls]
        question = {"type": "message", "role": "user", "content": NEXT}
        body = {"model": body["model"], "input": [*results, question], "previous_response_id": reply.json["id"]}


def _models(own: _Own, case: Case) -> None:
    """What is said of every model."""
    for path in ("/v1/models", "/api/models"):
        record_reply(case, path, own.gateway.request("GET", path))
    rows = [model for row in (*ROWS.values(), *OWN_ROWS.values()) for model in (row.model, *row.others)]
    names = [*(f"openai/{alias}" for alias in EXTRA), "seen", "sealed", "narrow"]
    for name in (*dict.fromkeys([*rows, *names]), "gpt-99", "openai:gpt-5.1", "openai", "", "x" * 300, "a/b/c", "%00"):
        path = f"/v1/models/{quote(name, safe='%')}"
        record_reply(case, path, own.gateway.request("GET", path))
        slashes = f"/v1/models/{quote(name, safe='%/:')}"
        if slashes != path:
            record_reply(case, slashes, own.gateway.request("GET", slashes))


def _names(own: _Own, case: Case) -> None:
    """Models and providers with a view, an account, headers or a context of their own."""
    long = [
        {"type": "message", "role": role, "content": f"{n} {QUESTION * 12}"}
        for n in range(6)
        for role in ("user", "assistant")
    ]
    last = {"type": "message", "role": "user", "content": QUESTION}
    inputs: Settings = {
        "nothing": {},
        "a long input": {"input": [*long, last]},
        "a long input, truncated": {"input": [*long, last], "truncation": "auto"},
        "a long input, few tokens": {"input": [*long, last], "truncation": "auto", "max_output_tokens": 16},
        "a long question": {"input": QUESTION * 200, "truncation": "auto"},
    }
    for model in ("seen", "sealed", "narrow", "limited:deepseek-reasoner", "deepseek-chat"):
        provider = "limited" if model in ("seen", "limited:deepseek-reasoner") else "deepseek"
        for label, fields in inputs.items():
            _one(own, case, f"{model}, {label}", provider, _CHAT, PROTOCOLS[1], model, fields)
        _one(own, case, f"{model}, a completion", provider, _CHAT, PROTOCOLS[0], model, {})
