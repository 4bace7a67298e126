"""The commands as they are run: a process, its output, its exit status."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripted.commands import PELLUCID, Run, Serve, Serving


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
    @contextlib.contextmanager
    def started(*args: str, config: str = "") -> Iterator[Serving]:
        if config:
            (tmp_path / "pellucid.toml").write_text(config)
        process = subprocess.Popen(
            [*PELLUCID, "serve", "--port", "0", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            bufsize=0,  # what is read here line by line must not be kept from who reads the rest
            start_new_session=True,  # so that a signal to it is not one to us
        )
        try:
            yield Serving(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    return started
