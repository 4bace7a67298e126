"""PostgreSQL for a test: a cluster of its own, that can be stopped and started again.

    with postgres() as server:
        url = server.database()       # an empty one, as the URL of a store
        server.stop(); server.start()

It listens on a free port of 127.0.0.1 and on a socket in its own directory, and does not wait for the disk (though
what is committed outlives the server). PostgreSQL does not run as root, so root lends it to the user `postgres`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "deadlock_timeout": "100ms",
}


def _binaries() -> Path:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    assert versions, "PostgreSQL's server is needed for this test: apt-get install postgresql"
    return versions[-1]


class PostgresServer:
    """A running server. `port` stays the same over `stop` and `start`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._bin = _binaries()
        self._data = directory / "data"
        self._names = itertools.count(1)
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        settings = [f"{name} = {value}" for name, value in _QUICK.items()]
        settings += ["listen_addresses = '127.0.0.1'", f"unix_socket_directories = '{directory}'"]
        with (self._data / "postgresql.conf").open("a") as file:
            file.write("\n".join(settings) + "\n")

    def start(self) -> None:
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        log = str(self.directory / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", log, "-o", f"-p {self.port}")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate`: as if it had crashed. `fast`: it says goodbye to everyone."""
        self._run("pg_ctl", "stop", "-w", "-D", str(self._data), "-m", mode)

    def database(self) -> str:
        """A new, empty database; its URL."""
        name = f"test{next(self._names)}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def sql(self, url: str, statement: str) -> None:
        """Have this done in that database."""
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url)

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._bin / program), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stderr.decode()}"


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server, started. Its directory goes with it."""
    # Short, for a socket's path, and not below a directory that only its owner may enter.
    directory = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if os.getuid() == 0:
            shutil.chown(directory, "postgres", "postgres")
        server = PostgresServer(directory)
        server.start()
        try:
            yield server
        finally:
            if (directory / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests that do not stop it; each takes a database of its own."""
    with postgres() as server:
        yield server
