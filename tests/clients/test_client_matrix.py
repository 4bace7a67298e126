"""Each client does what its line in `docs/clients.md` says.

The lines are written by `PELLUCID_WRITE_CLIENTS=1 python -m pytest --circle all tests/clients/test_client_matrix.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.matrix_kit import NODE, PYTHON, SECONDS, WRITE, documented_lines, measure, write_lines
from tests.node_packages import installed
from tests.python_packages import environment
from tests.scripted import Upstream
from tests.scripted.gateway import Served

HERE = Path(__file__).parent
pytestmark = [pytest.mark.timeout(3 * SECONDS), pytest.mark.needs("long")]


def check(measured: Mapping[str, str]) -> None:
    """Compare lines with those of the documentation, or write them there."""
    if os.environ.get(WRITE):
        write_lines(measured)
    documented = documented_lines()
    assert measured == {name: documented[name] for name in measured}


def test_python_clients(gateway: Served, upstream: Upstream) -> None:
    python = environment(HERE / "requirements.txt")
    check(measure([str(python), "python_clients.py"], PYTHON, upstream, gateway.url, HERE))


@pytest.mark.needs("node")
def test_node_clients(gateway: Served, upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(installed(HERE) / "node_modules")
    shutil.copy(HERE / "node_clients.mjs", tmp_path)
    check(measure(["node", "node_clients.mjs"], NODE, upstream, gateway.url, tmp_path))
