"""The bench: what the gateway costs, beside nginx and beside nothing, in one interleaved run.

    .venv/bin/python bench/run.py [--quick]

A mock upstream and a load generator (both in C, on one CPU) run the same scenarios over several routes: directly,
through nginx (``proxy_pass``, buffering off) and through each protocol of the gateway (on the other CPU); `--only agui`
puts AG-UI beside Pydantic AI's adapter. Every run gets a fresh server; routes take turns within a round, so that a
ratio compares neighbours in time. What is measured and what the columns mean: docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import environment
import processes
import report
from processes import BenchError, Cpus
from report import DIRECT, NGINX, LoadReport, Results, Sample, Verdict

HERE = Path(__file__).resolve().parent
BINARIES = HERE / "bin"
RESULTS = HERE / "results"

# The one place that knows how servers are started. `{port}` and `{upstream}` are filled in for each run.
GATEWAY_COMMAND = [
    sys.executable,
    *("-m", "pellucid", "serve", "--host", "127.0.0.1", "--port", "{port}"),
    *("--provider", "vllm", "--upstream", "{upstream}"),
]

PEER_COMMAND = [str(environment.PYTHON), str(HERE / "peer_agui.py"), "--port", "{port}", "--upstream", "{upstream}"]

WINDOW_OPEN = b"window open\n"
"""What the load generator says on stderr when it begins to count."""
START_SECONDS = 30.0
"""How long a server under test may take until it listens."""
DRAIN_SECONDS = 3.0
"""How long upstream streams may stay open after their clients have gone."""
DISTURBED = 0.1
"""The share of the CPU under test that others may use before a run is called disturbed."""


@dataclass(frozen=True)
class Target:
    """A protocol of the gateway, or of a peer: what to ask it, and where."""

    name: str
    path: str
    body: dict[str, Any]
    headers: tuple[str, ...] = ()
    config: str = ""
    """What the gateway is configured with, as TOML."""
    command: tuple[str, ...] = ()
    """What is started instead of the gateway."""

    @property
    def route(self) -> str:
        return self.name if self.command else ROUTE.format(self.name)


ROUTE = "gateway {}"
AGUI = ROUTE.format("agui")
KEY = "bench-bench-bench-bench-bench"
ASKED = {"model": "mock-r1", "stream": True, "input": "hi"}
MESSAGES = {"model": "mock-r1", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
RUN = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "messages": [{"id": "m", "role": "user", "content": "hi"}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {},
}
BARE = "[storage]\nstore = false\n[telemetry]\nmetrics = false\n"
GUARDED = """\
[access]
key_env = "BENCH_KEY"
key_policy = "metered"
[access.policies.metered]
requests_per_minute = 1000000000
tokens_per_minute = 1000000000000
streams = 100000
[telemetry]
metrics = true
"""
GATEWAY_TARGETS = [
    Target("responses", "/v1/responses", ASKED, config=BARE),
    Target("responses, kept", "/v1/responses", ASKED, (f"Authorization: Bearer {KEY}",), GUARDED),
    Target("chat", "/v1/chat/completions", MESSAGES, config=BARE),
    Target("agui", "/ag-ui?model=mock-r1", RUN, config=BARE),
]
"""Each protocol by itself; and one with what a shared gateway has: every response kept, keys, limits, metrics."""
PEERS = [Target("Pydantic AI", "/ag-ui", RUN, command=tuple(PEER_COMMAND))]
"""Who else speaks these protocols, for the scenarios that name them."""
CHAT = Target(
    "chat completions",
    "/v1/chat/completions",
    {
        "model": "mock-r1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    },
)
"""What the mock upstream speaks, and so what is asked of it directly and through nginx."""


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    streams: int
    reasoning: int
    content: int
    pace_us: int
    """Between two deltas of a stream; 0 for as fast as they go."""
    warm: float
    seconds: float
    quick_seconds: float
    columns: tuple[report.Column, ...]
    only: tuple[str, ...] = ()
    """The targets it is for; none named: all of the gateway's."""
    group: str = ""
    """What `--only` calls it."""


