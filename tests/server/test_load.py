"""Many at once: all of them whole, and afterwards nothing is left."""

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
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    data = await reader.read()
    writer.close()
    return data


class Left(NamedTuple):
    """What there is of this process."""

    files: int
    tasks: int
    objects: int
    """Ours: a run, an encoder, a decoder that somebody still holds would be among them."""


def left() -> Left:
    gc.collect()
    objects = gc.get_objects()
    tasks = sum(isinstance(thing, asyncio.Task) and not thing.done() for thing in objects)
    ours = sum(str(type(thing).__module__).startswith("pellucid") for thing in objects)
    return Left(len(os.listdir("/proc/self/fd")), tasks, ours)


def test_many_streams_at_once(gateway: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    started = 0
    all_there = asyncio.Event()

    async def script(call: Call) -> None:
        nonlocal started
        await call.head()
        started += 1
        if started == STREAMS:
            all_there.set()
        await all_there.wait()  # so that all are open at the same time
        for n in range(20):
            await call.event(delta(reasoning_content=f"{n} "))
        await call.event(delta("stop", content="end"))
        await call.event(b"[DONE]")
        await call.end()

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(ask(gateway.port, model) for _ in range(STREAMS)))

    after = []
    for _ in range(2):  # the first round makes what is kept: connections, caches
        started = 0
        all_there.clear()
        model = upstream.plays(script)
        replies = asyncio.run(all_of_them())
        for reply in replies:
            assert b"event: response.completed" in reply
            assert reply.count(b"event: response.reasoning.delta") == 20
        gateway.idle()
        after.append(left())
    # A leak is one thing or more for each stream; what else comes and goes (pooled connections that are just being
    # closed, caches that fill) is far less.
    first, second = after
    assert second.files <= first.files + STREAMS // 2
    assert second.tasks <= first.tasks + STREAMS // 2
    assert second.objects <= first.objects + STREAMS // 2
    assert caplog.records == []
