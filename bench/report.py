"""Compute figures from samples: medians over rounds with their spread, ratios within a round, tables.

A ratio or a difference is taken within one round, where both sides saw the same machine: against the mean of the
reference's samples just before and just after it. Disturbed samples are left out. Where a route has no others, its
figures are shown with a leading `~`, and nothing is judged by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

import msgspec

from routes import DIRECT


class Percentiles(msgspec.Struct):
    p50: int
    p99: int


class LoadReport(msgspec.Struct):
    """The line that load.c prints; the comment at its top describes each field."""

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


class Sample(msgspec.Struct, kw_only=True):
    """One run of one scenario over one route. Shares are seconds a second of the window."""

    scenario: str
    route: str
    round: int = 0
    position: int = 0
    """Its index in the whole run; repeated attempts have the same index."""
    attempt: int = 1
    disturbances: list[str] = []
    near_limit: bool = False
    """Whether the server used nearly all of its CPU."""
    load: LoadReport
    cpu_share: float
    """CPU time of the server under test (direct: of the upstream itself)."""
    redis_cpu_share: float
    others_share: float
    """CPU time of everything else on the CPU under test."""
    waiting_share: float
    """Time in which the server's threads were ready and waited for the CPU, also for each other."""
    stolen_share: float
    """CPU time that the host took."""
    resident_kib_idle: int
    """Before the first request."""
    resident_kib_warm: int
    """After some hundred requests."""
    resident_kib_most: int
    left_open: int
    """Upstream streams still open some time after all clients had gone."""

    @property
    def cpu_us_per_delta(self) -> float:
        return _divided(1e6 * self.cpu_share, self.load.deltas_per_s)

    @property
    def redis_us_per_delta(self) -> float:
        return _divided(1e6 * self.redis_cpu_share, self.load.deltas_per_s)

    @property
    def cpu_ms_per_request(self) -> float:
        return _divided(1e3 * self.cpu_share * self.load.seconds, self.load.requests)

    @property
    def kib_per_stream(self) -> float:
        return (self.resident_kib_most - self.resident_kib_warm) / self.load.streams

    @property
    def idle_mb(self) -> float:
        return self.resident_kib_idle * 1024 / 1e6

    @property
    def reads_per_delta(self) -> float:
        return _divided(self.load.reads, self.load.deltas)

    @property
    def faults(self) -> int:
        return self.load.lost + self.load.misordered + self.load.foreign + self.load.errors


Figure = Callable[[Sample], float]


def _divided(value: float, by: float) -> float:
    return value / by if by else math.nan


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds."""

    values: tuple[float, ...]
    """One for each round that counts."""
    disturbed: bool = False
    """Whether every round was disturbed, so that the values are of disturbed samples."""

    @property
    def median(self) -> float:
        return median(self.values) if self.values else math.nan

    def text(self, form: str) -> str:
        """The median; with more than one round, the least and the most of them, too."""
        if not self.values:
            return "-"
        head = f"{'~' if self.disturbed else ''}{self.median:{form}}"
        return head if len(self.values) == 1 else f"{head} ({min(self.values):{form}}–{max(self.values):{form}})"


def _spread(rounds: dict[int, list[float]], disturbed: bool) -> Spread:
    """Return the spread of the rounds' means, without those that are NaN."""
    values = tuple(value for value in map(mean, rounds.values()) if not math.isnan(value))
    return Spread(values, disturbed and bool(values))


