"""The evaluation of the bench: which samples are used, how a ratio is computed, and the verdicts.

The bench itself is not run here: it needs an idle machine, and minutes.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
MODULES = ("checkout", "document", "environment", "processes", "report", "routes", "sampling", "scenarios", "targets")


class Bench:
    """The modules of the bench, which import each other as scripts do."""

    def __init__(self) -> None:
        self.document: Any = importlib.import_module("document")
        self.report: Any = importlib.import_module("report")
        self.routes: Any = importlib.import_module("routes")
        self.sampling: Any = importlib.import_module("sampling")
        self.scenarios: Any = importlib.import_module("scenarios")
        self.targets: Any = importlib.import_module("targets")

    def sample(self, route: str, cpu_us: float, position: int, number: int = 1, **more: Any) -> Any:
        """Return a sample of 5,000 deltas/s, each of which took `cpu_us` of CPU time."""
        percentiles = self.report.Percentiles(100, 200)
        load = self.report.LoadReport(
            streams=100, seconds=1.0, deltas=5000, deltas_per_s=5000.0, reasoning=3000, content=2000, requests=20,
            reads=more.pop("reads", 5000), bytes=1, lost=0, misordered=0, foreign=0, repeated=0, errors=0, live=100,
            latency_us=percentiles, first_delta_us=percentiles,
        )  # fmt: skip
        figures = {
            "cpu_share": cpu_us * 5000 / 1e6, "redis_cpu_share": 0.0, "others_share": 0.0, "waiting_share": 0.0,
            "stolen_share": 0.0, "resident_kib_idle": 1000, "resident_kib_warm": 1000, "resident_kib_most": 2000,
            "left_open": 0,
        }  # fmt: skip
        return self.report.Sample(
            scenario="paced", route=route, round=number, position=position, load=load, **(figures | more)
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.syspath_prepend(str(BENCH))
    already = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    try:
        yield Bench()
    finally:
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(already)


def test_a_ratio_uses_the_references_before_and_after_in_its_round(bench: Bench) -> None:
    samples = [
        bench.sample("nginx", 10, 1),
        bench.sample("nginx", 30, 2),
        bench.sample("stored", 60, 3),
        bench.sample("nginx", 50, 4),
        bench.sample("nginx", 1, 5, number=2),
        bench.sample("stored", 3, 6, number=2),
    ]
    spread = bench.report.Results(samples).ratio("nginx", "paced", "stored", bench.report.cpu_per_delta)
    assert spread.values == pytest.approx((1.5, 3.0))
    assert spread.text(".2f") == "2.25 (1.50–3.00)"


def test_a_disturbed_sample_is_used_only_without_an_undisturbed_one(bench: Bench) -> None:
    disturbed = bench.sample("nginx", 5, 1, disturbances=["7% stolen by the host"])
    samples = [disturbed, bench.sample("nginx", 20, 1), bench.sample("stored", 40, 2)]
    spread = bench.report.Results(samples).ratio("nginx", "paced", "stored", bench.report.cpu_per_delta)
    assert spread.values == pytest.approx((2.0,))
    assert not spread.disturbed


def test_disturbed_samples_alone_give_no_verdict(bench: Bench) -> None:
    disturbed = bench.sample("attached", 10, 2, disturbances=["0.80 reads per delta"])
    results = bench.report.Results([bench.sample("nginx", 20, 1), disturbed])
    verdict = bench.targets.TARGETS[0].judge(results)
    assert (verdict.verdict, verdict.measured) == ("disturbed", "~0.50 x nginx")
    assert not verdict.missed


@pytest.mark.parametrize(
    ("cpu_us", "verdict"), [(24, "met, stretch too"), (28, "met"), (40, "MISSED")], ids=["stretch", "met", "missed"]
)
def test_a_verdict_compares_the_median_with_both_limits(bench: Bench, cpu_us: float, verdict: str) -> None:
    results = bench.report.Results([bench.sample("nginx", 20, 1), bench.sample("attached", cpu_us, 2)])
    assert bench.targets.TARGETS[0].judge(results).verdict == verdict


def test_a_verdict_states_that_rounds_differ(bench: Bench) -> None:
    samples = [bench.sample("nginx", 20, n, number=n) for n in (1, 3, 5)]
    samples += [bench.sample("attached", cpu, n + 1, number=n) for cpu, n in ((28, 1), (29, 3), (50, 5))]
    verdict = bench.targets.TARGETS[0].judge(bench.report.Results(samples))
    assert verdict.verdict == "met (in 2 of 3 rounds)"


@pytest.mark.parametrize(
    ("route", "more", "real_time", "disturbed"),
    [
        ("attached", {}, False, False),
        ("attached", {"reads": 4800}, False, True),
        ("attached", {"reads": 5200}, False, True),
        ("attached", {"reads": 4800, "near_limit": True}, False, False),
        ("detached, Redis", {"reads": 4800}, False, False),
        ("attached", {"stolen_share": 0.05}, True, True),
        ("attached", {"others_share": 0.5}, False, True),
        ("attached", {"others_share": 0.5}, True, False),
    ],
)
def test_disturbances_of_a_sample(
    bench: Bench, route: str, more: dict[str, Any], real_time: bool, disturbed: bool
) -> None:
    sample = bench.sample(route, 40, 1, **more)
    sampler = bench.sampling.Sampler(None, None, None, 0, None, real_time, False, None, "")
    disturbances = sampler._disturbances(sample, bench.scenarios.PACED, bench.routes.ROUTES[route])
    assert bool(disturbances) == disturbed


def test_references_are_measured_around_every_route(bench: Bench) -> None:
    for scenario in bench.scenarios.SCENARIOS:
        for number in (1, 2):
            names = [route.name for route in scenario.order(number, base=False)]
            assert set(names) == {"direct", *scenario.references, *scenario.routes}
            for reference in scenario.references:
                places = [at for at, name in enumerate(names) if name == reference]
                assert all(places[0] < names.index(name) < places[-1] for name in scenario.routes)


def test_the_base_is_measured_next_to_its_route(bench: Bench) -> None:
    names = [route.name for route in bench.scenarios.SIXTEEN.order(1, base=True)]
    assert names == ["direct", "nginx", "attached", "attached (base)", "stored", "stored (base)", "nginx"]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("performance.md", ["bench/run.py", "bench/run.py --peers", "bench/spaces.py", "bench/decode.py"]),
        ("compatibility.md", ["bench/compatibility.py"]),
    ],
)
def test_a_script_replaces_its_section_of_a_page_and_nothing_else(
    bench: Bench, tmp_path: Path, page: str, names: list[str]
) -> None:
    written = tmp_path / page
    before = (BENCH.parent / "docs" / page).read_text("utf-8")
    written.write_text(before, "utf-8")
    for name in names:
        bench.document.write_section(written, name, "| figures |")
    after = written.read_text("utf-8")
    outside = re.compile(r"(<!-- begin: (.*?) -->).*?(<!-- end: \2 -->)", re.DOTALL)
    assert outside.sub(r"\1\n\n| figures |\n\n\3", before) == after
    with pytest.raises(ValueError, match=r"begin: bench/other\.py"):
        bench.document.write_section(written, "bench/other.py", "| figures |")
