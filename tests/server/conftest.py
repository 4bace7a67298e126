"""One gateway for most tests, with providers that have different time limits. Each test scripts its own model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve


@pytest.fixture(scope="session")
def gateway(upstream: Upstream) -> Iterator[Served]:
    """Models are `PROVIDER:NAME`; a bare name belongs to the provider with the default limits."""
    patient = {"profile": "vllm", "base_url": upstream.url}
    config = {
        "server": {"max_body_bytes": 200_000},
        "limits": {"retry_wait": 0.05, "turn_characters": 10**9},  # some upstreams of the tests talk for ever
        "providers": {
            "vllm": patient,
            "silent": {**patient, "models": ["unused", "*"], "limits": {"first_byte": 1.0, "idle": 1.0, "retries": 0}},
            "slow": {
                **patient,
                "models": ["unused-still", "*"],
                "limits": {"first_byte": 60, "idle": 1.0, "retries": 0},
            },
            "once": {**patient, "models": ["unused-too", "*"], "limits": {"retries": 0}},
        },
    }
    with serve(config) as running:
        yield running
