"""From samples to figures: medians over rounds, ratios to nginx, tables, and the targets.

A ratio or a difference is taken within one round, where both sides saw the same machine, and only then the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

DIRECT = "direct"
NGINX = "nginx"
RESPONSES = "gateway responses"


class Percentiles(msgspec.Struct):
    p50: int
    p99: int


class LoadReport(msgspec.Struct):
    """The line that load.c prints; its head says what each field is."""

    streams: int
    seconds: float
    deltas: int
    deltas_per_s: float
    reasoning: int
    content: int
    requests: int
    reads: int
    bytes: int
    lost: int
    misordered: int
    foreign: int
    repeated: int
    errors: int
    live: int
    latency_us: Percentiles
    first_delta_us: Percentiles


class Sample(msgspec.Struct):
    """One run of one scenario by one route in one round."""

    scenario: str
    route: str
    round: int
    load: LoadReport
    cpu_share: float
    """CPU seconds a second of the server under test (directly: of the upstream itself)."""
    others_share: float
    """The same of everything else on that server's CPU: how much the machine disturbed the measurement."""
    resident_kib_before: int
    resident_kib_most: int
    left_open: int
    """Upstream streams still open some time after all clients had gone."""

    @property
    def cpu_us_per_delta(self) -> float:
        return 1e6 * self.cpu_share / self.load.deltas_per_s if self.load.deltas else float("nan")

    @property
    def cpu_ms_per_request(self) -> float:
        return 1e3 * self.cpu_share * self.load.seconds / self.load.requests if self.load.requests else float("nan")

    @property
    def kib_per_stream(self) -> float:
        return (self.resident_kib_most - self.resident_kib_before) / self.load.streams

    @property
    def faults(self) -> int:
        return self.load.lost + self.load.misordered + self.load.foreign + self.load.errors


