"""Two hundred envelopes of a megabyte: readers get each once, in order, and the gateway's memory stays bounded."""

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

ENVELOPE_COUNT, TEXT_LENGTH = 200, 1_000_000
MAX_GROWTH_BYTES = 130 << 20
"""Memory that the gateway may use beyond that before the first read: far less than all the envelopes."""


@pytest.fixture(scope="module")
def gateway_with_long_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
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
        for seq in range(space.head + 1, space.head + ENVELOPE_COUNT + 1):
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
                payload={"text": f"needle {seq} " + "x" * TEXT_LENGTH},
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
    """Return `VmRSS`, or `VmHWM` (its peak), in bytes."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{gateway.process.pid}/status").read_text())
    assert match is not None
    return int(match[1]) << 10


def lines(gateway: Replica, path: str) -> Iterator[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token('room', 'b')}"})
        yield from map(json.loads, connection.getresponse())
    finally:
        connection.close()


def long_seqs(envelopes: Any) -> list[int]:
    return [one["seq"] for one in envelopes if len(str(one.get("payload", {}).get("text", ""))) > TEXT_LENGTH]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_reading_large_histories_takes_bounded_memory(gateway_with_long_log: Replica) -> None:
    starts = get(gateway_with_long_log, "/spaces/room/envelopes?kind=reasoning/start", token("room", "b")).json[
        "envelopes"
    ]
    first = starts[0]["seq"]
    expected = list(range(first, first + ENVELOPE_COUNT))
    before = memory(gateway_with_long_log, "VmRSS")

    def check_memory() -> None:
        assert memory(gateway_with_long_log, "VmHWM") - before < MAX_GROWTH_BYTES, (
            before >> 20,
            memory(gateway_with_long_log, "VmHWM") >> 20,
        )

    seqs, after = list[int](), 0
    while True:
        page = get(
            gateway_with_long_log, f"/spaces/room/envelopes?limit=500&after_seq={after}", token("room", "b")
        ).json
        seqs += long_seqs(page["envelopes"])
        after = page["last"]
        if not page["has_more"]:
            break
    assert seqs == expected
    check_memory()

    assert long_seqs(lines(gateway_with_long_log, "/spaces/room/export")) == expected
    check_memory()
    assert long_seqs(lines(gateway_with_long_log, "/spaces/room/replay")) == expected
    check_memory()
    hits = get(gateway_with_long_log, "/spaces/room/search?q=needle&limit=500", token("room", "b")).json
    assert hits["has_more"]
    check_memory()
    tree = get(gateway_with_long_log, "/spaces/room/contexts/c", token("room", "b")).json
    assert tree["has_more"]
    assert get(gateway_with_long_log, "/spaces/room/contexts", token("room", "b")).json["contexts"][0]["has_more"]
    assert len(list(lines(gateway_with_long_log, "/spaces/room/export?format=chat-jsonl"))) == 1
    check_memory()
    for query in (f"?after_seq={first - 1}", f"?history={ENVELOPE_COUNT + 50}", "?replay=instant"):
        with joined(gateway_with_long_log, "room", "b", query=query, max_size=None) as client:
            received: list[int] = []
            while len(received) < ENVELOPE_COUNT:
                received += long_seqs([client.next()])
                client.seen.clear()
        assert received == expected
        check_memory()
