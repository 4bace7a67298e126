"""Measure the cost of telemetry: CPU per request and per delta, with telemetry off, on, and traced.

    .venv/bin/python bench/telemetry.py

The gateway is called as an ASGI application, with a model that costs nothing, so that what is measured is the gateway.
The rounds of all of them are interleaved, and the median of each is printed.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import statistics
import time
from typing import Any

import msgspec
from opentelemetry.sdk.trace import TracerProvider

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import ModelEvent
from pellucid.models import ModelEventReceiver, TextReceiver
from pellucid.parts import Origin, Usage
from pellucid.server import create_app
from pellucid.server.app import Gateway
from pellucid.server.config import check_config
from pellucid.settings import ModelCall
from pellucid.telemetry import log
from pellucid.telemetry.lines import formatter

DELTAS = 2000
ROUNDS = 60
ORIGIN = Origin("bench", "bench", "bench")


def batches(deltas: int) -> list[list[ModelEvent]]:
    """One for each read: thinking first, then the answer."""
    emitter = Emitter(ORIGIN)
    emitter.start("id", "bench")
    out = [emitter.take()]
    for n in range(deltas):
        (emitter.thinking if n < deltas // 2 else emitter.text)("k" if n < deltas // 2 else "t", "word ")
        out.append(emitter.take())
    emitter.usage = Usage(10, deltas, deltas // 2)
    emitter.finish("stop", "stop")
    out.append(emitter.end("eof"))
    return out


class Stream:
    """A `ModelStream` that hands everything over at once."""

    queued = False

    def __init__(self, batches: list[list[ModelEvent]]) -> None:
        self._batches = batches

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        for batch in self._batches:
            receive(list(batch))

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        return []


class Model:
    origin = ORIGIN

    def __init__(self, name: str, deltas: int) -> None:
        self.name = name
        self._batches = batches(deltas)

    async def open(self, call: ModelCall) -> Stream:
        return Stream(self._batches)

    def warnings(self, call: ModelCall) -> list[str]:
        return []


async def ask(app: Gateway, model: str) -> float:
    """Seconds of CPU for one stream."""
    body = json.dumps({"model": model, "input": "Why?", "stream": True, "store": False}).encode()
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/responses",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
    }
    is_received = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if is_received.is_set():
            await asyncio.Event().wait()
        is_received.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        pass

    began = time.process_time()
    await app(scope, receive, send)
    return time.process_time() - began


async def main() -> None:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(formatter("json"))
    log.addHandler(handler)
    log.propagate = False
    kinds: dict[str, tuple[Gateway, int]] = {}
    for kind, metrics, level, tracers in (
        ("off", False, logging.WARNING, None),
        ("metrics and log", True, logging.INFO, None),
        ("and traced", True, logging.INFO, TracerProvider()),
    ):
        config = check_config(
            {"providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}, "telemetry": {"metrics": metrics}}, {}
        )
        config = msgspec.structs.replace(config, storage=msgspec.structs.replace(config.storage, url="sqlite://"))
        app = create_app(config, more=[Model("short", 2), Model("long", DELTAS)], tracers=tracers)
        await app.services.start()
        kinds[kind] = (app, level)
    spent: dict[tuple[str, str], list[float]] = {(kind, model): [] for kind in kinds for model in ("short", "long")}
    for _ in range(ROUNDS):
        for kind, (app, level) in kinds.items():
            log.setLevel(level)
            for model, times in (("short", 20), ("long", 1)):
                seconds = sum([await ask(app, model) for _ in range(times)])
                spent[kind, model].append(seconds / times)
    for kind in kinds:
        short, long = (statistics.median(spent[kind, model]) * 1e6 for model in ("short", "long"))
        print(f"{kind:16} {short:8.1f} µs a request {(long - short) / DELTAS:8.3f} µs a delta")
    for app, _ in kinds.values():
        await app.services.stop()


if __name__ == "__main__":
    asyncio.run(main())
