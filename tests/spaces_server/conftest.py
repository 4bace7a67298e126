"""One gateway for most tests. Each test has its own space in it, so that it receives no envelopes of another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import TALK_CAPABILITIES, Body, served

ROOMS = 160
WHO = {
    "human": ["*"],
    "agent": TALK_CAPABILITIES,
    "watcher": ["chat"],
    "granter": [*TALK_CAPABILITIES, "capability/grant", "capability/revoke"],
}


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rooms: dict[str, Body] = {f"room-{n}": {"participants": WHO} for n in range(ROOMS)}
    rooms["open"] = {"participants": WHO, "addresses": "advisory"}
    with served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        yield running


@pytest.fixture(scope="session")
def _rooms() -> Callable[[], str]:
    numbers = itertools.count()

    def next_room() -> str:
        number = next(numbers)
        assert number < ROOMS, f"more than {ROOMS} tests take a room: raise ROOMS"
        return f"room-{number}"

    return next_room


@pytest.fixture
def room(_rooms: Callable[[], str]) -> str:
    """An unused space: `human` may send everything, `agent` talks, `watcher` chats, `granter` grants."""
    return _rooms()
