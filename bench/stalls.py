"""The longest delay of `GET /health` while the gateway serves one large request or one endless upstream.

    .venv/bin/python bench/stalls.py [--only NAME] [--seconds 5] [--with-limits]

The target: nothing that one request contains keeps the event loop busy for more than 100 ms. A client asks `/health`
over one connection, again and again; the longest of its waits is the longest time that the loop was busy, plus what
another process took from the CPU: the row `nothing` shows how much that is on this machine. `peak` is the resident
memory of the gateway at its highest. With `--with-limits`, `[limits]` is a tenth of the default.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from processes import free_port

TARGET_MS = 100.0
START_SECONDS = 30.0


# --- upstreams: what each model answers -----------------------------------------------------------------------------


def chunk(**delta: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps({"id": "1", "choices": [{"index": 0, "delta": delta}]}).encode()


END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def words() -> Iterator[bytes]:
    while True:
        yield chunk(content="word " * 4) * 500


def thoughts() -> Iterator[bytes]:
    while True:
        yield chunk(reasoning_content="x" * 20_000) * 5


def arguments() -> Iterator[bytes]:
    function = {"name": "f", "arguments": '{"text": "'}
    yield chunk(tool_calls=[{"index": 0, "id": "c", "function": function}])
    while True:
        yield chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 200}}]) * 200


def calls() -> Iterator[bytes]:
    for first in range(0, 10_000_000, 200):
        yield b"".join(
            chunk(tool_calls=[{"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}])
            for number in range(first, first + 200)
        )


def large() -> Iterator[bytes]:
    """Just below the limit of characters, and complete."""
    for _ in range(60):
        yield chunk(reasoning_content='"Why?" \n' * 1200)
    for _ in range(90):
        yield chunk(content='"So."\n é' * 1200)
    yield END


def many() -> Iterator[bytes]:
    """Just below the limit of items, and complete."""
    function = {"name": "f", "arguments": "{}"}
    for first in range(0, 3_900, 100):
        yield b"".join(
            chunk(tool_calls=[{"index": number, "id": f"c{number}", "function": function}])
            for number in range(first, first + 100)
        )
    yield END


def short() -> Iterator[bytes]:
    yield chunk(content="Yes.") + END


UPSTREAMS: dict[str, Callable[[], Iterator[bytes]]] = {
    name.__name__: name for name in (words, thoughts, arguments, calls, large, many, short)
}


async def serve_upstream(port: int) -> None:
    """Answer each request with what its model names, as fast as it is read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for piece in UPSTREAMS[body["model"]]():
                writer.write(piece)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 27)
    await server.serve_forever()


# --- clients --------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One request."""

    name: str
    model: str
    more: Mapping[str, Any] = MappingProxyType({})
    input_items: int = 0
    path: str = "/v1/responses"


SEALED = {"include": ["reasoning.encrypted_content"]}
CASES = [
    Case("nothing", ""),
    Case("endless words, streamed", "words", {"stream": True, "store": False}),
    Case("endless words, whole", "words", {"store": False}),
    Case("endless words, stored", "words", {"store": True}),
    Case("endless words, background", "words", {"background": True}),
    Case("endless thoughts, whole", "thoughts", {"store": False}),
    Case("endless thoughts, sealed", "thoughts", {"stream": True, "store": False, **SEALED}),
    Case("endless arguments, streamed", "arguments", {"stream": True, "store": False}),
    Case("endless arguments, stored", "arguments", {"store": True}),
    Case("endless calls, streamed", "calls", {"stream": True, "store": False}),
    Case("endless calls, stored", "calls", {"store": True}),
    Case("1.4 MB, streamed", "large", {"stream": True, "store": False}),
    Case("1.4 MB, whole", "large", {"store": False}),
    Case("1.4 MB, sealed and stored", "large", {"stream": True, "store": True, **SEALED}),
    Case("3,900 calls, streamed", "many", {"stream": True, "store": False}),
    Case("3,900 calls, whole", "many", {"store": False}),
    Case("3,900 calls, stored", "many", {"store": True}),
    Case("10,000 input items, stored", "short", {"store": True}, input_items=10_000),
]


