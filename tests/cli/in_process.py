"""`pellucid` in the process of the tests: commands, and `pellucid serve` on a thread.

A command has what a process would have: an empty working directory, its own environment, home and standard
streams. Changes of the whole process (the log's handlers, `gc.freeze`) are undone.
"""

from __future__ import annotations

import asyncio
import gc
import io
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import CliRunner

from pellucid.cli.http_server import GatewayServer
from pellucid.cli.main import main
from pellucid.server.app import Gateway
from pellucid.telemetry import log
from tests.waiting import LIMIT_SECONDS, wait_until


@contextmanager
def own_process_state(folder: Path, home: Path) -> Iterator[pytest.MonkeyPatch]:
    """Change to a working directory and a home until the end of the block, then restore the log's state."""
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(home))
        patch.setenv("COLUMNS", "100")
        try:
            yield patch
        finally:
            log.handlers[:], log.propagate = handlers, propagate
            log.setLevel(level)
            gc.unfreeze()


def run_command(
    *args: str, input: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end. An exception that would reach the interpreter is raised."""
    result = CliRunner().invoke(main, args, input=input, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(args, result.exit_code, result.stdout_bytes, result.stderr_bytes)


class _Server(GatewayServer):
    """Server that is stopped by `handle_exit` only: the system sends signals to the main thread."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServingThread:
    """`pellucid serve` on a thread, from its arguments to its exit status."""

    def __init__(self, args: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
        self._stderr = io.BytesIO()
        self._server: GatewayServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._status: object = None
        patch.setattr("pellucid.cli.http_server.GatewayServer", self._make_server)
        patch.setattr(sys, "stderr", io.TextIOWrapper(self._stderr, "utf-8", write_through=True))
        self._thread = threading.Thread(target=self._run, args=(["serve", "--port", "0", *args],), name="serve")
        self._thread.start()

    @property
    def stderr_bytes(self) -> bytes:
        """What it has written to standard error so far."""
        return self._stderr.getvalue()

    @property
    def port(self) -> int:
        """The port that is printed at the start."""
        wait_until(lambda: self._match_port() or not self._thread.is_alive(), "it listens")
        match = self._match_port()
        assert match, f"it did not start: {self.stderr_bytes.decode()}"
        return int(match[1])

    def until(self, text: bytes) -> str:
        """Wait until standard error contains `text`, and return all of it so far."""
        wait_until(lambda: text in self.stderr_bytes or not self._thread.is_alive(), f"it says {text!r}")
        assert text in self.stderr_bytes, self.stderr_bytes.decode()
        return self.stderr_bytes.decode()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it as a signal would."""
        assert self._loop is not None
        assert self._server is not None
        self._loop.call_soon_threadsafe(self._server.handle_exit, number, None)

    def end(self) -> tuple[object, str]:
        """Wait for the end, and return the exit status and standard error."""
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), f"it does not end: {self.stderr_bytes.decode()}"
        return self._status, self.stderr_bytes.decode()

    def close(self) -> None:
        """End it at once if it is running."""
        if self._thread.is_alive() and self._loop is not None and not self._loop.is_closed():
            for _ in range(2):
                self.stop(signal.SIGINT)
        self.end()

    def _match_port(self) -> re.Match[bytes] | None:
        return re.search(rb"http://127\.0\.0\.1:(\d+)", self.stderr_bytes)

    def _make_server(self, gateway: Gateway) -> GatewayServer:
        self._loop = asyncio.get_running_loop()
        self._server = _Server(gateway)
        return self._server

    def _run(self, args: list[str]) -> None:
        try:
            main.main(args, prog_name="pellucid")
        except SystemExit as ended:
            self._status = ended.code


class ServeThread(Protocol):
    """Starts `pellucid serve` with these arguments and this configuration until the end of the block."""

    def __call__(self, *args: str, config: str = "") -> AbstractContextManager[ServingThread]: ...


def serving_thread_in(folder: Path, patch: pytest.MonkeyPatch) -> ServeThread:
    """Return a starter of `pellucid serve` in this folder, which is the working directory."""

    @contextmanager
    def started(*args: str, config: str = "") -> Iterator[ServingThread]:
        if config:
            (folder / "pellucid.toml").write_text(config)
        with patch.context() as streams:
            serving = ServingThread(args, streams)
            try:
                assert serving.port
                yield serving
            finally:
                serving.close()

    return started
