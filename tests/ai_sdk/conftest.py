"""One gateway for the AI SDK's pages, before a model with functions of the server's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    """Gateway whose models are the upstream's, by default `unused`. The upstream of `gone:…` does not respond."""
    config = {
        "tools": {"functions": ["tests.server.loop_tools:every"], "timeout_seconds": 5},
        "limits": {"retries": 0},
        "providers": {
            "vllm": {"profile": "vllm", "base_url": upstream.url},
            "claude": {"profile": "anthropic", "base_url": upstream.url, "models": ["unused-claude", "*"]},
            "responses": {"profile": "openai-responses", "base_url": upstream.url, "models": ["unused-gpt", "*"]},
            "gone": {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1", "models": ["nobody"]},
        },
    }
    with serve(config) as running:
        yield running
