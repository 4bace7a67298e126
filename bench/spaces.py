"""Measure spaces: each envelope is delivered to all participants, compared with a plain `websockets` broadcast.

    .venv/bin/python bench/spaces.py [--only SCENARIO] [--rounds 3] [--seconds 10] [--write]

In every space one participant sends thoughts at a fixed rate, and all receive them. A delivery is one envelope that
reached one participant. The gateway checks, orders, stores and records each envelope before it delivers it; the plain
broadcast does none of that. Both deliver frames of the same size, each has a CPU to itself, and they take turns.
Real-time priority is used where the kernel allows it: without it, the percentiles mean little on a machine in use.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import uvloop

import document
import processes
from processes import BenchError, Cpus

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from pellucid.server.space_config import DEFAULT_CAPABILITIES  # noqa: E402
from pellucid.spaces.runtime.provisioning import create_space  # noqa: E402
from pellucid.spaces.runtime.settings import SpaceSettings  # noqa: E402
from pellucid.storage import open_store  # noqa: E402

PELLUCID = [sys.executable, "-m", "pellucid"]
PEER = [sys.executable, str(HERE / "peer_websockets.py")]
THOUGHT = "The write needs elevated permissions, so the caller's role decides; the role comes from the token, which … "
MARK = b'"sent":'
START_SECONDS = 30.0
SETTLE_SECONDS = 2.0


CONNECTING_AT_ONCE = 20


class Scenario(NamedTuple):
    name: str
    spaces: int
    participants: int
    """In each space."""
    rate: float
    """Envelopes per second in each space."""

    @property
    def connections(self) -> int:
        return self.spaces * self.participants


SCENARIOS = (
    Scenario("broadcast", spaces=1, participants=200, rate=50),
    Scenario("small", spaces=1, participants=50, rate=50),
    Scenario("large", spaces=1, participants=300, rate=10),
    Scenario("thousand", spaces=1_000, participants=5, rate=0.1),
)
TARGETS = (
    "targets: broadcast at most 1.3 x the CPU and 3 x the p99 of the plain broadcast; "
    "large at most 40 KiB a participant"
)


class Sample(NamedTuple):
    deliveries: int
    cpu_us: float
    """CPU time of the server, per delivery."""
    p50_ms: float
    p99_ms: float
    lost: int
    kib: float
    """Resident memory per participant: when all are connected, minus that of the server when one was."""
    welcome_bytes: int
    """Size of the largest first frame."""


class Reader(asyncio.Protocol):
    """One WebSocket whose frames are counted, and little more: the load must not cost more than the server."""

    def __init__(self, path: str, headers: str, receive: Callable[[bytes], None]) -> None:
        self._hello = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._receive = receive
        self._rest = b""
        self.open = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._hello.encode())

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.open.done():
            head, separator, data = data.partition(b"\r\n\r\n")
            if not separator:
                self._rest = head
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                self.open.set_exception(BenchError(f"the server answered {head.decode()!r}"))
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
                self._receive(data[body : body + size])
            at = body + size
        self._rest = data[at:]

    def send(self, text: bytes) -> None:
        """As clients must: masked (with zeros, which costs the server the same)."""
        size = len(text)
        head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + struct.pack("!H", size)
        self.transport.write(head + b"\0\0\0\0" + text)


Door: TypeAlias = tuple[str, str]
"""The path of a participant's socket, and its headers."""


