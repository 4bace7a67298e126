"""Take one sample: a scenario over a route, with a fresh server, repeated if it was disturbed.

The mock upstream and the load generator (and Redis, where there is one) have the first CPU, the server under test has
the second. The CPU time of the server is read as the load generator's window opens and as it closes.

A sample is disturbed when

* it is paced, and the load generator's reads per delta are not 0.98 to 1.02: a process was late, and several deltas
  came in one read, which is cheaper than what the scenario stands for. (Not held against a server that batches by
  design, nor against one that has hardly any CPU time left: that is its own doing, and is noted.);
* deltas are missing although the server had CPU time left: upstream or load could not run;
* the host took CPU time from this machine;
* others used the CPU under test. With real-time priority they get what the server leaves, and take nothing from it:
  there, their share is noted, and is no disturbance.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import processes
import routes
from checkout import Checkout
from processes import BenchError, Cpus, CpuTimes, TaskTimes
from report import LoadReport, Sample
from routes import DIRECT, Route, ServerOptions
from scenarios import Scenario

WINDOW_OPEN = b"window open\n"
"""What the load generator writes to stderr when it begins to count."""
START_SECONDS = 60.0
"""How long a server under test may take until it listens."""
SETTLE_SECONDS = 0.5
"""From then until its idle memory is read."""
DRAIN_SECONDS = 3.0
"""How long upstream streams may stay open after their clients have gone."""
READS_PER_DELTA = (0.98, 1.02)
DELIVERED = 0.97
"""Of the deltas that a paced scenario sends."""
NEAR_LIMIT = 0.85
"""CPU seconds a second above which a server is near the limit of its CPU."""
STOLEN = 0.02
"""Share of the time of one CPU that the host may take."""
OTHERS = 0.1
"""Share of the CPU under test that others may use, where the server has no real-time priority."""
ATTEMPTS = 4
QUICK_ATTEMPTS = 2


@dataclass(frozen=True)
class Served:
    """A server under test that listens."""

    pid: int
    port: int
    redis_pid: int | None = None


@dataclass
class Sampler:
    """Takes samples, one at a time, with one upstream for all of them."""

    cpus: Cpus
    directory: Path
    upstream: subprocess.Popen[bytes]
    upstream_port: int
    load: Path
    real_time: bool
    quick: bool
    base: Checkout | None
    python: str
    notes: list[str] = field(default_factory=list)
    _position: int = 0

    @property
    def scheduling(self) -> processes.Scheduling | None:
        """Of everything that is measured, and of what measures it."""
        return processes.MEASURED if self.real_time else None

    def take(self, scenario: Scenario, route: Route, number: int) -> list[Sample]:
        """Take samples until one is not disturbed, or the bound is reached.

        Args:
            number: The round, from 1.

        Returns:
            All of them. At most the last one is not disturbed.
        """
        self._position += 1
        samples: list[Sample] = []
        for attempt in range(1, (QUICK_ATTEMPTS if self.quick else ATTEMPTS) + 1):
            sample = self._measure(scenario, route)
            sample.round, sample.position, sample.attempt = number, self._position, attempt
            sample.near_limit = sample.cpu_share > NEAR_LIMIT
            sample.disturbances = self._disturbances(sample, scenario, route)
            samples.append(sample)
            if not sample.disturbances:
                break
        if sample.left_open and not route.detached:
            self.notes.append(
                f"{scenario.name}, {route.name}, round {number}: {sample.left_open} upstream streams still open "
                f"{DRAIN_SECONDS:g} s after their clients left"
            )
        return samples

    def _disturbances(self, sample: Sample, scenario: Scenario, route: Route) -> list[str]:
        reasons = []
        if scenario.pace_us and not sample.near_limit:
            low, high = READS_PER_DELTA
            reads = sample.reads_per_delta
            if not route.batches and not low <= reads <= high:
                reasons.append(f"{reads:.2f} reads per delta")
            delivered = sample.load.deltas_per_s / scenario.deltas_per_s
            if delivered < DELIVERED:
                reasons.append(f"{delivered:.0%} delivered")
        if sample.stolen_share > STOLEN:
            reasons.append(f"{sample.stolen_share:.0%} stolen by the host")
        if not self.real_time and sample.others_share > OTHERS:
            reasons.append(f"others used {sample.others_share:.0%} of the CPU under test")
        return reasons

    def _measure(self, scenario: Scenario, route: Route) -> Sample:
        with self._serving(route) as served:
            if route.name != DIRECT:
                time.sleep(SETTLE_SECONDS)
            idle = processes.resident_kib(served.pid)
            self._play(reasoning=1, content=1, pace_us=0)
            self._warm_up(route, served)
            self._play(scenario.reasoning, scenario.content, scenario.pace_us)
            warm = processes.resident_kib(served.pid)
            seconds = scenario.quick_seconds if self.quick else scenario.seconds
            window = Window(self, route, served, scenario.streams, scenario.warm, seconds)
            load = window.measure()
            left_open = 0 if route.detached else self._open_after(DRAIN_SECONDS)
        return Sample(
            scenario=scenario.name,
            route=route.name,
            load=load,
            cpu_share=window.cpu_share,
            redis_cpu_share=window.redis_cpu_share,
            others_share=0.0 if route.name == DIRECT else window.others_share,
            waiting_share=window.waiting_share,
            stolen_share=window.stolen_share,
            resident_kib_idle=idle,
            resident_kib_warm=warm,
            resident_kib_most=window.resident_kib_most,
            left_open=left_open,
        )

    @contextlib.contextmanager
    def _serving(self, route: Route) -> Iterator[Served]:
        """Start a fresh server for a route."""
        if route.start is None:
            yield Served(self.upstream.pid, self.upstream_port)
            return
        log = self.directory / "server.log"
        with contextlib.ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.directory)))
            redis = stack.enter_context(self._redis()) if route.redis else None
            base = self.base if route.is_base else None
            port = processes.free_port()
            options = ServerOptions(
                home,
                port,
                self.upstream_port,
                redis.port if redis else None,
                base.source if base else None,
                base.python if base else self.python,
            )
            server = route.start(options)
            process = stack.enter_context(
                processes.running(
                    server.command,
                    cpu=self.cpus.under_test,
                    log=log,
                    directory=home,
                    environment=routes.server_environment(home, server.environment),
                    scheduling=self.scheduling,
                )
            )
            if str(routes.port_file(home)) in server.command:
                port = processes.wait_for_port(process, routes.port_file(home), log, START_SECONDS)
            processes.wait_until_listening(process, port, log, START_SECONDS)
            try:
                yield Served(process.pid, port, redis.pid if redis else None)
            except BenchError as error:
                raise BenchError(f"{error}\nlast lines of {route.name}:\n{processes.tail(log)}") from error

    @contextlib.contextmanager
    def _redis(self) -> Iterator[Served]:
        log, port = self.directory / "redis.log", processes.free_port()
        with tempfile.TemporaryDirectory(dir=self.directory) as home:
            command = [routes.find_redis(), "--port", str(port), "--bind", "127.0.0.1", "--dir", home]
            with processes.running(
                [*command, "--save", "", "--appendonly", "no"],
                cpu=self.cpus.traffic,
                log=log,
                directory=Path(home),
                scheduling=self.scheduling,
            ) as process:
                processes.wait_until_listening(process, port, log, START_SECONDS)
                yield Served(process.pid, port)

    def _play(self, reasoning: int, content: int, pace_us: int) -> None:
        """Set what the upstream's next streams look like."""
        processes.get(self.upstream_port, f"/scenario/{reasoning}/{content}/{pace_us}")

    def _open_after(self, seconds: float) -> int:
        """Upstream streams that are still open after at most so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            left: int = msgspec.json.decode(processes.get(self.upstream_port, "/open"))["open"]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def _warm_up(self, route: Route, served: Served) -> None:
        """Send some hundred requests. On a busy machine the first answer of a fresh server takes its time."""
        try:
            Window(self, route, served, streams=4, warm=0.1, seconds=0.3).measure()
        except BenchError:
            Window(self, route, served, streams=4, warm=5.0, seconds=0.5).measure()


class Clocks(msgspec.Struct):
    """What is read when the window opens, and again when it closes; all in seconds."""

    wall: float
    server: TaskTimes
    redis: TaskTimes
    cpu_under_test: CpuTimes
    stolen: float


@dataclass
class Window:
    """A run of the load generator, and what the server used while the load generator counted."""

    sampler: Sampler
    route: Route
    served: Served
    streams: int
    warm: float
    seconds: float
    cpu_share: float = 0.0
    redis_cpu_share: float = 0.0
    others_share: float = 0.0
    waiting_share: float = 0.0
    stolen_share: float = 0.0
    resident_kib_most: int = 0

    def measure(self) -> LoadReport:
        """Run the load generator.

        Raises:
            BenchError: No delta came through.
        """
        command, sampler = self._command(), self.sampler
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=processes.child_setup(sampler.cpus.traffic, sampler.scheduling),
        ) as load:
            try:
                line, complaints = self._watch(load)
            finally:
                load.kill()
        if not line:
            raise BenchError(f"{shlex.join(command)} gave no result:\n{complaints}")
        result = msgspec.json.decode(line, type=LoadReport)
        if not result.deltas:
            raise BenchError(f"no delta came through {self.route.path}:\n{complaints}")
        if result.errors:
            sampler.notes.append(f"{self.route.name}: {complaints.strip()}")
        return result

    def _command(self) -> list[str]:
        body = self.sampler.directory / "body.json"
        body.write_bytes(msgspec.json.encode(self.route.body))
        command = [str(self.sampler.load), "--url", f"http://127.0.0.1:{self.served.port}{self.route.path}"]
        command += ["--body", str(body), "--streams", str(self.streams)]
        command += ["--warm", str(self.warm), "--seconds", str(self.seconds)]
        for header in self.route.headers:
            command += ["--header", header]
        return command

    def _watch(self, load: subprocess.Popen[bytes]) -> tuple[bytes, str]:
        """Read the load generator's output, and the clocks as the window opens and closes."""
        deadline = time.monotonic() + self.warm + self.seconds + 10
        output = {"result": b"", "complaints": b""}
        opened: Clocks | None = None
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("result", load.stdout), ("complaints", load.stderr)):
                assert pipe
                selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map() and not output["result"].endswith(b"\n") and time.monotonic() < deadline:
                for key, _ in selector.select(timeout=0.1):
                    data = os.read(key.fd, 65536)
                    output[key.data] += data
                    if not data:
                        selector.unregister(key.fileobj)
                if opened is None and WINDOW_OPEN in output["complaints"]:
                    opened = self._clocks()
                self.resident_kib_most = max(self.resident_kib_most, processes.resident_kib(self.served.pid))
        if opened is not None:
            self._close(opened, self._clocks())
        return output["result"], output["complaints"].replace(WINDOW_OPEN, b"").decode(errors="replace")

    def _clocks(self) -> Clocks:
        cpus = self.sampler.cpus
        under_test = processes.cpu_times(cpus.under_test)
        return Clocks(
            wall=time.monotonic(),
            server=processes.task_times(self.served.pid),
            redis=processes.task_times(self.served.redis_pid) if self.served.redis_pid else TaskTimes(0.0, 0.0),
            cpu_under_test=under_test,
            stolen=under_test.stolen + processes.cpu_times(cpus.traffic).stolen,
        )

    def _close(self, opened: Clocks, closed: Clocks) -> None:
        wall = closed.wall - opened.wall
        cpu = closed.server.cpu - opened.server.cpu
        self.cpu_share = cpu / wall
        self.redis_cpu_share = (closed.redis.cpu - opened.redis.cpu) / wall
        self.waiting_share = (closed.server.waiting - opened.server.waiting) / wall
        self.stolen_share = (closed.stolen - opened.stolen) / wall
        self.others_share = max(0.0, closed.cpu_under_test.busy - opened.cpu_under_test.busy - cpu) / wall
