"""The commands as they are run: a process, its output, its exit status."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.scripted.commands import PELLUCID, Run, Serve, serving_in


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in an empty directory. It may fail, but never with a traceback."""

    def pellucid(
        *args: str, input: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "COLUMNS": "100", **(env or {})}
        done = subprocess.run(
            [*PELLUCID, *args], input=input, capture_output=True, cwd=tmp_path, env=environment, timeout=60, check=False
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return pellucid


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    return serving_in(tmp_path)
