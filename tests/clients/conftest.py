"""Gateways for the official clients: one without keys, and one with a key whose policy is narrow."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from pellucid.server.config import check_config
from tests.clients.clients_kit import ENV, KEY
from tests.scripted import Upstream, serve
from tests.scripted.gateway import Served


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    """Gateway whose models are the upstream's, by default `unused`. The upstream of `gone:…` does not respond."""
    vllm = {"profile": "vllm", "base_url": upstream.url}
    gone = {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1", "models": ["nobody"], "limits": {"retries": 0}}
    with serve({"limits": {"retries": 0}, "providers": {"vllm": vllm, "gone": gone}}) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(upstream: Upstream) -> Iterator[Served]:
    """Gateway with a key whose policy allows three models and two requests a minute."""
    policy = {"models": ["model-*", "vllm:*", "missing"], "requests_per_minute": 2, "view": "summary"}
    config = {
        "access": {"key_env": ENV, "key_owner": "acme", "key_policy": "small", "policies": {"small": policy}},
        "providers": {"vllm": {"base_url": upstream.url, "models": ["model-of-acme"]}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV, KEY)
        with serve(check_config(config, {ENV: KEY})) as running:
            yield running


@pytest.fixture
def client(gateway: Served) -> Iterator[openai.OpenAI]:
    headers = {"OpenResponses-Reasoning-Events": "openai"}
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, default_headers=headers) as made:
        yield made
