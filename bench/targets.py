"""The targets of the design, and their verdicts.

A target is a row: a figure of one route in one scenario, a limit, and a stretch limit. It is judged by the median over
the rounds; a target whose figure is disturbed, or was not measured, is neither met nor missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

import report
from report import Figure, Results, Sample, Spread
from routes import (
    AG_UI,
    ATTACHED,
    CHAT_PAGE,
    DETACHED,
    DETACHED_REDIS,
    NGINX,
    OPERATED,
    PASS_THROUGH,
    PYDANTIC_AI,
    STORED,
)
from scenarios import (
    PACED,
    PEERS_PACED,
    PEERS_UNPACED,
    REQUESTS,
    SIXTEEN,
    THOUSAND,
    UNPACED,
    Scenario,
)

TWO_THIRDS = 0.667
ALL_DELIVERED = 0.99
NOT_MEASURED = "not measured"
DISTURBED = "disturbed"
X_ATTACHED = "x attached"
REDIS = DETACHED_REDIS


@dataclass(frozen=True)
class Target:
    title: str
    measure: Callable[[Results], Spread]
    limit: float
    stretch: float | None = None
    unit: str = "x nginx"
    form: str = ".2f"
    at_least: bool = False

    def judge(self, results: Results) -> Verdict:
        spread = self.measure(results)
        met = [self._within(value, self.limit) for value in spread.values]
        if not spread.values:
            verdict = NOT_MEASURED
        elif spread.disturbed:
            verdict = DISTURBED
        elif self.stretch is not None and self._within(spread.median, self.stretch):
            verdict = "met, stretch too"
        else:
            verdict = "met" if self._within(spread.median, self.limit) else "MISSED"
        if verdict not in (NOT_MEASURED, DISTURBED) and any(met) != all(met):
            verdict += f" (in {sum(met)} of {len(met)} rounds)"
        sign = "≥" if self.at_least else "≤"
        return Verdict(
            target=self.title,
            measured=f"{spread.text(self.form)} {self.unit}" if spread.values else "-",
            limit=f"{sign} {self.limit:g}",
            stretch="" if self.stretch is None else f"{sign} {self.stretch:g}",
            verdict=verdict,
        )

    def _within(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


class Verdict(msgspec.Struct):
    """A target and its measurement."""

    target: str
    measured: str
    limit: str
    stretch: str
    verdict: str

    @property
    def missed(self) -> bool:
        return self.verdict.startswith("MISSED")


def _ratio(
    scenario: Scenario, route: str, reference: str = NGINX, figure: Figure = report.cpu_per_delta
) -> Callable[[Results], Spread]:
    return lambda results: results.ratio(reference, scenario.name, route, figure)


def _figure(scenario: Scenario, route: str, figure: Figure) -> Callable[[Results], Spread]:
    return lambda results: results.spread(scenario.name, route, figure)


def _request_ratio(route: str) -> Callable[[Results], Spread]:
    return _ratio(REQUESTS, route, PASS_THROUGH, report.cpu_per_request)


def _operated_requests(results: Results) -> Spread:
    return results.ratio(ATTACHED, REQUESTS.name, OPERATED, report.cpu_per_request)


def _pydantic_ai(scenario: Scenario) -> Callable[[Results], Spread]:
    return _ratio(scenario, PYDANTIC_AI, AG_UI)


def _cpu(sample: Sample) -> float:
    return sample.cpu_share


def _memory(sample: Sample) -> float:
    return sample.kib_per_stream


def _faults(results: Results) -> Spread:
    """Count disturbed samples, too: a busy machine does not excuse faults."""
    rounds: dict[int, int] = {}
    for sample in results.samples:
        if (sample.scenario, sample.route) == (THOUSAND.name, ATTACHED):
            faults = sample.faults + sample.load.streams - sample.load.live
            rounds[sample.round] = rounds.get(sample.round, 0) + faults
    return Spread(tuple(rounds.values()))


def _delivered(results: Results) -> Spread:
    return results.delivered(THOUSAND.name, ATTACHED)


def _added_by_redis(results: Results) -> Spread:
    return results.added_ms(ATTACHED, PACED.name, REDIS, lambda s: s.load.latency_us.p50)


def _idle(results: Results) -> Spread:
    """Of every scenario in which the gateway was measured as it is by default."""
    samples = [s for s in results.samples if s.route == STORED]
    rounds = sorted({s.round for s in samples})
    return Spread(tuple(max(s.idle_mb for s in samples if s.round == number) for number in rounds))


TARGETS = (
    Target("CPU a delta, 100 × 50/s, attached", _ratio(PACED, ATTACHED), 1.5, 1.25),
    Target("CPU a delta, 100 × 50/s, stored", _ratio(PACED, STORED), 1.6, 1.3),
    Target("CPU a delta, 16 × 50/s", _ratio(SIXTEEN, ATTACHED), 1.8, 1.5),
    Target("CPU a delta, 1,000 × 10/s", _ratio(THOUSAND, ATTACHED), 1.6, 1.3),
    Target("… all delivered", _delivered, ALL_DELIVERED, unit="of direct", form=".3f", at_least=True),
    Target("… lost, misordered, failed or not alive", _faults, 0, unit="", form=".0f"),
    Target("… a third of a core to spare", _figure(THOUSAND, ATTACHED, _cpu), TWO_THIRDS, unit="of a core in use"),
    Target("CPU a delta, unpaced, 16 streams", _ratio(UNPACED, ATTACHED), 1.9, 1.6),
    Target("CPU a delta, chat page", _ratio(PACED, CHAT_PAGE, ATTACHED), 1.25, 1.1, X_ATTACHED),
    Target("CPU a delta, detached (memory)", _ratio(PACED, DETACHED, ATTACHED), 1.25, 1.1, X_ATTACHED),
    Target("CPU a delta, detached over Redis, our process", _ratio(PACED, REDIS, ATTACHED), 1.4, None, X_ATTACHED),
    Target("… added latency, p50", _added_by_redis, 2, unit="ms over attached"),
    Target("CPU a delta, with deployments, budgets and keys", _ratio(PACED, OPERATED, ATTACHED), 1.1, None, X_ATTACHED),
    Target("CPU a request, with deployments, budgets and keys", _operated_requests, 1.1, None, X_ATTACHED),
    Target("CPU a request, attached", _request_ratio(ATTACHED), 4, 3, "x pass-through"),
    Target("CPU a request, stored", _request_ratio(STORED), 8, 5, "x pass-through"),
    Target("resident memory a stream at 1,000", _figure(THOUSAND, ATTACHED, _memory), 40, 30, "KiB", ".1f"),
    Target("resident memory of the idle process", _idle, 80, 65, "MB", ".1f"),
)

PEER_TARGETS = (
    Target("AG-UI against OpenResponses, 16 × 50/s", _ratio(PEERS_PACED, AG_UI, ATTACHED), 1.3, None, X_ATTACHED),
    Target("AG-UI against OpenResponses, unpaced", _ratio(PEERS_UNPACED, AG_UI, ATTACHED), 1.3, None, X_ATTACHED),
    Target("Pydantic AI against our AG-UI, 16 × 50/s", _pydantic_ai(PEERS_PACED), 5, None, "x ours", at_least=True),
    Target("Pydantic AI against our AG-UI, unpaced", _pydantic_ai(PEERS_UNPACED), 20, None, "x ours", at_least=True),
)


def judge(results: Results, *, peers: bool) -> list[Verdict]:
    """Return a verdict for each target."""
    return [target.judge(results) for target in (PEER_TARGETS if peers else TARGETS)]


def table(verdicts: Sequence[Verdict]) -> str:
    head = ["target", "measured", "limit", "stretch", ""]
    return report.lines(head, ([v.target, v.measured, v.limit, v.stretch, v.verdict] for v in verdicts), left=5)