def request_of(case: Case) -> bytes:
    text = {"type": "message", "role": "user", "content": "Why?"}
    value = {"model": f"vllm:{case.model}", "input": [text] * max(1, case.input_items), **case.more}
    body = json.dumps(value).encode()
    return (
        f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def exchange(port: int, request: bytes) -> int:
    """Send a request, and read the response to its end. Return its size."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request)
    size = 0
    while piece := await reader.read(1 << 20):
        size += len(piece)
    writer.close()
    return size


async def longest_wait(port: int, is_over: asyncio.Event) -> float:
    """Ask `/health` until `is_over`. Return the longest wait in milliseconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    longest = 0.0
    while not is_over.is_set():
        begun = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        longest = max(longest, (time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.002)
    writer.close()
    return longest


async def measure(case: Case, port: int, seconds: float) -> tuple[float, int, str]:
    """Return the longest wait, the size of the response, and how it ended."""
    for stream in (True, False):  # what is imported for the first request is no part of it
        await exchange(port, request_of(Case("", "short", {"stream": stream, "store": True, **SEALED})))
    is_over = asyncio.Event()
    waiting = asyncio.create_task(longest_wait(port, is_over))
    size, end = 0, "ended"
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            if case.model:
                size = await exchange(port, request_of(case))
                end = f"ended after {time.perf_counter() - begun:.1f} s"
            else:
                await asyncio.sleep(seconds / 2)
    except TimeoutError:
        end = f"left after {seconds:g} s"
    # What follows a disconnect, or goes on in the background, counts too.
    await asyncio.sleep(1.0)
    is_over.set()
    return await waiting, size, end


@contextlib.contextmanager
def gateway(directory: Path, limits: str) -> Iterator[tuple[int, int]]:
    """Start an upstream and a gateway. Yields the gateway's port and process id."""
    upstream_port, port = free_port(), free_port()
    config = directory / "pellucid.toml"
    config.write_text(
        f'[server]\nport = {port}\nmax_body_bytes = 134217728\n[storage]\nurl = "sqlite:///{directory}/store.sqlite"\n'
        f'[providers.vllm]\nbase_url = "http://127.0.0.1:{upstream_port}/v1"\n[limits]\n{limits}'
    )
    environment = {**os.environ, "PELLUCID_HOME": str(directory), "XDG_DATA_HOME": str(directory)}
    log = (directory / "gateway.log").open("wb")
    command = [str(Path(sys.executable).with_name("pellucid")), "serve", "--config", str(config)]
    upstream = subprocess.Popen([sys.executable, __file__, "--upstream", str(upstream_port)])
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=directory)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    sys.exit((directory / "gateway.log").read_text())
                time.sleep(0.1)
        yield port, server.pid
    finally:
        for process in (server, upstream):
            process.kill()
            process.wait()
        log.close()


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run(options: argparse.Namespace) -> None:
    limits = "turn_bytes = 26843545\nturn_characters = 800000\nturn_items = 1000\n" if options.with_limits else ""
    print(f"{'case':32} {'longest wait':>14} {'peak':>9} {'response':>10}")
    for case in CASES:
        if options.only and options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory(prefix="stalls-") as name, gateway(Path(name), limits) as (port, pid):
            waited, size, end = asyncio.run(measure(case, port, options.seconds))
            verdict = "" if waited <= TARGET_MS else "  above the target"
            print(
                f"{case.name:32} {waited:11.0f} ms {peak_mb(pid):6.0f} MB {size / 1e6:7.1f} MB  {end}{verdict}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long one case may take")
    parser.add_argument("--with-limits", action="store_true", help="a tenth of the default limits")
    parser.add_argument("--upstream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        asyncio.run(serve_upstream(options.upstream))
    else:
        run(options)


if __name__ == "__main__":
    main()