class Results:
    """All samples of a run, and the figures that are made of them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = list(samples)

    def routes(self, scenario: str) -> list[str]:
        return list(dict.fromkeys(s.route for s in self.samples if s.scenario == scenario))

    def of(self, scenario: str, route: str) -> tuple[list[Sample], bool]:
        """Return the undisturbed samples, or else all of them; and whether these are disturbed."""
        samples = [s for s in self.samples if s.scenario == scenario and s.route == route]
        clean = [s for s in samples if not s.disturbances]
        return (clean, False) if clean else (samples, bool(samples))

    def spread(self, scenario: str, route: str, figure: Figure) -> Spread:
        samples, disturbed = self.of(scenario, route)
        rounds: dict[int, list[float]] = {}
        for sample in samples:
            rounds.setdefault(sample.round, []).append(figure(sample))
        return _spread(rounds, disturbed)

    def compared(
        self, reference: str, scenario: str, route: str, figure: Figure, compare: Callable[[float, float], float]
    ) -> Spread:
        """`compare(figure of route, figure of reference)` in each round."""
        samples, disturbed = self.of(scenario, route)
        references, reference_disturbed = self.of(scenario, reference)
        rounds: dict[int, list[float]] = {}
        for sample in samples:
            near = _neighbours(sample, [s for s in references if s.round == sample.round])
            if near:
                rounds.setdefault(sample.round, []).append(compare(figure(sample), mean(map(figure, near))))
        return _spread(rounds, disturbed or reference_disturbed)

    def ratio(self, reference: str, scenario: str, route: str, figure: Figure) -> Spread:
        return self.compared(reference, scenario, route, figure, _divided)

    def added_ms(self, reference: str, scenario: str, route: str, latency_us: Figure) -> Spread:
        return self.compared(reference, scenario, route, latency_us, lambda here, there: (here - there) / 1000)

    def delivered(self, scenario: str, route: str) -> Spread:
        """Deltas per second as a share of those of the direct route."""
        return self.ratio(DIRECT, scenario, route, lambda s: s.load.deltas_per_s)

    def rounds(self, scenario: str, route: str) -> tuple[int, int]:
        """Return the number of rounds with an undisturbed sample of the route, and of all rounds with a sample."""
        samples = [s for s in self.samples if s.scenario == scenario and s.route == route]
        return len({s.round for s in samples if not s.disturbances}), len({s.round for s in samples})


def _neighbours(sample: Sample, references: Sequence[Sample]) -> list[Sample]:
    """Return the last reference before the sample and the first one after it, if they exist."""
    before = [s for s in references if s.position <= sample.position]
    after = [s for s in references if s.position > sample.position]
    near = [max(before, key=lambda s: s.position)] if before else []
    return [*near, min(after, key=lambda s: s.position)] if after else near


# ---- tables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Results, str, str], str]
    """Results, scenario, route: the text of the cell."""
    optional: bool = False
    """Left out where every cell is `-`."""


def _figure(figure: Figure, form: str) -> Callable[[Results, str, str], str]:
    def cell(results: Results, scenario: str, route: str) -> str:
        spread = results.spread(scenario, route, figure)
        return f"{'~' if spread.disturbed else ''}{spread.median:{form}}" if spread.values else "-"

    return cell


def _ratio(reference: str, figure: Figure) -> Callable[[Results, str, str], str]:
    def cell(results: Results, scenario: str, route: str) -> str:
        return "-" if route in (DIRECT, reference) else results.ratio(reference, scenario, route, figure).text(".2f")

    return cell


def _added(latency_us: Figure) -> Callable[[Results, str, str], str]:
    def cell(results: Results, scenario: str, route: str) -> str:
        if route == DIRECT:
            return f"({results.spread(scenario, route, latency_us).median / 1000:.2f})"
        spread = results.added_ms(DIRECT, scenario, route, latency_us)
        return f"{'~' if spread.disturbed else ''}{spread.median:+.2f}" if spread.values else "-"

    return cell


def _delivered(results: Results, scenario: str, route: str) -> str:
    spread = results.delivered(scenario, route)
    return f"{100 * spread.median:.1f} %" if spread.values else "-"


def _redis(results: Results, scenario: str, route: str) -> str:
    spread = results.spread(scenario, route, lambda s: s.redis_us_per_delta)
    return f"{spread.median:.1f}" if spread.median > 0 else "-"


def _faults(results: Results, scenario: str, route: str) -> str:
    loads = [s.load for s in results.samples if s.scenario == scenario and s.route == route]
    counts = (
        sum(load.lost for load in loads),
        sum(load.misordered + load.foreign for load in loads),
        sum(load.errors for load in loads),
    )
    return " / ".join(map(str, counts))


def _memory(results: Results, scenario: str, route: str) -> str:
    return "-" if route == DIRECT else f"{results.spread(scenario, route, lambda s: s.kib_per_stream).median:.1f}"


def _busy(results: Results, scenario: str, route: str) -> str:
    samples, _ = results.of(scenario, route)
    full = any(s.near_limit for s in samples)
    return f"{100 * median(s.cpu_share for s in samples):.0f} %{' (full)' if full else ''}"


def _rounds(results: Results, scenario: str, route: str) -> str:
    clean, all_ = results.rounds(scenario, route)
    return f"{clean} of {all_}"


def cpu_per_delta(sample: Sample) -> float:
    return sample.cpu_us_per_delta


def cpu_per_request(sample: Sample) -> float:
    return sample.cpu_ms_per_request


DELTAS = Column("deltas/s", _figure(lambda s: s.load.deltas_per_s, ",.0f"))
REQUESTS = Column("requests/s", _figure(lambda s: s.load.requests / s.load.seconds, ",.0f"))
DELIVERED = Column("delivered", _delivered)
READS_PER_DELTA = Column("reads/delta", _figure(lambda s: s.reads_per_delta, ".2f"))
DELTAS_PER_READ = Column("deltas/read", _figure(lambda s: s.load.deltas / max(s.load.reads, 1), ".1f"))
BUSY = Column("CPU in use", _busy)
CPU_PER_DELTA = Column("CPU µs/delta", _figure(cpu_per_delta, ".1f"))
REDIS_PER_DELTA = Column("Redis µs/delta", _redis, optional=True)
CPU_PER_REQUEST = Column("CPU ms/request", _figure(cpu_per_request, ".3f"))
ADDED_P50 = Column("added ms p50", _added(lambda s: s.load.latency_us.p50))
ADDED_P99 = Column("added ms p99", _added(lambda s: s.load.latency_us.p99))
ADDED_FIRST = Column("first delta, added ms p50", _added(lambda s: s.load.first_delta_us.p50))
MEMORY = Column("KiB/stream", _memory)
FAULTS = Column("lost / misordered / errors", _faults)
ROUNDS = Column("rounds", _rounds)


def delta_ratio(reference: str) -> Column:
    return Column(f"x {reference}", _ratio(reference, cpu_per_delta))


def request_ratio(reference: str) -> Column:
    return Column(f"x {reference}", _ratio(reference, cpu_per_request))


def table(results: Results, scenario: str, columns: Sequence[Column]) -> str:
    """Return the routes of a scenario as a Markdown table, aligned for a terminal."""
    routes = results.routes(scenario)
    cells = [[column.cell(results, scenario, route) for route in routes] for column in columns]
    shown = [
        (column.title, texts)
        for column, texts in zip(columns, cells, strict=True)
        if not (column.optional and set(texts) == {"-"})
    ]
    return lines(["", *(title for title, _ in shown)], zip(routes, *(texts for _, texts in shown), strict=True))


def lines(head: Sequence[str], body: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, whose first `left` columns are text and the others figures."""
    rows = [head, *body]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    rule = ["-" * width if at < left else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    return "\n".join(_line(row, widths, left) for row in [rows[0], rule, *rows[1:]])


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if at < left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"