PACED = Scenario(
    name="paced",
    title="100 streams x 50 deltas/s",
    streams=100,
    reasoning=200,
    content=100,
    pace_us=20_000,
    warm=1.0,
    seconds=5.0,
    quick_seconds=3.0,
    columns=(
        *(report.DELTAS, report.DELIVERED, report.CPU_PER_DELTA, report.CPU_PER_DELTA_RATIO),
        *(report.ADDED_P50, report.ADDED_P99, report.FAULTS),
    ),
)
UNPACED = Scenario(
    name="unpaced",
    title="16 streams, as fast as they go",
    streams=16,
    reasoning=200,
    content=100,
    pace_us=0,
    warm=0.5,
    seconds=3.0,
    quick_seconds=2.0,
    columns=(
        *(report.DELTAS, report.DELTAS_PER_READ, report.CPU_PER_DELTA, report.CPU_PER_DELTA_RATIO),
        report.FAULTS,
    ),
)
THOUSAND = Scenario(
    name="thousand",
    title="1,000 streams x 10 deltas/s",
    streams=1000,
    reasoning=200,
    content=100,
    pace_us=100_000,
    warm=2.0,
    seconds=5.0,
    quick_seconds=3.0,
    columns=(
        *(report.DELTAS, report.DELIVERED, report.CPU_PER_DELTA, report.CPU_PER_DELTA_RATIO),
        *(report.ADDED_P50, report.ADDED_P99, report.MEMORY, report.FAULTS),
    ),
)
TINY = Scenario(
    name="tiny",
    title="requests of 2 deltas, 4 at a time",
    streams=4,
    reasoning=1,
    content=1,
    pace_us=0,
    warm=0.5,
    seconds=3.0,
    quick_seconds=2.0,
    columns=(
        *(report.REQUESTS, report.CPU_PER_REQUEST, report.CPU_PER_REQUEST_RATIO),
        *(report.ADDED_FIRST, report.FAULTS),
    ),
)
MINUTE = Scenario(
    name="minute",
    title="1,000 streams x 10 deltas/s, for a minute",
    streams=1000,
    reasoning=200,
    content=100,
    pace_us=100_000,
    warm=2.0,
    seconds=60.0,
    quick_seconds=10.0,
    columns=(
        *(report.DELTAS, report.DELIVERED, report.CPU_PER_DELTA, report.ADDED_P50, report.ADDED_P99),
        *(report.MEMORY, report.FAULTS),
    ),
    only=("responses", "responses, kept"),
)
BESIDE = ("responses", "agui", "Pydantic AI")
BESIDE_COLUMNS = (
    *(report.DELTAS, report.DELIVERED, report.DELTAS_PER_READ, report.CPU_PER_DELTA, report.CPU_PER_DELTA_BESIDE),
    report.FAULTS,
)
BESIDE_PACED = Scenario(
    name="agui-paced",
    title="AG-UI beside Pydantic AI's: 32 streams x 50 deltas/s",
    streams=32,
    reasoning=200,
    content=100,
    pace_us=20_000,
    warm=1.5,
    seconds=3.0,
    quick_seconds=2.0,
    columns=BESIDE_COLUMNS,
    only=BESIDE,
    group="agui",
)
BESIDE_UNPACED = Scenario(
    name="agui-unpaced",
    title="AG-UI beside Pydantic AI's: 16 streams, as fast as they go",
    streams=16,
    reasoning=200,
    content=100,
    pace_us=0,
    warm=1.5,
    seconds=3.0,
    quick_seconds=2.0,
    columns=BESIDE_COLUMNS,
    only=BESIDE,
    group="agui",
)
SCENARIOS = [PACED, UNPACED, THOUSAND, TINY, MINUTE, BESIDE_PACED, BESIDE_UNPACED]
GROUPS = {group: [s for s in SCENARIOS if s.group == group] for group in ("agui",)}


