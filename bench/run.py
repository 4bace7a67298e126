"""Measure the cost of the gateway, interleaved in one run with nginx and with a direct connection.

    .venv/bin/python bench/run.py [--quick] [--rounds N] [--only SCENARIO] [--base COMMIT] [--write]
    .venv/bin/python bench/run.py --peers        TensorZero, LiteLLM and Pydantic AI in the same tables

A mock upstream and a load generator (both in C, on one CPU) run the scenarios of `scenarios.py` over the routes of
`routes.py` (on the other CPU). Routes take turns within a round, and disturbed samples are repeated. A ratio is
computed within a round, from samples that were taken shortly after each other. At the end, it prints the targets of
`targets.py` with their verdicts. docs/performance.md explains the columns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import checkout
import document
import environment
import processes
import report
import routes
import targets
from processes import BenchError, Cpus
from report import Results, Sample
from routes import ROUTES, Route
from sampling import START_SECONDS, Sampler
from scenarios import BETWEEN_REFERENCES, QUICK_BETWEEN_REFERENCES, SCENARIOS, Scenario
from targets import Verdict

HERE = Path(__file__).resolve().parent
BINARIES = HERE / "bin"
RESULTS = HERE / "results"
ROUNDS = 5


def build(name: str) -> Path:
    """Compile one of the C programs, if its source is newer than its binary."""
    binary = BINARIES / name
    sources = [HERE / f"{name}.c", HERE / "marker.h"]
    if binary.exists() and binary.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return binary
    compiler = routes.find_program("gcc", "apt-get install gcc libc6-dev")
    BINARIES.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(binary), str(sources[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise BenchError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return binary


@contextlib.contextmanager
def prepared(options: argparse.Namespace, plan: Plan) -> Iterator[Sampler]:
    """Build the programs and run the upstream in a temporary directory."""
    upstream, load = build("upstream"), build("load")
    routes.find_nginx()
    if any(ROUTES[name].redis for scenario in plan.scenarios for name in scenario.routes):
        routes.find_redis()
    base = checkout.check_out(options.base) if options.base else None
    cpus = Cpus.available()
    processes.prepare_this_process(cpus)
    real_time = options.real_time and cpus.under_test is not None and processes.use_real_time()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        port, log = processes.free_port(), directory / "upstream.log"
        with processes.running(
            [str(upstream), "--port", str(port)],
            cpu=cpus.traffic,
            log=log,
            directory=directory,
            scheduling=processes.MEASURED if real_time else None,
        ) as process:
            processes.wait_until_listening(process, port, log, START_SECONDS)
            yield Sampler(
                cpus, directory, process, port, load, real_time, options.quick, base, sys.executable, list(plan.notes)
            )


class Plan(msgspec.Struct):
    """The scenarios and routes to measure."""

    scenarios: list[Scenario]
    only: frozenset[str]
    """Routes to measure, besides the references; empty: all."""
    unavailable: frozenset[str]
    """Routes of peers that cannot be installed."""
    rounds: int
    quick: bool
    notes: list[str]

    def order(self, scenario: Scenario, number: int, *, base: bool) -> Iterator[Route]:
        between = QUICK_BETWEEN_REFERENCES if self.quick else BETWEEN_REFERENCES
        for route in scenario.order(number, base=base, only=self.only, between=between):
            if route.name not in self.unavailable:
                yield route


def plan_run(options: argparse.Namespace) -> Plan:
    """Read the options, and install the peers that the chosen scenarios need."""
    names = options.only or [s.name for s in SCENARIOS if s.peers == options.peers and (s.quick or not options.quick)]
    scenarios = [s for s in SCENARIOS if s.name in names]
    only = frozenset(options.route or ())
    unavailable, notes = set(), []
    reasons: dict[str, str | None] = {}
    for name in dict.fromkeys(name for s in scenarios for name in s.routes if not only or name in only):
        peer = ROUTES[name].peer
        if peer is None:
            continue
        if peer.name not in reasons:
            reasons[peer.name] = peer.prepare()
        if reasons[peer.name] is not None:
            unavailable.add(name)
            notes.append(f"{name} is left out because it cannot be installed: {reasons[peer.name]}")
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    return Plan(scenarios, only, frozenset(unavailable), rounds, options.quick, notes)


def run_all(sampler: Sampler, plan: Plan) -> Results:
    """Run each round of each scenario. After a failure, a route is skipped in that scenario, with a note."""
    samples: list[Sample] = []
    failed: set[tuple[str, str]] = set()
    for number in range(1, plan.rounds + 1):
        for scenario in plan.scenarios:
            for route in plan.order(scenario, number, base=sampler.base is not None):
                if (scenario.name, route.name) in failed:
                    continue
                progress(f"round {number} of {plan.rounds}: {scenario.name}, {route.name}")
                try:
                    samples += sampler.take(scenario, route, number)
                except BenchError as error:
                    failed.add((scenario.name, route.name))
                    sampler.notes.append(f"{scenario.name}, {route.name} is left out: {error}")
    progress("")
    return Results(samples)


def progress(text: str) -> None:
    """Overwrite the current line of a terminal; print nothing if stderr is not one."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def report_text(results: Results, plan: Plan, verdicts: Sequence[Verdict], sampler: Sampler) -> str:
    """Return the tables, the targets and the notes in Markdown."""
    blocks = [
        f"{scenario.name}: {scenario.title}\n\n{report.table(results, scenario.name, scenario.columns)}"
        for scenario in plan.scenarios
    ]
    if sampler.base:
        blocks.append(
            f"this checkout against {sampler.base.commit[:12]}\n\n{before_and_after(results, plan.scenarios)}"
        )
    if verdicts:
        blocks.append(f"targets\n\n{targets.table(verdicts)}")
    blocks.append(
        "direct: CPU time of the upstream itself; a latency in brackets is absolute. Figures are medians over rounds, "
        "with minimum and maximum in brackets; ~: all samples were disturbed."
    )
    blocks += [f"Note: {note}." for note in dict.fromkeys([*conditions(results, sampler), *sampler.notes])]
    return "\n\n".join(blocks)


