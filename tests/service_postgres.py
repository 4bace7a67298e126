"""A PostgreSQL server for tests: a separate cluster, which can be stopped and started again.

    with postgres() as server:
        url = server.database()       # the URL of an empty database
        server.stop(); server.start()

It listens on a port of 127.0.0.1 and on a socket in its own directory, and does not wait for the disk (but committed
data survives a stop of the server). PostgreSQL does not run as root; root runs it as the user `postgres`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_ports import candidate_ports

_QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "deadlock_timeout": "100ms",
}
_LIMIT_SECONDS = 100


def _binaries() -> Path:
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    assert versions, "PostgreSQL's server is needed for this test: apt-get install postgresql"
    return versions[-1]


class CommandFailed(AssertionError):
    """A program of PostgreSQL failed; the message is what it wrote to stderr."""


def _run(program: str | Path, *args: str, directory: Path) -> None:
    """Run a program, as a user that PostgreSQL accepts.

    Raises:
        CommandFailed: its exit status is not 0.
    """
    as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*as_postgres, str(program), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=directory,
        timeout=_LIMIT_SECONDS + 10,
        check=False,
    )
    if done.returncode != 0:
        raise CommandFailed(f"{program}: {done.stderr.decode()}")


def _directory() -> Path:
    """Create a directory that PostgreSQL can access."""
    # The path is short, because it is part of a socket's path, and no parent is private to its owner.
    directory = Path(tempfile.mkdtemp(prefix="pg"))
    if os.getuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    return directory


@functools.cache
def _new_cluster() -> Path:
    """Return the data directory of a cluster that was never started; a copy for each server is faster than initdb."""
    directory = _directory()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    data = directory / "data"
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
    _run(_binaries() / "initdb", "-D", str(data), *options, directory=directory)
    return data


class PostgresServer:
    """A server. `port` stays the same over `stop` and `start`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._bin = _binaries()
        self._data = directory / "data"
        self._names = itertools.count(1)
        _run("cp", "-a", str(_new_cluster()), str(self._data), directory=directory)
        settings = [f"{name} = {value}" for name, value in _QUICK.items()]
        settings += ["listen_addresses = '127.0.0.1'", f"unix_socket_directories = '{directory}'"]
        with (self._data / "postgresql.conf").open("a") as file:
            file.write("\n".join(settings) + "\n")

    def start(self) -> None:
        for port in [self.port] if self.port else candidate_ports():
            options = ["-D", str(self._data), "-l", str(self.directory / "log"), "-o", f"-p {port}"]
            try:
                self._run("pg_ctl", "start", "-w", "-t", str(_LIMIT_SECONDS), *options)
            except CommandFailed:
                if self.port or "could not bind" not in (self.directory / "log").read_text():
                    raise
            else:
                self.port = port
                return

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server. `immediate`: like a crash. `fast`: it closes its connections regularly."""
        self._run("pg_ctl", "stop", "-w", "-t", str(_LIMIT_SECONDS), "-D", str(self._data), "-m", mode)

    def database(self) -> str:
        """Create an empty database, and return its URL."""
        name = f"test{next(self._names)}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def sql(self, url: str, statement: str) -> None:
        """Execute a statement in the database of this URL."""
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url)

    def _run(self, program: str, *args: str) -> None:
        _run(self._bin / program, *args, directory=self.directory)


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Run a server; it is stopped, and its directory removed, at the end of the block."""
    directory = _directory()
    try:
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
    """One server for all tests of this worker that do not stop it; each test creates its own database."""
    with postgres() as server:
        yield server
