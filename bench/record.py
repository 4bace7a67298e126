"""Measure the cost of the record: the same data stored with and without it, alternately.

    python bench/record.py                       # SQLite, in a new file each
    python bench/record.py postgresql://…/a postgresql://…/b       # two empty databases

Prints µs for each response or envelope, on the clock and of this process's CPU, and what a checkpoint and a check cost.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.record import Recording, Signer, Verifier
from pellucid.storage import Append, Store, StoredEnvelope, StoredResponse, StoredSpace, open_store

ROUNDS = 7
OWNER, ROOM = "ann", "room"

Work = Callable[[Store, str, int], Awaitable[int]]


async def responses(store: Store, name: str, together: int) -> int:
    """Of a usual size: a few kilobytes, most of it the packed log."""
    many = max(150, 10 * together)
    body: dict[str, Any] = {
        "header": b"h" * 800,
        "input": b'["i"]' * 40,
        "messages": b"m" * 3000,
        "log": os.urandom(4000),
    }
    for first in range(0, many, together):
        ids = [f"{name}.{number}" for number in range(first, first + together)]
        await asyncio.gather(*(store.responses.put(_response(id, body), [f"msg_{id}"]) for id in ids))
    return many


def _response(id: str, body: dict[str, Any]) -> StoredResponse:
    now = time.time()
    return StoredResponse(id=id, owner=OWNER, created_at=now, updated_at=now, status="completed", model="m", **body)


async def envelopes(store: Store, name: str, together: int) -> int:
    many = max(150, 20 * together)
    for _ in range(0, many, together):
        head = await store.spaces.head(OWNER, ROOM)
        assert head is not None
        batch = [_envelope(head.head + 1 + number) for number in range(together)]
        await store.spaces.append(Append(owner=OWNER, space=ROOM, expected_head=head.head, version=1, envelopes=batch))
    return many


def _envelope(seq: int) -> StoredEnvelope:
    text = f"What somebody says in a space, about as long as that usually is, this being number {seq} of them."
    envelope = Envelope(id=f"msg-{seq}", ts=1, sender="bob", kind="chat", payload={"text": text}, seq=seq)
    return StoredEnvelope(envelope, time.time_ns() // 1_000_000, ContextPlace())


async def measure(stores: dict[str, Store], work: Work, together: int) -> None:
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
    for turn in range(ROUNDS):
        for name, store in stores.items():
            clock, cpu = time.perf_counter(), time.process_time()
            many = await work(store, f"{work.__name__}{together}.{turn}", together)
            took[name].append(((time.perf_counter() - clock) / many * 1e6, (time.process_time() - cpu) / many * 1e6))
    figures = []
    for index, unit in enumerate(("clock", "CPU")):
        without, recorded = (median(one[index] for one in took[name]) for name in ("without", "with"))
        figures.append(f"{unit} {without:4.0f} → {recorded:4.0f} µs (× {recorded / without:.2f})")
    print(f"{work.__name__:9} {together:2} at once: {'; '.join(figures)}")


async def main(urls: list[str]) -> None:
    signer = Signer.generate()
    sealing = Recording(signers=[signer])
    stores = {
        "without": await open_store(urls[0], recording=Recording(is_enabled=False)),
        "with": await open_store(urls[1], recording=sealing),
    }
    for store in stores.values():
        await store.spaces.put(StoredSpace(owner=OWNER, name=ROOM, created_at=1.0, settings=b"{}"), [])
    for work, together in ((responses, 1), (responses, 32), (envelopes, 1), (envelopes, 50)):
        await measure(stores, work, together)
    recorded = stores["with"].record
    begun = time.perf_counter()
    done = await recorded.sign()
    print(f"signed: {(time.perf_counter() - begun) / done.done * 1e6:.0f} µs for each of {done.done} chains")
    verifier = Verifier({signer.id: signer.public}, sealing)
    begun = time.perf_counter()
    await recorded.export(verifier.feed)
    report = verifier.end()
    assert report.is_ok
    print(
        f"checked: {(time.perf_counter() - begun) / report.entries * 1e6:.0f} µs for each of {report.entries} entries"
    )
    for store in stores.values():
        await store.aclose()


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(sys.argv[1:]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main([f"sqlite:///{folder}/{name}.sqlite" for name in ("without", "with")]))
