"""`pellucid usage` reads what gateways used; keys get budgets from `pellucid keys create`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.storage import UsageCounts, UsageKey, open_store
from tests.scripted.commands import Run

USED = [
    ("ann", "key_1", "2025-12-31", "m", "USD", UsageCounts(requests=1, input_tokens=10, cost_nanos=1)),
    ("ann", "key_1", "2026-01-01", "m", "USD", UsageCounts(requests=2, output_tokens=7, cost_nanos=2_500_000_000)),
    ("bob", "", "2026-01-02", "=m", "", UsageCounts(requests=3, reasoning_tokens=5, estimated=2)),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with these sums."""
    store_url = f"sqlite:///{tmp_path}/store.db"

    async def fill() -> None:
        store = await open_store(store_url)
        sums = [
            (UsageKey(owner, key, day, model, f"p/{model}", currency), counts)
            for owner, key, day, model, currency, counts in USED
        ]
        await store.usage.add(sums)
        await store.aclose()

    asyncio.run(fill())
    return store_url


Report = Callable[..., str]


@pytest.fixture
def report(run: Run, url: str) -> Report:
    """Runs `pellucid usage` with options, and returns its output."""

    def run_usage(*options: str) -> str:
        result = run("usage", "--store", url, *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode()

    return run_usage


def test_the_table_has_a_line_for_each_sum(report: Report) -> None:
    lines = [" ".join(line.split()) for line in report("--by", "month,owner").splitlines()]
    assert lines == [
        "month owner requests input cached cache writes output reasoning cost",
        "2025-12 ann 1 10 0 0 0 0 0.000000001 USD",
        "2026-01 ann 2 0 0 0 7 0 2.5 USD",
        "2026-01 bob 3 0 0 0 0 5 no prices 2 estimated",
    ]


def test_csv_has_exact_costs_and_no_formulas(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(report("--by", "model", "--csv"))))
    assert [(row["model"], row["cost"], row["currency"]) for row in rows] == [
        ("'=m", "0", ""),
        ("m", "2.500000001", "USD"),
    ]


def test_json_is_that_of_the_gateway(report: Report) -> None:
    [row] = json.loads(report("--by", "owner", "--json", "--owner", "bob"))
    assert row == {
        "owner": "bob",
        "requests": 3,
        "input_tokens": 0,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 0,
        "reasoning_tokens": 5,
        "cost": 0.0,
        "currency": None,
        "estimated": 2,
    }


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ((), [1, 2, 3]),
        (("--from", "2026-01"), [2, 3]),
        (("--to", "2025-12"), [1]),
        (("--from", "2026-01-01", "--to", "2026-01-01"), [2]),
        (("--key", "key_1"), [1, 2]),
        (("--model", "=m"), [3]),
        (("--owner", "carol"), []),
    ],
)
def test_options_select_sums(report: Report, options: tuple[str, ...], requests: list[int]) -> None:
    assert [row["requests"] for row in json.loads(report("--by", "day", "--json", *options))] == requests


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--from", "january"), "--from: a day or a month, such as 2026-01-31 or 2026-01, not 'january'"),
        (("--by", "day,colour"), "--by: a list of month, day, owner, key, model, deployment"),
    ],
)
def test_a_wrong_option_is_named(run: Run, url: str, options: tuple[str, ...], error: str) -> None:
    result = run("usage", "--store", url, *options)
    assert result.returncode == 2
    assert error in result.stderr.decode()


def test_a_store_that_does_not_exist_is_not_created(run: Run, tmp_path: Path) -> None:
    result = run("usage", "--store", f"sqlite:///{tmp_path}/none.db")
    assert result.returncode == 2
    assert not (tmp_path / "none.db").exists()


def test_a_key_gets_its_budgets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pellucid.toml").write_text(
        f'storage.url = "sqlite:///{tmp_path}/store.db"\naccess.pepper_file = "{tmp_path}/pepper"\n'
    )
    config = ("--config", str(tmp_path / "pellucid.toml"))
    budgets = ("--cost-per-day", "0.5", "--cost-per-month", "10")
    key = json.loads(run("keys", "create", "--owner", "acme", *budgets, "--json", *config).stdout)
    assert key["policy"] == {"cost_per_day": 0.5, "cost_per_month": 10.0}
    for wrong in ("0", "-1", "nan", "1e12", "five"):
        assert run("keys", "create", "--owner", "acme", "--cost-per-day", wrong, *config).returncode == 2, wrong
