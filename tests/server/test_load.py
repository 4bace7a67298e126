"""Many concurrent streams: all complete, and nothing stays open afterwards."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from typing import NamedTuple

import pytest

from tests.examples import by_circle
from tests.scripted import Call, Upstream, delta
from tests.scripted.gateway import Served

STREAMS = by_circle(125, 300)
"""125 in the core circle, 300 in the long one."""


async def ask(port: int, model: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"model": model, "input": "x", "stream": True}).encode()
    writer.write(
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    data = await reader.read()
    writer.close()
    return data


class ProcessResources(NamedTuple):
    """Resources that this process holds."""

    files: int
    tasks: int
    objects: int
    """Objects of pellucid, among them runs, encoders and decoders that are still referenced."""


def process_resources() -> ProcessResources:
    gc.collect()
    objects = gc.get_objects()
    tasks = sum(isinstance(thing, asyncio.Task) and not thing.done() for thing in objects)
    ours = sum(str(type(thing).__module__).startswith("pellucid") for thing in objects)
    return ProcessResources(len(os.listdir("/proc/self/fd")), tasks, ours)


def test_many_concurrent_streams_complete_and_leak_nothing(
    gateway: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    started = 0
    all_started = asyncio.Event()

    async def script(call: Call) -> None:
        nonlocal started
        await call.head()
        started += 1
        if started == STREAMS:
            all_started.set()
        await all_started.wait()  # so that all are open at the same time
        for n in range(20):
            await call.event(delta(reasoning_content=f"{n} "))
        await call.event(delta("stop", content="end"))
        await call.event(b"[DONE]")
        await call.end()

    async def ask_all() -> list[bytes]:
        return await asyncio.gather(*(ask(gateway.port, model) for _ in range(STREAMS)))

    measurements = []
    for _ in range(2):  # the first round opens connections and fills caches
        started = 0
        all_started.clear()
        model = upstream.plays(script)
        replies = asyncio.run(ask_all())
        for reply in replies:
            assert b"event: response.completed" in reply
            assert reply.count(b"event: response.reasoning.delta") == 20
        gateway.idle()
        measurements.append(process_resources())
    # A leak is at least one object for each stream. Other changes (pooled connections that are closing, caches that
    # fill) are far fewer.
    first, second = measurements
    assert second.files <= first.files + STREAMS // 2
    assert second.tasks <= first.tasks + STREAMS // 2
    assert second.objects <= first.objects + STREAMS // 2
    assert caplog.records == []