def write(text: str, options: argparse.Namespace, started: datetime) -> None:
    """Write the tables into docs/performance.md."""
    name, versions = "bench/run.py", [nginx_version()]
    if options.peers:
        name = "bench/run.py --peers"
        versions += [requirement for peer in environment.PEERS for requirement in peer.requirements]
    command = shlex.join(["bench/run.py", *(one for one in sys.argv[1:] if one != "--write")])
    document.write_section(document.PERFORMANCE, name, f"{document.conditions(command, started, versions)}\n\n{text}")


def nginx_version() -> str:
    done = subprocess.run([routes.find_nginx(), "-v"], capture_output=True, text=True, timeout=10, check=False)
    return done.stderr.strip().rpartition(": ")[2]


def before_and_after(results: Results, scenarios: Sequence[Scenario]) -> str:
    """Return a table that compares each route of the gateway with the base."""
    rows = []
    for scenario in scenarios:
        paired = [name for name in results.routes(scenario.name) if ROUTES.get(name) and ROUTES[name].gateway]
        per_request = scenario.reasoning + scenario.content <= 2
        figure = report.cpu_per_request if per_request else report.cpu_per_delta
        for name in paired:
            base = routes.base_name(name)
            before = results.spread(scenario.name, base, figure)
            after = results.spread(scenario.name, name, figure)
            memory = results.compared(base, scenario.name, name, lambda s: s.kib_per_stream, lambda a, b: a - b)
            unit, form = ("ms a request", ".3f") if per_request else ("µs a delta", ".1f")
            rows.append(
                (
                    f"{scenario.name}, {name}",
                    unit,
                    before.text(form),
                    after.text(form),
                    results.ratio(base, scenario.name, name, figure).text(".2f"),
                    f"{memory.median:+.1f}" if scenario.streams >= 1000 and memory.values else "",
                )
            )
    return report.lines(["", "CPU", "before", "after", "after / before", "KiB/stream"], rows, left=2)


def conditions(results: Results, sampler: Sampler) -> Iterator[str]:
    """Yield notes on the conditions of the measurement, and its disturbances."""
    if sampler.cpus.under_test is None:
        yield "one CPU only: nothing was pinned, and all processes disturbed each other"
    elif not sampler.real_time:
        yield "without real-time priority: other processes could take the CPU from the server under test"
    disturbed = [s for s in results.samples if s.disturbances]
    if disturbed:
        yield f"{len(disturbed)} of {len(results.samples)} samples were disturbed, and repeated where the bound allowed"
        reasons = Counter(f"{s.scenario}, {s.route}: {'; '.join(s.disturbances)}" for s in disturbed)
        yield from list(reasons)[:10]
    others = max((s.others_share for s in results.samples), default=0.0)
    if others > 0.05:
        yield f"other processes used up to {others:.0%} of the CPU under test while samples were taken"


def save(results: Results, verdicts: Sequence[Verdict], sampler: Sampler, started: datetime) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{started:%Y%m%d-%H%M%S}.json"
    content = {
        "started": started,
        "machine": processes.machine(),
        "python": platform.python_version(),
        "nginx": nginx_version(),
        "real_time": sampler.real_time,
        "quick": sampler.quick,
        "base": sampler.base.commit if sampler.base else None,
        "notes": sampler.notes,
        "verdicts": verdicts,
        "samples": results.samples,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    return path


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gateway, nginx and peers in one interleaved run.")
    parser.add_argument(
        "--quick", action="store_true", help="one round, short windows, without three-thousand: about four minutes"
    )
    parser.add_argument("--rounds", type=int, help=f"how often everything is measured (default: {ROUNDS}; quick: 1)")
    parser.add_argument(
        "--only",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        help="only this scenario; may be repeated",
    )
    parser.add_argument(
        "--route",
        action="append",
        choices=list(ROUTES),
        help="only this route, and the references; may be repeated",
    )
    parser.add_argument("--base", metavar="COMMIT", help="also measure every route of the gateway at this commit")
    parser.add_argument("--peers", action="store_true", help="run the scenarios of TensorZero, LiteLLM, Pydantic AI")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false", help="do not use real-time priority")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    parser.add_argument("--strict", action="store_true", help="status 1 when a target is missed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    started = datetime.now(UTC)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `with` blocks end their processes
    try:
        plan = plan_run(options)
        peers = any(scenario.peers for scenario in plan.scenarios)
        with prepared(options, plan) as sampler:
            results = run_all(sampler, plan)
            verdicts = targets.judge(results, peers=peers)
            if options.only or options.route:
                verdicts = [v for v in verdicts if v.verdict != targets.NOT_MEASURED]
            text = report_text(results, plan, verdicts, sampler)
            print(f"\n{text}")
            if options.write:
                write(text, options, started)
            path = save(results, verdicts, sampler, started)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"\n{(datetime.now(UTC) - started).seconds} s in total; all samples are in {os.path.relpath(path)}")
    return 1 if options.strict and any(v.missed for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
