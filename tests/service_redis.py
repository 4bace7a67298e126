"""A Redis server for tests: on a loopback port, in its own directory, without persistence.

with redis_service() as redis:
    redis.url
    redis.stop(); redis.start()      # on the same port, empty
    redis.freeze(); redis.thaw()     # it accepts connections, and does not answer
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from tests.service_ports import candidate_ports
from tests.waiting import wait_until

_ANSWER_SECONDS = 30.0


class RedisService:
    """A server. `port` stays the same over `stop` and `start`."""

    def __init__(self, directory: str) -> None:
        self.port = 0
        self.socket = os.path.join(directory, "redis.sock")
        """The path of the Unix socket on which the same server listens."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        if self._process is not None:
            return
        for port in [self.port] if self.port else candidate_ports():
            if self._starts_on(port):
                self.port = port
                return
        raise AssertionError(f"redis-server could not bind port {self.port} again")

    def _starts_on(self, port: int) -> bool:
        """Start a server on this port; return False if the port is taken."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", self._directory]
        command += ["--unixsocket", self.socket, "--appendonly", "no", "--save", "", "--loglevel", "warning"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        # Through its own socket: on the port, the server of another worker could respond.
        wait_until(lambda: process.poll() is not None or self._answers(), "redis-server answers, or has ended")
        if process.poll() is None:
            self._process = process
            return True
        return False

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_ANSWER_SECONDS)
            client.connect(self.socket)
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        return False

    def ask(self, command: bytes) -> bytes:
        """Send an inline command, and return the first line of the reply; empty if there is none."""
        address = ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.create_connection(address, _ANSWER_SECONDS) as client:
            client.sendall(command + b"\r\n")
            return client.makefile("rb").readline().strip()
        return b""

    def connections(self) -> int:
        """Return the number of connections, without the one of this query."""
        with socket.create_connection(("127.0.0.1", self.port), _ANSWER_SECONDS) as client:
            client.sendall(b"CLIENT LIST\r\n")
            file = client.makefile("rb")
            size = int(file.readline().strip()[1:])
            return file.read(size).count(b"\n") - 1

    def stop(self) -> None:
        """Kill the server: no connection is closed regularly, and all data is lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def redis_service() -> Iterator[RedisService]:
    """Run a server until the end of the block."""
    directory = tempfile.mkdtemp(prefix="redis-")
    service = RedisService(directory)
    try:
        service.start()
        yield service
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisService]:
    """One server for all tests of this worker that leave it running."""
    with redis_service() as running:
        yield running
