"""`pellucid serve` on a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import ServeThread, own_process_state, serving_thread_in


@pytest.fixture
def process_state(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with own_process_state(tmp_path, tmp_path_factory.mktemp("home")) as patch:
        yield patch


@pytest.fixture
def serve(process_state: pytest.MonkeyPatch, tmp_path: Path) -> ServeThread:
    return serving_thread_in(tmp_path, process_state)
