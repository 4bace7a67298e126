"""The real engine with the tiny model, started once; its weights are fetched once into the cache (93 MB)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from pellucid.local.fetch import fetch
from pellucid.local.model_index import find_model
from pellucid.local.supervisor import Engine
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def tiny_weights(anyio_backend: str) -> Path:
    # Without the hub: a machine that has none would wait for it each time the cache is cold.
    return await fetch(msgspec.structs.replace(find_model("smollm2-135m"), hub=""))


@pytest.fixture(scope="session")
async def engine(tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    async with Engine(find_model("smollm2-135m"), tiny_weights, log=log) as running:
        await running.wait_ready(LIMIT_SECONDS)
        yield running
