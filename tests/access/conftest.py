"""Access control with a real store, a real relay and a real issuer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pellucid.storage import Store, open_store
from tests.access.access_kit import Issuer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = await open_store("sqlite://")
    yield store
    await store.aclose()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as running:
        yield running