def judge(results: Results, route: str) -> list[Verdict]:
    """The targets of the design, for one protocol of the gateway, or for a peer."""
    verdicts = []
    measured = {s.scenario for s in results.samples if s.route == route}
    for scenario, target in ((PACED, "CPU per delta, paced"), (UNPACED, "CPU per delta, unpaced, 16 streams")):
        if scenario.name in measured:
            ratio = results.ratio(NGINX, scenario.name, route, lambda s: s.cpu_us_per_delta)
            verdicts.append(report.at_most(route, target, ratio, 2, "x nginx"))
    if TINY.name in measured:
        cost = results.median(TINY.name, route, lambda s: s.cpu_ms_per_request)
        verdicts.append(report.at_most(route, "CPU per request", cost, 0.5, "ms"))
    if THOUSAND.name in measured:
        memory = results.median(THOUSAND.name, route, lambda s: s.kib_per_stream)
        verdicts.append(report.at_most(route, "memory per open stream", memory, 40, "KiB"))
        verdicts.append(report.all_delivered(results, THOUSAND.name, route, 0.99))
    if MINUTE.name in measured and route == ROUTE.format("responses, kept"):
        bare = report.RESPONSES
        ratio = results.ratio(bare, MINUTE.name, route, lambda s: s.cpu_us_per_delta)
        verdicts.append(report.at_most(route, "CPU per delta, with all that", ratio, 1.15, "x without"))
    for scenario, target, least in ((BESIDE_PACED, "paced", 5), (BESIDE_UNPACED, "unpaced", 20)):
        others = results.routes(scenario.name) if scenario.name in measured else []
        if route == AGUI and report.RESPONSES in others:
            ratio = results.ratio(report.RESPONSES, scenario.name, route, lambda s: s.cpu_us_per_delta)
            verdicts.append(report.at_most(route, f"CPU per delta, {target}", ratio, 1.3, "x responses"))
        if route == PEERS[0].route and AGUI in others:
            ratio = results.ratio(AGUI, scenario.name, route, lambda s: s.cpu_us_per_delta)
            verdicts.append(report.at_least(route, f"CPU per delta, {target}", ratio, least, "x our AG-UI"))
    return verdicts


# ---- getting ready ---------------------------------------------------------------------------------------------


