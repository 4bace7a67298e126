"""`pellucid` as a process."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PELLUCID = [sys.executable, "-m", "pellucid"]

Run = Callable[..., subprocess.CompletedProcess[bytes]]


class Serving:
    """`pellucid serve`, running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.said = b""
        assert process.stderr is not None
        for line in process.stderr:
            self.said += line
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        pytest.fail(f"it did not start: {self.said.decode()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end; the exit status, and all that was said on stderr."""
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, (self.said + rest).decode()


Serve = Callable[..., contextlib.AbstractContextManager[Serving]]


def serving_in(folder: Path) -> Serve:
    """`pellucid serve` in this folder, with these arguments and this configuration."""

    @contextlib.contextmanager
    def started(*args: str, config: str = "") -> Iterator[Serving]:
        if config:
            (folder / "pellucid.toml").write_text(config)
        process = subprocess.Popen(
            [*PELLUCID, "serve", "--port", "0", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
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
