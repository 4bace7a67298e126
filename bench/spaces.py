"""Measure a space: each envelope is delivered to all participants, compared with a plain `websockets` broadcast.

    .venv/bin/python bench/spaces.py [--readers 200] [--rate 50] [--seconds 10] [--rounds 3]

One participant sends thoughts at a fixed rate; the others read. A delivery is one envelope that reached one reader. The
gateway checks, orders, stores and records each envelope before it delivers it; the plain broadcast does none of that.
Both deliver the same bytes, each has a CPU to itself, and they take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

import processes
from processes import BenchError, Cpus

HERE = Path(__file__).resolve().parent
PELLUCID = [sys.executable, "-m", "pellucid"]
PEER = [sys.executable, str(HERE / "peer_websockets.py")]
THOUGHT = "The write needs elevated permissions, so the caller's role decides; the role comes from the token, which … "
MARK = b'"sent":'
START_SECONDS = 30.0
SETTLE_SECONDS = 2.0


class Sample(NamedTuple):
    deliveries: int
    cpu_us: float
    """CPU time of the server, per delivery."""
    p50_ms: float
    p99_ms: float
    lost: int


class Reader(asyncio.Protocol):
    """One WebSocket whose frames are counted, and little more: the load must not cost more than the server."""

    def __init__(self, path: str, headers: str, heard: Callable[[bytes], None]) -> None:
        self._hello = (
            f"GET {path} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._heard = heard
        self._rest = b""
        self.open = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._hello.encode())

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.open.done():
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                self.open.set_exception(BenchError(f"the server said {head.decode()!r}"))
                return
            self.open.set_result(None)
        at, end = 0, len(data)
        while end - at >= 2:
            size, body = data[at + 1] & 0x7F, at + 2
            if size == 126:
                if end - at < 4:
                    break
                size, body = int.from_bytes(data[at + 2 : at + 4]), at + 4
            elif size == 127:
                if end - at < 10:
                    break
                size, body = int.from_bytes(data[at + 2 : at + 10]), at + 10
            if end < body + size:
                break
            if data[at] == 0x81:
                self._heard(data[body : body + size])
            at = body + size
        self._rest = data[at:]

    def say(self, text: bytes) -> None:
        """As clients must: masked (with zeros, which costs the server the same)."""
        size = len(text)
        head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + struct.pack("!H", size)
        self.transport.write(head + b"\0\0\0\0" + text)


async def play(port: int, doors: list[tuple[str, str]], pid: int, rate: int, seconds: float, size: int) -> Sample:
    """Everybody comes in; the first one speaks. `size`: of what is delivered, in bytes, 0 where the server decides."""
    loop = asyncio.get_running_loop()
    delays: list[float] = []

    def heard(frame: bytes) -> None:
        at = frame.find(MARK)
        if at >= 0:
            at += len(MARK)
            delays.append(time.perf_counter() - float(frame[at : frame.index(b",", at)]))

    readers: list[Reader] = []
    for path, headers in doors:
        _, reader = await loop.create_connection(lambda p=path, h=headers: Reader(p, h, heard), "127.0.0.1", port)
        await asyncio.wait_for(reader.open, START_SECONDS)
        readers.append(reader)
    await asyncio.sleep(SETTLE_SECONDS)
    speaker = readers[0]
    start = {"kind": "reasoning/start", "id": f"start-{time.time_ns()}", "payload": {"message": "Is it safe?"}}
    speaker.say(msgspec.json.encode(start))
    await asyncio.sleep(0.5)
    before, begun = cpu_seconds(pid), loop.time()
    said = 0
    while said < rate * seconds:
        await asyncio.sleep(max(0.0, begun + said / rate - loop.time()))
        thought = {
            "id": f"{start['id']}-{said}",
            "kind": "reasoning/thought",
            "context": start["id"],
            "payload": {"sent": time.perf_counter(), "message": f"{said}: {THOUGHT}"},
        }
        text = msgspec.json.encode(thought)
        if size > len(text):
            text = msgspec.json.encode(thought | {"pad": "x" * (size - len(text) - 9)})
        speaker.say(text)
        said += 1
    await asyncio.sleep(1.0)
    cpu = cpu_seconds(pid) - before
    for reader in readers:
        reader.transport.abort()
    due, delays = said * len(readers), sorted(delays)
    if not delays:
        raise BenchError("nothing was delivered")
    return Sample(
        len(delays),
        cpu / len(delays) * 1e6,
        delays[len(delays) // 2] * 1e3,
        delays[int(len(delays) * 0.99)] * 1e3,
        due - len(delays),
    )


def cpu_seconds(pid: int) -> float:
    """Of the process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / processes.TICKS_PER_SECOND


@contextmanager
def server(command: list[str], home: Path, cpus: Cpus, environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    port, log = processes.free_port(), home / "server.log"
    with processes.running(
        [*command, "--port", str(port)], cpu=cpus.under_test, log=log, directory=home, environment=environment
    ) as process:
        processes.wait_until_listening(process, port, log, START_SECONDS)
        yield process.pid, port


def gateway(options: argparse.Namespace, cpus: Cpus) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PELLUCID_", "XDG_"))}
        environment |= {"HOME": folder, "XDG_DATA_HOME": folder}
        (home / "pellucid.toml").write_text('[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["none"]\n')
        names = [f"reader-{n}" for n in range(options.readers)]
        made = subprocess.run(
            [*PELLUCID, "space", "create", "bench", "--json", *(x for n in names for x in ("--participant", n))],
            cwd=home, env=environment, capture_output=True, check=True,
        )  # fmt: skip
        tokens = {one["id"]: one["token"] for one in msgspec.json.decode(made.stdout)["participants"]}
        doors = [("/spaces/bench/ws", f"Authorization: Bearer {tokens[name]}\r\n") for name in names]
        command = [*PELLUCID, "serve", "--host", "127.0.0.1", "--config", "pellucid.toml"]
        with server(command, home, cpus, environment) as (pid, port):
            return uvloop.run(play(port, doors, pid, options.rate, options.seconds, 0))


def plain(options: argparse.Namespace, cpus: Cpus, size: int) -> Sample:
    with tempfile.TemporaryDirectory() as folder, server(PEER, Path(folder), cpus, dict(os.environ)) as (pid, port):
        return uvloop.run(play(port, [("/", "")] * options.readers, pid, options.rate, options.seconds, size))


DELIVERED = 343
"""Bytes of one envelope as the gateway delivers it; the plain room gets envelopes that are as long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=50, help="envelopes a second; the usual limits allow 100")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cpus = Cpus.available()
    processes.prepare_this_process(cpus)
    ratios: list[float] = []
    print(f"{options.readers} readers, {options.rate} envelopes/s for {options.seconds:g} s")
    for number in range(1, options.rounds + 1):
        rows = {"plain websockets": plain(options, cpus, DELIVERED), "space": gateway(options, cpus)}
        for name, row in rows.items():
            print(
                f"round {number}  {name:<18} {row.cpu_us:6.2f} us CPU a delivery   p50 {row.p50_ms:6.1f} ms   "
                f"p99 {row.p99_ms:6.1f} ms   {row.deliveries} delivered, {row.lost} lost"
            )
        ratios.append(rows["space"].cpu_us / rows["plain websockets"].cpu_us)
    print(f"ratio (median of {options.rounds}): {statistics.median(ratios):.2f}   target: at most 1.5")


if __name__ == "__main__":
    main()
