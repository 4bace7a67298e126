"""A Redis of one's own: on a free port of loopback, in a directory of its own, keeping nothing on disk.

with redis_service() as redis:
    redis.url
    redis.stop(); redis.start()      # on the same port, with nothing in it
    redis.freeze(); redis.thaw()     # it is there, and says nothing
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class RedisService:
    def __init__(self, directory: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.socket = os.path.join(directory, "redis.sock")
        """The same server, at another door."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._directory]
        command += ["--unixsocket", self.socket, "--appendonly", "no", "--save", "", "--loglevel", "warning"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while self.ask(b"PING") != b"+PONG":
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def ask(self, command: bytes) -> bytes:
        """The first line that it answers to a plain command, or nothing."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as door:
            door.sendall(command + b"\r\n")
            return door.makefile("rb").readline().strip()
        return b""

    def connections(self) -> int:
        """How many there are, but for the one that asks."""
        with socket.create_connection(("127.0.0.1", self.port), 1) as door:
            door.sendall(b"CLIENT LIST\r\n")
            file = door.makefile("rb")
            size = int(file.readline().strip()[1:])
            return file.read(size).count(b"\n") - 1

    def stop(self) -> None:
        """As if the machine went: nothing is said, nothing is kept."""
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
    directory = tempfile.mkdtemp(prefix="redis-")
    service = RedisService(directory)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisService]:
    """One for all tests of the session that leave it running."""
    with redis_service() as running:
        yield running
