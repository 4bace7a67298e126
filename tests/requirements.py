"""Requirements of tests beyond Python packages, and the two circles of tests that follow from them.

`make test` runs the core circle: every test that needs Python packages alone (and real recordings, where there are
any). `make test-all` runs all of them. A test declares a requirement with `@pytest.mark.needs("redis")`; a fixture that
starts a service declares it, by the table below, for every test that uses the fixture.

A test whose requirement is missing is skipped, and the summary names it with the reason. A test of the other circle
is deselected.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.recordings import recordings_root
from tests.schemas import published_schema

ROOT = Path(__file__).parents[1]


class Requirement(NamedTuple):
    """A requirement of tests.

    Attributes:
        missing: returns why it cannot be used here, or None if it can.
        core: whether tests that need it belong to the core circle, too.
        fixtures: the fixtures that use it; tests that request one of them need it.
    """

    missing: Callable[[], str | None]
    core: bool = False
    fixtures: frozenset[str] = frozenset()


def _program(*names: str, install: str) -> Callable[[], str | None]:
    """Return a check for a program under one of these names."""

    def missing() -> str | None:
        return None if any(shutil.which(name) for name in names) else f"{names[0]} is not installed ({install})"

    return missing


def _postgresql() -> str | None:
    initdb = shutil.which("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return None if initdb else "PostgreSQL's server is not installed (apt-get install postgresql)"


def _node() -> str | None:
    if not (shutil.which("npm") and shutil.which("node")):
        return "Node and npm are not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    major, minor, *_ = [*(int(number) for number in version.removeprefix("v").split(".")), 0]
    return None if (major, minor) >= (20, 19) else f"Node 20.19 or newer is needed, not {version}"


def _engine() -> str | None:
    return (
        None if importlib.util.find_spec("xllamacpp") else "xllamacpp is not installed (pip install 'pellucid[local]')"
    )


def _recordings() -> str | None:
    return None if recordings_root() else "no recordings of providers here; PELLUCID_RECORDINGS names their directory"


def _schema() -> str | None:
    return None if published_schema() else "the published schema is not here; PELLUCID_OPENRESPONSES_SCHEMA names it"


def _history() -> str | None:
    from tools.golden import BASE

    if shutil.which("git") is None:
        return "git is not installed"
    done = subprocess.run(["git", "cat-file", "-e", f"{BASE}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
    return None if done.returncode == 0 else f"commit {BASE}, to compare with, is not in this clone"


REQUIREMENTS: dict[str, Requirement] = {
    "recordings": Requirement(_recordings, core=True),
    "schema": Requirement(_schema, core=True),
    "curl": Requirement(_program("curl", install="apt-get install curl"), core=True),
    "chromium": Requirement(
        _program("chromium", "chromium-browser", "google-chrome", install="apt-get install chromium"),
        fixtures=frozenset({"chrome", "tab", "tabs"}),
    ),
    "node": Requirement(_node),
    "postgresql": Requirement(_postgresql, fixtures=frozenset({"postgres_server", "one_database", "database"})),
    "redis": Requirement(
        _program("redis-server", install="apt-get install redis-server"), fixtures=frozenset({"redis", "relay_url"})
    ),
    "engine": Requirement(_engine, fixtures=frozenset({"tiny_weights", "engine"})),
    "history": Requirement(_history),
    # Several processes that are killed, paused and started again, or minutes of load: not before every commit.
    "long": Requirement(lambda: None),
}


def needs_of(item: pytest.Item) -> list[str]:
    """Return the names of the requirements of this test, from its marks and its fixtures.

    Raises:
        pytest.UsageError: a mark names a requirement that is not in the table.
    """
    marked = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
    if unknown := [name for name in marked if name not in REQUIREMENTS]:
        raise pytest.UsageError(f"{item.nodeid}: needs({unknown[0]!r}): there is no such row in tests/requirements.py")
    fixtures = set(getattr(item, "fixturenames", ()))
    used = [name for name, row in REQUIREMENTS.items() if row.fixtures & fixtures]
    return list(dict.fromkeys([*marked, *used]))


# --- pytest's hooks ----------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--circle", choices=["core", "all"], default="core", help="core: what Python packages suffice for (the default)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): what the test needs, by the rows of tests/requirements.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other circle; skip those whose requirement is missing."""
    missing = cache(lambda name: REQUIREMENTS[name].missing())
    everything = config.getoption("circle") == "all"
    selected: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        needs = needs_of(item)
        if not everything and not all(REQUIREMENTS[name].core for name in needs):
            left.append(item)
            continue
        for reason in filter(None, map(missing, needs)):
            item.add_marker(pytest.mark.skip(reason=reason))
        selected.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = selected


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    """Name every test that could not run, with the reason."""
    yield
    by_reason: dict[str, set[str]] = defaultdict(set)
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
        by_reason[reason.removeprefix("Skipped: ")].add(report.nodeid.partition("[")[0])
    for reason, tests in sorted(by_reason.items()):
        terminalreporter.section(f"not run: {reason}", sep="-")
        for test in sorted(tests):
            terminalreporter.line(test)
    if config.getoption("circle") == "core":
        terminalreporter.line("Tests that need a service, a browser, Node, an engine or minutes: make test-all")