async def play(scenario: Scenario, port: int, doors: list[list[Door]], pid: int, seconds: float, size: int) -> Sample:
    """All connect; the first participant of each space sends.

    `size`: of what is delivered, in bytes; 0 where the server decides.
    """
    loop = asyncio.get_running_loop()
    delays: list[float] = []
    first_bytes: dict[int, int] = {}

    def receive(reader: int, frame: bytes) -> None:
        first_bytes.setdefault(reader, len(frame))
        at = frame.find(MARK)
        if at >= 0:
            at += len(MARK)
            delays.append(time.perf_counter() - float(frame[at : frame.index(b",", at)]))

    async def connect(number: int, door: Door) -> Reader:
        path, headers = door
        _, reader = await loop.create_connection(
            lambda: Reader(path, headers, partial(receive, number)), "127.0.0.1", port
        )
        await asyncio.wait_for(reader.open, START_SECONDS)
        return reader

    all_doors = [door for of_space in doors for door in of_space]
    readers = [await connect(0, all_doors[0])]
    await asyncio.sleep(SETTLE_SECONDS)
    warm_kib = processes.resident_kib(pid)
    for start in range(1, len(all_doors), CONNECTING_AT_ONCE):
        some = all_doors[start : start + CONNECTING_AT_ONCE]
        readers += await asyncio.gather(*(connect(start + n, door) for n, door in enumerate(some)))
    await asyncio.sleep(SETTLE_SECONDS)
    kib = (processes.resident_kib(pid) - warm_kib) / (scenario.connections - 1)
    senders = readers[:: scenario.participants]
    contexts = [f"start-{number}-{time.time_ns()}" for number in range(len(senders))]
    for sender, context in zip(senders, contexts, strict=True):
        sender.send(msgspec.json.encode({"kind": "reasoning/start", "id": context, "payload": {"message": "Is it?"}}))
    await asyncio.sleep(1.0)
    before, begun = processes.task_times(pid).cpu, loop.time()
    rate, sent = scenario.rate * scenario.spaces, 0
    while sent < rate * seconds:
        await asyncio.sleep(max(0.0, begun + sent / rate - loop.time()))
        context = contexts[sent % len(senders)]
        thought = {
            "id": f"{context}-{sent}",
            "kind": "reasoning/thought",
            "context": context,
            "payload": {"sent": time.perf_counter(), "message": f"{sent}: {THOUGHT}"},
        }
        text = msgspec.json.encode(thought)
        if size > len(text):
            text = msgspec.json.encode(thought | {"pad": "x" * (size - len(text) - 9)})
        senders[sent % len(senders)].send(text)
        sent += 1
    await asyncio.sleep(1.0)
    cpu = processes.task_times(pid).cpu - before
    for reader in readers:
        reader.transport.abort()
    due, delays = sent * scenario.participants, sorted(delays)
    if not delays:
        raise BenchError("nothing was delivered")
    return Sample(
        len(delays),
        cpu / len(delays) * 1e6,
        delays[len(delays) // 2] * 1e3,
        delays[int(len(delays) * 0.99)] * 1e3,
        due - len(delays),
        kib,
        max(first_bytes.values()),
    )


class Measured(NamedTuple):
    """Where and how a server runs while it is measured."""

    cpus: Cpus
    scheduling: processes.Scheduling | None


@contextmanager
def server(
    command: list[str], home: Path, measured: Measured, environment: dict[str, str]
) -> Iterator[tuple[int, int]]:
    port, log = processes.free_port(), home / "server.log"
    with processes.running(
        [*command, "--port", str(port)],
        cpu=measured.cpus.under_test,
        log=log,
        directory=home,
        environment=environment,
        scheduling=measured.scheduling,
    ) as process:
        processes.wait_until_listening(process, port, log, START_SECONDS)
        yield process.pid, port


def gateway(scenario: Scenario, seconds: float, measured: Measured) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PELLUCID_", "XDG_"))}
        environment |= {"HOME": folder, "XDG_DATA_HOME": folder}
        url = f"sqlite:///{home / 'spaces.sqlite'}"
        (home / "pellucid.toml").write_text(
            f'[storage]\nurl = "{url}"\n[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["none"]\n'
        )
        doors = asyncio.run(create_spaces(url, scenario))
        command = [*PELLUCID, "serve", "--host", "127.0.0.1", "--config", "pellucid.toml"]
        with server(command, home, measured, environment) as (pid, port):
            return uvloop.run(play(scenario, port, doors, pid, seconds, 0))


async def create_spaces(url: str, scenario: Scenario) -> list[list[Door]]:
    """Create the spaces of a scenario.

    Returns:
        For each space the path and the headers of each participant.
    """
    names = {f"reader-{number}": DEFAULT_CAPABILITIES for number in range(scenario.participants)}
    store = await open_store(url)
    try:
        doors: list[list[Door]] = []
        for number in range(scenario.spaces):
            tokens = await create_space(store.spaces, "local", f"bench-{number}", SpaceSettings(), names)
            path = f"/spaces/bench-{number}/ws"
            doors.append([(path, f"Authorization: Bearer {token}\r\n") for token in tokens.values()])
        return doors
    finally:
        await store.aclose()


def plain(scenario: Scenario, seconds: float, measured: Measured) -> Sample:
    doors = [[(f"/{number}", "")] * scenario.participants for number in range(scenario.spaces)]
    with (
        tempfile.TemporaryDirectory() as folder,
        server(PEER, Path(folder), measured, dict(os.environ)) as (pid, port),
    ):
        return uvloop.run(play(scenario, port, doors, pid, seconds, DELIVERED_BYTES))


DELIVERED_BYTES = 343
"""Size of one envelope as the gateway delivers it; the plain broadcast gets envelopes of the same size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[one.name for one in SCENARIOS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--ordinary", action="store_true", help="without real-time priority")
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance.md")
    options = parser.parse_args()
    cpus = Cpus.available()
    processes.prepare_this_process(cpus)
    real_time = not options.ordinary and processes.use_real_time()
    measured = Measured(cpus, processes.MEASURED if real_time else None)
    started = datetime.now(UTC)
    lines = [
        "| scenario | | CPU µs/delivery | p50 ms | p99 ms | KiB/participant | first frame | lost |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for scenario in SCENARIOS:
        if options.only in (None, scenario.name):
            lines += rows_of(scenario, options, measured)
    conditions = "" if real_time else "\n\nWithout real-time priority."
    text = "\n".join(lines) + f"\n\n{TARGETS}.{conditions}"
    print(text)
    if options.write:
        command = f"bench/spaces.py --rounds {options.rounds} --seconds {options.seconds:g}"
        when = document.conditions(command, started, [f"websockets {version('websockets')}"])
        document.write_section(document.PERFORMANCE, "bench/spaces.py", f"{when}\n\n{text}")


def rows_of(scenario: Scenario, options: argparse.Namespace, measured: Measured) -> list[str]:
    """Measure a scenario, the plain broadcast and the space in turns, and return its rows of the table."""
    title = f"{scenario.name}: {scenario.spaces} × {scenario.participants}, {scenario.rate:g}/s"
    samples: dict[str, list[Sample]] = {"plain `websockets`": [], "space": []}
    for number in range(1, options.rounds + 1):
        for name, measure in zip(samples, (plain, gateway), strict=True):
            sample = measure(scenario, options.seconds, measured)
            samples[name].append(sample)
            print(f"{title}, round {number}, {name}: {sample}", file=sys.stderr, flush=True)
    rows = []
    for name, taken in samples.items():
        figures = [
            spread(one.cpu_us for one in taken), spread(one.p50_ms for one in taken),
            spread(one.p99_ms for one in taken), spread(one.kib for one in taken),
        ]  # fmt: skip
        last = f"{max(one.welcome_bytes for one in taken):,} B | {sum(one.lost for one in taken)}"
        rows.append(f"| {title} | {name} | {' | '.join(figures)} | {last} |")
        title = ""
    pairs = list(zip(*samples.values(), strict=True))
    cpu = spread((space.cpu_us / reference.cpu_us for reference, space in pairs), ".2f")
    p99 = spread((space.p99_ms / reference.p99_ms for reference, space in pairs), ".2f")
    return [*rows, f"| | ratio | {cpu} | | {p99} | | | |"]


def spread(figures: Iterable[float], form: str = ".1f") -> str:
    """Return the median, and with more than one figure the least and the most of them."""
    values = list(figures)
    median = f"{statistics.median(values):{form}}"
    return median if len(values) == 1 else f"{median} ({min(values):{form}}–{max(values):{form}})"


if __name__ == "__main__":
    main()
