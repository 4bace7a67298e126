"""Participants of spaces, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.participants.room_kit import Room, running_room


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with running_room() as room:
        yield room
