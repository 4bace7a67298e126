"""Both kinds of store, each empty, with a clock that tests set."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pellucid.storage import Store, open_store
from tests.empty_stores import one_database, postgres_server, url
from tests.storage.storage_kit import Clock

__all__ = ["one_database", "postgres_server", "url"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[Store]:
    opened = await open_store(url, clock=clock)
    yield opened
    await opened.aclose()