def build(name: str) -> Path:
    """Compile one of the C programs, if its source is newer than what is there."""
    binary = BINARIES / name
    sources = [HERE / f"{name}.c", HERE / "marker.h"]
    if binary.exists() and binary.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return binary
    compiler = need("gcc", "apt-get install gcc libc6-dev")
    BINARIES.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(binary), str(sources[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise BenchError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return binary


def need(program: str, remedy: str) -> str:
    """Where a program is; nothing is installed for the user."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise BenchError(f"{program} is missing; on Debian and its relatives: {remedy}")
    return found


NGINX_CONFIG = """\
daemon off;
pid {directory}/nginx.pid;
worker_processes 1;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 300s;
    keepalive_requests 100000000;
    client_body_buffer_size 64k;
    client_body_temp_path {directory}/nginx-body;
    proxy_temp_path {directory}/nginx-proxy;
    fastcgi_temp_path {directory}/nginx-fastcgi;
    uwsgi_temp_path {directory}/nginx-uwsgi;
    scgi_temp_path {directory}/nginx-scgi;
    upstream model {{
        server 127.0.0.1:{upstream_port};
        keepalive 1024;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""


def gateway_environment(directory: Path) -> dict[str, str]:
    """An environment in which the gateway finds no settings of the operator's and leaves nothing behind."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PELLUCID_", "XDG_"))}
    return kept | {"HOME": str(directory), "BENCH_KEY": KEY}


# ---- one run ---------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """What a run of the bench has at hand."""

    cpus: Cpus
    directory: Path
    upstream: subprocess.Popen[bytes]
    upstream_port: int
    load: Path
    gateway_command: Sequence[str]
    quick: bool
    notes: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def server(self, route: str, target: Target) -> Iterator[tuple[int, int]]:
        """A fresh server for a route: its process id and its port."""
        if route == DIRECT:
            yield self.upstream.pid, self.upstream_port
            return
        port = processes.free_port()
        log = self.directory / "server.log"
        with tempfile.TemporaryDirectory(dir=self.directory) as home:
            command = self.nginx(Path(home), port) if route == NGINX else self.gateway(Path(home), port, target)
            with processes.running(
                command,
                cpu=self.cpus.under_test,
                log=log,
                directory=Path(home),
                environment=gateway_environment(Path(home)),
            ) as process:
                processes.wait_until_listening(process, port, log, START_SECONDS)
                try:
                    yield process.pid, port
                except BenchError as error:
                    raise BenchError(f"{error}\nlast lines of {route}:\n{processes.tail(log)}") from error

    def nginx(self, directory: Path, port: int) -> list[str]:
        config = directory / "nginx.conf"
        config.write_text(NGINX_CONFIG.format(directory=directory, port=port, upstream_port=self.upstream_port))
        program = need("nginx", "apt-get install nginx-light")
        return [program, "-p", str(directory), "-c", str(config), "-e", "stderr"]

    def gateway(self, directory: Path, port: int, target: Target) -> list[str]:
        upstream = f"http://127.0.0.1:{self.upstream_port}/v1"
        command = [word.format(port=port, upstream=upstream) for word in target.command or self.gateway_command]
        if target.config:
            config = directory / "pellucid.toml"
            config.write_text(target.config)
            command += ["--config", str(config)]
        return command

    def play(self, reasoning: int, content: int, pace_us: int) -> None:
        """Tell the upstream what the next streams look like."""
        processes.get(self.upstream_port, f"/scenario/{reasoning}/{content}/{pace_us}")

    def open_after(self, seconds: float) -> int:
        """Upstream streams that are still open after at most so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            left: int = msgspec.json.decode(processes.get(self.upstream_port, "/open"))["open"]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def run(self, scenario: Scenario, route: str, target: Target, number: int) -> Sample:
        """One scenario over one route."""
        with self.server(route, target) as (pid, port):
            request = Request(self, target, port)
            self.play(reasoning=1, content=1, pace_us=0)
            self.warm_up(request, pid)
            self.play(scenario.reasoning, scenario.content, scenario.pace_us)
            resident = processes.resident_kib(pid)
            seconds = scenario.quick_seconds if self.quick else scenario.seconds
            window = Window(request, pid, scenario.streams, scenario.warm, seconds)
            load = window.measure()
            left_open = self.open_after(DRAIN_SECONDS)
        sample = Sample(
            scenario=scenario.name,
            route=route,
            round=number,
            load=load,
            cpu_share=window.cpu_share,
            others_share=window.others_share if route != DIRECT else 0.0,
            resident_kib_before=resident,
            resident_kib_most=window.resident_kib_most,
            left_open=left_open,
        )
        self.remark(sample)
        return sample

    def warm_up(self, request: Request, pid: int) -> None:
        """Some hundred requests. On a busy machine the first answer of a fresh server takes its time."""
        try:
            Window(request, pid, streams=4, warm=0.1, seconds=0.3).measure()
        except BenchError:
            Window(request, pid, streams=4, warm=3.0, seconds=0.3).measure()

    def remark(self, sample: Sample) -> None:
        """Note what a server did wrong besides being slow."""
        if sample.left_open:
            self.notes.append(
                f"{sample.scenario}, {sample.route}, round {sample.round}: {sample.left_open} upstream streams "
                f"still open {DRAIN_SECONDS:g} s after their clients left"
            )


@dataclass
class Request:
    """What the load generator sends, and to which port."""

    bench: Bench
    target: Target
    port: int

    def command(self, streams: int, warm: float, seconds: float) -> list[str]:
        body = self.bench.directory / "body.json"
        body.write_bytes(msgspec.json.encode(self.target.body))
        command = [str(self.bench.load), "--url", f"http://127.0.0.1:{self.port}{self.target.path}"]
        command += ["--body", str(body), "--streams", str(streams)]
        command += ["--warm", str(warm), "--seconds", str(seconds)]
        for header in self.target.headers:
            command += ["--header", header]
        return command


@dataclass
class Window:
    """A run of the load generator, and what the server used while the load generator counted."""

    request: Request
    pid: int
    streams: int
    warm: float
    seconds: float
    cpu_share: float = 0.0
    others_share: float = 0.0
    resident_kib_most: int = 0

    def measure(self) -> LoadReport:
        command = self.request.command(self.streams, self.warm, self.seconds)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=processes.end_with_parent,
        ) as load:
            try:
                line, complaints = self.watch(load)
            finally:
                load.kill()
        if not line:
            raise BenchError(f"{shlex.join(command)} gave no result:\n{complaints}")
        result = msgspec.json.decode(line, type=LoadReport)
        if not result.deltas:
            raise BenchError(f"no delta came through {self.request.target.path}:\n{complaints}")
        if result.errors:
            self.request.bench.notes.append(f"{self.request.target.name}: {complaints.strip()}")
        return result

    def watch(self, load: subprocess.Popen[bytes]) -> tuple[bytes, str]:
        """Read the load generator's output, taking the server's CPU time as the window opens and closes."""
        deadline = time.monotonic() + self.warm + self.seconds + 10
        output = {"result": b"", "complaints": b""}
        opened: tuple[float, float, float] | None = None
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
                    opened = self.clocks()
                self.resident_kib_most = max(self.resident_kib_most, processes.resident_kib(self.pid))
        if opened is not None:
            self.close(opened, self.clocks())
        return output["result"], output["complaints"].replace(WINDOW_OPEN, b"").decode(errors="replace")

    def clocks(self) -> tuple[float, float, float]:
        """Now: wall time, the server's CPU time, and how long its CPU has been busy."""
        busy = processes.busy_seconds(self.request.bench.cpus.under_test)
        return time.monotonic(), processes.cpu_seconds(self.pid), busy

    def close(self, opened: tuple[float, float, float], closed: tuple[float, float, float]) -> None:
        wall, cpu, busy = (after - before for before, after in zip(opened, closed, strict=True))
        self.cpu_share = cpu / wall
        self.others_share = max(0.0, busy - cpu) / wall


# ---- the whole -------------------------------------------------------------------------------------------------


def routes(targets: Sequence[Target], scenario: Scenario | None = None) -> list[tuple[str, Target]]:
    only = scenario.only if scenario is not None else ()
    ways = [] if only else [(NGINX, CHAT)]
    chosen = [target for target in targets if (target.name in only if only else not target.command)]
    return [*((DIRECT, CHAT), *ways), *((target.route, target) for target in chosen)]


@contextlib.contextmanager
def prepared(options: argparse.Namespace, cpus: Cpus) -> Iterator[Bench]:
    """The programs built and the upstream running, in a temporary directory."""
    upstream, load = build("upstream"), build("load")
    need("nginx", "apt-get install nginx-light")
    processes.prepare_this_process(cpus)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        port, log = processes.free_port(), directory / "upstream.log"
        command = [str(upstream), "--port", str(port)]
        with processes.running(command, cpu=cpus.traffic, log=log, directory=directory) as process:
            processes.wait_until_listening(process, port, log, START_SECONDS)
            yield Bench(cpus, directory, process, port, load, options.gateway_command, options.quick)


def run_all(bench: Bench, scenarios: Sequence[Scenario], targets: Sequence[Target], rounds: int) -> Results:
    samples = []
    for number in range(1, rounds + 1):
        for scenario in scenarios:
            for route, target in routes(targets, scenario):
                progress(f"round {number} of {rounds}: {scenario.name}, {route}")
                samples.append(bench.run(scenario, route, target, number))
    progress("")
    return Results(samples)


def progress(text: str) -> None:
    """One line on a terminal, written over again and again; nothing in a log file."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def show(results: Results, scenarios: Sequence[Scenario], verdicts: Sequence[Verdict], bench: Bench) -> None:
    for scenario in scenarios:
        print(f"\n{scenario.name}: {scenario.title}\n")
        print(report.table(results, scenario.name, scenario.columns))
    if verdicts:
        print(f"\ntargets\n\n{report.verdict_lines(verdicts)}")
    print("\ndirect: CPU is the upstream's own; a latency in brackets is the whole of it.")
    if bench.cpus.under_test is None:
        print("One CPU only: nothing was pinned, and all figures disturb each other.")
    for note in dict.fromkeys([*disturbance(results), *bench.notes]):
        print(f"note: {note}")


def disturbance(results: Results) -> list[str]:
    """Whether something else was at work on the CPU under test, and how much."""
    shares = [s.others_share for s in results.samples if s.route != DIRECT]
    disturbed = [share for share in shares if share > DISTURBED]
    if not disturbed:
        return []
    return [
        f"others used the CPU under test, up to {max(disturbed):.0%} of it, in {len(disturbed)} of {len(shares)} "
        "runs: latencies are partly theirs, ratios are rough; measure again on a quiet machine"
    ]


def save(results: Results, verdicts: Sequence[Verdict], bench: Bench, started: datetime) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{started:%Y%m%d-%H%M%S}.json"
    nginx = subprocess.run([need("nginx", ""), "-v"], capture_output=True, text=True, timeout=10, check=False)
    document = {
        "started": started,
        "machine": processes.machine(),
        "python": platform.python_version(),
        "nginx": nginx.stderr.strip(),
        "gateway_command": list(bench.gateway_command),
        "quick": bench.quick,
        "notes": bench.notes,
        "verdicts": verdicts,
        "samples": results.samples,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
    return path


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gateway beside nginx and beside nothing.")
    parser.add_argument("--quick", action="store_true", help="one round, short windows, one protocol: under a minute")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (default: 3; quick: 1)")
    parser.add_argument(
        "--scenario",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        help="only this scenario; may be repeated",
    )
    parser.add_argument(
        "--protocol",
        action="append",
        choices=[target.name for target in GATEWAY_TARGETS],
        help="only this protocol of the gateway; may be repeated",
    )
    parser.add_argument("--only", choices=list(GROUPS), help="only what is measured beside others who speak it")
    parser.add_argument("--no-gateway", action="store_true", help="only directly and through nginx")
    parser.add_argument(
        "--gateway-command",
        type=shlex.split,
        default=GATEWAY_COMMAND,
        help="what to start instead of the gateway; {port} and {upstream} are filled in",
    )
    parser.add_argument("--strict", action="store_true", help="status 1 when a target is not met")
    return parser.parse_args(arguments)


def chosen_scenarios(options: argparse.Namespace) -> list[Scenario]:
    if options.only:
        return GROUPS[options.only]
    if options.scenario:
        return [s for s in SCENARIOS if s.name in options.scenario]
    # One protocol has nobody beside it.
    beside = not (options.quick or options.protocol or options.no_gateway)
    return [s for s in SCENARIOS if beside or not s.group]


def chosen_targets(options: argparse.Namespace, scenarios: Sequence[Scenario]) -> list[Target]:
    if options.no_gateway:
        return []
    if options.protocol:
        return [target for target in GATEWAY_TARGETS if target.name in options.protocol]
    peers = [target for target in PEERS if any(target.name in scenario.only for scenario in scenarios)]
    if peers and not environment.offers("pydantic_ai.ui.ag_ui"):
        print("bench: Pydantic AI cannot be installed into bench/.venv; it is left out", file=sys.stderr)
        peers = []
    return [*(GATEWAY_TARGETS[:1] if options.quick and not options.only else GATEWAY_TARGETS), *peers]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    scenarios = chosen_scenarios(options)
    targets = chosen_targets(options, scenarios)
    rounds = options.rounds or (1 if options.quick else 3)
    started = datetime.now(UTC)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `with` blocks end what they began
    try:
        with prepared(options, Cpus.available()) as bench:
            results = run_all(bench, scenarios, targets, rounds)
            verdicts = [v for target in targets for v in judge(results, target.route)]
            show(results, scenarios, verdicts, bench)
            path = save(results, verdicts, bench, started)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"\n{(datetime.now(UTC) - started).seconds} s in all; every sample is in {os.path.relpath(path)}")
    return 1 if options.strict and not all(v.met for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
