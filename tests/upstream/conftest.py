"""Both event loops, a client and a raw server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pellucid.upstream import Limits, UpstreamClient
from tests.upstream.raw_server import RawServer
from tests.waiting import LIMIT_SECONDS

LIMITS = Limits(connect=LIMIT_SECONDS, first_byte=LIMIT_SECONDS, idle=LIMIT_SECONDS, retries=0, retry_wait=0.0)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def client(anyio_backend: object) -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient(LIMITS)
    yield client
    await client.aclose()


@pytest.fixture
async def server(anyio_backend: object) -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server
