"""Commands in this process, in an empty directory; `pellucid serve` on a thread or as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import ServeThread, own_process_state, run_command, serving_thread_in
from tests.scripted.commands import Run, Serve, serve_command_in


@pytest.fixture
def process_state(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with own_process_state(tmp_path, tmp_path_factory.mktemp("home")) as patch:
        yield patch


@pytest.fixture
def run(process_state: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty directory."""
    return run_command


@pytest.fixture
def serve(process_state: pytest.MonkeyPatch, tmp_path: Path) -> ServeThread:
    """Starts `pellucid serve` on a thread of this process."""
    return serving_thread_in(tmp_path, process_state)


@pytest.fixture
def serve_process(process_state: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """Starts `pellucid serve` as a process."""
    return serve_command_in(tmp_path)
