"""Helpers for the tests of the store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pellucid.storage import Store, StoredResponse, open_store

ROOT = Path(__file__).parents[2]
"""The working directory of processes that import `tests`."""


class Clock:
    """A clock that advances only when a test sets `now`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def store_at(url: str, **options: Any) -> AsyncIterator[Store]:
    store = await open_store(url, **options)
    try:
        yield store
    finally:
        await store.aclose()


def response(id: str = "resp_1", owner: str = "ann", **fields: Any) -> StoredResponse:
    """Make a response; it is completed unless `fields` has another status."""
    return StoredResponse(
        **{"created_at": 1.0, "updated_at": 1.0, "status": "completed", "model": "m", **fields}, id=id, owner=owner
    )
