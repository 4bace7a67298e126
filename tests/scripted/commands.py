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


class ServeProcess:
    """`pellucid serve`, running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.stderr = b""
        assert process.stderr is not None
        for line in process.stderr:
            self.stderr += line
            if match := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                return
        pytest.fail(f"it did not start: {self.stderr.decode()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and all of stderr."""
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, (self.stderr + rest).decode()


Serve = Callable[..., contextlib.AbstractContextManager[ServeProcess]]


def serve_command_in(folder: Path) -> Serve:
    """Return a function that runs `pellucid serve` in this folder, with arguments and a configuration."""

    @contextlib.contextmanager
    def started(*args: str, config: str = "") -> Iterator[ServeProcess]:
        if config:
            (folder / "pellucid.toml").write_text(config)
        process = subprocess.Popen(
            [*PELLUCID, "serve", "--port", "0", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            bufsize=0,  # lines read here must not leave data in a buffer that `communicate` ignores
            start_new_session=True,  # so that its signals do not reach this process
        )
        try:
            yield ServeProcess(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    return started
