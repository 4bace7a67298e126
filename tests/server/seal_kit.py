"""Recorded responses of every wire with all kinds of opaque data, and the requests that return them upstream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.scripted import Call, Script, Upstream
from tests.scripted.gateway import Served, serve
from tests.view.canary_wires import CANARIES, Canary
from tests.view.view_kit import SECRET, SUMMARY, sse

__all__ = ["CANARIES", "MORE", "SECRET", "SUMMARY", "Canary", "configured", "keyed", "name_of", "plays", "serving"]

ROWS = sorted({canary.row for canary in CANARIES})
FAMILY = {"bedrock": "us.anthropic.claude-sonnet-4", "google": "gemini-3-pro", "anthropic": "claude-opus-4-5"}

_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://e.com", "title": "E", "encrypted_content": SECRET}],
}


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _thinking(index: int, text: str, signature: str) -> list[dict[str, Any]]:
    return _block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": text},
        {"type": "signature_delta", "signature": signature},
    )


MORE = [
    Canary(
        "server tools",
        "anthropic",
        sse(
            {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": {}}},
            *_thinking(0, "Look it up.", "sig-1"),
            *_block(1, _SEARCH, {"type": "input_json_delta", "partial_json": '{"query":"e"}'}),
            *_block(2, _SEARCH_RESULT),
            *_thinking(3, "Found.", "sig-2"),
            *_block(4, {"type": "text", "text": ""}, {"type": "text_delta", "text": "The answer."}),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ),
    )
]


def plays(canary: Canary) -> Script:
    async def script(call: Call) -> None:
        await call.answer(200, canary.body, canary.content_type)

    return script


def name_of(upstream: Upstream, canary: Canary, *scripts: Script) -> str:
    """Return the public name of a model that answers with this canary, or with these scripts."""
    family = FAMILY.get(canary.row, "model")
    return f"{canary.row}:{upstream.plays(*(scripts or (plays(canary),)), family=family)}"


def configured(upstream: Upstream, **more: Any) -> dict[str, Any]:
    """Return the configuration of a gateway with a provider for every wire."""
    providers = {row: {"profile": row, "base_url": upstream.url, "api_key_env": "SOME_KEY"} for row in ROWS}
    return {"providers": providers, "limits": {"retry_wait": 0.05, "retries": 0}, **more}


@contextmanager
def keyed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_KEY", "none-of-a-provider")
        yield


@contextmanager
def serving(config: dict[str, Any]) -> Iterator[Served]:
    from pellucid.server.config import check_config

    with keyed(), serve(check_config(config, os.environ)) as running:
        yield running


def sent(upstream: Upstream, name: str) -> list[dict[str, Any]]:
    """Return the request bodies that the upstream received for this model."""
    return [call.body for call in upstream.calls(name.partition(":")[2])]


def to_json(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)