class Results:
    """All samples of a run, and the figures that are made of them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = list(samples)

    def of(self, scenario: str, route: str) -> list[Sample]:
        return [s for s in self.samples if s.scenario == scenario and s.route == route]

    def routes(self, scenario: str) -> list[str]:
        return list(dict.fromkeys(s.route for s in self.samples if s.scenario == scenario))

    def median(self, scenario: str, route: str, figure: Callable[[Sample], float]) -> float:
        return median(figure(s) for s in self.of(scenario, route))

    def against(
        self,
        other: str,
        scenario: str,
        route: str,
        figure: Callable[[Sample], float],
        compare: Callable[[float, float], float],
    ) -> float:
        """The median over rounds of `compare(figure here, figure by the route other)`."""
        others = {s.round: figure(s) for s in self.of(scenario, other)}
        return median(compare(figure(s), others[s.round]) for s in self.of(scenario, route))

    def ratio(self, other: str, scenario: str, route: str, figure: Callable[[Sample], float]) -> float:
        return self.against(other, scenario, route, figure, lambda here, there: here / there if there else float("nan"))

    def added_ms(self, scenario: str, route: str, latency_us: Callable[[Sample], float]) -> float:
        return self.against(DIRECT, scenario, route, latency_us, lambda here, there: (here - there) / 1000)

    def delivered(self, scenario: str, route: str) -> float:
        """Deltas a second as a share of what arrives without anything between."""
        return self.ratio(DIRECT, scenario, route, lambda s: s.load.deltas_per_s)


# ---- tables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Results, str, str], str]
    """Results, scenario, route: the text of the cell."""


def _figure(figure: Callable[[Sample], float], form: str) -> Callable[[Results, str, str], str]:
    return lambda results, scenario, route: format(results.median(scenario, route, figure), form)


def _ratio(figure: Callable[[Sample], float], other: str = NGINX) -> Callable[[Results, str, str], str]:
    def cell(results: Results, scenario: str, route: str) -> str:
        if route == DIRECT or not results.of(scenario, other):
            return "-"
        return f"{results.ratio(other, scenario, route, figure):.2f}"

    return cell


def _added(latency_us: Callable[[Sample], float]) -> Callable[[Results, str, str], str]:
    def cell(results: Results, scenario: str, route: str) -> str:
        if route == DIRECT:
            return f"({results.median(scenario, route, latency_us) / 1000:.2f})"
        return f"{results.added_ms(scenario, route, latency_us):+.2f}"

    return cell


def _delivered(results: Results, scenario: str, route: str) -> str:
    return f"{100 * results.delivered(scenario, route):.1f} %"


def _faults(results: Results, scenario: str, route: str) -> str:
    loads = [s.load for s in results.of(scenario, route)]
    counts = (
        sum(load.lost for load in loads),
        sum(load.misordered + load.foreign for load in loads),
        sum(load.errors for load in loads),
    )
    return " / ".join(map(str, counts))


def _memory(results: Results, scenario: str, route: str) -> str:
    return "-" if route == DIRECT else f"{results.median(scenario, route, lambda s: s.kib_per_stream):.1f}"


DELTAS = Column("deltas/s", _figure(lambda s: s.load.deltas_per_s, ",.0f"))
REQUESTS = Column("requests/s", _figure(lambda s: s.load.requests / s.load.seconds, ",.0f"))
DELIVERED = Column("delivered", _delivered)
DELTAS_PER_READ = Column("deltas/read", _figure(lambda s: s.load.deltas / max(s.load.reads, 1), ".1f"))
CPU_PER_DELTA = Column("CPU µs/delta", _figure(lambda s: s.cpu_us_per_delta, ".1f"))
CPU_PER_DELTA_RATIO = Column("x nginx", _ratio(lambda s: s.cpu_us_per_delta))
CPU_PER_REQUEST = Column("CPU ms/request", _figure(lambda s: s.cpu_ms_per_request, ".3f"))
CPU_PER_REQUEST_RATIO = Column("x nginx", _ratio(lambda s: s.cpu_ms_per_request))
CPU_PER_DELTA_BESIDE = Column("x responses", _ratio(lambda s: s.cpu_us_per_delta, RESPONSES))
ADDED_P50 = Column("added ms p50", _added(lambda s: s.load.latency_us.p50))
ADDED_P99 = Column("added ms p99", _added(lambda s: s.load.latency_us.p99))
ADDED_FIRST = Column("first delta, added ms p50", _added(lambda s: s.load.first_delta_us.p50))
MEMORY = Column("KiB/stream", _memory)
FAULTS = Column("lost / misordered / errors", _faults)


def table(results: Results, scenario: str, columns: Sequence[Column]) -> str:
    """The routes of a scenario as a table that reads well in a terminal and in Markdown."""
    head = ["", *(column.title for column in columns)]
    routes = results.routes(scenario)
    rows = [head, *([route, *(c.cell(results, scenario, route) for c in columns)] for route in routes)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in [rows[0], rule, *rows[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"


# ---- targets ---------------------------------------------------------------------------------------------------


class Verdict(msgspec.Struct):
    """A target beside what was measured."""

    route: str
    target: str
    limit: str
    measured: str
    met: bool


def at_most(route: str, target: str, value: float, limit: float, unit: str) -> Verdict:
    # A figure that could not be measured is nan, and nan is at most nothing: not met.
    return Verdict(route, target, f"<= {limit:g} {unit}", f"{value:.2f} {unit}", value <= limit)


def at_least(route: str, target: str, value: float, limit: float, unit: str) -> Verdict:
    return Verdict(route, target, f">= {limit:g} {unit}", f"{value:.2f} {unit}", value >= limit)


def all_delivered(results: Results, scenario: str, route: str, share: float) -> Verdict:
    """Every stream alive at the end, nothing lost, out of order or failed, and as many deltas as without us."""
    samples = results.of(scenario, route)
    delivered = results.delivered(scenario, route)
    faults = sum(s.faults for s in samples)
    streams = samples[0].load.streams
    live = min(s.load.live for s in samples)
    return Verdict(
        route,
        f"{streams:,} streams, all delivered",
        f">= {100 * share:g} %, no fault",
        f"{100 * delivered:.1f} %, {live:,} live, {faults} faults",
        delivered >= share and live == streams and not faults,
    )


def verdict_lines(verdicts: Sequence[Verdict]) -> str:
    rows = [[v.route, v.target, v.measured, v.limit, "met" if v.met else "NOT MET"] for v in verdicts]
    rows.insert(0, ["", "target", "measured", "limit", ""])
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)
