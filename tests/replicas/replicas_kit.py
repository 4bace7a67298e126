"""Gateways as separate processes on one PostgreSQL and one Redis, and concurrent clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Call, Gateway, Upstream, delta
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import events_of
from tests.waiting import wait_until

T = TypeVar("T")

LIMIT_SECONDS = 60.0
"""The longest wait for anything; a test that passes waits less."""

LEASE = 1.0
"""The lease of every replica here, in seconds: the smallest that can be configured."""

OPENAI = {"OpenResponses-Reasoning-Events": "openai"}


class Replica(Gateway):
    """`pellucid serve`, as a process."""

    def __init__(self, config: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._stderr_file = Path(self._directory.name, "stderr")
        file = Path(self._directory.name, "pellucid.toml")
        file.write_text(config)
        with self._stderr_file.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*PELLUCID, "serve", "--port", "0", "--config", str(file)],
                stdout=stderr,
                stderr=stderr,
                cwd=self._directory.name,
                start_new_session=True,
            )

    def started(self) -> Replica:
        wait_until(lambda: self._address() or self.process.poll() is not None, "it listens", LIMIT_SECONDS)
        match = self._address()
        assert match, self.stderr_text
        super().__init__(int(match[1]))
        return self

    def _address(self) -> re.Match[str] | None:
        return re.search(r"http://127\.0\.0\.1:(\d+)", self.stderr_text)

    @property
    def stderr_text(self) -> str:
        return self._stderr_file.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, as a failure of the machine would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        faults = [line for line in self.stderr_text.splitlines() if "Traceback" in line or "fault" in line]
        self._directory.cleanup()
        assert not faults, faults


_prefixes = (f"test{number}:" for number in itertools.count())


def config_of(upstream: Upstream, store: str, relay: str | None, **server: object) -> str:
    """Return the configuration of the replicas of one gateway. Gateways on the same Redis need different prefixes."""
    if relay is not None and "?" not in relay:
        relay += f"?prefix={next(_prefixes)}"
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in {"shutdown_seconds": 10, **server}.items())
    return f"""
[server]
{lines}
[storage]
url = "{store}"
[relay]
lease_seconds = {LEASE}
{f'url = "{relay}"' if relay else ""}
[limits]
retry_wait = 0.05
[chat]
title_model = "none"
[providers.vllm]
base_url = "{upstream.url}"
"""


@contextlib.contextmanager
def replicas(*configs: str) -> Iterator[list[Replica]]:
    """Start replicas concurrently; close them at the end."""
    processes: list[Replica] = []
    try:
        processes += [Replica(config) for config in configs]
        yield [replica.started() for replica in processes]
    finally:
        for replica in processes:
            replica.close()


def start_background(gateway: Gateway, model: str, **more: Any) -> str:
    """Begin a response in the background; return its id."""
    reply = gateway.ask(model, background=True, **more)
    assert reply.status == 200, reply.body
    assert reply.json["status"] == "queued"
    return str(reply.json["id"])


def get(gateway: Gateway, id: str, query: str = "", headers: dict[str, str] | None = None) -> Any:
    return gateway.request("GET", f"/v1/responses/{id}{query}", headers=headers)


def wait_for_response(gateway: Gateway, id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Get the response repeatedly until `is_so` is true of it; return it."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        reply = get(gateway, id)
        if reply.status == 200 and is_so(reply.json):
            return dict(reply.json)
        assert time.monotonic() < end, reply.body
        time.sleep(0.05)


def wait_until_leaving(gateway: Gateway) -> None:
    """Wait until a gateway is shutting down: it is not ready any more, or accepts no connection."""

    def is_leaving() -> bool:
        try:
            return gateway.request("GET", "/ready").status == 503
        except OSError:
            return True

    wait_until(is_leaving)


def is_over(response: dict[str, Any]) -> bool:
    return response["status"] not in ("queued", "in_progress")


def text_of(response: dict[str, Any]) -> str:
    """Return all text of a response, thoughts included."""
    return "".join(content["text"] for item in response["output"] for content in item.get("content") or [])


def tails(body: bytes) -> list[bytes]:
    """For each event of a stream, return the bytes that follow it."""
    pieces = [piece + b"\n\n" for piece in body.split(b"\n\n")[:-1]]
    return [b"".join(pieces[place + 1 :]) for place in range(len(pieces) - 1)]  # [DONE] has no number


class Gate:
    """Send `before` thoughts, wait until the gate opens or the gateway disconnects, and send `after` words."""

    def __init__(self, before: int = 3, after: int = 3, pace: float = 0.0) -> None:
        self.before = before
        self.after = after
        self.pace = pace
        self.opened = threading.Event()

    async def __call__(self, call: Call) -> None:
        await call.head()
        for number in range(self.before):
            await call.event(delta(reasoning_content=f"thought {number}. "))
            await asyncio.sleep(self.pace)
        await self.wait(call)
        for number in range(self.after):
            await call.event(delta(content=f"word {number}. "))
            await asyncio.sleep(self.pace)
        await call.event(delta("stop"))
        await call.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
        await call.event(b"[DONE]")
        await call.end()

    async def wait(self, call: Call) -> None:
        while not self.opened.is_set() and not call.connection.closed.is_set():
            await asyncio.sleep(0.02)

    def open(self) -> None:
        self.opened.set()

    @property
    def full_text(self) -> str:
        return "".join(
            [f"thought {number}. " for number in range(self.before)]
            + [f"word {number}. " for number in range(self.after)]
        )


@contextlib.asynccontextmanager
async def clients() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(LIMIT_SECONDS)) as session:
        yield session


async def begin(session: aiohttp.ClientSession, gateway: Gateway, model: str, **more: Any) -> tuple[int, Any]:
    body = {"model": model, "input": "Why?", "background": True, **more}
    async with session.post(f"{gateway.url}/v1/responses", json=body) as reply:
        return reply.status, await reply.json()


async def follow(session: aiohttp.ClientSession, gateway: Gateway, id: str, query: str = "") -> bytes:
    """Read the whole stream of a response."""
    async with session.get(f"{gateway.url}/v1/responses/{id}?stream=true{query}") as reply:
        assert reply.status == 200, await reply.read()
        return await reply.read()


async def fetch(session: aiohttp.ClientSession, gateway: Gateway, id: str) -> dict[str, Any]:
    async with session.get(f"{gateway.url}/v1/responses/{id}") as reply:
        assert reply.status == 200, await reply.read()
        return dict(await reply.json())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(100):
            return await coroutine

    return asyncio.run(bounded())


def last_event(body: bytes) -> dict[str, Any]:
    """Verify a stream, and return its last event."""
    assert verify(body) == []
    return events_of(body)[-1]
