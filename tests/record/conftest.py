"""A store with a record key, on each kind of database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pellucid.record import Recording
from pellucid.storage import Store, open_store
from tests.empty_stores import one_database, postgres_server, url
from tests.record.record_kit import SIGNER, Clock

__all__ = ["one_database", "postgres_server", "url"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[Store]:
    opened = await open_store(url, clock=clock, recording=Recording(signers=[SIGNER]))
    yield opened
    await opened.aclose()
