"""Two hundred envelopes of a megabyte: who reads them gets each once, in order; the gateway never holds them all."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.storage import Append, StoredEnvelope, open_store
from tests.replicas.replicas_kit import Replica
from tests.spaces_server.space_wire_kit import get, joined, token
from tests.spaces_server.test_spaces_killed import config_of

pytestmark = pytest.mark.needs("long")

MANY, LONG = 200, 1_000_000
ROOM = 130 << 20
"""So much may the gateway take above what it took when nobody had read anything: far less than all of it is."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("long")
    store = f"sqlite:///{folder}/store.sqlite"
    config = config_of(folder, store)
    Replica(config).started().close()
    asyncio.run(fill(store))
    gateway = Replica(config).started()
    yield gateway
    gateway.close()


async def fill(url: str) -> None:
    store = await open_store(url)
    try:
        space = await store.spaces.get("room")
        assert space is not None
        for seq in range(space.head + 1, space.head + MANY + 1):
            nth = seq - space.head
            kind = "reasoning/start" if nth == 1 else ("chat", "reasoning/thought")[nth % 2]
            path = None if kind == "chat" else "c"
            envelope = Envelope(
                id="c" if nth == 1 else f"m-{seq}",
                ts=seq,
                sender="a",
                kind=kind,
                seq=seq,
                context=path,
                payload={"text": f"needle {seq} " + "x" * LONG},
            )
            place = ContextPlace(path, "opens" if nth == 1 else "step", "a") if path else ContextPlace()
            await store.spaces.append(
                Append(
                    owner=space.owner,
                    space="room",
                    expected_head=seq - 1,
                    version=space.version,
                    envelopes=[StoredEnvelope(envelope, seq, place)],
                    recorded=False,
                )
            )
    finally:
        await store.aclose()


def memory(gateway: Replica, name: str) -> int:
    """`VmRSS` or `VmHWM`, the most it ever was."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{gateway.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def lines(gateway: Replica, path: str) -> Iterator[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token('room', 'b')}"})
        yield from map(json.loads, connection.getresponse())
    finally:
        connection.close()


def long_ones(envelopes: Any) -> list[int]:
    return [one["seq"] for one in envelopes if len(str(one.get("payload", {}).get("text", ""))) > LONG]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_all_of_it_is_read_in_every_way_and_never_held(long: Replica) -> None:
    starts = get(long, "/spaces/room/envelopes?kind=reasoning/start", token("room", "b")).json["envelopes"]
    first = starts[0]["seq"]
    every = list(range(first, first + MANY))
    before = memory(long, "VmRSS")

    def held() -> None:
        assert memory(long, "VmHWM") - before < ROOM, (before >> 20, memory(long, "VmHWM") >> 20)

    found, after = list[int](), 0
    while True:
        page = get(long, f"/spaces/room/envelopes?limit=500&after_seq={after}", token("room", "b")).json
        found += long_ones(page["envelopes"])
        after = page["last"]
        if not page["has_more"]:
            break
    assert found == every
    held()

    assert long_ones(lines(long, "/spaces/room/export")) == every
    held()
    assert long_ones(lines(long, "/spaces/room/replay")) == every
    held()
    hits = get(long, "/spaces/room/search?q=needle&limit=500", token("room", "b")).json
    assert hits["has_more"]
    held()
    tree = get(long, "/spaces/room/contexts/c", token("room", "b")).json
    assert tree["has_more"]
    assert get(long, "/spaces/room/contexts", token("room", "b")).json["contexts"][0]["has_more"]
    assert len(list(lines(long, "/spaces/room/export?format=chat-jsonl"))) == 1
    held()
    for query in (f"?after_seq={first - 1}", f"?history={MANY + 50}", "?replay=instant"):
        with joined(long, "room", "b", query=query, max_size=None) as client:
            got: list[int] = []
            while len(got) < MANY:
                got += long_ones([client.next()])
                client.seen.clear()
        assert got == every
        held()
