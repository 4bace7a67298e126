"""Each SDK and framework does what its line in `docs/clients.md` says (see `matrix_kit`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.matrix_kit import COPILOTKIT, NODE, PYTHON, ROWS, SECONDS, check, documented_lines, measure
from tests.clients.node_kit import NODE_CLIENTS, with_node_clients
from tests.python_packages import environment
from tests.scripted import Upstream
from tests.scripted.gateway import Served

HERE = Path(__file__).parent


def test_the_page_has_a_line_for_each_client() -> None:
    for name, line in documented_lines().items():
        assert line.startswith(f"| {ROWS[name].client} | {ROWS[name].setting} | ")


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.needs("long")
def test_python_clients(gateway: Served, upstream: Upstream) -> None:
    python = environment(HERE / "requirements.txt")
    check(measure([str(python), "python_clients.py"], PYTHON, upstream, gateway.url, HERE))


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.needs("node", "long")
def test_node_clients(gateway: Served, upstream: Upstream, tmp_path: Path) -> None:
    check(measure(NODE_CLIENTS, NODE, upstream, gateway.url, with_node_clients(tmp_path, HERE)))


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.needs("node", "long")
def test_copilotkit(gateway: Served, upstream: Upstream, tmp_path: Path) -> None:
    check(measure(NODE_CLIENTS, COPILOTKIT, upstream, gateway.url, with_node_clients(tmp_path, HERE / "copilotkit")))
